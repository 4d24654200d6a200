"""Devices: claims, their templates and slices. Source: `resource.k8s.io` v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import label_problem, subdomain_problem

__all__ = ["claim", "claim_template", "resource_slice", "resource_slice_update", "spec_update"]

Object = Mapping[str, Any]

_MODES: Final = ("All", "ExactCount")
_MOST_REQUESTS: Final = 32
_MOST_DEVICES: Final = 128


def claim(obj: Object) -> Iterator[Cause]:
    """Check the requests of a claim and who uses it."""
    yield from _requests(obj.get("spec") or {}, "spec.devices.requests")
    users = (obj.get("status") or {}).get("reservedFor") or ()
    if len(users) > 256:
        yield causes.too_many("status.reservedFor", len(users), 256)


def claim_template(obj: Object) -> Iterator[Cause]:
    """Check the requests of the claims that are made from the template."""
    yield from _requests((obj.get("spec") or {}).get("spec") or {}, "spec.spec.devices.requests")


def spec_update(obj: Object, old: Object) -> Iterator[Cause]:
    """What is requested stays as it is."""
    if obj.get("spec") != old.get("spec"):
        yield causes.bad("spec", obj.get("spec"), "field is immutable")


def resource_slice(obj: Object) -> Iterator[Cause]:
    """Check driver, pool, place and devices of a slice."""
    spec = obj.get("spec") or {}
    yield from causes.named(spec.get("driver"), "spec.driver", subdomain_problem)
    pool = spec.get("pool") or {}
    yield from causes.named(pool.get("name"), "spec.pool.name", subdomain_problem)
    if pool.get("resourceSliceCount", 0) <= 0:
        count = pool.get("resourceSliceCount", 0)
        yield causes.bad("spec.pool.resourceSliceCount", count, "must be greater than zero")
    words = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    given = [word for word in words if spec.get(word)]
    text = f"exactly one of {', '.join(f'`{word}`' for word in words)} is required"
    if not given:
        yield causes.required("spec", text)
    elif len(given) > 1:
        shown = f"{{{', '.join(f'`{word}`' for word in given)}}}"
        yield causes.bad("spec", shown, f"{text}, but multiple fields are set")
    devices = spec.get("devices") or ()
    if len(devices) > _MOST_DEVICES:
        yield causes.too_many("spec.devices", len(devices), _MOST_DEVICES)
    yield from _unique_names(devices, "spec.devices")


def resource_slice_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Driver, pool and node stay as they are."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    for field, now, then in (
        ("driver", new.get("driver"), was.get("driver")),
        ("pool.name", (new.get("pool") or {}).get("name"), (was.get("pool") or {}).get("name")),
        ("nodeName", new.get("nodeName"), was.get("nodeName")),
    ):
        if now != then:
            yield causes.bad(f"spec.{field}", now, "field is immutable")


def _requests(spec: Object, field: str) -> Iterator[Cause]:
    requests = (spec.get("devices") or {}).get("requests") or ()
    if len(requests) > _MOST_REQUESTS:
        yield causes.too_many(field, len(requests), _MOST_REQUESTS)
    yield from _unique_names(requests, field)
    for index, request in enumerate(requests):
        here = f"{field}[{index}]"
        exactly, first = request.get("exactly"), request.get("firstAvailable") or ()
        text = "exactly one of `exactly`, `firstAvailable` is required"
        if exactly is None and not first:
            yield causes.required(here, text)
        elif exactly is not None and first:
            yield causes.bad(here, None, f"{text}, but multiple fields are set")
        if exactly is not None:
            yield from _request(exactly, f"{here}.exactly")
        yield from _unique_names(first, f"{here}.firstAvailable")
        for place, one in enumerate(first):
            yield from _request(one, f"{here}.firstAvailable[{place}]")


def _request(request: Object, field: str) -> Iterator[Cause]:
    name = request.get("deviceClassName")
    yield from causes.named(name, f"{field}.deviceClassName", subdomain_problem)
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode not in _MODES:
        yield causes.unsupported(f"{field}.allocationMode", mode, _MODES)
    elif mode == "ExactCount" and count <= 0:
        yield causes.bad(f"{field}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        yield causes.bad(f"{field}.count", count, text)


def _unique_names(items: Any, field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name") or ""
        yield from causes.named(name, f"{field}[{index}].name", label_problem)
        if name and name in seen:
            yield causes.duplicate(f"{field}[{index}].name", name)
        seen.add(name)

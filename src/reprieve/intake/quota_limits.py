"""LimitRanges of a namespace: what containers get by default, and what they may request.

Of several LimitRanges the strictest bound and the first default count; `pod_defaults` gives them. A
default limit is the default request where a LimitRange has no other. A workload with a container
that requests more than its own limit, or for what a LimitRange forbids, is never considered; the
texts are the reference's.

Source: specification of the quota plane, section 8.1; the API's rules for LimitRanges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.core import ObjectMeta
from reprieve.api.kueue import Amounts, Container, PodSpec

__all__ = [
    "NO_LIMITS",
    "ContainerLimits",
    "Fault",
    "LimitRange",
    "container_limits",
    "faults_of",
    "message_of",
]


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """Bounds and defaults for one type of thing."""

    type: str = ""
    max: Amounts | None = None
    min: Amounts | None = None
    default: Amounts | None = None
    default_request: Amounts | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The limits of a LimitRange."""

    limits: list[LimitRangeItem] = []


class LimitRange(msgspec.Struct, frozen=True, rename="camel"):
    """A LimitRange, for its containers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What holds for containers and for whole pods of one namespace; quantities as written."""

    most: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    default: Amounts = field(default_factory=dict)
    default_request: Amounts = field(default_factory=dict)
    pod_most: Amounts = field(default_factory=dict)
    pod_least: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a container, or with the pod where `path` is empty.

    `path` is below the pod's spec. `ranged`: by a LimitRange.
    """

    path: str
    resources: tuple[str, ...]
    why: str
    ranged: bool


NO_LIMITS = ContainerLimits()


def container_limits(ranges: Iterable[LimitRange]) -> ContainerLimits:
    """Return what several LimitRanges of one namespace state together, in their names' order."""
    found = ContainerLimits()
    for each in sorted(ranges, key=lambda one: one.metadata.name):
        for item in each.spec.limits:
            if item.type == "Pod":
                _tighten(found.pod_most, item.max, -1)
                _tighten(found.pod_least, item.min, 1)
            if item.type != "Container":
                continue
            _tighten(found.most, item.max, -1)
            _tighten(found.least, item.min, 1)
            for name, default in (item.default or {}).items():
                found.default.setdefault(name, default)
            requests = {**(item.default or {}), **(item.default_request or {})}
            for name, default in requests.items():
                found.default_request.setdefault(name, default)
    return found


def faults_of(
    spec: PodSpec, limits: ContainerLimits, asked: Mapping[str, int]
) -> tuple[Fault, ...]:
    """Return what is wrong with a pod: init containers first, then containers, then the whole.

    `asked` is what the whole pod requests, in engine units.
    """
    found: list[Fault] = []
    for kind, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for index, container in enumerate(containers or ()):
            found += _faults(container, f"{kind}[{index}]", limits)
    total: Amounts = {n: f"{a}m" if n == "cpu" else a for n, a in asked.items()}
    return (*found, *_out_of_range(total, limits.pod_most, limits.pod_least, ""))


def message_of(faults: Iterable[tuple[str, Fault]]) -> str:
    """Return the message for faults, each with the path of its pod's spec; empty for none.

    Faults within a container come first, and are reported alone.
    """
    own, ranged = list[str](), list[str]()
    for at, fault in faults:
        path = f"{at}.{fault.path}" if fault.path else at
        text = f"{path}: Invalid value: {json.dumps(list(fault.resources))}: {fault.why}"
        (ranged if fault.ranged else own).append(text)
    if own:
        return f"resources validation failed: {_joined(own)}"
    return f"resources didn't satisfy LimitRange constraints: {_joined(ranged)}" if ranged else ""


def _faults(container: Container, path: str, limits: ContainerLimits) -> Iterator[Fault]:
    resources = container.resources
    if resources is None or not resources.requests:
        return
    requests = resources.requests
    above = _beyond(requests, resources.limits or {}, 1)
    if above:
        yield Fault(path, above, "requests must not exceed its limits", False)
    yield from _out_of_range(requests, limits.most, limits.least, path)


def _out_of_range(requests: Amounts, most: Amounts, least: Amounts, path: str) -> Iterator[Fault]:
    above = _beyond(requests, most, 1)
    if above:
        yield Fault(path, above, "requests must not be above the limitRange max", True)
    below = _beyond(requests, least, -1)
    if below:
        yield Fault(path, below, "requests must not be below the limitRange min", True)


def _beyond(have: Amounts, bound: Mapping[str, str | int | float], sign: int) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted(have.keys() & bound.keys())
        if sign * (_milli(have[name]) - _milli(bound[name])) > 0
    )


def _tighten(bounds: Amounts, more: Amounts | None, sign: int) -> None:
    """Keep the strictest bounds: the largest for `sign` 1, the smallest for -1."""
    for name, bound in (more or {}).items():
        known = bounds.get(name)
        if known is None or sign * (_milli(bound) - _milli(known)) > 0:
            bounds[name] = bound


def _milli(quantity: str | int | float) -> int:
    try:
        return parse_milli(quantity)
    except InvalidQuantity:
        # What cannot be read is reported elsewhere, with its path.
        return 0


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

"""Nodes, configuration, secrets, services and volume claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reprieve.local.server import causes
from reprieve.local.server.causes import Cause
from reprieve.local.server.metadata import check_labels, label_problem, qualified_name_problems
from reprieve.local.server.validation.affinity import check_taint_effect
from reprieve.local.server.validation.containers import port_name
from reprieve.local.server.validation.resources import non_negative

__all__ = [
    "config_map",
    "immutable_data",
    "node",
    "secret",
    "secret_update",
    "service",
    "service_update",
    "volume_claim",
]

Object = Mapping[str, Any]

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def node(obj: Object) -> Iterator[Cause]:
    """Check a node's taints and amounts."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        # The real server names this path too.
        field = f"metadata.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        for problem in qualified_name_problems(key):
            yield causes.bad(f"{field}.key", key, problem)
        yield from check_taint_effect(effect, f"{field}.effect")
        if (key, effect) in seen:
            yield causes.duplicate(field, taint)
        seen.add((key, effect))
    status = obj.get("status") or {}
    for word in ("capacity", "allocatable"):
        for name, amount in (status.get(word) or {}).items():
            yield from non_negative(amount, f"status.{word}[{name}]")


def _keys(data: Any, field: str) -> Iterator[Cause]:
    for key in data or ():
        if not _KEY.fullmatch(key):
            yield causes.bad(
                f"{field}[{key}]",
                key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
                "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
                f"'{_KEY.pattern}')",
            )
        elif len(key) > 253:
            yield causes.bad(f"{field}[{key}]", key, "must be no more than 253 characters")


_LARGEST: Final = 1024 * 1024


def config_map(obj: Object) -> Iterator[Cause]:
    """Check keys and size."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    yield from _keys(data, "data")
    yield from _keys(binary, "binaryData")
    for key in data:
        if key in binary:
            yield causes.bad(f"data[{key}]", key, "duplicate of key present in binaryData")
    if sum(len(value) for value in (*data.values(), *binary.values())) > _LARGEST:
        yield causes.too_long("", _LARGEST)


def secret(obj: Object) -> Iterator[Cause]:
    """Check the keys, and that a pair for TLS is one."""
    data = obj.get("data") or {}
    yield from _keys(data, "data")
    if obj.get("type") == "kubernetes.io/tls":
        for key in ("tls.crt", "tls.key"):
            if key not in data:
                yield causes.required(f"data[{key}]")


def immutable_data(obj: Object, old: Object) -> Iterator[Cause]:
    """Yield changes of an object that says `immutable: true`."""
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield causes.forbidden("immutable", "field is immutable when `immutable` is set")
    for word in ("data", "binaryData"):
        if obj.get(word) != old.get(word):
            yield causes.forbidden(word, "field is immutable when `immutable` is set")


def secret_update(obj: Object, old: Object) -> Iterator[Cause]:
    """A secret's type stays; immutable data too."""
    if obj.get("type") != old.get("type"):
        yield causes.bad("type", obj.get("type"), "field is immutable")
    yield from immutable_data(obj, old)


def service(obj: Object) -> Iterator[Cause]:
    """Check a service's type and ports."""
    spec = obj.get("spec") or {}
    kind = spec.get("type")
    if kind not in _SERVICE_TYPES:
        yield causes.unsupported("spec.type", kind, _SERVICE_TYPES)
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and kind != "ExternalName":
        yield causes.required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield causes.required("spec.externalName")
    affinity = spec.get("sessionAffinity")
    if affinity not in ("ClientIP", "None"):
        yield causes.unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    yield from check_labels(spec.get("selector") or {}, "spec.selector")
    names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        if (port.get("protocol"), port.get("port")) in seen:
            shown = {"Name": "", "Protocol": port.get("protocol"), "AppProtocol": None}
            shown |= {"Port": port.get("port"), "TargetPort": 0, "NodePort": 0}
            yield causes.duplicate(field, shown)
        seen.add((port.get("protocol"), port.get("port")))
        name = port.get("name") or ""
        if len(ports) > 1 and not name:
            yield causes.required(f"{field}.name")
        elif name and (problem := label_problem(name)) is not None:
            yield causes.bad(f"{field}.name", name, problem)
        if name and name in names:
            yield causes.duplicate(f"{field}.name", name)
        names.add(name)
        number = port.get("port", 0)
        if not 1 <= number <= 65535:
            yield causes.bad(f"{field}.port", number, "must be between 1 and 65535, inclusive")
        protocol = port.get("protocol")
        if protocol not in ("SCTP", "TCP", "UDP"):
            yield causes.unsupported(f"{field}.protocol", protocol, ("SCTP", "TCP", "UDP"))
        wanted = port.get("targetPort")
        if isinstance(wanted, str):
            yield from port_name(wanted, f"{field}.targetPort")
        elif wanted is not None and not 1 <= wanted <= 65535:
            text = "must be between 1 and 65535, inclusive"
            yield causes.bad(f"{field}.targetPort", wanted, text)
        node_port = port.get("nodePort") or 0
        if node_port and not 30_000 <= node_port <= 32_767:
            yield causes.bad(
                f"{field}.nodePort",
                node_port,
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            )


def service_update(obj: Object, old: Object) -> Iterator[Cause]:
    """A cluster address stays once given."""
    new, was = obj.get("spec") or {}, old.get("spec") or {}
    address = was.get("clusterIP")
    if address and new.get("clusterIP") != address and new.get("type") == was.get("type"):
        yield causes.bad("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set")


def volume_claim(obj: Object) -> Iterator[Cause]:
    """Check access modes and the amount asked for."""
    spec = obj.get("spec") or {}
    if not spec.get("accessModes"):
        yield causes.required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield causes.required("spec.resources[storage]")

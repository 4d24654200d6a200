"""Nodes, configuration, secrets and volume claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import qualified_name_problems
from kubelocal.server.validation.affinity import check_taint_effect
from kubelocal.server.validation.resources import non_negative

__all__ = [
    "config_map",
    "immutable_data",
    "node",
    "secret",
    "secret_update",
    "volume_claim",
]

Object = Mapping[str, Any]

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)


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
    """Yield changes of an object that states `immutable: true`."""
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


def volume_claim(obj: Object) -> Iterator[Cause]:
    """Check access modes and the amount requested."""
    spec = obj.get("spec") or {}
    if not spec.get("accessModes"):
        yield causes.required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield causes.required("spec.resources[storage]")

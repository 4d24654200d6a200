"""What is sent with writes: objects, what changed in them, delete options, evictions, bindings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from reprieve.kube.resource import Resource

__all__ = [
    "NO_ANNOTATIONS",
    "Json",
    "PatchType",
    "Propagation",
    "binding",
    "delete_options",
    "encoded",
    "eviction",
    "merge_changes",
]

Json = dict[str, Any]
NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


class PatchType(StrEnum):
    """How the server reads the body of a patch: its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What becomes of a deleted object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


def encoded(resource: Resource, obj: Any) -> bytes:
    """Return the object, with `apiVersion` and `kind` where a dict leaves them out."""
    if isinstance(obj, dict):
        obj = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
    return msgspec.json.encode(obj)


def merge_changes(before: Any, after: Any) -> Json:
    """Return what a merge patch holds to lead from one struct to the other: None removes."""
    return _changes(msgspec.to_builtins(before), msgspec.to_builtins(after))


def _changes(old: Json, new: Json) -> Json:
    patch: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        known = old.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            # A merge patch keeps what it does not name.
            if changed := _changes(known, value):
                patch[name] = changed
        elif known != value:
            patch[name] = value
    return patch


def delete_options(
    uid: str, resource_version: str, propagation: Propagation | None, grace_seconds: int | None
) -> bytes:
    """Return DeleteOptions; empty and None leave an option to the server."""
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    return _json(
        apiVersion="v1",
        kind="DeleteOptions",
        preconditions=_given(preconditions),
        propagationPolicy=propagation,
        gracePeriodSeconds=grace_seconds,
    )


def eviction(namespace: str, pod: str, uid: str, grace_seconds: int | None) -> bytes:
    """Return a `policy/v1` Eviction."""
    options = {"preconditions": _given({"uid": uid}), "gracePeriodSeconds": grace_seconds}
    return _json(
        apiVersion="policy/v1",
        kind="Eviction",
        metadata={"name": pod, "namespace": namespace},
        deleteOptions=_given(options),
    )


def binding(namespace: str, pod: str, node: str, uid: str, annotations: Mapping[str, str]) -> bytes:
    """Return a Binding of a pod to a node, which gives the pod these annotations."""
    return _json(
        apiVersion="v1",
        kind="Binding",
        metadata=_given(
            {"name": pod, "namespace": namespace, "uid": uid, "annotations": dict(annotations)}
        ),
        target={"apiVersion": "v1", "kind": "Node", "name": node},
    )


def _json(**fields: Any) -> bytes:
    return msgspec.json.encode(_given(fields))


def _given(fields: Json) -> Json:
    """Return the fields without None, empty strings and empty mappings; zero stays."""
    return {key: value for key, value in fields.items() if value not in (None, "", {})}

"""One object, several served versions: how it is kept and how each version sees it.

Custom kinds convert by name only (strategy None). The one built-in pair with different fields is
Event: `events.k8s.io/v1` and `v1` are two views of the same objects, kept as `v1`.
"""

from __future__ import annotations

from typing import Any, Final

from reprieve.local.server.kinds import Kind, Registry

__all__ = ["from_storage", "shelf", "to_storage"]

# events.k8s.io/v1 -> v1
_EVENT_FIELDS: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENT_FIELDS_BACK: Final = {core: new for new, core in _EVENT_FIELDS.items()}


def shelf(kind: Kind) -> str:
    """Return the name under which the store keeps objects of `kind`, whatever the version."""
    return "events" if _is_new_event(kind) else kind.resource


def to_storage(registry: Registry, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` of version `kind` as it is kept, apiVersion and kind first."""
    if _is_new_event(kind):
        return {"apiVersion": "v1", "kind": "Event", **_renamed(obj, _EVENT_FIELDS)}
    stored = kind if kind.stored else registry.stored(kind.group, kind.plural) or kind
    return {**_head(stored), **obj, **_head(stored)}


def from_storage(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a kept object in version `kind`."""
    if _is_new_event(kind):
        return {**_head(kind), **_renamed(obj, _EVENT_FIELDS_BACK)}
    if obj.get("apiVersion") == kind.api_version:
        return obj
    return {**obj, **_head(kind)}


def is_kept_as(kind: Kind, body: bytes) -> bool:
    """Return whether the kept bytes already are version `kind`."""
    return body.startswith(
        b'{"apiVersion":"%b","kind":"%b"' % (kind.api_version.encode(), kind.kind.encode())
    )


def _head(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def _is_new_event(kind: Kind) -> bool:
    return kind.plural == "events" and kind.group == "events.k8s.io"


def _renamed(obj: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {
        names.get(key, key): value
        for key, value in obj.items()
        if key not in ("apiVersion", "kind")
    }

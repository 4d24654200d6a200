"""What one snapshot holds otherwise than another, and the same change to a cluster at rest.

Until it came to rest the planes have written to the cluster: of an object that is there in both
snapshots only the fields are changed that differ between these, lists as a whole. What was deleted
removes nothing else and is not replaced: its controllers are assumed not to miss it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reprieve.kube.bodies import Json
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import KindKey, Snapshot

__all__ = ["Changes", "changed", "differences"]

#: An object before and after, by kind, namespace and name; None after: it was deleted.
Changes = Mapping[KindKey, Mapping[tuple[str, str], tuple[bytes, bytes | None]]]


def differences(before: Snapshot, after: Snapshot) -> Changes:
    """Return what has changed or was deleted, where nothing was created."""
    found: dict[KindKey, dict[tuple[str, str], tuple[bytes, bytes | None]]] = {}
    for kind, listed in before.kinds.items():
        other = after.kinds[kind].objects
        if other is listed.objects:
            continue
        changes: dict[tuple[str, str], tuple[bytes, bytes | None]] = {}
        for name, raw in listed.objects.items():
            new = other.get(name)
            if new is not raw and new != raw:
                changes[name] = raw, new
        if changes:
            found[kind] = changes
    return found


def changed(overlay: Overlay, changes: Changes) -> None:
    """Change a cluster so."""
    for kind, objects in changes.items():
        resource = overlay.table(*kind)
        for (namespace, name), (before, after) in objects.items():
            current = None if resource is None else overlay.get(resource, namespace, name)
            if resource is None or current is None:
                continue  # the planes have ended it themselves
            if after is None:
                overlay.drop(kind, (namespace, name))
            else:
                old, new = msgspec.json.decode(before), msgspec.json.decode(after)
                overlay.change(resource, _moved(current, old, new))


def _moved(current: Json, old: Json, new: Json) -> Json:
    """Return an object with what differs between two others."""
    result = {name: value for name, value in current.items() if name in new or name not in old}
    for name, value in new.items():
        if name not in old or old[name] != value:
            parts: tuple[Any, ...] = result.get(name), old.get(name), value
            nested = all(isinstance(part, dict) for part in parts)
            result[name] = _moved(*parts) if nested else value
    return result

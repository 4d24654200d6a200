"""Patches: what an object is after a merge patch or a strategic merge patch.

Server-side apply is taken for a strategic merge: what an applier leaves out stays, which is so for
all that the planes apply. Source: RFC 7386; the API conventions of Kubernetes, strategic merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from reprieve.kube.bodies import Json

__all__ = ["merged", "strategically_merged"]

#: Lists that are merged item by item, and the field by which their items are known.
_MERGE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "conditions": "type",
        "containers": "name",
        "initContainers": "name",
        "volumes": "name",
        "env": "name",
        "ownerReferences": "uid",
        "resourceClaimStatuses": "name",
        "schedulingGates": "name",
    }
)
#: Lists of values that are joined.
_SETS: Final = frozenset({"finalizers"})


def merged(old: Any, patch: Any) -> Any:
    """Return what a merge patch makes of a value; null takes a field away."""
    if not isinstance(patch, dict):
        return patch
    result: Json = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def strategically_merged(old: Any, patch: Any) -> Any:
    """Return what a strategic merge patch makes of a value."""
    if not isinstance(patch, dict):
        return patch
    result: Json = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, list) and name in _MERGE_KEYS:
            result[name] = _by_key(result.get(name) or [], value, _MERGE_KEYS[name])
        elif isinstance(value, list) and name in _SETS:
            result[name] = list(dict.fromkeys([*(result.get(name) or []), *value]))
        else:
            result[name] = strategically_merged(result.get(name), value)
    return result


def _by_key(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    items = {each.get(key): each for each in old}
    for each in patch:
        if each.get("$patch") == "delete":
            items.pop(each.get(key), None)
        else:
            items[each.get(key)] = strategically_merged(items.get(each.get(key)), each)
    return list(items.values())

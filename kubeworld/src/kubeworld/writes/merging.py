"""Patches: what an object is after a JSON merge patch or a strategic merge patch.

Neither changes what it is given; parts without changes are those of the object. A strategic merge
patch merges lists with a merge key item by item, and obeys the directives `$patch`, `$retainKeys`,
`$setElementOrder/..` and `$deleteFromPrimitiveList/..`. The `Structure` of the kind states which
lists have a key; `BY_NAME` guesses it from the names of fields, as they are in pods and in what
belongs to them. Source: RFC 7386; sig-api-machinery/strategic-merge-patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kubeworld.writes.refusals import bad_request

__all__ = ["BY_NAME", "Structure", "merge_patch", "strategic_merge"]

_ORDER: Final = "$setElementOrder/"
_DELETE_VALUES: Final = "$deleteFromPrimitiveList/"


class Structure(Protocol):
    """How one value is composed."""

    @property
    def merge_key(self) -> str | None:
        """The field by which items of a list are known; empty: they are a set; None: neither."""
        ...

    def field(self, name: str) -> Structure:
        """Return the structure of a field."""
        ...

    def item(self) -> Structure:
        """Return the structure of the items of a list."""
        ...


@dataclass(frozen=True, slots=True)
class _ByName:
    """The structure of what has this merge key, whose fields are known by their names."""

    merge_key: str | None = None

    def field(self, name: str) -> Structure:
        return _FIELDS.get(name, BY_NAME)

    def item(self) -> Structure:
        return BY_NAME


#: The structure of objects whose kind is not known.
BY_NAME: Final[Structure] = _ByName()
_FIELDS: Final[Mapping[str, Structure]] = {
    **{
        name: _ByName("name")
        for name in (
            *("containers", "initContainers", "env", "volumes"),
            *("resourceClaimStatuses", "schedulingGates"),
        )
    },
    "conditions": _ByName("type"),
    "ownerReferences": _ByName("uid"),
    "finalizers": _ByName(""),
}


def merge_patch(current: Any, patch: Any) -> Any:
    """Return what a JSON merge patch makes of a value: null removes a field."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(current) if isinstance(current, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def strategic_merge(
    structure: Structure, current: dict[str, Any], patch: dict[str, Any]
) -> dict[str, Any]:
    """Return what a strategic merge patch makes of an object.

    Raises:
        Refused: 400, an unknown directive, or an item without its key.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type {directive!r} in the patch")
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        current = {key: value for key, value in current.items() if key in retained}
    else:
        current = dict(current)
    for key, value in patch.items():
        if key[:1] == "$":
            _obey(structure, current, key, value)
            continue
        inner = structure.field(key)
        before = current.get(key)
        if value is None:
            current.pop(key, None)
        elif isinstance(value, dict):
            current[key] = strategic_merge(inner, before if isinstance(before, dict) else {}, value)
        elif isinstance(value, list) and inner.merge_key is not None:
            order = patch.get(_ORDER + key)
            current[key] = _merge_list(
                inner,
                before if isinstance(before, list) else [],
                value,
                order if isinstance(order, list) else None,
            )
        else:
            current[key] = value
    return current


def _obey(structure: Structure, current: dict[str, Any], directive: str, value: Any) -> None:
    """Obey a directive beside the field that it is about."""
    if directive.startswith(_DELETE_VALUES) and isinstance(value, list):
        name = directive.removeprefix(_DELETE_VALUES)
        if isinstance(current.get(name), list):
            current[name] = [one for one in current[name] if one not in value]
    elif directive.startswith(_ORDER) and isinstance(value, list):
        name = directive.removeprefix(_ORDER)
        inner = structure.field(name)
        if isinstance(current.get(name), list) and inner.merge_key is not None:
            current[name] = _ordered(inner.merge_key, current[name], current[name], value)


def _merge_list(
    structure: Structure, current: list[Any], patch: list[Any], order: list[Any] | None
) -> list[Any]:
    key = structure.merge_key or ""
    if not key:
        result = [*current, *(one for one in patch if one not in current)]
        return _ordered("", current, result, patch if order is None else order)
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if isinstance(one, dict) and "$patch" not in one]
    result = list(current)
    for one in patch:
        if not isinstance(one, dict) or key not in one:
            raise bad_request(f"map: {_in_go(one)} does not contain declared merge key: {key}")
        places = [place for place, kept in enumerate(result) if _key(key, kept) == one[key]]
        if one.get("$patch") == "delete":
            result = [kept for kept in result if _key(key, kept) != one[key]]
        elif places:
            result[places[0]] = strategic_merge(structure.item(), result[places[0]], one)
        else:
            result.append(strategic_merge(structure.item(), {}, one))
    # What is new comes first: the API orders by the patch where it has no order of its own.
    return _ordered(key, current, result, patch if order is None else order)


def _in_go(value: Any) -> str:
    """Return a value as Go prints it."""
    match value:
        case dict():
            return f"map[{' '.join(f'{key}:{_in_go(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_in_go, value))}]"
        case bool():
            return str(value).lower()
        case None:
            return "<nil>"
    return str(value)


def _key(key: str, item: Any) -> Any:
    if not key:
        return item
    return item.get(key) if isinstance(item, dict) else None


def _ordered(key: str, before: list[Any], items: list[Any], order: list[Any]) -> list[Any]:
    """Sort the items that `order` names as it states; the others keep their place among them."""
    wanted = [_key(key, one) for one in order]
    named = sorted(
        (one for one in items if _key(key, one) in wanted),
        key=lambda one: wanted.index(_key(key, one)),
    )
    others = [one for one in items if _key(key, one) not in wanted]
    places = [_key(key, one) for one in before]
    result = []
    while named and others:
        name, other = _key(key, named[0]), _key(key, others[0])
        other_first = (
            other in places and name in places and places.index(other) < places.index(name)
        )
        result.append((others if other_first else named).pop(0))
    return [*result, *named, *others]

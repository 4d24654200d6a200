"""Who owns which field: `metadata.managedFields`, its sets and what an update does to them.

A set is kept in the form that objects carry (FieldsV1): a nested dictionary whose keys are path
elements (`f:name`, `k:{...}` for items of list maps, `v:...` for items of sets); an empty
dictionary is an owned leaf, "." marks a container that is itself owned. Source: KEP-555 and
structured-merge-diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.structure import Structure, structure_of
from kubeworld.units.instants import Nanos, format_instant

__all__ = [
    "Fields",
    "Manager",
    "changed_fields",
    "difference",
    "element",
    "fields_of",
    "intersection",
    "managers_of",
    "owned_paths",
    "record_update",
    "union",
    "write_managers",
]

Fields = dict[str, Any]
_SELF: Final = "."

# Fields without an owner.
_STRIPPED: Final = frozenset(("f:apiVersion", "f:kind"))
_STRIPPED_METADATA: Final = frozenset(
    f"f:{name}"
    for name in (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
)


@dataclass(slots=True)
class Manager:
    """One entry of managedFields; two entries are the same manager when `key` is equal."""

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: Fields

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.operation, self.subresource

    def entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def managers_of(obj: Mapping[str, Any]) -> list[Manager]:
    """Read managedFields; entries that are not understood are dropped."""
    found = obj["metadata"].get("managedFields")
    return [
        Manager(
            str(entry.get("manager", "")),
            str(entry.get("operation", "Update")),
            str(entry.get("apiVersion", "")),
            str(entry.get("subresource", "")),
            str(entry.get("time", "")),
            entry["fieldsV1"],
        )
        for entry in (found if isinstance(found, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("fieldsV1"), dict)
    ]


def write_managers(obj: dict[str, Any], managers: list[Manager]) -> None:
    """Write managedFields in the real server's order; managers without fields are removed."""
    kept = sorted(
        (one for one in managers if one.fields),
        key=lambda one: (one.operation, one.subresource != "", one.time, one.name),
    )
    if kept:
        obj["metadata"]["managedFields"] = [one.entry() for one in kept]
    else:
        obj["metadata"].pop("managedFields", None)


def record_update(
    kind: Kind,
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str,
    now: Nanos,
    subresource: str,
) -> None:
    """Give `manager` the fields that differ between `old` and `new`, and remove them from others.

    A request that sends other managedFields changes them itself; one that empties them resets.
    """
    before = [] if old is None else managers_of(old)
    sent = new["metadata"].get("managedFields")
    if isinstance(sent, list) and old is not None and sent != old["metadata"].get("managedFields"):
        before = [] if sent in ([], [{}]) else managers_of(new)
    base = _empty(kind, new) if old is None else old
    written, removed = changed_fields(structure_of(kind), base, new)
    written, removed = stripped(written), stripped(removed)
    if not written and not removed:
        write_managers(new, before) if old is None else _keep(new, old, before)
        return
    gone = union(written, removed)
    updated = Manager(
        manager, "Update", kind.api_version, subresource, format_instant(now), written
    )
    others = []
    for one in before:
        if one.key == updated.key:
            updated.fields = union(difference(one.fields, removed), written)
        else:
            one.fields = difference(one.fields, gone)
            others.append(one)
    write_managers(new, [*others, updated])


def _keep(new: dict[str, Any], old: dict[str, Any], managers: list[Manager]) -> None:
    """Nothing was changed: leave the entries as they are, so that the write is none at all."""
    sent = new["metadata"].get("managedFields")
    known = old["metadata"].get("managedFields")
    if sent is not None and sent != known:
        write_managers(new, managers)
    elif known is not None:
        new["metadata"]["managedFields"] = known
    else:
        new["metadata"].pop("managedFields", None)


def _empty(kind: Kind, new: dict[str, Any]) -> dict[str, Any]:
    """Return what a create is compared with: parts that exist in every object of a kind."""
    base: dict[str, Any] = {"metadata": {}}
    if kind.custom is not None:
        return base
    for part in ("spec", "status"):
        if isinstance(new.get(part), dict):
            base[part] = {}
    spec = new.get("spec") or {}
    if isinstance(spec.get("containers"), list):
        base["spec"]["containers"] = []
    if isinstance(spec.get("template"), dict):
        base["spec"]["template"] = {"metadata": {}, "spec": {"containers": []}}
    for part in ("strategy", "updateStrategy"):
        if isinstance(spec.get(part), dict):
            base["spec"][part] = {}
    return base


def stripped(fields: Fields) -> Fields:
    """Return `fields` without those that have no owner."""
    kept = {key: value for key, value in fields.items() if key not in _STRIPPED}
    metadata = kept.get("f:metadata")
    if isinstance(metadata, dict):
        inner = {key: value for key, value in metadata.items() if key not in _STRIPPED_METADATA}
        inner.pop(_SELF, None)
        if inner:
            kept["f:metadata"] = inner
        else:
            del kept["f:metadata"]
    return kept


# Values to sets


def element(structure: Structure, item: Any) -> str | None:
    """Return the path element of a list item, None for a list that is owned as a whole."""
    if structure.list_type == "set":
        return "v:" + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()
    if structure.list_type != "map" or not isinstance(item, dict):
        return None
    if not structure.defaults and len(structure.list_keys) == 1:
        (only,) = structure.list_keys
        return _key_element(only, item[only]) if type(item.get(only)) is str else _keys(item, only)
    defaults = dict(structure.defaults)
    keys = {
        key: item.get(key, defaults.get(key))
        for key in structure.list_keys
        if key in item or key in defaults
    }
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


@lru_cache(maxsize=8192)
def _key_element(key: str, value: str) -> str:
    return f"k:{orjson.dumps({key: value}).decode()}"


def _keys(item: Mapping[str, Any], key: str) -> str:
    keys = {key: item[key]} if key in item else {}
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def children(structure: Structure, value: Any) -> dict[str, tuple[Structure, Any]] | None:
    """Return the separately owned parts of `value`, or None when it is owned as a whole."""
    if structure.atomic:
        return None
    if isinstance(value, dict):
        return {f"f:{key}": (structure.field(key), inner) for key, inner in value.items()}
    if isinstance(value, list) and structure.list_type in ("map", "set"):
        parts: dict[str, tuple[Structure, Any]] = {}
        for item in value:
            name = element(structure, item)
            if name is None:
                return None
            parts[name] = (structure.item(), item)
        return parts
    return None


def fields_of(structure: Structure, value: Any) -> Fields:
    """Return the set that applying `value` owns: leaves, list items and empty containers."""
    parts = children(structure, value)
    owned: Fields = {}
    for name, (inner, part) in (parts or {}).items():
        below = fields_of(inner, part)
        if name.startswith("k:"):
            below = {_SELF: {}, **below}
        owned[name] = below
    return owned


def all_of(structure: Structure, value: Any) -> Fields:
    """Return the set of a value that is new as a whole, its containers included."""
    if not value or structure.atomic or not isinstance(value, dict | list):
        return {}
    owned: Fields = {_SELF: {}}
    if isinstance(value, dict):
        for key, part in value.items():
            inner = part.__class__ is dict or part.__class__ is list
            owned[f"f:{key}"] = all_of(structure.field(key), part) if inner else {}
        return owned
    if structure.list_type not in ("map", "set"):
        return {}
    items = structure.item()
    for part in value:
        name = element(structure, part)
        if name is None:
            return {}
        owned[name] = all_of(items, part)
    return owned


def changed_fields(structure: Structure, old: Any, new: Any) -> tuple[Fields, Fields]:
    """Return the sets of fields that were added or modified, and of those that were removed."""
    if not old:
        added = all_of(structure, new)
        added.pop(_SELF, None)
        return added, {}
    if type(old) is dict and type(new) is dict and not structure.atomic:
        # Most parts of most updates are as they were.
        same = [key for key, part in new.items() if key in old and part == old[key]]
        if same:
            old = {key: part for key, part in old.items() if key not in same}
            new = {key: part for key, part in new.items() if key not in same}
    before, after = children(structure, old) or {}, children(structure, new) or {}
    written: Fields = {}
    removed: Fields = {}
    for name, (inner, value) in after.items():
        if name not in before:
            written[name] = all_of(inner, value)
            continue
        past = before[name][1]
        if past == value:
            continue
        was, now = children(inner, past), children(inner, value)
        if was is None or now is None or type(past) is not type(value):
            written[name] = all_of(inner, value)
            removed_below = all_of(inner, past)
            if removed_below:
                removed[name] = removed_below
            continue
        if not now:
            written[name] = {}
        written_below, removed_below = changed_fields(inner, past, value)
        if written_below:
            written[name] = written_below
        if removed_below:
            removed[name] = removed_below
    for name, (inner, past) in before.items():
        if name not in after:
            removed[name] = all_of(inner, past)
    return written, removed


# Sets among themselves


def _is_member(node: Fields) -> bool:
    return not node or _SELF in node


def _below(node: Fields) -> Iterator[tuple[str, Fields]]:
    return ((key, value) for key, value in node.items() if key != _SELF)


def _node(member: bool, below: Fields) -> Fields | None:
    """Return the form of a node, None when nothing of it is in the set."""
    if not below:
        return {} if member else None
    return {_SELF: {}, **below} if member else below


def union(left: Fields, right: Fields) -> Fields:
    """Return what is in either of two whole sets."""
    result = {key: value for key, value in left.items() if key != _SELF}
    for key, value in _below(right):
        if key not in result:
            result[key] = value
            continue
        member = _is_member(result[key]) or _is_member(value)
        result[key] = _node(member, union(result[key], value)) or {}
    return result


def difference(left: Fields, right: Fields) -> Fields:
    """Return what is in the left set only."""
    result: Fields = {}
    for key, value in _below(left):
        other = right.get(key)
        if other is None:
            result[key] = value
            continue
        member = _is_member(value) and not _is_member(other)
        node = _node(member, difference(value, other))
        if node is not None:
            result[key] = node
    return result


def intersection(left: Fields, right: Fields) -> Fields:
    """Return what is in both sets."""
    result: Fields = {}
    for key, value in _below(left):
        other = right.get(key)
        if other is None:
            continue
        node = _node(_is_member(value) and _is_member(other), intersection(value, other))
        if node is not None:
            result[key] = node
    return result


def owned_paths(fields: Fields, path: str = "") -> Iterator[str]:
    """Yield the paths of a set as conflicts name them: `.spec.containers[name="a"].image`."""
    for key, value in sorted(_below(fields)):
        here = path + _path_text(key)
        if _is_member(value):
            yield here
        yield from owned_paths(value, here)


def _path_text(key: str) -> str:
    form, _, rest = key.partition(":")
    if form == "f":
        return f".{rest}"
    if form == "k":
        pairs = (
            f"{name}={orjson.dumps(value).decode()}" for name, value in orjson.loads(rest).items()
        )
        return f"[{','.join(pairs)}]"
    return f"[={rest}]"

"""Fields of an object by path: names joined by dots, `*` for every item or value.

The last name may have dots itself, as those of annotations do. AppWrappers have paths of their own,
with the indexes of lists and without a search: `template.spec.workerGroupSpecs[0].template`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeworld.units.untrusted import LONGEST_NAME, Unreadable, read_integer

__all__ = ["first", "indexed", "set_at", "total", "values"]

Json = dict[str, Any]


def values(obj: Any, path: str) -> Iterator[Any]:
    """Yield what stands at `path`, nothing where it leads nowhere."""
    if obj is None:
        return
    if not path:
        yield obj
        return
    head, _, rest = path.partition(".")
    if head == "*":
        items = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ()
        for item in items:
            yield from values(item, rest)
    elif isinstance(obj, dict):
        yield from values(obj[path], "") if path in obj else values(obj.get(head), rest)


def first(obj: Any, path: str) -> Any:
    """Return what stands first at `path`, or None."""
    return next(values(obj, path), None)


def indexed(obj: Any, path: str) -> Any:
    """Return what stands at a path that a tenant wrote, names and indexes, or None."""
    if len(path) > LONGEST_NAME:
        return None
    for step in path.split("."):
        name, *indexes = step.split("[")
        obj = obj.get(name) if isinstance(obj, dict) else None
        for index in indexes:
            if not isinstance(obj, list) or not index.endswith("]"):
                return None
            try:
                obj = obj[read_integer(index[:-1], 0, len(obj) - 1)]
            except Unreadable:
                return None
    return obj


def total(obj: Any, path: str) -> int:
    """Return the sum of numbers at `path`; a list counts its items."""
    found = 0
    for value in values(obj, path):
        if isinstance(value, list):
            found += len(value)
        elif isinstance(value, int):
            found += value
    return found


def set_at(obj: Json, path: str, value: Any) -> None:
    """Write `value` at `path`, making the objects on the way."""
    *way, last = path.split(".")
    for name in way:
        obj = obj.setdefault(name, {})
    obj[last] = value

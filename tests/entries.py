"""How many entries the containers have that an object holds, by where they hang.

For tests that memory is bounded: entries are counted, which no allocator and no other process has a
part in. Followed are objects of the product and of asyncio, and whatever containers they are in.
Of what is packed in arrays the bytes are counted (`packed`), as far as they are used.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from typing import Final

__all__ = ["entries", "packed"]

_FOLLOWED: Final = ("reprieve.", "asyncio.")
_LEAVES: Final = (str, bytes, int, float, bool, type(None), type)


def entries(root: object) -> Counter[str]:
    """Return the entries by path; what hangs in several places counts in the first."""
    found: Counter[str] = Counter()
    for path, each in _held(root):
        if isinstance(each, Mapping | Set | list | deque):
            found[path] += len(each)
    return found


def packed(root: object) -> Counter[str]:
    """Return the bytes of arrays by path."""
    found: Counter[str] = Counter()
    for path, each in _held(root):
        if isinstance(each, array):
            found[path] += len(each) * each.itemsize
        elif isinstance(each, bytearray):
            found[path] += len(each)
    return found


def _held(root: object) -> Iterator[tuple[str, object]]:
    """Yield all that an object holds and is no leaf, each once, with its path."""
    seen: set[int] = set()
    waiting = deque([(type(root).__name__, root)])
    while waiting:
        path, each = waiting.popleft()
        if isinstance(each, _LEAVES) or id(each) in seen:
            continue
        seen.add(id(each))
        yield path, each
        if isinstance(each, Mapping | Set | list | tuple | deque):
            waiting.extend((f"{path}[]", inside) for inside in _inside(each))
        elif type(each).__module__.startswith(_FOLLOWED):
            waiting.extend((f"{path}.{name}", part) for name, part in _parts(each))


def _inside(each: object) -> Iterator[object]:
    if isinstance(each, Mapping):
        yield from each.keys()
        yield from each.values()
    elif isinstance(each, Set | list | tuple | deque):
        yield from each


def _parts(each: object) -> Iterator[tuple[str, object]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        for name in (*getattr(kind, "__slots__", ()), *getattr(kind, "__struct_fields__", ())):
            if hasattr(each, name):
                yield name, getattr(each, name)

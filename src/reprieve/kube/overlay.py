"""What this process wrote and no watch has shown yet: it counts until that version comes.

1. A write is newer than what the watch shows as long as its resourceVersion is.
2. What the watch shows at that version or a later one replaces it, and so does a deletion.
3. Of two answers the one of the later version counts, in whatever order they come.

Versions of one kind are compared as integers (`kube.objects.version_number`). Source: the design's
"State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Unseen", "Write"]

Key = TypeVar("Key")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """A write as it was answered."""

    version: int
    value: T


class Unseen(Generic[Key, T]):
    """The writes of one kind that are not seen yet, by any key of the object."""

    def __init__(self) -> None:
        self._writes: dict[Key, Write[T]] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[tuple[Key, T]]:
        return ((key, write.value) for key, write in self._writes.items())

    def wrote(self, key: Key, version: int, value: T) -> None:
        """Hold what was written as this version, unless something newer is held."""
        held = self._writes.get(key)
        if held is None or held.version <= version:
            self._writes[key] = Write(version, value)

    def get(self, key: Key) -> T | None:
        """Return what was written, None where the watch shows all."""
        held = self._writes.get(key)
        return None if held is None else held.value

    def over(self, key: Key, seen: int) -> T | None:
        """Return what counts over what the watch shows at the version `seen`, None for nothing."""
        self.seen(key, seen)
        return self.get(key)

    def seen(self, key: Key, version: int) -> Write[T] | None:
        """The watch shows this version; return the write that it replaces."""
        held = self._writes.get(key)
        if held is None or held.version > version:
            return None
        return self._writes.pop(key)

    def forget(self, key: Key) -> None:
        """The object was deleted."""
        self._writes.pop(key, None)

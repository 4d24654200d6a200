"""A column of texts that is copied in proportion to what has changed.

A copy of 95,000 texts touches each of them, which costs more than all numeric columns together;
here a copy shares the chunks in which nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar, overload

__all__ = ["CHUNK", "TextColumn", "Texts", "places_of", "texts_at"]

_SHIFT: Final = 7
CHUNK: Final = 1 << _SHIFT

T = TypeVar("T", bound=str)


class Texts(Sequence[T]):
    """Texts that never change."""

    __slots__ = ("_length", "chunks")

    def __init__(self, chunks: tuple[tuple[T, ...], ...]) -> None:
        """All chunks but the last are full."""
        self.chunks = chunks
        self._length = (len(chunks) - 1) * CHUNK + len(chunks[-1]) if chunks else 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.chunks)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self.chunks[index // CHUNK][index % CHUNK]

    def __repr__(self) -> str:
        return f"Texts({tuple(self)!r})"


def texts_at(texts: Sequence[T], places: Iterable[int]) -> list[T]:
    """Return the texts of these places, none of them negative; of many faster than one by one."""
    if not isinstance(texts, Texts):
        return [texts[place] for place in places]
    chunks, within = texts.chunks, CHUNK - 1
    return [chunks[place >> _SHIFT][place & within] for place in places]


def places_of(texts: Sequence[T], wanted: frozenset[T]) -> dict[T, int]:
    """Return the places of those of the texts that are wanted; of equal texts the first one."""
    if not isinstance(texts, Texts):
        texts = Texts((tuple(texts),))
    found: dict[T, int] = {}
    first = 0
    for chunk in texts.chunks:
        for text in wanted.intersection(chunk):
            found.setdefault(text, first + chunk.index(text))
        first += len(chunk)
    return found


class TextColumn(Generic[T]):
    """Texts by slot; those of slots never used are empty."""

    def __init__(self, empty: T) -> None:
        self._empty = empty
        self._values: list[T] = []
        self._chunks: list[tuple[T, ...]] = []
        self._changed: set[int] = set()

    def __setitem__(self, slot: int, text: T) -> None:
        """Set the text of a slot in use, or of the one after the last."""
        if slot == len(self._values):
            self._values.append(text)
        else:
            self._values[slot] = text
        self._changed.add(slot // CHUNK)

    def copy(self, then: TextColumn[T] | None = None) -> Texts[T]:
        """Return the texts of now; `then`: another column, from the next full chunk on."""
        chunks = self._current()
        if then is None or not then._values:
            return Texts(tuple(chunks))
        if chunks and len(chunks[-1]) < CHUNK:
            missing = CHUNK - len(chunks[-1])
            chunks = [*chunks[:-1], (*chunks[-1], *([self._empty] * missing))]
        return Texts((*chunks, *then._current()))

    def _current(self) -> list[tuple[T, ...]]:
        values, chunks = self._values, self._chunks
        for number in sorted(self._changed):
            chunk = tuple(values[number * CHUNK : (number + 1) * CHUNK])
            if number == len(chunks):
                chunks.append(chunk)
            else:
                chunks[number] = chunk
        self._changed.clear()
        return chunks

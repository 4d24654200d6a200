"""What each unit was at, minute by minute: whole every sixty samples, differences in between.

Sixty samples are one content of the store, packed, under the instant of its first. The oldest are
dropped once they are older than a week, or when all that is kept exceeds its bound.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import INT64, read_integer
from reprieve.web.history.model import Moment, UnitRow
from reprieve.web.history.stores import Store

__all__ = ["MOST_BYTES", "OLDEST", "Moments"]

#: Of all that is kept, sums included.
MOST_BYTES: Final = 20_000_000
OLDEST: Final = 7 * 24 * HOUR
_IN_ONE: Final = 60
_PREFIX: Final = "units-"
#: More than any content unpacks to: who can write to the folder must not fill the memory.
_MOST_UNPACKED: Final = 256 * 2**20


class _Change(msgspec.Struct, array_like=True):
    at: int
    totals: dict[str, int]
    changed: list[UnitRow]
    gone: list[tuple[str, str]]


class Moments:
    """Moments by instant.

    Args:
        store: keeps them.
        most: bytes in all.
        in_one: how many become one content.
    """

    def __init__(self, store: Store, most: int = MOST_BYTES, in_one: int = _IN_ONE) -> None:
        self._store = store
        self._most = most
        self._in_one = in_one
        self._open: list[_Change] = []
        self._rows: Mapping[tuple[str, str], UnitRow] = {}
        self._read: tuple[str, list[_Change]] | None = None

    def add(self, moment: Moment) -> None:
        """Keep a moment that is later than all others.

        Raises:
            OSError: the store cannot keep it; the next one is tried again.
        """
        if self._open and moment.at - self._open[-1].at > HOUR:
            self._open = []  # what was before a pause is dropped before what comes after it
        if len(self._open) >= self._in_one:
            self._open = []
        if not self._open:
            self._rows = {}
        rows = moment.rows
        changed = [row for key, row in rows.items() if self._rows.get(key) != row]
        gone = [key for key in self._rows if key not in rows]
        self._open.append(_Change(moment.at, dict(moment.totals), changed, gone))
        self._rows = rows
        packed = zlib.compress(msgspec.msgpack.encode(self._open))
        self._store.write(_name(self._open[0].at), packed)
        self._drop(moment.at)

    @property
    def oldest(self) -> Nanos | None:
        """The first instant that can be shown."""
        begun = sorted(self._begun())
        return Nanos(begun[0]) if begun else None

    def at(self, instant: Nanos) -> Moment | None:
        """Return the last moment that is not later, None where none is kept."""
        begun = max((each for each in self._begun() if each <= instant), default=None)
        if begun is None:
            return None
        rows: dict[tuple[str, str], UnitRow] = {}
        found: _Change | None = None
        for change in self._changes(begun):
            if change.at > instant:
                break
            found = change
            for key in change.gone:
                rows.pop((key[0], key[1]), None)
            rows.update((row.key, row) for row in change.changed)
        return None if found is None else Moment(Nanos(found.at), found.totals, rows)

    def _changes(self, begun: int) -> list[_Change]:
        if self._open and self._open[0].at == begun:
            return self._open
        name = _name(begun)
        if self._read is None or self._read[0] != name:
            self._read = (name, _unpacked(self._store.read(name) or b""))
        return self._read[1]

    def _begun(self) -> list[int]:
        names = self._store.sizes()
        return [
            read_integer(name.removeprefix(_PREFIX), *INT64) for name in names if name != "sums"
        ]

    def _drop(self, now: Nanos) -> None:
        sizes = self._store.sizes()
        left = sum(sizes.values())
        for begun in sorted(self._begun()):
            if left <= self._most and now - begun < OLDEST:
                return
            if self._open and begun == self._open[0].at:
                return
            self._store.remove(_name(begun))
            left -= sizes[_name(begun)]


def _name(begun: int) -> str:
    return f"{_PREFIX}{begun}"


def _unpacked(content: bytes) -> list[_Change]:
    """Return what was packed; nothing where that cannot be read."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(content, _MOST_UNPACKED)
        return msgspec.msgpack.decode(text, type=list[_Change])
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        return []

"""Sums of harm by the hour, for windows of up to 30 days.

Displacements of one hour that have both sides, the plane and the reason in common are one row. A
row leaves a window at once, a window's length after the last displacement in it: a displacement
counts for up to an hour longer than the window, and never shorter.

The number of rows is bounded: from `MOST_ROWS` on those older than a day become `coarser`, sums by
the day without lineages. They count for up to a day longer; only budgets that have an account for
each lineage do not count them any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm, HarmSide

__all__ = ["LONGEST_WINDOW", "MOST_ROWS", "Amount", "HourlySums", "Key", "coarser", "key_of"]

LONGEST_WINDOW: Final = 30 * 24 * HOUR
MOST_ROWS: Final = 100_000
_DAY: Final = 24  # hours
_NEVER: Final = Nanos(0)


class Key(NamedTuple):
    """What the displacements of one row have in common; `hour` counts from the epoch."""

    hour: int
    victim: HarmSide
    preemptor: HarmSide | None
    plane: str
    reason: str


@dataclass(slots=True)
class Amount:
    """Units and device seconds of one row, and when the last of them was displaced.

    `saved_device_seconds`: by notices. `waited_seconds`: from displacements until units ran again.
    """

    displacements: int = 0
    lost_device_seconds: int = 0
    last: Nanos = _NEVER
    saved_device_seconds: int = 0
    waited_seconds: int = 0

    def add(self, harm: Harm) -> None:
        """Add one unit, or what is known of one later."""
        self.displacements += harm.units
        self.lost_device_seconds += harm.lost_device_seconds
        self.saved_device_seconds += harm.saved_device_seconds
        self.waited_seconds += harm.waited_seconds
        self.last = max(self.last, harm.at)

    def merge(self, other: Amount) -> None:
        """Add another row."""
        self.displacements += other.displacements
        self.lost_device_seconds += other.lost_device_seconds
        self.saved_device_seconds += other.saved_device_seconds
        self.waited_seconds += other.waited_seconds
        self.last = max(self.last, other.last)


class HourlySums:
    """Rows by key; those that no window reaches any more are dropped."""

    def __init__(self) -> None:
        self._rows: dict[Key, Amount] = {}
        self._lines: dict[tuple[int, str], Key] = {}  # by hour and lineage of the victim
        self._swept = 0
        #: Whether rows were replaced by others since a caller cleared it.
        self.made_coarser = False

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Key, Amount]]:
        return iter(self._rows.items())

    def add(self, harm: Harm) -> tuple[Key, Amount]:
        """Add a displacement, and return its row; costs one look-up, and a sweep once an hour."""
        added = key_of(harm)
        row = self._rows.setdefault(added, Amount())
        row.add(harm)
        self._lines[added.hour, added.victim.lineage] = added
        hour = harm.at // HOUR
        if hour > self._swept:
            self._swept = hour
            oldest = harm.at - LONGEST_WINDOW - HOUR
            for key in [key for key, amount in self._rows.items() if amount.last < oldest]:
                del self._rows[key]
            if len(self._rows) > MOST_ROWS:
                self._rows = coarser(self._rows, Nanos(harm.at - _DAY * HOUR))
                self.made_coarser = True
            self._lines = {(key.hour, key.victim.lineage): key for key in self._rows}
        return added, row

    def of_lineage(self, hour: int, lineage: str) -> Key | None:
        """Return the key of a row of a lineage's displacements in an hour."""
        return self._lines.get((hour, lineage))

    def load(self, key: Key, amount: Amount) -> None:
        """Add what another process has summed up."""
        self._rows.setdefault(key, Amount()).merge(amount)
        self._lines[key.hour, key.victim.lineage] = key

    def remove(self, harm: Harm) -> None:
        """Undo a displacement; the instant of its row stays, which is the later one."""
        key = key_of(harm)
        row = self._rows.get(key)
        if row is None:
            return
        row.displacements -= 1
        row.lost_device_seconds -= harm.lost_device_seconds
        row.saved_device_seconds -= harm.saved_device_seconds
        if row.displacements <= 0:
            del self._rows[key]


def coarser(rows: Mapping[Key, Amount], before: Nanos) -> dict[Key, Amount]:
    """Return rows with those before an instant summed up by the day, without lineages."""
    found: dict[Key, Amount] = {}
    for key, amount in rows.items():
        kept = key
        if amount.last < before:
            day = key.hour // _DAY * _DAY
            kept = key._replace(hour=day, victim=replace(key.victim, lineage=""))
        found.setdefault(kept, Amount()).merge(amount)
    return found


def key_of(harm: Harm) -> Key:
    """Return the key of the row that a displacement belongs to."""
    preemptor = harm.preemptor
    # Whose work it was is enough of the preemptor.
    known = None if preemptor is None else replace(preemptor, lineage="")
    return Key(harm.at // HOUR, harm.victim, known, harm.plane, harm.reason)

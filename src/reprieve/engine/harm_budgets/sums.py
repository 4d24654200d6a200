"""Sums of harm by the hour, for windows of up to 30 days.

Displacements of one hour that have both sides, the plane and the reason in common are one row. A
row leaves a window at once, a window's length after the last displacement in it: a displacement
counts for up to an hour longer than the window, and never shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.units.durations import HOUR
from reprieve.units.instants import Nanos

__all__ = ["LONGEST_WINDOW", "Amount", "HourlySums", "Key", "key_of"]

LONGEST_WINDOW: Final = 30 * 24 * HOUR
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
    """Units and device seconds of one row, and when the last of them was displaced."""

    displacements: int = 0
    lost_device_seconds: int = 0
    last: Nanos = _NEVER

    def add(self, harm: Harm) -> None:
        """Add one unit."""
        self.displacements += 1
        self.lost_device_seconds += harm.lost_device_seconds
        self.last = max(self.last, harm.at)


class HourlySums:
    """Rows by key; those that no window reaches any more are dropped."""

    def __init__(self) -> None:
        self._rows: dict[Key, Amount] = {}
        self._swept = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Key, Amount]]:
        return iter(self._rows.items())

    def add(self, harm: Harm) -> tuple[Key, Amount]:
        """Add a displacement, and return its row; costs one look-up, and a sweep once an hour."""
        added = key_of(harm)
        row = self._rows.setdefault(added, Amount())
        row.add(harm)
        hour = harm.at // HOUR
        if hour > self._swept:
            self._swept = hour
            oldest = harm.at - LONGEST_WINDOW - HOUR
            for key in [key for key, amount in self._rows.items() if amount.last < oldest]:
                del self._rows[key]
        return added, row

    def load(self, key: Key, amount: Amount) -> None:
        """Add what another process has summed up."""
        row = self._rows.setdefault(key, Amount())
        row.displacements += amount.displacements
        row.lost_device_seconds += amount.lost_device_seconds
        row.last = max(row.last, amount.last)

    def remove(self, harm: Harm) -> None:
        """Take a displacement back; the instant of its row stays, which is the later one."""
        key = key_of(harm)
        row = self._rows.get(key)
        if row is None:
            return
        row.displacements -= 1
        row.lost_device_seconds -= harm.lost_device_seconds
        if row.displacements <= 0:
            del self._rows[key]


def key_of(harm: Harm) -> Key:
    """Return the key of the row that a displacement belongs to."""
    preemptor = harm.preemptor
    # Whose work it was is enough of the preemptor.
    known = None if preemptor is None else replace(preemptor, lineage="")
    return Key(harm.at // HOUR, harm.victim, known, harm.plane, harm.reason)

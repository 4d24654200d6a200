"""The ledger: who displaced whom, when, and what that cost.

A row is one displaced unit. Rows come from Preemptions and Disruptions, at a restart all at once,
and are kept for a day and up to a number; the oldest go first. The order in which they are told
plays no role, and a row that is told twice is one. Nobody's work that another actor displaced is
held against anybody: such rows have no preemptor, and count for the victim alone.

A ledger costs a row once (inserted where it belongs, at the end as a rule), and rows of a window by
bisection; beside the rows it holds nothing. Time comes with the rows. Source: specification of
disruptions, section 3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.disruptions.lineage import Lineage, Party
from reprieve.units.durations import HOUR
from reprieve.units.instants import Nanos

__all__ = ["KEPT", "MOST_ROWS", "Actor", "Displacement", "Exemption", "Ledger"]

KEPT: Final = 24 * HOUR
MOST_ROWS: Final = 100_000

Identified = tuple[Nanos, int, str, str, str]


class Actor(StrEnum):
    """Who displaced."""

    IDLE = "idle"
    QUOTA = "quota"
    SCHEDULING = "scheduling"
    OTHER = "other"


class Exemption(StrEnum):
    """Why a displacement holds nobody and protects nobody."""

    NONE = ""
    NODE_FAILURE = "node failure"
    DRAIN = "drain"
    EMERGENCY = "emergency"


@dataclass(frozen=True, slots=True)
class Displacement:
    """One row.

    `uid`: of the displaced object. `number`: its place among the rows of one instant. `above`: by
    how much the preemptor's priority was higher. `cause`: a text that is another one when the
    priority, weight or quota that let the two displace each other is another; empty where it is not
    known, which is as good as any.
    """

    at: Nanos
    actor: Actor
    preemptor: Party | None
    victim: Party
    uid: str = ""
    number: int = 0
    devices: int = 0
    lost_device_seconds: int = 0
    above: int = 0
    cause: str = ""
    exempt: Exemption = Exemption.NONE

    @property
    def identity(self) -> Identified:
        """What two rows do not have in common; also the order of rows."""
        preemptor = "" if self.preemptor is None else self.preemptor.lineage
        return (self.at, self.number, preemptor, self.victim.lineage, self.uid)

    @property
    def counts(self) -> bool:
        """Whether it is held against its preemptor."""
        return (
            self.preemptor is not None
            and self.actor is not Actor.OTHER
            and self.exempt is Exemption.NONE
        )


class Ledger:
    """Rows of the last `kept` nanoseconds in the order of `Displacement.identity`."""

    def __init__(self, kept: int = KEPT, most: int = MOST_ROWS) -> None:
        self.kept = kept
        self.most = most
        self._rows: list[Displacement] = []

    def record(self, row: Displacement) -> bool:
        """Take a row in; return whether it is new, and not too old."""
        rows, identity = self._rows, row.identity
        place = len(rows)
        if rows and identity <= rows[-1].identity:
            place = bisect_left(rows, identity, key=_identity)
            if rows[place].identity == identity or row.at <= rows[-1].at - self.kept:
                return False
        rows.insert(place, row)
        return self._forget(rows[-1].at) <= place

    def fold(self, rows: Iterable[Displacement]) -> None:
        """Take many rows in at once."""
        fresh = {row.identity: row for row in rows}
        for row in self._rows:
            fresh[row.identity] = row
        # No two have the same identity, so that rows themselves are never compared.
        self._rows = [row for _, row in sorted(fresh.items())]
        if self._rows:
            self._forget(self._rows[-1].at)

    def undo(self, preemptor: Lineage | None, uid: str) -> bool:
        """Take back the last displacement of an object by a lineage; return whether there was."""
        for place in range(len(self._rows) - 1, -1, -1):
            row = self._rows[place]
            by = None if row.preemptor is None else row.preemptor.lineage
            if by == preemptor and row.uid == uid:
                del self._rows[place]
                return True
        return False

    def since(self, instant: Nanos) -> Sequence[Displacement]:
        """Return the rows after an instant."""
        return self._rows[bisect_right(self._rows, instant, key=_instant) :]

    @property
    def rows(self) -> Sequence[Displacement]:
        """All rows."""
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def _forget(self, now: Nanos) -> int:
        """Let go what is too old or too much, and return how many rows that were."""
        old = bisect_right(self._rows, Nanos(now - self.kept), key=_instant)
        old = max(old, len(self._rows) - self.most)
        del self._rows[:old]
        return old


def _identity(row: Displacement) -> Identified:
    return row.identity


def _instant(row: Displacement) -> Nanos:
    return row.at

"""The ledger: who displaced whom, when, and what that cost.

A row is one displaced unit. Rows come from Preemptions and Disruptions, at a restart all at once,
and are kept for a day and up to a number; the oldest are removed first. The order in which they
arrive plays no role, and a row that arrives twice is one. Work that another actor displaced is not
held against any preemptor: such rows have none, and count for the victim alone.

A ledger costs a row once (its number is inserted where it belongs, at the end as a rule), and rows
of a window by bisection. Rows are columns (`rows`); what is returned of them is made when it is
requested. Those that were removed from the ledger stay there until `tidy`, for callers that keep
their numbers. Time comes with the rows. Source: specification of disruptions, section 3.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import Actor, Displacement, Exemption, Identified
from reprieve.engine.disruptions.lineage import Lineage
from reprieve.engine.disruptions.rows import Rows, within

__all__ = ["KEPT", "MOST_ROWS", "Actor", "Displacement", "Exemption", "Ledger"]

KEPT: Final = 24 * HOUR
MOST_ROWS: Final = 100_000

#: That part of its rows has to be removed before those that stay are copied.
_PART_GONE: Final = 16

_identity = attrgetter("identity")


class Ledger:
    """Rows of the last `kept` nanoseconds in the order of `Displacement.identity`.

    `columns` has them by number, and `order` the numbers.
    """

    def __init__(self, kept: int = KEPT, most: int = MOST_ROWS) -> None:
        self.kept = kept
        self.most = most
        self.columns = Rows()
        self.order = array("I")
        self._mixed = False  # whether numbers are in another order than rows

    def record(self, row: Displacement) -> int | None:
        """Read a row; return its number, None if it is not new or too old."""
        row = within(row)
        order, last = self.order, self.last
        place = len(order)
        if last is not None and row.identity <= last:
            place = bisect_left(order, row.identity, key=self.columns.identity)
            if self.columns.identity(order[place]) == row.identity:
                return None
            # What would be forgotten at once leaves nothing behind.
            if row.at <= last[0] - self.kept or (not place and len(order) >= self.most):
                return None
            self._mixed = True
        number = self.columns.append(row)
        order.insert(place, number)
        gone = self._forget(Nanos(self.columns.at[order[-1]]))
        return number if gone <= place else None

    def fold(self, rows: Iterable[Displacement]) -> None:
        """Read many rows at once."""
        columns, added, last = self.columns, array("I"), None
        known = set(map(columns.identity, self.order))
        # Duplicate rows are side by side then; only rows of one instant need their identities.
        for row in sorted(map(within, rows), key=_identity):
            if last is None or row.at != last.at or row.identity != last.identity:
                if not known or row.identity not in known:
                    added.append(columns.append(row))
                last = row
        if not added:
            return
        end = self.last
        if end is not None and columns.identity(added[0]) < end:
            self._mixed = True
            found = sorted((*self.order, *added), key=columns.identity)
            self.order = array("I", found)
        else:
            self.order.extend(added)
        self._forget(Nanos(self.columns.at[self.order[-1]]))

    def undo(self, preemptor: Lineage | None, uid: str) -> bool:
        """Undo the last displacement of an object by a lineage; return whether there was one."""
        columns = self.columns
        lineage = -1 if preemptor is None else columns.participants.lineages.find(preemptor)
        if preemptor is not None and lineage < 0:
            return False
        for place in range(len(self.order) - 1, -1, -1):
            number = self.order[place]
            if columns.did(number) == lineage and columns.uid(number) == uid:
                del self.order[place]
                return True
        return False

    def since(self, instant: Nanos) -> Sequence[int]:
        """Return the numbers of the rows after an instant."""
        return self.order[bisect_right(self.order, instant, key=self._instant) :]

    def tidy(self) -> None:
        """Drop what is deleted, if that is much, and order numbers by their rows again."""
        gone = len(self.columns) - len(self.order)
        if self._mixed or gone > len(self.order) // _PART_GONE:
            self.columns = self.columns.only(self.order)
            self.order = array("I", range(len(self.order)))
            self._mixed = False

    @property
    def last(self) -> Identified | None:
        """The identity of the last row."""
        return self.columns.identity(self.order[-1]) if self.order else None

    @property
    def rows(self) -> list[Displacement]:
        """All rows."""
        return [self.columns[number] for number in self.order]

    def __len__(self) -> int:
        return len(self.order)

    def _forget(self, now: Nanos) -> int:
        """Drop what is too old or too much, and return how many rows that were."""
        order, most = self.order, Nanos(now - self.kept)
        old = len(order) - self.most
        if order and self.columns.at[order[max(0, old)]] <= most:
            old = max(old, bisect_right(order, most, key=self._instant))
        if old > 0:
            del order[:old]
        return max(0, old)

    def _instant(self, number: int) -> Nanos:
        return Nanos(self.columns.at[number])

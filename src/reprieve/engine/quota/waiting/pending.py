"""The pending workloads of one ClusterQueue in their order, kept apart by shape.

Workloads of one shape fit or do not fit alike. When one does not, all of them are set aside, and
when quota comes free, everything that was set aside is queued again: both cost the number of
shapes, never the number of workloads. The first of all is the first of some shape.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Alike", "Pending", "Row"]

#: So many times more rows are merged faster by inserting the others into them one by one.
_FEW: Final = 8

# (minus the effective priority, timestamp, uid, key)
Row = tuple[int, int, str, str]


@dataclass(slots=True, eq=False)
class Alike:
    """Workloads of one shape, in order: those that are queued, and those set aside.

    `hopeless` states that what comes later of this shape is set aside as well; `number` identifies
    one of the shapes of a queue.
    """

    number: int
    queued: list[Row] = field(default_factory=list)
    aside: list[Row] = field(default_factory=list)
    hopeless: bool = False


@dataclass(slots=True)
class Pending:
    """One ClusterQueue.

    Attributes:
        preemptor: key of the workload whose preemptions are in flight.
        backing: keys of those that wait for the end of their backoff.
        popped: heads popped so far.
        flushed: heads that had been popped at the last flush.
    """

    preemptor: str = ""
    backing: set[str] = field(default_factory=set)
    popped: int = 0
    flushed: int = -1
    _shapes: dict[object, Alike] = field(default_factory=dict)
    _made: int = 0
    # A heap of what was first of its shape at some time; entries that are not so now are skipped.
    _fronts: list[tuple[Row, int, Alike]] = field(default_factory=list)

    def alike(self, shape: object) -> Alike:
        """Return the workloads of a shape."""
        found = self._shapes.get(shape)
        if found is None:
            self._made += 1
            found = self._shapes[shape] = Alike(self._made)
        return found

    def is_hopeless(self, shape: object) -> bool:
        """Return whether what comes now of this shape is to be set aside."""
        found = self._shapes.get(shape)
        return found is not None and found.hopeless

    def add(self, row: Row, shape: object) -> None:
        """Queue a workload."""
        alike = self.alike(shape)
        insort(alike.queued, row)
        if alike.queued[0] is row:
            self._note_front(alike)

    def set_aside(self, row: Row, shape: object) -> None:
        """Keep a workload until the next flush."""
        insort(self.alike(shape).aside, row)

    def set_aside_alike(self, shape: object) -> None:
        """Keep all workloads of a shape until the next flush, what comes later included."""
        alike = self.alike(shape)
        alike.hopeless = True
        alike.aside, alike.queued = _merged(alike.aside, alike.queued), []

    def remove(self, row: Row, shape: object) -> None:
        """Forget a workload; one that is not there changes nothing."""
        alike = self._shapes.get(shape)
        if alike is None:
            return
        place = _place(alike.queued, row)
        if place is not None:
            del alike.queued[place]
            if not place:
                self._note_front(alike)
        elif (place := _place(alike.aside, row)) is not None:
            del alike.aside[place]
        if not (alike.queued or alike.aside or alike.hopeless):
            del self._shapes[shape]

    def is_aside(self, row: Row, shape: object) -> bool:
        """Return whether a workload waits for the next flush."""
        alike = self._shapes.get(shape)
        return alike is not None and _place(alike.aside, row) is not None

    def is_queued(self, row: Row, shape: object) -> bool:
        """Return whether a workload is queued."""
        alike = self._shapes.get(shape)
        return alike is not None and _place(alike.queued, row) is not None

    def flush(self) -> None:
        """Queue again everything that was set aside."""
        self.flushed = self.popped
        for shape, alike in list(self._shapes.items()):
            alike.hopeless = False
            if alike.aside:
                alike.queued, alike.aside = _merged(alike.queued, alike.aside), []
                self._note_front(alike)
            elif not alike.queued:
                del self._shapes[shape]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is queued for sure; what is set aside does not count."""
        return not self._fronts

    def first(self) -> Row | None:
        """Return the first of all that are queued."""
        fronts = self._fronts
        while fronts:
            row, _, alike = fronts[0]
            if alike.queued and alike.queued[0] is row:
                return row
            heapq.heappop(fronts)
        return None

    def queued(self) -> Iterator[Row]:
        """Yield all that are queued, shape by shape."""
        for alike in self._shapes.values():
            yield from alike.queued

    def aside(self) -> Iterator[Row]:
        """Yield all that wait for the next flush, shape by shape."""
        for alike in self._shapes.values():
            yield from alike.aside

    def counts(self) -> tuple[int, int]:
        """Return how many are queued, and how many are inadmissible for now."""
        shapes = self._shapes.values()
        aside = sum(len(each.aside) for each in shapes)
        return sum(len(each.queued) for each in shapes), aside + len(self.backing)

    def shapes(self) -> tuple[int, int]:
        """Return of how many shapes are those that are queued, and those that are set aside."""
        shapes = self._shapes.values()
        return sum(bool(each.queued) for each in shapes), sum(bool(each.aside) for each in shapes)

    def _note_front(self, alike: Alike) -> None:
        if len(self._fronts) > 2 * len(self._shapes) + 16:
            shapes = self._shapes.values()
            self._fronts = [(each.queued[0], each.number, each) for each in shapes if each.queued]
            heapq.heapify(self._fronts)
        elif alike.queued:
            heapq.heappush(self._fronts, (alike.queued[0], alike.number, alike))


def _merged(first: list[Row], second: list[Row]) -> list[Row]:
    few, many = (first, second) if len(first) < len(second) else (second, first)
    if len(few) * _FEW > len(many):
        return sorted(many + few)
    for row in few:
        insort(many, row)
    return many


def _place(rows: list[Row], row: Row) -> int | None:
    place = bisect_left(rows, row)
    return place if place < len(rows) and rows[place] == row else None

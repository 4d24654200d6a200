"""The rows of each lineage on one side of displacements, and the lineages of each family there.

Rows of a lineage are linked from the last one back, so that those of a window are the first;
lineages of a family are linked in a circle, so that two families become one by one exchange. Three
numbers for each lineage and one for each row are all the memory that this needs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.families import UNKNOWN, reach
from reprieve.engine.disruptions.rows import Rows

__all__ = ["Side"]


class Side:
    """Rows by lineage, and lineages by family; for as many as `reach` has allocated."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._last = array("i")  # row by lineage
        self._previous = array("i")  # row by row of the same lineage
        self._beside = array("i")  # the next lineage of the same family by lineage
        self._any = array("i")  # some lineage of a family by its name

    def reach(self, lineages: int, rows: int) -> None:
        """Allocate so many lineages and rows."""
        for each in (self._last, self._beside, self._any):
            reach(each, lineages, UNKNOWN)
        reach(self._previous, rows, UNKNOWN)

    def __contains__(self, family: int) -> bool:
        return family >= 0 and self._any[family] >= 0

    def last(self, lineage: int) -> int:
        """Return the last row of a lineage, -1 if it has none."""
        return self._last[lineage]

    def previous(self, row: int) -> int:
        """Return the row of the same lineage before a row, -1 without."""
        return self._previous[row]

    def append(self, family: int, lineage: int, row: int) -> None:
        """Add a row, the last of a lineage."""
        last = self._last[lineage]
        self._previous[row] = last
        self._last[lineage] = row
        if last < 0:
            self._beside[lineage] = lineage
            self._join(family, lineage)

    def insert(self, family: int, lineage: int, row: int) -> None:
        """Add a row of a lineage where it belongs in the order of time."""
        identity, wanted = self._rows.identity, self._rows.identity(row)
        after, before = UNKNOWN, self._last[lineage]
        while before >= 0 and identity(before) > wanted:
            after, before = before, self._previous[before]
        if after < 0:
            self.append(family, lineage, row)
        else:
            self._previous[row], self._previous[after] = before, row

    def bring_together(self, before: int, now: int) -> None:
        """Make a family a part of another one."""
        if before in self:
            lineage = self._any[before]
            self._any[before] = UNKNOWN
            self._join(now, lineage)

    def _join(self, family: int, lineage: int) -> None:
        """Merge the loop of a lineage into that of its family."""
        other, beside = self._any[family], self._beside
        if other >= 0:
            beside[lineage], beside[other] = beside[other], beside[lineage]
        self._any[family] = lineage

    def lineages(self, family: int) -> Iterator[int]:
        """Yield the lineages of a family that have rows."""
        if family in self:
            start = lineage = self._any[family]
            yield lineage
            while (lineage := self._beside[lineage]) != start:
                yield lineage

    def back(self, lineage: int, since: Nanos | None = None) -> Iterator[int]:
        """Yield the rows of a lineage after an instant, the last one first."""
        row, at = self.last(lineage), self._rows.at
        while row >= 0 and (since is None or at[row] > since):
            yield row
            row = self._previous[row]

    def rows(self, family: int, since: Nanos | None = None) -> Iterator[int]:
        """Yield the rows of a family after an instant, each lineage's from the last one back."""
        for lineage in self.lineages(family):
            yield from self.back(lineage, since)

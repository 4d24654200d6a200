"""The rows of each lineage on one side of displacements, and the lines of each family there.

Rows of a line are linked from the last one back, so that those of a window are the first; lines of
a family are linked in a circle, so that two families become one by one exchange. Three numbers for
each line and one for each row are all that this takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.families import UNKNOWN, reach
from reprieve.engine.disruptions.rows import Rows

__all__ = ["Side"]


class Side:
    """Rows by line, and lines by family; for as many as `reach` has allocated."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._last = array("i")  # row by line
        self._previous = array("i")  # row by row of the same line
        self._beside = array("i")  # the next line of the same family by line
        self._any = array("i")  # some line of a family by its name

    def reach(self, lines: int, rows: int) -> None:
        """Allocate so many lines and rows."""
        for each in (self._last, self._beside, self._any):
            reach(each, lines, UNKNOWN)
        reach(self._previous, rows, UNKNOWN)

    def __contains__(self, family: int) -> bool:
        return family >= 0 and self._any[family] >= 0

    def last(self, line: int) -> int:
        """Return the last row of a line, -1 if it has none."""
        return self._last[line]

    def previous(self, row: int) -> int:
        """Return the row of the same line before a row, -1 without."""
        return self._previous[row]

    def append(self, family: int, line: int, row: int) -> None:
        """Add a row, the last of a line."""
        last = self._last[line]
        self._previous[row] = last
        self._last[line] = row
        if last < 0:
            self._beside[line] = line
            self._join(family, line)

    def insert(self, family: int, line: int, row: int) -> None:
        """Add a row of a line where it belongs in the order of time."""
        identity, wanted = self._rows.identity, self._rows.identity(row)
        after, before = UNKNOWN, self._last[line]
        while before >= 0 and identity(before) > wanted:
            after, before = before, self._previous[before]
        if after < 0:
            self.append(family, line, row)
        else:
            self._previous[row], self._previous[after] = before, row

    def bring_together(self, before: int, now: int) -> None:
        """Make a family a part of another one."""
        if before in self:
            line = self._any[before]
            self._any[before] = UNKNOWN
            self._join(now, line)

    def _join(self, family: int, line: int) -> None:
        """Merge the loop of a lineage into that of its family."""
        other, beside = self._any[family], self._beside
        if other >= 0:
            beside[line], beside[other] = beside[other], beside[line]
        self._any[family] = line

    def lines(self, family: int) -> Iterator[int]:
        """Yield the lines of a family that have rows."""
        if family in self:
            start = line = self._any[family]
            yield line
            while (line := self._beside[line]) != start:
                yield line

    def back(self, line: int, since: Nanos | None = None) -> Iterator[int]:
        """Yield the rows of a line after an instant, the last one first."""
        row, at = self.last(line), self._rows.at
        while row >= 0 and (since is None or at[row] > since):
            yield row
            row = self._previous[row]

    def rows(self, family: int, since: Nanos | None = None) -> Iterator[int]:
        """Yield the rows of a family after an instant, each line's from the last one back."""
        for line in self.lines(family):
            yield from self.back(line, since)

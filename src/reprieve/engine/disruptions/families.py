"""Families: which lines of work are one, told in the order of time.

The name of a family is that of its member that was told first. Lines and parties are numbers of
`Parties`. Who was displaced and has not come back is, for each weak link, a list of rows in the
order of time, each linked to the next, so that all operations take constant time.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from array import array
from typing import Final

from reprieve.engine.disruptions.lineage import Party
from reprieve.engine.disruptions.rows import Rows
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["UNKNOWN", "Families", "reach"]

UNKNOWN: Final = -1
_NOT_LINKED: Final = -2


class Families:
    """Follows which lines of work are one; for those that `reach` has made room for."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._parties = rows.parties
        # Parents by line, of those that were learned.
        self._narrow = array("i")  # those with a label only
        self._wide = array("i")
        # By weak link: the first and the last row of who is away; by row: those beside it.
        self._first = array("i")
        self._last = array("i")
        self._next = array("i")
        self._previous = array("i")
        self._latest = array("i")  # by line: the last row by which it went and may come back

    def reach(self, lines: int, rows: int) -> None:
        """Have room for so many lines and rows."""
        for each in (self._narrow, self._wide, self._latest):
            reach(each, lines, UNKNOWN)
        for each in (self._next, self._previous):
            reach(each, rows, _NOT_LINKED)

    def learn(self, number: int, at: Nanos) -> int:
        """Take note of a party that took part in a displacement, and was there before it.

        Return its family with weak links.
        """
        parties = self._parties
        line, merged, weak = parties.line[number], parties.merged[number], parties.weak[number]
        wide = self._wide
        new = wide[line] < 0
        if new:
            wide[line] = line
        if merged >= 0:
            for parents in (self._narrow, wide):
                for each in (line, merged):
                    if parents[each] < 0:
                        parents[each] = each
                _join(parents, line, merged)
        if new and weak >= 0:
            former = self._former(weak, parties.created[number], line, at)
            if former >= 0:
                self._came_back(weak, former)
                _join(wide, self._rows.suffered(former), line)
        return _root(wide, line)

    def displaced(self, row: int, before: int) -> None:
        """Take note that an object has to make way; it may come back as another one.

        `before`: the row of the same victim and weak link before this one, -1 without.
        """
        weak = self._parties.weak[self._rows.victim[row]]
        if weak < 0:
            return
        if weak >= len(self._first):
            for each in (self._first, self._last):
                reach(each, weak + 1, UNKNOWN)
        self._latest[self._rows.suffered(row)] = row
        if before >= 0 and self._next[before] != _NOT_LINKED:
            self._came_back(weak, before)
        last = self._last[weak]
        self._previous[row], self._next[row] = last, UNKNOWN
        if last >= 0:
            self._next[last] = row
        else:
            self._first[weak] = row
        self._last[weak] = row

    def _came_back(self, weak: int, row: int) -> None:
        before, after = self._previous[row], self._next[row]
        if before >= 0:
            self._next[before] = after
        else:
            self._first[weak] = after
        if after >= 0:
            self._previous[after] = before
        else:
            self._last[weak] = before
        self._next[row] = _NOT_LINKED

    # Which family

    def of(self, party: Party) -> int:
        """Return the family of a party with weak links, `UNKNOWN` where nothing is known of it."""
        line = self._parties.lines.find(party.lineage)
        found = self.wide(line)
        if found >= 0:
            return found
        weak = self._parties.weaks.find(party.weak) if party.weak else UNKNOWN
        if weak >= 0:
            former = self._former(weak, party.created, line)
            if former >= 0:
                return self.wide(self._rows.suffered(former))
        return self.wide(self._parties.lines.find(party.merged)) if party.merged else UNKNOWN

    def wide(self, line: int) -> int:
        """Return the family of a line with weak links, `UNKNOWN` if it was not learned."""
        wide = self._wide
        return _root(wide, line) if line >= 0 and wide[line] >= 0 else UNKNOWN

    def narrow(self, line: int) -> int:
        """Return the family of a line by owner, template and label."""
        found = self._labelled(line)
        return line if found < 0 else found

    def narrow_of(self, party: Party) -> int:
        """Return the family of a party by owner, template and label, `UNKNOWN` as in `of`."""
        lines = self._parties.lines
        line = lines.find(party.lineage)
        found = self._labelled(line)
        if found < 0 and party.merged:
            found = self._labelled(lines.find(party.merged))
        return line if found < 0 else found

    def _labelled(self, line: int) -> int:
        narrow = self._narrow
        return _root(narrow, line) if line >= 0 and narrow[line] >= 0 else UNKNOWN

    def _former(self, weak: int, created: int, line: int, before: Nanos | None = None) -> int:
        """Return by which row went who has come back as this object, there `before` that."""
        if weak >= len(self._first):
            return UNKNOWN
        # API servers give the instants of creation in whole seconds.
        made, row, instants = created // SECOND, self._first[weak], self._rows.at
        while row >= 0:
            at = instants[row]
            if at // SECOND > made or (before is not None and at >= before):
                break
            gone = self._rows.suffered(row)
            if gone != line and self._made(gone) != made:
                return row
            row = self._next[row]
        return UNKNOWN

    def _made(self, line: int) -> int:
        """Return the second in which an object was made that went, the last of its line."""
        return self._parties.created[self._rows.victim[self._latest[line]]] // SECOND


def reach(numbers: array[int], size: int, value: int) -> None:
    """Make an array as long as that."""
    if size > len(numbers):
        numbers.extend(array("i", [value]) * (size - len(numbers)))


def _root(parents: array[int], line: int) -> int:
    while parents[line] != line:
        parents[line] = parents[parents[line]]
        line = parents[line]
    return line


def _join(parents: array[int], first: int, second: int) -> None:
    one, other = _root(parents, first), _root(parents, second)
    if one != other:
        parents[other] = one

"""Families: which lineages are one, read in the order of time.

The name of a family is that of its member that was told first. Lineages and parties are numbers of
`Parties`. Who is away, and has nobody who came in its place, is for each weak link a list of
lineages in the order of time, so that an operation costs what is older than it asks for.

Away is a pod of its own from when it was displaced, since it does not come back, and everything
else once it was displaced (or failed) and has ended (`Families.ended`): what is there still comes
back as itself. What bears a label that is known comes in the place of nobody else: the label says
which work it is.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from array import array
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Party, goes_for_good
from reprieve.engine.disruptions.rows import Rows

__all__ = ["UNKNOWN", "Families", "reach"]

UNKNOWN: Final = -1
_NOT_LINKED: Final = -2
_NEVER: Final = Nanos(-1)

#: An end is seen some time after it happened, when others may have answered to it already.
_SEEN_LATE: Final = 2 * SECOND

# What makes a lineage that has ended be away.
_DISPLACED: Final = 1
_FAILED: Final = 2


class Families:
    """Follows which lineages are one; for those that `reach` has allocated."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._parties = rows.parties
        # Parents by line, of those that were learned.
        self._narrow = array("i")  # those with a label only
        self._wide = array("i")
        # By weak link: the first and the last line that is away.
        self._first = array("i")
        self._last = array("i")
        # By line: those beside it there, and since when it is away, or when it was displaced.
        self._next = array("i")
        self._previous = array("i")
        self._since = array("q")
        self._link = array("i")  # the weak link by which it is away
        self._latest = array("i")  # the party as which it took part last
        self._marks = bytearray()
        # By line, of some: when it ended last, and when it got what it wanted.
        self._ended: dict[int, Nanos] = {}
        self._ran: dict[int, Nanos] = {}

    def reach(self, lines: int) -> None:
        """Allocate so many lines."""
        for each in (self._narrow, self._wide, self._link, self._latest):
            reach(each, lines, UNKNOWN)
        for each in (self._next, self._previous):
            reach(each, lines, _NOT_LINKED)
        reach(self._since, lines, _NEVER)
        self._marks.extend(bytes(max(0, lines - len(self._marks))))

    def learn(self, number: int, at: Nanos) -> int:
        """Record a lineage that was part of a displacement, and was there before it.

        Return its family with weak links.
        """
        parties = self._parties
        line, merged, weak = parties.line[number], parties.merged[number], parties.weak[number]
        wide = self._wide
        new = wide[line] < 0
        labelled = merged >= 0 and wide[merged] >= 0
        if new:
            wide[line] = line
        elif self.is_away(line) and at > self._since[line]:
            self._came_back(line)  # as itself
        if merged >= 0:
            for parents in (self._narrow, wide):
                for each in (line, merged):
                    if parents[each] < 0:
                        parents[each] = each
                _join(parents, line, merged)
        if new and weak >= 0 and not labelled:
            former = self._former(weak, parties.created[number], line, at)
            if former >= 0:
                self._came_back(former)
                _join(wide, former, line)
        return _root(wide, line)

    def displaced(self, row: int) -> None:
        """Record that an object is displaced."""
        number = self._rows.victim[row]
        line, at = self._parties.line[number], Nanos(self._rows.at[row])
        if self.is_away(line):
            self._came_back(line)
        self._latest[line], self._since[line] = number, at
        if self._parties.weak[number] < 0:
            return
        if goes_for_good(self._parties.lines[line]):
            self._go(line, at)
        elif self._ran.get(line, _NEVER) <= at:
            self._marks[line] |= _DISPLACED
            self._go_if_ended(line)

    def displaces(self, number: int) -> None:
        """Record who displaced other work, as this lineage."""
        line = self._parties.line[number]
        self._latest[line] = number
        if self._marks[line] & _FAILED and not self.is_away(line):
            self._go_if_ended(line)

    def failed(self, line: int) -> None:
        """Record that a lineage failed."""
        self._marks[line] |= _FAILED
        if self._latest[line] >= 0 and not self.is_away(line):
            self._go_if_ended(line)

    def ran(self, line: int, at: Nanos) -> None:
        """Record that a lineage got what it wanted: what was displaced before is back."""
        self._ran[line] = at
        if self._since[line] < at:
            self._marks[line] &= ~_DISPLACED

    def ended(self, line: int, at: Nanos) -> None:
        """Record that the last object of a lineage is deleted, or has finished."""
        self._ended[line] = at
        if self._marks[line] and self._latest[line] >= 0 and not self.is_away(line):
            self._go_if_ended(line)

    def _go_if_ended(self, line: int) -> None:
        ended, displaced = self._ended.get(line, _NEVER), self._since[line]
        if ended >= displaced and ended >= 0:
            self._go(line, Nanos(max(displaced, ended - _SEEN_LATE)))

    def is_away(self, line: int) -> bool:
        """Whether another object could replace it."""
        return self._next[line] != _NOT_LINKED

    def _go(self, line: int, since: Nanos) -> None:
        """Insert a lineage where it belongs among those that are away."""
        weak = self._parties.weak[self._latest[line]]
        if weak < 0:
            return
        if weak >= len(self._first):
            for each in (self._first, self._last):
                reach(each, weak + 1, UNKNOWN)
        self._link[line], self._since[line] = weak, since
        after, before = UNKNOWN, self._last[weak]
        while before >= 0 and self._since[before] > since:
            after, before = before, self._previous[before]
        self._previous[line], self._next[line] = before, after
        if before >= 0:
            self._next[before] = line
        else:
            self._first[weak] = line
        if after >= 0:
            self._previous[after] = line
        else:
            self._last[weak] = line

    def _came_back(self, line: int) -> None:
        weak, before, after = self._link[line], self._previous[line], self._next[line]
        if before >= 0:
            self._next[before] = after
        else:
            self._first[weak] = after
        if after >= 0:
            self._previous[after] = before
        else:
            self._last[weak] = before
        self._next[line] = _NOT_LINKED
        self._marks[line] = 0

    # Which family

    def of(self, party: Party) -> int:
        """Return the family of a lineage with weak links, `UNKNOWN` if nothing of it is known."""
        line = self._parties.lines.find(party.lineage)
        found = self.wide(line)
        if found >= 0:
            return found
        found = self.wide(self._parties.lines.find(party.merged)) if party.merged else UNKNOWN
        if found >= 0:
            return found
        weak = self._parties.weaks.find(party.weak) if party.weak else UNKNOWN
        former = self._former(weak, party.created, line) if weak >= 0 else UNKNOWN
        return self.wide(former) if former >= 0 else UNKNOWN

    def wide(self, line: int) -> int:
        """Return the family of a line with weak links, `UNKNOWN` if it was not learned."""
        wide = self._wide
        return _root(wide, line) if line >= 0 and wide[line] >= 0 else UNKNOWN

    def narrow(self, line: int) -> int:
        """Return the family of a line by owner, template and label."""
        found = self._labelled(line)
        return line if found < 0 else found

    def narrow_of(self, party: Party) -> int:
        """Return the family of a lineage by owner, template and label, `UNKNOWN` as in `of`."""
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
        """Return which object this one replaces, there `before` that; -1 for none."""
        if weak >= len(self._first):
            return UNKNOWN
        # API servers give the instants of creation in whole seconds.
        made, former = created // SECOND, self._first[weak]
        while former >= 0:
            since = self._since[former]
            if since // SECOND > made or (before is not None and since >= before):
                break
            if former != line and self._parties.created[self._latest[former]] // SECOND != made:
                return former
            former = self._next[former]
        return UNKNOWN


def reach(numbers: array[int], size: int, value: int) -> None:
    """Make an array as long as that."""
    if size > len(numbers):
        numbers.extend(array(numbers.typecode, [value]) * (size - len(numbers)))


def _root(parents: array[int], line: int) -> int:
    while parents[line] != line:
        parents[line] = parents[parents[line]]
        line = parents[line]
    return line


def _join(parents: array[int], first: int, second: int) -> None:
    one, other = _root(parents, first), _root(parents, second)
    if one != other:
        parents[other] = one

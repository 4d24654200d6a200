"""Families: which lineages are one, read in the order of time.

The name of a family is that of its member that was read first. Lineages and participants are
numbers of `Participants`. Lineages that are away without a successor are kept for each weak link in
a list in the order of time, so that an operation costs what is older than it requests.

Away is a pod of its own from when it was displaced, since it does not come back, and everything
else once it was displaced (or failed) and has ended (`Families.ended`): what is there still comes
back as itself. An object with a known label succeeds no other lineage: the label states which work
it is.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from array import array
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Participant, goes_for_good
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
        self._participants = rows.participants
        # Parents by lineage, of those that were learned.
        self._narrow = array("i")  # those with a label only
        self._wide = array("i")
        # By weak link: the first and the last lineage that is away.
        self._first = array("i")
        self._last = array("i")
        # By lineage: those beside it there, and since when it is away, or when it was displaced.
        self._next = array("i")
        self._previous = array("i")
        self._since = array("q")
        self._link = array("i")  # the weak link by which it is away
        self._latest = array("i")  # the participant as which it appeared last
        self._marks = bytearray()
        # By lineage, of some: when it ended last, and when it got what it wanted.
        self._ended: dict[int, Nanos] = {}
        self._ran: dict[int, Nanos] = {}

    def reach(self, lineages: int) -> None:
        """Allocate so many lineages."""
        for each in (self._narrow, self._wide, self._link, self._latest):
            reach(each, lineages, UNKNOWN)
        for each in (self._next, self._previous):
            reach(each, lineages, _NOT_LINKED)
        reach(self._since, lineages, _NEVER)
        self._marks.extend(bytes(max(0, lineages - len(self._marks))))

    def learn(self, number: int, at: Nanos) -> int:
        """Record a lineage that was part of a displacement, and was there before it.

        Return its family with weak links.
        """
        participants = self._participants
        lineage, merged, weak = (
            participants.lineage[number],
            participants.merged[number],
            participants.weak[number],
        )
        wide = self._wide
        new = wide[lineage] < 0
        labelled = merged >= 0 and wide[merged] >= 0
        if new:
            wide[lineage] = lineage
        elif self.is_away(lineage) and at > self._since[lineage]:
            self._came_back(lineage)  # as itself
        if merged >= 0:
            for parents in (self._narrow, wide):
                for each in (lineage, merged):
                    if parents[each] < 0:
                        parents[each] = each
                _join(parents, lineage, merged)
        if new and weak >= 0 and not labelled:
            former = self._former(weak, participants.created[number], lineage, at)
            if former >= 0:
                self._came_back(former)
                _join(wide, former, lineage)
        return _root(wide, lineage)

    def displaced(self, row: int) -> None:
        """Record that an object is displaced."""
        number = self._rows.victim[row]
        lineage, at = self._participants.lineage[number], Nanos(self._rows.at[row])
        if self.is_away(lineage):
            self._came_back(lineage)
        self._latest[lineage], self._since[lineage] = number, at
        if self._participants.weak[number] < 0:
            return
        if goes_for_good(self._participants.lineages[lineage]):
            self._go(lineage, at)
        elif self._ran.get(lineage, _NEVER) <= at:
            self._marks[lineage] |= _DISPLACED
            self._go_if_ended(lineage)

    def displaces(self, number: int) -> None:
        """Record who displaced other work, as this lineage."""
        lineage = self._participants.lineage[number]
        self._latest[lineage] = number
        if self._marks[lineage] & _FAILED and not self.is_away(lineage):
            self._go_if_ended(lineage)

    def failed(self, lineage: int) -> None:
        """Record that a lineage failed."""
        self._marks[lineage] |= _FAILED
        if self._latest[lineage] >= 0 and not self.is_away(lineage):
            self._go_if_ended(lineage)

    def ran(self, lineage: int, at: Nanos) -> None:
        """Record that a lineage got what it wanted: what was displaced before is back."""
        self._ran[lineage] = at
        if self._since[lineage] < at:
            self._marks[lineage] &= ~_DISPLACED

    def ended(self, lineage: int, at: Nanos) -> None:
        """Record that the last object of a lineage is deleted, or has finished."""
        self._ended[lineage] = at
        if self._marks[lineage] and self._latest[lineage] >= 0 and not self.is_away(lineage):
            self._go_if_ended(lineage)

    def _go_if_ended(self, lineage: int) -> None:
        ended, displaced = self._ended.get(lineage, _NEVER), self._since[lineage]
        if ended >= displaced and ended >= 0:
            self._go(lineage, Nanos(max(displaced, ended - _SEEN_LATE)))

    def is_away(self, lineage: int) -> bool:
        """Whether another object could replace it."""
        return self._next[lineage] != _NOT_LINKED

    def _go(self, lineage: int, since: Nanos) -> None:
        """Insert a lineage where it belongs among those that are away."""
        weak = self._participants.weak[self._latest[lineage]]
        if weak < 0:
            return
        if weak >= len(self._first):
            for each in (self._first, self._last):
                reach(each, weak + 1, UNKNOWN)
        self._link[lineage], self._since[lineage] = weak, since
        after, before = UNKNOWN, self._last[weak]
        while before >= 0 and self._since[before] > since:
            after, before = before, self._previous[before]
        self._previous[lineage], self._next[lineage] = before, after
        if before >= 0:
            self._next[before] = lineage
        else:
            self._first[weak] = lineage
        if after >= 0:
            self._previous[after] = lineage
        else:
            self._last[weak] = lineage

    def _came_back(self, lineage: int) -> None:
        weak, before, after = self._link[lineage], self._previous[lineage], self._next[lineage]
        if before >= 0:
            self._next[before] = after
        else:
            self._first[weak] = after
        if after >= 0:
            self._previous[after] = before
        else:
            self._last[weak] = before
        self._next[lineage] = _NOT_LINKED
        self._marks[lineage] = 0

    # Which family

    def of(self, participant: Participant) -> int:
        """Return the family of a lineage with weak links, `UNKNOWN` if nothing of it is known."""
        lineage = self._participants.lineages.find(participant.lineage)
        found = self.wide(lineage)
        if found >= 0:
            return found
        found = (
            self.wide(self._participants.lineages.find(participant.merged))
            if participant.merged
            else UNKNOWN
        )
        if found >= 0:
            return found
        weak = self._participants.weaks.find(participant.weak) if participant.weak else UNKNOWN
        former = self._former(weak, participant.created, lineage) if weak >= 0 else UNKNOWN
        return self.wide(former) if former >= 0 else UNKNOWN

    def wide(self, lineage: int) -> int:
        """Return the family of a lineage with weak links, `UNKNOWN` if it was not learned."""
        wide = self._wide
        return _root(wide, lineage) if lineage >= 0 and wide[lineage] >= 0 else UNKNOWN

    def narrow(self, lineage: int) -> int:
        """Return the family of a lineage by owner, template and label."""
        found = self._labelled(lineage)
        return lineage if found < 0 else found

    def narrow_of(self, participant: Participant) -> int:
        """Return the family of a lineage by owner, template and label, `UNKNOWN` as in `of`."""
        lineages = self._participants.lineages
        lineage = lineages.find(participant.lineage)
        found = self._labelled(lineage)
        if found < 0 and participant.merged:
            found = self._labelled(lineages.find(participant.merged))
        return lineage if found < 0 else found

    def _labelled(self, lineage: int) -> int:
        narrow = self._narrow
        return _root(narrow, lineage) if lineage >= 0 and narrow[lineage] >= 0 else UNKNOWN

    def _former(self, weak: int, created: int, lineage: int, before: Nanos | None = None) -> int:
        """Return which object this one replaces, there `before` that; -1 for none."""
        if weak >= len(self._first):
            return UNKNOWN
        # API servers give the instants of creation in whole seconds.
        made, former = created // SECOND, self._first[weak]
        while former >= 0:
            since = self._since[former]
            if since // SECOND > made or (before is not None and since >= before):
                break
            if (
                former != lineage
                and self._participants.created[self._latest[former]] // SECOND != made
            ):
                return former
            former = self._next[former]
        return UNKNOWN


def reach(numbers: array[int], size: int, value: int) -> None:
    """Make an array as long as that."""
    if size > len(numbers):
        numbers.extend(array(numbers.typecode, [value]) * (size - len(numbers)))


def _root(parents: array[int], lineage: int) -> int:
    while parents[lineage] != lineage:
        parents[lineage] = parents[parents[lineage]]
        lineage = parents[lineage]
    return lineage


def _join(parents: array[int], first: int, second: int) -> None:
    one, other = _root(parents, first), _root(parents, second)
    if one != other:
        parents[other] = one

"""The ledger by lines of work: what families did to each other, in the order of time.

Rows are taken in one after the other, with the families as they were known at each; a row that
comes out of order, or is taken back, has all taken in again before the next look. What was folded
is therefore the same whatever the order in which it was told.

Looks at one family cost the rows of that family; `edges` costs those of the window.
Source: specification of disruptions, sections 1 and 3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from reprieve.engine.disruptions.ledger import Displacement, Exemption, Ledger
from reprieve.engine.disruptions.lineage import Families, Lineage, Party
from reprieve.engine.disruptions.loops import Edge
from reprieve.units.instants import Nanos

__all__ = ["History", "anew"]

#: Rows that came since old ones were last dropped from the lists of families, at least.
_CLEAN_AFTER = 1_000


class _Rows:
    """Rows by lineage, in the order of time, and who else is in the family that a lineage names."""

    def __init__(self) -> None:
        self.of: dict[str, list[Displacement]] = {}
        self._others: dict[str, list[str]] = {}

    def __contains__(self, family: str) -> bool:
        return family in self.of or family in self._others

    def append(self, family: str, lineage: str, row: Displacement) -> None:
        """Add a row of a lineage."""
        rows = self.of.get(lineage)
        if rows is not None:
            rows.append(row)
            return
        self.of[lineage] = [row]
        if family != lineage:
            self._others.setdefault(family, []).append(lineage)

    def lineages(self, family: str) -> Iterator[list[Displacement]]:
        """Yield the rows of each lineage of a family."""
        own = self.of.get(family)
        if own is not None:
            yield own
        for lineage in self._others.get(family, ()):
            yield self.of[lineage]

    def bring_together(self, before: str, now: str) -> None:
        """Make a family a part of another one."""
        others = self._others.pop(before, [])
        if before in self.of:
            others.append(before)
        if others:
            self._others.setdefault(now, []).extend(others)

    def drop_before(self, oldest: tuple[Nanos, int, str, str, str]) -> None:
        """Forget all rows before this one."""
        for lineage, rows in list(self.of.items()):
            self.of[lineage] = [row for row in rows if row.identity >= oldest]
            if not self.of[lineage]:
                del self.of[lineage]
        for family, others in list(self._others.items()):
            self._others[family] = [each for each in others if each in self.of]
            if not self._others[family]:
                del self._others[family]


class History:
    """Follows rows by families, whose names are those of `Families.wide`."""

    def __init__(self, kept: int) -> None:
        self.ledger = Ledger(kept)
        self.revision = 0
        self.clear()

    def clear(self) -> None:
        """Forget what was taken in, not what is in the ledger."""
        self._families = Families()
        self._parties: dict[str, Party] = {}
        self._by_preemptor = _Rows()
        self._by_victim = _Rows()
        self._taken: list[Displacement] = []
        self._fresh = 0
        self._dealings: tuple[str, int, dict[str, list[Displacement]]] = ("", -1, {})

    def take_in(self, row: Displacement) -> tuple[str, str]:
        """Take the next row in; return the families of both, no preemptor's where it counts not."""
        self.revision += 1
        families, preemptor, victim = self._families, row.preemptor, row.victim
        one = "" if preemptor is None else self._learn(preemptor, row.at)
        other = self._learn(victim, row.at)
        if preemptor is not None:
            if victim.merged:
                one = families.wide(preemptor)
            if row.counts:
                self._by_preemptor.append(one, preemptor.lineage, row)
                self._taken.append(row)
            else:
                one = ""
        self._by_victim.append(other, victim.lineage, row)
        families.displaced(victim, row.at)
        self._fresh += 1
        if self._fresh > max(_CLEAN_AFTER, len(self.ledger)):
            self._drop_old()
        return one, other

    def _learn(self, party: Party, at: Nanos) -> str:
        """Take note of who took part; return its family."""
        self._parties[party.lineage] = party
        if not party.merged:
            # A weak link puts what is new under the name of what was there: no row has to move.
            return self._families.learn(party, at)
        before = self._families.wide(party), self.named(party.merged)
        now = self._families.learn(party, at)
        self._bring_together(before, now)
        return now

    # Families

    def family(self, party: Party) -> str:
        """Return the family of a line of work."""
        return self._families.wide(party)

    def named(self, name: str) -> str:
        """Return the family of a lineage, or of what was the name of one."""
        party = self._parties.get(name)
        return self._families.wide(Party(Lineage(name)) if party is None else party)

    def concerns(self, party: Party) -> bool:
        """Tell whether a family displaced others or was displaced."""
        name = self._families.wide(party)
        return name in self._by_preemptor or name in self._by_victim

    # Rows

    def displaced(self, party: Party, since: Nanos) -> list[Nanos]:
        """Return the instants at which work was displaced, by whomever; weak links do not count."""
        narrow = self._families.narrow(party)
        lineages = self._by_victim.lineages(self._families.wide(party))
        return sorted(
            {
                row.at
                for rows in lineages
                if self._families.narrow(rows[0].victim) == narrow
                for row in _after(rows, since)
                if row.exempt is Exemption.NONE
            }
        )

    def last_displaced(self, family: str) -> Nanos:
        """Return when a family was displaced last, by whomever; 0 if it never was."""
        lineages = self._by_victim.lineages(family)
        return max((rows[-1].at for rows in lineages), default=Nanos(0))

    def victims(self, since: Nanos) -> Iterator[Party]:
        """Yield who was displaced, each lineage once, by name."""
        found = {row.victim.lineage: row.victim for row in self.ledger.since(since)}
        for _, party in sorted(found.items()):
            yield party

    def displaces(self, family: str) -> bool:
        """Tell whether a family displaced anybody."""
        return family in self._by_preemptor

    def by(self, family: str) -> Iterator[Displacement]:
        """Yield what a family did to others, each lineage's in the order of time."""
        for rows in self._by_preemptor.lineages(family):
            yield from rows

    def times(self, preemptor: str, victim: str, since: Nanos) -> int:
        """Return at how many instants a family displaced another one."""
        return len(
            {
                row.at
                for rows in self._by_victim.lineages(victim)
                for row in _after(rows, since)
                if row.counts and self.did(row, preemptor)
            }
        )

    def between(self, family: str, other: str, since: Nanos) -> Sequence[Displacement]:
        """Return what two families did to each other."""
        if family not in self._by_preemptor and other not in self._by_preemptor:
            return ()
        known, revision, dealings = self._dealings
        if (known, revision) != (family, self.revision):
            dealings = self._dealings_of(family)
            self._dealings = (family, self.revision, dealings)
        return _after(dealings.get(other, ()), since)

    def did(self, row: Displacement, family: str) -> bool:
        """Tell whether it was a family's doing."""
        return row.preemptor is not None and self._families.wide(row.preemptor) == family

    def edges(self, since: Nanos) -> list[Edge]:
        """Return who displaced whom of what was taken in, each pair since its cause is what it is.

        Costs the rows after `since`.
        """
        between: dict[frozenset[str], list[Displacement]] = {}
        for row in _after(self._taken, since):
            between.setdefault(frozenset(self._edge(row)), []).append(row)
        found: dict[tuple[str, str], list[Displacement]] = {}
        for dealings in between.values():
            for row in anew(dealings):
                found.setdefault(self._edge(row), []).append(row)
        return [
            Edge(
                *edge,
                tuple(sorted({row.at for row in rows})),
                rows[-1].above,
                sum(row.lost_device_seconds for row in rows),
                len(rows),
            )
            for edge, rows in found.items()
        ]

    def _edge(self, row: Displacement) -> tuple[str, str]:
        assert row.preemptor is not None
        return self._families.wide(row.preemptor), self._families.wide(row.victim)

    def _dealings_of(self, family: str) -> dict[str, list[Displacement]]:
        found: dict[str, list[Displacement]] = {}
        for row in self.by(family):
            found.setdefault(self._families.wide(row.victim), []).append(row)
        for rows in self._by_victim.lineages(family):
            for row in rows:
                if row.counts and row.preemptor is not None:
                    other = self._families.wide(row.preemptor)
                    if other != family:
                        found.setdefault(other, []).append(row)
        return {other: sorted(rows, key=_identity) for other, rows in found.items()}

    def _bring_together(self, before: Iterable[str], now: str) -> None:
        """Give the rows of families that have become one to that one."""
        for name in before:
            if name != now:
                for rows in (self._by_preemptor, self._by_victim):
                    rows.bring_together(name, now)

    def _drop_old(self) -> None:
        self._fresh = 0
        if not len(self.ledger):
            return
        oldest = self.ledger.rows[0].identity
        self._taken = [row for row in self._taken if row.identity >= oldest]
        for rows in (self._by_preemptor, self._by_victim):
            rows.drop_before(oldest)


def anew(rows: Sequence[Displacement], cause: str = "") -> list[Displacement]:
    """Return those of a pair's rows that count: of this cause, or else of any, if it still holds.

    Of two lineages the cause holds that they had last: what they did to each other before by
    another one is over. Families may have lineages in several places, each with its own cause.
    Rows of unknown cause go with those around them.
    """
    current: dict[frozenset[str], str] = {}
    over: set[frozenset[str]] = set()
    found = []
    for row in reversed(rows):
        assert row.preemptor is not None
        pair = frozenset((row.preemptor.lineage, row.victim.lineage))
        known = current.get(pair, "") or cause
        if row.cause and known and row.cause != known:
            over.add(pair)
        if pair not in over:
            current[pair] = known or row.cause
            found.append(row)
    return found[::-1]


def _after(rows: Sequence[Displacement], since: Nanos) -> Sequence[Displacement]:
    return rows[bisect_right(rows, since, key=_instant) :]


def _identity(row: Displacement) -> tuple[Nanos, int, str, str, str]:
    return row.identity


def _instant(row: Displacement) -> Nanos:
    return row.at

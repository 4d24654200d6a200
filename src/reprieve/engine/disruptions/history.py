"""The ledger by lines of work: what families did to each other, in the order of time.

Rows are taken in one after the other, with the families as they were known at each; a row that
comes out of order, or is taken back, has all taken in again before the next look. What was folded
is therefore the same whatever the order in which it was told.

Looks at one family cost the rows of that family; `edges` costs those of the window. Of rows that
have left the ledger, and of who took part in them, is held what came since the last time that all
was taken in: `worn` says when that is due again.
Source: specification of disruptions, sections 1 and 3.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from reprieve.engine.disruptions.ledger import MOST_ROWS, Displacement, Exemption, Ledger
from reprieve.engine.disruptions.lineage import Families, Lineage, Party
from reprieve.engine.disruptions.loops import Edge
from reprieve.units.instants import Nanos

__all__ = ["History", "anew"]

#: Rows that were taken in beyond those of the ledger before all is taken in again: a part of them,
#: and at least so many.
_WORN_BY = 4
_LEAST_WORN = 1_000


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

    def insert(self, family: str, lineage: str, row: Displacement) -> None:
        """Add a row of a lineage where it belongs in the order of time."""
        rows = self.of.get(lineage)
        if rows is None:
            self.append(family, lineage, row)
        else:
            insort(rows, row, key=_identity)

    def names(self, family: str) -> Iterator[str]:
        """Yield the lineages of a family."""
        if family in self.of:
            yield family
        yield from self._others.get(family, ())

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


class History:
    """Follows rows by families, whose names are those of `Families.wide`."""

    def __init__(self, kept: int, most: int = MOST_ROWS) -> None:
        self.ledger = Ledger(kept, most)
        self.revision = 0
        self.clear()

    def clear(self) -> None:
        """Forget what was taken in, not what is in the ledger."""
        self._families = Families()
        self._parties: dict[str, Party] = {}
        self._by_preemptor = _Rows()
        self._by_victim = _Rows()
        self._taken: list[Displacement] = []
        self._took = 0
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
        self._took += 1
        return one, other

    @property
    def worn(self) -> bool:
        """Whether so much is held of rows that are gone that all should be taken in again."""
        rows = len(self.ledger)
        return self._took - rows > max(_LEAST_WORN, rows // _WORN_BY)

    def take_in_late(self, row: Displacement) -> bool:
        """Take a row in that belongs before others; return whether that can be done by itself.

        It can where it is nobody's doing, and says nothing of which lineages are one: its place
        among the rows of its victim is then all that depends on when it was told.
        """
        victim = row.victim
        if row.preemptor is not None or victim.weak or victim.merged or self._is_first(row):
            return False
        self.revision += 1
        self._parties.setdefault(victim.lineage, victim)
        family = self._families.learn(victim, row.at)
        self._by_victim.insert(family, victim.lineage, row)
        self._took += 1
        return True

    def _is_first(self, row: Displacement) -> bool:
        """Tell whether a lineage that is known may have been unknown when this happened."""
        lineage = row.victim.lineage
        both = (self._by_victim.of.get(lineage), self._by_preemptor.of.get(lineage))
        known = [rows[0].identity for rows in both if rows]
        return lineage in self._parties and not (known and min(known) < row.identity)

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
        return self._families.wide(self.party(name))

    def party(self, name: str) -> Party:
        """Return a lineage as it was last seen."""
        return self._parties.get(name) or Party(Lineage(name))

    def concerns(self, party: Party) -> bool:
        """Tell whether a family displaced others or was displaced."""
        name = self._families.wide(party)
        return name in self._by_preemptor or name in self._by_victim

    def lineages(self, family: str) -> set[str]:
        """Return the lineages of a family that displaced others or were displaced."""
        return {*self._by_preemptor.names(family), *self._by_victim.names(family)}

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

    def often(self, since: Nanos, limit: int) -> dict[tuple[str, str], Displacement]:
        """Return the last of each pair's displacements, where there were `limit` instants of them.

        Costs the rows after `since`.
        """
        instants: dict[tuple[str, str], set[Nanos]] = {}
        last: dict[tuple[str, str], Displacement] = {}
        for row in _after(self._taken, since):
            edge = self._edge(row)
            instants.setdefault(edge, set()).add(row.at)
            last[edge] = row
        return {edge: last[edge] for edge, found in instants.items() if len(found) >= limit}

    def between(self, family: str, other: str, since: Nanos) -> Sequence[Displacement]:
        """Return what two families did to each other."""
        if family not in self._by_preemptor and other not in self._by_preemptor:
            return ()
        known, revision, dealings = self._dealings
        if (known, revision) != (family, self.revision):
            dealings = self._dealings_of(family)
            self._dealings = (family, self.revision, dealings)
        return _after(dealings.get(other, ()), since)

    def did_to(self, family: str, since: Nanos) -> Iterator[tuple[str, Nanos]]:
        """Yield whom a family displaced after an instant, and when; costs those rows alone."""
        for rows in self._by_preemptor.lineages(family):
            for row in _after(rows, since):
                yield self._families.wide(row.victim), row.at

    def known_by(self, families: Iterable[str]) -> frozenset[str]:
        """Return by what those of families are known: whoever is none of them is in none.

        Lineages, labels and weak links, so that who comes back as another object is among them.
        """
        return frozenset(
            name
            for family in families
            for rows in (self._by_victim, self._by_preemptor)
            for lineage in rows.lineages(family)
            for row in lineage
            for party in (row.victim, row.preemptor)
            if party is not None and self._families.wide(party) == family
            for name in (party.lineage, party.merged, party.weak)
            if name
        )

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

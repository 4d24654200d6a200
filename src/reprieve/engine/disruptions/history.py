"""The ledger by lineages: what families did to each other, in the order of time.

Rows are read one after the other, with the families as they were known at each; after a row that
comes out of order, or is removed, all are read again before the next look. What was folded
is therefore the same in whatever order the rows arrived.

Rows, lineages and families are numbers here (a family has that of the lineage that was read
first, and `UNKNOWN` where nothing is known of it), which hold until all is read again. Looks at
one family cost the rows of that family; `edges` costs those of the window. Of rows that have left
the ledger, and of their lineages, the history keeps what came since the last time that all was
read: `worn` states when that is due again.
Source: specification of disruptions, sections 1 and 3.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import Displacement, Exemption
from reprieve.engine.disruptions.families import UNKNOWN, Families, reach
from reprieve.engine.disruptions.ledger import MOST_ROWS, Ledger
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.loops import Edge
from reprieve.engine.disruptions.sides import Side

__all__ = ["History"]

#: Rows that were read beyond those of the ledger before all are read again: a part of them,
#: and at least so many.
_WORN_BY: Final = 4
_LEAST_WORN: Final = 1_000

#: Capacity for rows and lineages to come: a part of those that there are, and so many.
_MORE: Final = 32

#: What ended so long before the last row is reported after a restart.
_REPORTED_LATE: Final = 10 * SECOND

_CHOSEN: Final = 1
_COUNTS: Final = 2


class History:
    """Follows rows by families, whose numbers are those of `Families.wide`."""

    def __init__(self, kept: int, most: int = MOST_ROWS) -> None:
        self.ledger = Ledger(kept, most)
        self.revision = 0
        # Of lineages in rows: when the last object ended, when it got what it wanted, and
        # which of them failed.
        self._ended: dict[str, Nanos] = {}
        self._ran: dict[str, Nanos] = {}
        self._failed: set[str] = set()
        self.clear()

    def clear(self) -> None:
        """Forget what was read, not what is in the ledger."""
        self.ledger.tidy()
        self.revision += 1
        self._rows = self.ledger.columns
        self._participants = self._rows.participants
        self._families = Families(self._rows)
        self._seen = array("i")  # participant by lineage, as it appeared last
        self._by_preemptor = Side(self._rows)
        self._by_victim = Side(self._rows)
        self._state = bytearray()  # by row
        self._took = 0
        self._reach()
        self._report_families()
        # Of one family, a revision, and since when: what it and each other one did.
        self._dealings: tuple[int, int, int, dict[int, list[int]]] = (UNKNOWN, -1, 0, {})
        self._names: dict[int, frozenset[str]] = {}  # by family, until it has another row

    def _report_families(self) -> None:
        """Give families what is in no row of a lineage, and forget lineages without rows."""
        find, families = self._participants.lineages.find, self._families
        self._ended = {name: at for name, at in self._ended.items() if find(name) >= 0}
        self._ran = {name: at for name, at in self._ran.items() if find(name) >= 0}
        self._failed = {name for name in self._failed if find(name) >= 0}
        for name, at in self._ended.items():
            families.ended(find(name), at)
        for name, at in self._ran.items():
            families.ran(find(name), at)
        for name in self._failed:
            families.failed(find(name))

    def observe(self, row: int) -> tuple[int, int]:
        """Read the next row; return the families of both, no preemptor's where it counts not."""
        self.revision += 1
        rows, participants, families = self._rows, self._participants, self._families
        if row >= len(self._state) or len(participants.lineages) > len(self._seen):
            self._reach()
        at, preemptor, victim = Nanos(rows.at[row]), rows.preemptor[row], rows.victim[row]
        one = UNKNOWN if preemptor < 0 else self._learn(preemptor, at)
        other = self._learn(victim, at)
        state = _CHOSEN
        if preemptor >= 0:
            if rows.counts(row):
                lineage = participants.lineage[preemptor]
                if participants.merged[victim] >= 0:
                    one = families.wide(lineage)
                self._by_preemptor.append(one, lineage, row)
                families.displaces(preemptor)
                state = _COUNTS
            else:
                one = UNKNOWN
        self._by_victim.append(other, participants.lineage[victim], row)
        families.displaced(row)
        self._state[row] = state
        self._took += 1
        if self.labelled(row):
            self._names.clear()
        for family in (one, other):
            self._names.pop(family, None)
        return one, other

    def labelled(self, row: int) -> bool:
        """Return whether a row may have made two families with rows of their own one, by label."""
        merged, preemptor = self._participants.merged, self._rows.preemptor[row]
        return merged[self._rows.victim[row]] >= 0 or (preemptor >= 0 and merged[preemptor] >= 0)

    def _reach(self) -> None:
        """Allocate all rows and lineages that there are, and some more."""
        lineages, rows = (
            n + n // _MORE + _MORE for n in (len(self._participants.lineages), len(self._rows))
        )
        reach(self._seen, lineages, UNKNOWN)
        self._state.extend(bytes(max(0, rows - len(self._state))))
        for each in (self._by_preemptor, self._by_victim):
            each.reach(lineages, rows)
        self._families.reach(lineages)

    def ended(self, name: str, at: Nanos) -> bool | None:
        """Record that the last object of a lineage is deleted, or has finished.

        Return whether all has to be read again, since that comes late; None where the lineage
        is in no row.
        """
        lineage = self._participants.lineages.find(name)
        if lineage < 0:
            return None
        self._ended[name] = at
        last = self.ledger.last
        if lineage >= len(self._seen) or (last is not None and at < last[0] - _REPORTED_LATE):
            return True
        self.revision += 1
        self._families.ended(lineage, at)
        return False

    def ran(self, name: str, at: Nanos) -> None:
        """Record that a lineage got what it wanted."""
        self._ran[name] = at
        lineage = self._participants.lineages.find(name)
        if 0 <= lineage < len(self._seen):
            self._families.ran(lineage, at)

    def failed(self, name: str) -> None:
        """Record that a lineage failed."""
        self._failed.add(name)
        lineage = self._participants.lineages.find(name)
        if 0 <= lineage < len(self._seen):
            self._families.failed(lineage)

    @property
    def worn(self) -> bool:
        """Whether so much is held of deleted rows that all should be read again."""
        rows = len(self.ledger)
        return self._took - rows > max(_LEAST_WORN, rows // _WORN_BY)

    def observe_late(self, row: int) -> bool:
        """Read a row that belongs before others; return whether that can be done by itself.

        It can where it has no preemptor, and states nothing of which lineages are one: its place
        among the rows of its victim is then all that depends on when it arrived.
        """
        self._reach()
        rows, participants = self._rows, self._participants
        victim = rows.victim[row]
        late = (
            rows.preemptor[row] >= 0
            or participants.weak[victim] >= 0
            or participants.merged[victim] >= 0
        )
        if late or self._is_first(row):
            return False
        self.revision += 1
        lineage = participants.lineage[victim]
        if self._seen[lineage] < 0:
            self._seen[lineage] = victim
        family = self._families.learn(victim, Nanos(rows.at[row]))
        self._by_victim.insert(family, lineage, row)
        self._names.clear()
        self._state[row] = _CHOSEN
        self._took += 1
        return True

    def _is_first(self, row: int) -> bool:
        """Return whether a lineage that is known may have been unknown when this happened."""
        lineage, identity = self._rows.suffered(row), self._rows.identity
        if self._seen[lineage] < 0:
            return False
        wanted = identity(row)
        sides = (self._by_victim, self._by_preemptor)
        return not any(identity(each) < wanted for side in sides for each in side.back(lineage))

    def _learn(self, number: int, at: Nanos) -> int:
        """Record both sides of a row; return its family."""
        participants, families = self._participants, self._families
        lineage, merged = participants.lineage[number], participants.merged[number]
        self._seen[lineage] = number
        if merged < 0:
            # A weak link adds what is new under the existing name: no row has to move.
            return families.learn(number, at)
        before = families.of(participants[number]), families.wide(merged)
        now = families.learn(number, at)
        for name in before:
            # One that could have come back as this participant may have ended later than this
            # happened.
            if name not in (UNKNOWN, now) and families.wide(name) == now:
                for side in (self._by_preemptor, self._by_victim):
                    side.bring_together(name, now)
        return now

    # Families

    def family(self, participant: Participant) -> int:
        """Return the family of a lineage."""
        return self._families.of(participant)

    def called(self, participant: Participant) -> str:
        """Return the name of the family of a lineage."""
        family = self._families.of(participant)
        return participant.lineage if family < 0 else self._participants.lineages[family]

    def numbered(self, name: str) -> int:
        """Return the family of a lineage, or of what was the name of one."""
        return self._families.wide(self._participants.lineages.find(name))

    def named(self, name: str) -> str:
        """Return the name of that family."""
        family = self.numbered(name)
        return name if family < 0 else self._participants.lineages[family]

    def participant(self, name: str) -> Participant:
        """Return a lineage as it was last seen."""
        lineage = self._participants.lineages.find(name)
        seen = self._seen[lineage] if lineage >= 0 else UNKNOWN
        return self._participants[seen] if seen >= 0 else Participant(Lineage(name))

    def concerns(self, family: int) -> bool:
        """Return whether a family displaced others or was displaced."""
        return family in self._by_preemptor or family in self._by_victim

    def lineages(self, family: int) -> set[str]:
        """Return the lineages of a family that displaced others or were displaced."""
        both = (self._by_preemptor, self._by_victim)
        return {
            self._participants.lineages[lineage]
            for side in both
            for lineage in side.lineages(family)
        }

    # Rows

    def displaced(self, participant: Participant, since: Nanos) -> list[Nanos]:
        """Return the instants at which work was displaced, by whomever; weak links do not count."""
        families, rows = self._families, self._rows
        narrow = families.narrow_of(participant)
        return sorted(
            {
                Nanos(rows.at[row])
                for lineage in self._by_victim.lineages(families.of(participant))
                if families.narrow(lineage) == narrow
                for row in self._by_victim.back(lineage, since)
                if rows.terms(row).exempt is Exemption.NONE
            }
        )

    def last_displaced(self, family: int) -> Nanos:
        """Return when a family was displaced last, by whomever; 0 if it never was."""
        side, at = self._by_victim, self._rows.at
        return max(
            (Nanos(at[side.last(lineage)]) for lineage in side.lineages(family)), default=Nanos(0)
        )

    def displacer(self, family: int, since: Nanos, before: Nanos) -> Displacement | None:
        """Return the last displacement of a family by another one between two instants."""
        at, found = self._rows.at, -1
        for row in self._by_victim.rows(family, since):
            later = found < 0 or at[row] >= at[found]
            if later and at[row] <= before and self._state[row] == _COUNTS:
                found = row
        return None if found < 0 else self._rows[found]

    def victims(self, since: Nanos) -> Iterator[Participant]:
        """Yield who was displaced, each lineage once, by name."""
        rows, participants = self._rows, self._participants
        found = {rows.suffered(row): rows.victim[row] for row in self.ledger.since(since)}
        for _, number in sorted(
            (participants.lineages[lineage], each) for lineage, each in found.items()
        ):
            yield participants[number]

    def displaces(self, family: int) -> bool:
        """Return whether a family displaced any work."""
        return family in self._by_preemptor

    def did_at(self, family: int) -> Iterator[Nanos]:
        """Yield when a family displaced others, in no order."""
        for row in self._by_preemptor.rows(family):
            yield Nanos(self._rows.at[row])

    def times(self, preemptor: int, victim: int, since: Nanos) -> int:
        """Return at how many instants a family displaced another one."""
        at, state = self._rows.at, self._state
        return len(
            {
                at[row]
                for row in self._by_victim.rows(victim, since)
                if state[row] == _COUNTS and self.did(row, preemptor)
            }
        )

    def reached(self, preemptor: int, victim: int, since: Nanos, limit: int) -> bool:
        """Return whether a family displaced another one at so many instants; costs no more rows."""
        at, state, found = self._rows.at, self._state, set[int]()
        for row in self._by_victim.rows(victim, since):
            if state[row] == _COUNTS and at[row] not in found and self.did(row, preemptor):
                found.add(at[row])
                if len(found) >= limit:
                    return True
        return False

    def name(self, family: int) -> str:
        """Return the name of a family."""
        return self._participants.lineages[family]

    def row(self, number: int) -> Displacement:
        """Return a displacement that was read."""
        return self._rows[number]

    def often(self, since: Nanos, limit: int) -> dict[tuple[str, str], Displacement]:
        """Return the last of each pair's displacements, where there were `limit` instants of them.

        Costs the rows after `since`.
        """
        instants: dict[tuple[int, int], set[int]] = {}
        last: dict[tuple[int, int], int] = {}
        for row in self._after(since):
            edge = self._edge(row)
            instants.setdefault(edge, set()).add(self._rows.at[row])
            last[edge] = row
        lineages = self._participants.lineages
        return {
            (lineages[edge[0]], lineages[edge[1]]): self._rows[last[edge]]
            for edge, found in instants.items()
            if len(found) >= limit
        }

    def between(self, family: int, other: int, since: Nanos) -> Sequence[int]:
        """Return what two families did to each other."""
        if family not in self._by_preemptor and other not in self._by_preemptor:
            return ()
        *known, dealings = self._dealings
        if known != [family, self.revision, since]:
            dealings = self._dealings_of(family, since)
            self._dealings = (family, self.revision, since, dealings)
        return dealings.get(other, ())

    def at(self, row: int) -> Nanos:
        """Return when that was."""
        return Nanos(self._rows.at[row])

    def did_to(self, family: int, since: Nanos) -> Iterator[tuple[int, Nanos]]:
        """Yield whom a family displaced after an instant, and when; costs those rows alone."""
        for row in self._by_preemptor.rows(family, since):
            yield self._families.wide(self._rows.suffered(row)), self.at(row)

    def known_by(self, families: Iterable[int]) -> frozenset[str]:
        """Return what lineages of families are known by: one that has none of them is in none.

        Lineages, labels and weak links, so that who comes back as another object is among them.
        """
        known, found = self._names, set[str]()
        for family in families:
            names = known.get(family)
            if names is None:
                names = known[family] = self._names_in(family)
            found |= names
        return frozenset(found)

    def _names_in(self, family: int) -> frozenset[str]:
        """Return what the members of a family are called; costs all of its rows."""
        rows, participants, wide = self._rows, self._participants, self._families.wide
        return frozenset(
            name
            for number in {
                each
                for side in (self._by_victim, self._by_preemptor)
                for row in side.rows(family)
                for each in (rows.victim[row], rows.preemptor[row])
                if each >= 0 and wide(participants.lineage[each]) == family
            }
            for name in participants[number].names
            if name
        )

    def did(self, row: int, family: int) -> bool:
        """Return whether it was a family's doing."""
        lineage = self._rows.did(row)
        return lineage >= 0 and self._families.wide(lineage) == family

    def edges(self, since: Nanos) -> list[Edge]:
        """Return who displaced whom of what was read, each pair since its cause is what it is.

        Costs the rows after `since`.
        """
        between: dict[tuple[int, int], list[int]] = {}
        for row in self._after(since):
            one, other = self._edge(row)
            between.setdefault((one, other) if one < other else (other, one), []).append(row)
        found: dict[tuple[int, int], list[int]] = {}
        for dealings in between.values():
            for row in self.anew(dealings):
                found.setdefault(self._edge(row), []).append(row)
        lineages, rows = self._participants.lineages, self._rows
        return [
            Edge(
                lineages[one],
                lineages[other],
                tuple(sorted({self.at(row) for row in did})),
                rows.terms(did[-1]).above,
                sum(rows.lost[row] for row in did),
                len(did),
            )
            for (one, other), did in found.items()
        ]

    def _after(self, since: Nanos) -> list[int]:
        """Return the rows after an instant that count, in their order.

        One that counts is never read late, so that their numbers are in order.
        """
        at, state, found = self._rows.at, self._state, []
        for row in range(len(state) - 1, -1, -1):
            if state[row] == _COUNTS:
                if at[row] <= since:
                    break
                found.append(row)
        return found[::-1]

    def anew(self, dealings: Sequence[int], cause: str = "") -> list[int]:
        """Return those of a pair's rows that count: of this cause, or of any, if it still holds.

        Of two lineages the cause holds that they had last: what they did to each other before by
        another one is over. Families may have lineages in several places, each with its own cause.
        Rows of unknown cause belong to those around them.
        """
        rows = self._rows
        current: dict[tuple[int, int], str] = {}
        over: set[tuple[int, int]] = set()
        found = []
        for row in reversed(dealings):
            one, other, own = rows.did(row), rows.suffered(row), rows.terms(row).cause
            pair = (one, other) if one < other else (other, one)
            known = current.get(pair, "") or cause
            if own and known and own != known:
                over.add(pair)
            if pair not in over:
                current[pair] = known or own
                found.append(row)
        return found[::-1]

    def _edge(self, row: int) -> tuple[int, int]:
        wide, rows = self._families.wide, self._rows
        return wide(rows.did(row)), wide(rows.suffered(row))

    def _dealings_of(self, family: int, since: Nanos) -> dict[int, list[int]]:
        wide, rows = self._families.wide, self._rows
        found: dict[int, list[int]] = {}
        for row in self._by_preemptor.rows(family, since):
            found.setdefault(wide(rows.suffered(row)), []).append(row)
        for row in self._by_victim.rows(family, since):
            if self._state[row] == _COUNTS:
                other = wide(rows.did(row))
                if other != family:
                    found.setdefault(other, []).append(row)
        return {other: sorted(each) for other, each in found.items()}

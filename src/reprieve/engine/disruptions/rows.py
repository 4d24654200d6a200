"""The columns of a ledger: its rows, and both their sides, by number.

A row uses some 100 bytes here, a lineage some 40 beside its name, where objects would use
ten times as much. Participants are kept once for as long as a lineage is seen as it was; what rows
have in common (actor, devices, priorities, cause) once for all of them. Rows stay where they are:
their order, and which of them are removed, is known to the ledger, which copies those that stay
(`only`) when that is worth while. Instants and amounts that 64 bits do not hold count as the last
ones that they do (the year 2262).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.displacement import (
    Actor,
    Displacement,
    Exemption,
    Identified,
)
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.texts import Names, Texts

__all__ = ["NOBODY_DID", "Participants", "Rows", "Terms", "within"]

#: The participant where there is no preemptor.
NOBODY_DID: Final = -1
_MOST: Final = 2**63 - 1
_MOST_NUMBER: Final = 2**31 - 1


class Terms(NamedTuple):
    """What many rows have in common."""

    actor: Actor
    devices: int
    above: int
    cause: str
    exempt: Exemption


class Participants:
    """Lineages, and as what they were seen, by number.

    `lineage`, `merged` and `weak` are numbers of `lineages` and `weaks`, the latter two -1 without.
    """

    def __init__(self) -> None:
        self.lineages = Names()
        self.weaks = Names()
        self._tenants = Names()
        self.lineage = array("i")
        self.merged = array("i")
        self.weak = array("i")
        self.created = array("q")
        self._tenant = array("i")
        self._last = array("i")  # participant by lineage, -1 where there is none

    def add(self, participant: Participant) -> int:
        """Add a lineage; return its number, which is that of the last of its lineage if alike."""
        lineage = self.lineages.number(participant.lineage)
        merged = self.lineages.number(participant.merged) if participant.merged else -1
        weak, tenant = (
            self.weaks.lately.get(participant.weak),
            self._tenants.lately.get(participant.tenant),
        )
        if weak is None:
            weak = self.weaks.number(participant.weak) if participant.weak else -1
        if tenant is None:
            tenant = self._tenants.number(participant.tenant)
        created = participant.created
        if not -_MOST <= created <= _MOST:
            created = Nanos(_bounded(created))
        last = self._last[lineage] if lineage < len(self._last) else -1
        if last >= 0 and (merged, weak, created, tenant) == self._seen(last):
            return last
        return self._append(lineage, merged, weak, created, tenant)

    def __getitem__(self, number: int) -> Participant:
        merged, weak = self.merged[number], self.weak[number]
        return Participant(
            Lineage(self.lineages[self.lineage[number]]),
            self._tenants[self._tenant[number]],
            self.lineages[merged] if merged >= 0 else "",
            self.weaks[weak] if weak >= 0 else "",
            Nanos(self.created[number]),
        )

    def __len__(self) -> int:
        return len(self.lineage)

    def _seen(self, number: int) -> tuple[int, int, int, int]:
        weak, created = self.weak[number], self.created[number]
        return self.merged[number], weak, created, self._tenant[number]

    def _append(self, lineage: int, merged: int, weak: int, created: int, tenant: int) -> int:
        number = len(self.lineage)
        self.lineage.append(lineage)
        self.merged.append(merged)
        self.weak.append(weak)
        self.created.append(created)
        self._tenant.append(tenant)
        last = self._last
        if lineage == len(last):
            last.append(number)
        else:
            while lineage >= len(last):  # there were labels
                last.append(-1)
            last[lineage] = number
        return number

    def only(self, participants: Iterable[int]) -> tuple[Participants, array[int]]:
        """Return a copy with these alone, and the number there of each that is here."""
        found, there = Participants(), array("i", [-1]) * len(self)
        lineages, weaks = (array("i", [-1]) * len(each) for each in (self.lineages, self.weaks))
        tenants = array("i", [-1]) * len(self._tenants)
        for number in participants:
            if number < 0 or there[number] >= 0:
                continue
            merged, weak, created, tenant = self._seen(number)
            lineage = found._copied(self, self.lineage[number], lineages)
            if merged >= 0:
                merged = found._copied(self, merged, lineages)
            if weak >= 0 and weaks[weak] < 0:
                weaks[weak] = found.weaks.copy(self.weaks, weak)
            if tenants[tenant] < 0:
                tenants[tenant] = found._tenants.copy(self._tenants, tenant)
            weak = weaks[weak] if weak >= 0 else -1
            there[number] = found._append(lineage, merged, weak, created, tenants[tenant])
        return found, there

    def _copied(self, other: Participants, lineage: int, copied: array[int]) -> int:
        if copied[lineage] < 0:
            copied[lineage] = self.lineages.copy(other.lineages, lineage)
        return copied[lineage]


class Rows:
    """Rows by number, in the order in which they came.

    `preemptor` and `victim` are numbers of `participants`; `at`, `lost` and `terms` as in
    Displacement.
    """

    def __init__(self, participants: Participants | None = None) -> None:
        self.participants = Participants() if participants is None else participants
        self.at = array("q")
        self.preemptor = array("i")
        self.victim = array("i")
        self.lost = array("q")
        self._number = array("i")
        self._uids = Texts()
        self._terms = array("i")
        self._of_terms: list[Terms] = []
        self._held_against: list[bool] = []  # by terms
        self._known_terms: dict[Terms, int] = {}
        self._last_terms: tuple[Terms | None, int] = (None, -1)

    def append(self, row: Displacement) -> int:
        """Apply a row that is `within`; return its number."""
        preemptor = NOBODY_DID if row.preemptor is None else self.participants.add(row.preemptor)
        victim = self.participants.add(row.victim)
        terms = (row.actor, row.devices, row.above, row.cause, row.exempt)
        last, known = self._last_terms
        if terms != last:
            # Made only where it is another one: most rows are as the one before.
            known = self._number_of(Terms(*terms))
            self._last_terms = self._of_terms[known], known
        number = len(self.at)
        self.at.append(row.at)
        self.preemptor.append(preemptor)
        self.victim.append(victim)
        self.lost.append(row.lost_device_seconds)
        self._number.append(row.number)
        self._uids.append(row.uid)
        self._terms.append(known)
        return number

    def _number_of(self, terms: Terms) -> int:
        known = self._known_terms.setdefault(terms, len(self._of_terms))
        if known == len(self._of_terms):
            self._of_terms.append(terms)
            others = terms.actor is Actor.OTHER
            self._held_against.append(not others and terms.exempt is Exemption.NONE)
        return known

    def terms(self, number: int) -> Terms:
        """Return what a row has in common with others."""
        return self._of_terms[self._terms[number]]

    def uid(self, number: int) -> str:
        """Return the uid of who was displaced."""
        return self._uids[number]

    def counts(self, number: int) -> bool:
        """Whether a row is held against its preemptor."""
        return self.preemptor[number] >= 0 and self._held_against[self._terms[number]]

    def did(self, number: int) -> int:
        """Return the lineage of a row's preemptor, -1 without."""
        preemptor = self.preemptor[number]
        return self.participants.lineage[preemptor] if preemptor >= 0 else -1

    def suffered(self, number: int) -> int:
        """Return the lineage of a row's victim."""
        return self.participants.lineage[self.victim[number]]

    def identity(self, number: int) -> Identified:
        """Return what a row does not have in common with any other."""
        lineages, preemptor = self.participants.lineages, self.did(number)
        return (
            Nanos(self.at[number]),
            self._number[number],
            lineages[preemptor] if preemptor >= 0 else "",
            lineages[self.suffered(number)],
            self._uids[number],
        )

    def __getitem__(self, number: int) -> Displacement:
        preemptor, terms = self.preemptor[number], self.terms(number)
        return Displacement(
            Nanos(self.at[number]),
            terms.actor,
            self.participants[preemptor] if preemptor >= 0 else None,
            self.participants[self.victim[number]],
            self._uids[number],
            self._number[number],
            terms.devices,
            self.lost[number],
            terms.above,
            terms.cause,
            terms.exempt,
        )

    def __len__(self) -> int:
        return len(self.at)

    def only(self, rows: Iterable[int]) -> Rows:
        """Return a copy with these alone, in this order."""
        rows = list(rows)
        both = (each for row in rows for each in (self.preemptor[row], self.victim[row]))
        participants, there = self.participants.only(both)
        found = Rows(participants)
        for row in rows:
            preemptor, terms = self.preemptor[row], self.terms(row)
            found.at.append(self.at[row])
            found.preemptor.append(there[preemptor] if preemptor >= 0 else NOBODY_DID)
            found.victim.append(there[self.victim[row]])
            found.lost.append(self.lost[row])
            found._number.append(self._number[row])
            found._uids.append_packed(self._uids.at(row))
            found._terms.append(found._number_of(terms))
        return found


def within(row: Displacement) -> Displacement:
    """Return a row with instants and amounts that fit the columns."""
    at, number, lost = row.at, row.number, row.lost_device_seconds
    if -_MOST <= at <= _MOST and number <= _MOST_NUMBER and -_MOST <= lost <= _MOST:
        return row
    number, lost = min(number, _MOST_NUMBER), _bounded(lost)
    return replace(row, at=Nanos(_bounded(at)), number=number, lost_device_seconds=lost)


def _bounded(amount: int) -> int:
    return max(-_MOST, min(amount, _MOST))

"""The plans for places in one cycle: who is decided first, who waits for whom, what is reserved.

The rules are in `kept_places`; here they are applied to the entries of a cycle. All of them are
those of profile `best`: with another one nothing waits, and no plan is recorded.

Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.kept_places import (
    awaits_its_plan,
    by_plans,
    fits_after,
    keeps_its_plan,
    leaving,
    places_planned,
)
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.room import Room
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.places import Placed

__all__ = ["PlannedPlaces"]


class PlannedPlaces:
    """Applies the plans of pending workloads, and records what entries of this cycle reserve."""

    def __init__(
        self,
        holdings: Holdings,
        snapshot: Snapshot,
        queues: Queues,
        nominations: Nominations,
        room: Room,
        result: CycleResult,
        now: Nanos,
        ledger: Displacements | None,
    ) -> None:
        self._holdings = holdings
        self._snapshot = snapshot
        self._best = snapshot.settings.best
        self._queues = queues
        self._nominations = nominations
        self._room = room
        self._result = result
        self._now = now
        self._ledger = ledger
        self._reserved: list[tuple[str, list[Placed]]] = []

    def load(self, entry: Entry) -> None:
        """Set the plan that an entry waits for."""
        plans, key = self._queues.plans, entry.workload.key
        entry.preempts = self._queues.awaits_preemption(key)
        entry.planned, entry.plan_number = plans.places(key), plans.number(key)
        entry.planned_made = plans.made(key)

    def in_turn(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Return those with plans, the oldest first, and the others."""
        return by_plans(entries, self._snapshot.settings)

    def reserve(self, entry: Entry) -> None:
        """Count the places of an entry before the next one is decided."""
        self._snapshot.place(entry.placed, 1)
        if self._best and entry.placed:
            self._reserved.append((entry.workload.key, entry.placed))

    def note(self, entry: Entry, assignment: Assignment) -> None:
        """Record the places that the victims of an entry were chosen for."""
        if entry.issued and self._best and entry.placed:
            key, places = entry.workload.key, places_planned(assignment)
            others = [(other, placed) for other, placed in self._reserved if other != key]
            self._queues.plans.note(key, places, others, entry.made_pods)

    def awaited(self, entry: Entry) -> Assignment | None:
        """Return the planned assignment that an entry waits for, though it fits elsewhere.

        What it would use there others reserved when its victims were chosen.
        """
        if not self._best or entry.mode is not Mode.FIT or not entry.planned:
            return None
        decided = {each.workload.key for each in self._result.entries}
        reserved = [
            (key, placed)
            for key, placed in self._queues.plans.reserved(entry.workload.key)
            if key not in decided and self._queues.workload(key) is not None
        ]
        return awaits_its_plan(entry, self._snapshot, self._leaving(entry).values(), reserved)

    def after_leaving(self, entry: Entry) -> Assignment | None:
        """Return the assignment of an entry with places that need no further victims."""
        if not self._best or entry.mode is not Mode.PREEMPT or not entry.placed:
            return None
        if all(target.holder.evicted for target in entry.targets):
            return None
        evicted = self._leaving(entry)
        evicted |= {holder.key: holder for holder in self._room.leaving(entry)}
        later = fits_after(entry, self._snapshot, evicted.values())
        left = None if later or not evicted else self._snapshot.without(evicted.values())
        return later if left is None else self._nominations.with_room_elsewhere(entry, left)

    def keeps_its_turn(self, entry: Entry) -> bool:
        """Return whether a decided entry continues to await its victims."""
        if not self._best or not self._queues.awaits_preemption(entry.workload.key):
            return False
        return keeps_its_plan(entry, self._leaving(entry).values(), self._snapshot.tree)

    def _leaving(self, entry: Entry) -> dict[str, Holder]:
        return leaving(entry, self._holdings.holders.values(), self._ledger, self._now)

"""What nodes answer about an entry of a cycle: places that can be made, and who may be preempted.

Source: specification of the quota plane, section 8; specification of one demand, one plan.
"""

from __future__ import annotations

from functools import partial

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment, Mode, NoFitReason
from reprieve.engine.quota.entries import CycleResult, Entry, NodeCheck, Outcome
from reprieve.engine.quota.evictions import Evictions
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.kept_places import as_planned
from reprieve.engine.quota.made_places import assigned_without
from reprieve.engine.quota.model import Gates, Workload
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.room import Room

__all__ = ["NodeAnswers", "waits_for_gates"]


def waits_for_gates(workload: Workload, gates: Gates) -> bool:
    """Return whether a workload may not preempt, since others keep a gate of it closed."""
    honoured = gates.concurrent_admission or gates.multi_kueue_orchestrated_preemption
    return honoured and bool(workload.closed_gates)


class NodeAnswers:
    """Queries nodes about the entries of one cycle; without a proof they refuse nothing."""

    def __init__(
        self,
        holdings: Holdings,
        snapshot: Snapshot,
        nominations: Nominations,
        evictions: Evictions,
        room: Room,
        result: CycleResult,
        now: Nanos,
        proof: NodeCheck | None,
    ) -> None:
        self._holdings = holdings
        self._snapshot = snapshot
        self._settings = snapshot.settings
        self._nominations = nominations
        self._evictions = evictions
        self._room = room
        self._result = result
        self._now = now
        self._proof = proof

    def make_places(self, entry: Entry) -> str:
        """Give an entry places that other planes make; return why it waits before that."""
        assignment, proof, snapshot = entry.assignment, self._proof, self._snapshot
        if proof is None or snapshot.places is None or assignment is None or entry.targets:
            return ""
        failed = NoFitReason.TOPOLOGY_PLACEMENT_FAILED
        if not assignment.lacks_places and assignment.no_fit_reason is not failed:
            return ""
        workload, holders = entry.workload, self._holdings.holders.values()
        if entry.replaced is not None or waits_for_gates(workload, self._settings.gates):
            return ""
        if workload.preempts_from > self._now:
            self._result.retry_at(entry, workload.preempts_from)
            return ""
        by_rules = partial(self._nominations.beside, entry) if self._settings.best else None
        flavors = snapshot.configuration.flavors
        made = proof.room_made(entry, snapshot, holders, flavors, by_rules)
        found = assigned_without(snapshot, workload, entry.queue, made) if made else None
        both = by_rules(made, True) if made and found is None and by_rules is not None else None
        if found is None and both is None:
            return ""
        if other := next(self._nominations.elsewhere(entry), None):
            entry.moved, entry.assignment = other
            return ""
        if not entry.planned and (why := proof.delays(entry)):
            return why
        snapshot.free(made)
        entry.made, entry.whole = made, None
        if both is not None:
            entry.assignment, entry.targets, entry.best = both.assignment, both.targets, True
            self._nominations.searched[workload.key] = both.left
        else:
            entry.assignment = found
        if self._settings.best:
            left = snapshot if both is None else both.left
            entry.assignment = as_planned(entry, entry.planned, left) or entry.assignment
        return ""

    def undo(self, entry: Entry) -> None:
        """Count pods again that other planes would have evicted for an entry that is refused."""
        self._snapshot.free(entry.made, -1)

    def refusal_of_cheapest(
        self, entry: Entry, assignment: Assignment
    ) -> tuple[Outcome, str] | None:
        """Give the entry the least costly targets, where those do, and state why none do."""
        if not self._settings.best or entry.mode is not Mode.PREEMPT or entry.made:
            return self._refusal(entry)
        self._evictions.cheapen(entry, assignment)
        if entry.targets == entry.found:
            entry.found = ()
        if entry.found:
            if self._room.fits(entry) and self._refusal(entry) is None:
                return None
            entry.assignment, entry.targets, entry.found = assignment, entry.found, ()
            entry.gap, entry.as_found = None, True
        return self._refusal(entry)

    def _refusal(self, entry: Entry) -> tuple[Outcome, str] | None:
        """Return why the entry does not preempt: idle work may be evicted, or no node fits it."""
        if self._proof is None:
            return None
        flavors = self._snapshot.configuration.flavors
        if not any(not target.holder.evicted for target in entry.targets):
            if entry.mode is Mode.FIT and entry.replaced is None and not entry.made:
                self._move(entry, self._proof)
            self._proof.claim(entry, flavors)
            return None
        if why := self._proof.delays(entry):
            return Outcome.DEFERRED, why
        why = self._proof.refusal(entry, self._holdings.holders.values(), flavors)
        return (Outcome.UNPROVEN, why) if why else None

    def _move(self, entry: Entry, proof: NodeCheck) -> None:
        """Give an entry that fits another flavor where nodes have more capacity for it."""
        first, flavors = entry.assignment, self._snapshot.configuration.flavors
        others = self._nominations.elsewhere(entry)
        found = proof.flavor_for(entry, others, self._holdings.holders.values(), flavors)
        if found is None:
            return
        entry.moved, entry.assignment = found
        if not self._room.fits(entry):
            entry.moved, entry.assignment = "", first

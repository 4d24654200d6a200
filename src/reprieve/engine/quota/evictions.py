"""How the victims of an entry are made to leave: proven, once their work is saved, each once.

1. With profile `best` the victims that were found stand back where others cost less (`cheapest`;
   for workloads with places `by_domain`).
2. A preemption is checked against its proof (`proof`); one that fails is a fault of ours, and no
   workload is preempted for it.
3. Where victims are about to save their work they are left alone until then (`harm`).
4. Of the victims those that do not leave already count as evicted from now on, and each of them is
   added to the ledger.

Source: specification of the quota plane, section 8; the design's "Promises".
"""

from __future__ import annotations

from dataclasses import replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.accounts import Refusal
from reprieve.engine.lost_work import devices_of, lost_device_seconds
from reprieve.engine.plan_faults import PlanRefused
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.assigning.topologies import asked_places, planned_without
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.proofs.places import AskedPlaces
from reprieve.engine.quota.proofs.proof import faults_of
from reprieve.engine.quota.proofs.proof_state import Preempting, Victim
from reprieve.engine.quota.room import Room
from reprieve.engine.quota.targets.by_domain import targets_by_domain
from reprieve.engine.quota.targets.candidates import Target, preemptor
from reprieve.engine.quota.targets.cheapest import cheapest_targets
from reprieve.engine.quota.targets.harm import longest_wait, worth_waiting_for
from reprieve.engine.quota.targets.harm_budgets import harm_of, refused_by_budgets, side_of
from reprieve.engine.quota.targets.protection import sparing
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["Evictions"]


class Evictions:
    """What becomes of the victims of one cycle.

    `searched`: the snapshot in which they were looked for, a copy before it changes.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        holdings: Holdings,
        queues: Queues,
        now: Nanos,
        ledger: Displacements | None,
        nominations: Nominations,
        room: Room,
    ) -> None:
        self.searched = snapshot
        self._snapshot = snapshot
        self._holdings = holdings
        self._queues = queues
        self._now = now
        self._ledger = ledger
        self._nominations = nominations
        self._room = room

    def cheapen(self, entry: Entry, assignment: Assignment) -> None:
        """Give an entry the least costly targets; `found` are those that it had."""
        if all(target.holder.evicted for target in entry.targets):
            return
        searched = self._searched_for(entry)
        who = preemptor(entry.workload, entry.queue, self._snapshot.settings)
        if entry.spared is not None:
            who = sparing(who, entry.spared)
        asks = assignment.usage, assignment.need
        leaving = {holder.key for holder in self._room.leaving(entry)}
        if entry.placed:
            asked = self._asked_places(entry, assignment)
            wanted = {} if asked is None else asked.wanted
            found = targets_by_domain(
                searched, who, *asks, wanted, entry.targets, self._now, leaving
            )
            chosen = found.targets
            if chosen != entry.targets:
                queue = searched.configuration.cluster_queues[entry.cluster_queue]
                entry.assignment = planned_without(
                    assignment, entry.workload, queue, searched, chosen
                )
            entry.found, entry.targets = entry.targets, chosen
            entry.best, entry.gap = True, found.gap
            return
        cheapest = cheapest_targets(searched, who, *asks, entry.targets, self._now, leaving)
        entry.found, entry.targets = entry.targets, cheapest.targets
        entry.best, entry.gap = True, cheapest.gap

    def _asked_places(self, entry: Entry, assignment: Assignment) -> AskedPlaces | None:
        searched = self._searched_for(entry)
        queue = searched.configuration.cluster_queues[entry.cluster_queue]
        rest = entry.workload, queue, searched.configuration, searched.places
        return asked_places(assignment, *rest)

    def _searched_for(self, entry: Entry) -> Snapshot:
        """Return the snapshot in which the victims of an entry were looked for."""
        return self._nominations.searched.get(entry.workload.key, self.searched)

    def prove(self, entry: Entry, assignment: Assignment) -> None:
        """Hold a preemption against its proof.

        Raises:
            PlanRefused: it is a fault of ours, and nothing is preempted for it.
        """
        searched = self._searched_for(entry)
        victims = tuple(Victim(target.holder, target.reason) for target in entry.targets)
        plan = Preempting(
            entry.workload,
            entry.queue,
            assignment.usage,
            victims,
            self._now,
            tuple(each.admitted for each in assignment.pod_sets),
            tuple(target.holder for target in entry.found),
            self._asked_places(entry, assignment),
        )
        leaving = [*self._room.leaving(entry)]
        if entry.replaced is not None:
            leaving.append(entry.replaced)
        faults = faults_of(plan, searched, self._snapshot, self._holdings.holders, leaving)
        if faults:
            raise PlanRefused(faults)

    def wait_for_saves(self, entry: Entry, assignment: Assignment) -> Nanos | None:
        """Return until when its victims are left alone so that they save; None if they are not."""
        settings = self._snapshot.settings
        if not settings.harm_order or any(each.holder.evicted for each in entry.targets):
            return None
        columns = self._snapshot.tree.flavor_resources
        asked = ((columns[column].resource, each) for column, each in assignment.usage.items())
        victims = [(each.holder.workload, each.holder.devices) for each in entry.targets]
        since = self._now if entry.saves_since is None else entry.saves_since
        wait = longest_wait([workload for workload, _ in victims], settings.max_save_wait)
        latest = Nanos(since + wait)
        until = worth_waiting_for(victims, devices_of(asked), self._now, latest)
        if until is not None:
            self._queues.note_save_wait(entry.workload.key, self._now)
        return until

    def issue(self, entry: Entry) -> None:
        """Count those targets of an entry as evicted that do not leave already."""
        entry.issued = tuple(target for target in entry.targets if not target.holder.evicted)
        for target in entry.issued:
            self._holdings.expect_eviction(target.holder.key, target.reason, self._now)
            if self._ledger is not None:
                self._record(self._ledger, entry, target)

    def _record(self, ledger: Displacements, entry: Entry, target: Target) -> None:
        workload, causes = entry.workload, self._nominations.causes
        victim, asks = target.holder, side_of(self._snapshot, workload, entry.queue)
        held = victim.devices
        reserved = victim.workload.reserved_at
        start = None if reserved is None else reserved // SECOND
        ledger.record(
            workload,
            victim.workload,
            self._now,
            causes.between(workload, entry.queue, victim.workload, victim.queue),
            priority=causes.priority(workload),
            above=causes.priority(workload) - causes.priority(victim.workload),
            devices=held,
            lost_device_seconds=lost_device_seconds(start, 0, held, self._now // SECOND),
            harm=replace(
                harm_of(self._snapshot, self._now, asks, victim), reason=str(target.reason)
            ),
        )

    def refused_by_budgets(self, entry: Entry) -> Refusal | None:
        """Return which harm budget the targets of an entry exceed together, None without one."""
        if self._ledger is None or not self._ledger.governor.harm:
            return None
        who = preemptor(entry.workload, entry.queue, self._snapshot.settings)
        targets = [target for target in entry.targets if not target.holder.evicted]
        causes = self._nominations.causes

        def reclaims() -> bool:
            return causes.reclaims(entry.workload, entry.queue)

        with self._ledger.governor.guard:
            return refused_by_budgets(
                self._ledger, self._snapshot, who, targets, self._now, reclaims
            )

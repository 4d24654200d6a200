"""Whether a changed workload would get its quota: the cycles are run on a copy, and undone.

The copy has those who hold quota in the cohort tree of the workload's ClusterQueue, and of those
who wait the head of each of its queues: who is tried before it, or keeps quota reserved, does so
here as well. What a rehearsal admits or evicts is undone after it, so that the copy is made once.
"""

from __future__ import annotations

from dataclasses import replace

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.protection import Causes, protected
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["Rehearsal"]

#: One for each head of the queue, and for each flavor at which a scan continues.
_CYCLES = 16


class Rehearsal:
    """Decides on changed input, at most `most` times; then it finds nothing any more."""

    def __init__(self, facts: QuotaFacts, most: int) -> None:
        self._facts = facts
        self._holdings = Holdings(facts.configuration)
        self._loaded: set[str] = set()
        if facts.holdings.grounds is not None:
            # Who holds places shares the nodes, whatever its cohort tree.
            self._holdings.stand_on(facts.holdings.grounds)
            self._loaded |= set(facts.holdings.tree.queues)
            for holder in facts.holdings.holders.values():
                self._holdings.hold(holder.workload)
        self.left = most

    def victims(
        self, workload: Workload, at: Nanos | None = None, *, without_leaving: bool = False
    ) -> int | None:
        """Return how many are evicted for a workload that gets its quota; None where it does not.

        Args:
            workload: as it would be.
            at: when; now by default.
            without_leaving: as if all that leave already had ended; None where no workload leaves.
        """
        local = self._facts.configuration.local_queues.get(workload.queue)
        if not self.left or local is None:
            return None
        names = self._load(local.cluster_queue)
        gone = []
        if without_leaving:
            gone = [each.workload for each in self._holdings.holders.values() if each.evicted]
            if not gone:
                return None
            for leaving in gone:
                self._holdings.release(leaving.key)
        self.left -= 1
        try:
            return self._play(workload, names, at or self._facts.now)
        finally:
            for leaving in gone:
                self._holdings.hold(leaving)

    def _load(self, cluster_queue: str) -> list[str]:
        """Copy which workloads hold quota in a tree; return its ClusterQueues."""
        facts = self._facts
        names = facts.holdings.related(cluster_queue) or [cluster_queue]
        missing = set(names) - self._loaded
        if missing:
            self._loaded |= missing
            tree = facts.holdings.tree
            for holder in facts.holdings.holders.values():
                if tree.names[holder.queue] in missing:
                    self._holdings.hold(holder.workload)
        return names

    def _play(self, workload: Workload, names: list[str], at: Nanos) -> int | None:
        facts, queues = self._facts, Queues(self._facts.configuration)
        queues.local_queue_usage = facts.queues.local_queue_usage
        for name in names:
            head = facts.queues.head(name)
            if head is not None and head.key != workload.key:
                queues.push(head)
        queues.push(workload)
        ledger, played = self._ledger(workload, at), list[Entry]()
        try:
            for result in cycles(self._holdings, queues, at, _CYCLES, ledger=ledger):
                played += result.entries
                for entry in result.entries:
                    if entry.workload.key != workload.key:
                        continue
                    if entry.outcome is Outcome.ADMITTED:
                        return 0
                    if entry.outcome is Outcome.PREEMPTING:
                        return len(entry.issued)
            return None
        finally:
            self._undo(played)

    def _undo(self, played: list[Entry]) -> None:
        for entry in reversed(played):
            for target in entry.issued:
                self._holdings.eviction_failed(target.holder.key)
            if entry.outcome is Outcome.ADMITTED:
                self._holdings.release(entry.workload.key)
                if entry.replaced is not None:
                    self._holdings.hold(entry.replaced.workload)

    def _ledger(self, workload: Workload, at: Nanos) -> Displacements | None:
        """Return a ledger of its own that holds from the workload whom the real one holds."""
        real, holdings = self._facts.ledger, self._holdings
        local = self._facts.configuration.local_queues[workload.queue]
        queue = holdings.tree.queues.get(local.cluster_queue)
        if real is None or queue is None:
            return None
        found, snapshot = Displacements(), holdings.snapshot()
        who = preemptor(workload, queue, snapshot.settings)
        refusals = dict(real.refusals)
        spared = protected(who, at, False, real, Causes(snapshot))
        if spared is not None:
            for holder in holdings.holders.values():
                one = replace(spared, until=None)
                if one(holder) and one.until is not None:
                    found.refuse(workload.uid, holder.workload.uid, one.until)
        real.refusals.clear()
        real.refusals.update(refusals)
        return found

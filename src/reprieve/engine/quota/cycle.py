"""One scheduling cycle: one head of each ClusterQueue, nominated on one snapshot, then processed.

`cycle` decides and carries the decisions into `Holdings` and `Queues`: what got quota holds it,
what is to be preempted counts as evicted, every other head is queued again or set aside. What has
to be written to the API follows from the entries; what could not be written is undone
(`taking_back`). The capacity that is left at an entry's turn is in `room`, how its victims leave in
`evictions`, what nodes allow in `node_answers`; who holds quota gets places in `second_pass`.

An exception raised while deciding about one head is that head's: what was done for it is undone, it
is set aside for a while, and the others are decided about. Where the order of a tree's heads cannot
be determined, the same applies to all heads of this tree.

`cycles` runs cycle after cycle, as a scheduler does that waits for nothing in between, until one
changes nothing.

Source: specification of the quota plane, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.pace import UNHURRIED, Pace
from reprieve.engine.quota.assigning.assignment import Assignment, Mode, begins
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import (
    CycleResult,
    Entry,
    NodeCheck,
    Outcome,
    Unready,
    why_no_fit,
)
from reprieve.engine.quota.evictions import Evictions
from reprieve.engine.quota.heads import RequeueReason
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Admission, Policy, Workload
from reprieve.engine.quota.node_answers import NodeAnswers, waits_for_gates
from reprieve.engine.quota.nominated import Nominated
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.planned_places import PlannedPlaces
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.refused_heads import set_aside_refused
from reprieve.engine.quota.room import Room, reserved_amounts
from reprieve.engine.quota.second_pass import SecondPass
from reprieve.engine.quota.tournament import classical_order, fair_order
from reprieve.engine.quota.waiting.continuing import Continuation, count_grown
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["cycle", "cycles"]


def cycle(
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    number: int = 0,
    ledger: Displacements | None = None,
    proof: NodeCheck | None = None,
    pace: Pace = UNHURRIED,
    refusals: Refusals | None = None,
    nominated: Nominated | None = None,
) -> CycleResult:
    """Run one cycle, or as many as follow one another in which all heads are refused once more.

    Args:
        holdings: who holds quota; changed.
        queues: who waits; changed.
        now: the instant of all decisions.
        number: of the cycle; a bookmark lives from one to the next.
        ledger: of all displacements, where the governor is to be queried; changed.
        proof: that preemptors fit on nodes, where that is requested; changed.
        pace: ends the decision about a head that lasts too long.
        refusals: of earlier cycles, by which heads are refused without a search; changed. What they
            state of them may be outdated.
        nominated: of earlier cycles of the same holdings, by which heads are nominated as before;
            changed.
    """
    result = CycleResult()
    try:
        if refusals is not None:
            spared = set_aside_refused(holdings, queues, now, number, ledger, refusals)
            if spared:
                result.count, result.progress = spared, True
                return result
        heads = queues.heads(now)
        result.queue_faults = queues.failures
        if not (heads or holdings.unhealthy or holdings.awaits_places):
            return result
        run = _Cycle(
            holdings, queues, now, number, ledger, proof, pace, refusals, nominated, result
        )
        entries = run.nominate(heads)
        failed = run.second_pass.replace_nodes()
        run.second_pass.place_delayed()
        run.decide(entries)
        run.second_pass.evict_for_nodes(failed)
    except Exception as fault:
        result.fault = fault
        queues.give_back()
    return result


def cycles(
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    limit: int,
    first: int = 0,
    ledger: Displacements | None = None,
    proof: NodeCheck | None = None,
    pace: Pace = UNHURRIED,
    refusals: Refusals | None = None,
    nominated: Nominated | None = None,
) -> Iterator[CycleResult]:
    """Yield cycles back to back, at most `limit`, until they change nothing any more."""
    continuation, nominated, number = Continuation(), nominated or Nominated(), first
    while number < first + limit:
        result = cycle(holdings, queues, now, number, ledger, proof, pace, refusals, nominated)
        number += result.count
        count_grown(result, holdings, queues)
        yield result
        if result.fault is not None or not continuation.follows(result, holdings, queues):
            return


class _Cycle:
    def __init__(
        self,
        holdings: Holdings,
        queues: Queues,
        now: Nanos,
        number: int,
        ledger: Displacements | None,
        proof: NodeCheck | None,
        pace: Pace,
        refusals: Refusals | None,
        nominated: Nominated | None,
        result: CycleResult,
    ) -> None:
        self.pace = pace
        self.holdings = holdings
        self.queues = queues
        self.now = now
        self.number = number
        holdings.local_queue_usage = queues.local_queue_usage
        self.snapshot = holdings.snapshot()
        self.ledger = ledger
        self.settings = self.snapshot.settings
        self.room = Room(self.snapshot)
        self.result = result
        self.nominations = Nominations(
            self.snapshot, holdings, queues, now, number, ledger, pace, refusals, nominated
        )
        self.evictions = Evictions(
            self.snapshot, holdings, queues, now, ledger, self.nominations, self.room
        )
        self.second_pass = SecondPass(
            holdings, self.snapshot, self.nominations, self.evictions, self.room, result, now
        )
        self.plans = PlannedPlaces(
            holdings, self.snapshot, queues, self.nominations, self.room, result, now, ledger
        )
        self.nodes = NodeAnswers(
            holdings, self.snapshot, self.nominations, self.evictions, self.room, result, now, proof
        )

    def nominate(self, heads: Sequence[tuple[str, Workload]]) -> list[Entry]:
        """Give every head that may be considered its assignment and its targets."""
        nominated = []
        for name, workload in heads:
            entry = Entry(workload, name)
            if workload.key in self.holdings.holders:
                self.queues.delete(workload.key)
                continue
            self.plans.load(entry)
            entry.saves_since = self.queues.waits_for_saves_since(workload.key)
            try:
                self.pace.begin(workload.key)
                if self.nominations.admit(entry):
                    nominated.append(entry)
                else:
                    self._finish(entry, Outcome.INADMISSIBLE)
            except Exception as failure:
                self._fail(entry, failure)
        return nominated

    def decide(self, entries: list[Entry]) -> None:
        """Decide the nominated entries one after the other."""
        if not self.settings.gates.prioritize_preemptor_workloads:
            # Capacity on nodes that work was evicted for is kept for its preemptor.
            for entry in entries:
                entry.preempts = entry.preempts and bool(entry.placed)
        if any(entry.targets for entry in entries):
            self.evictions.searched = self.snapshot.without(())
        fair = self.settings.fair_sharing is not None
        first, rest = self.plans.in_turn(entries)
        in_turn = self._fair_order(rest) if fair else self._classical_order(rest)
        for entry in chain(first, in_turn):
            try:
                self.pace.begin(entry.workload.key)
                self._decide(entry)
            except Exception as failure:
                self._fail(entry, failure)

    def _fair_order(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries of one tree after the other, those that come first in all of them.

        Trees have no quota in common, and may have nodes.
        """
        trees: dict[int, list[Entry]] = {}
        for entry in entries:
            trees.setdefault(self.snapshot.tree.root(entry.queue), []).append(entry)
        later: list[Iterator[Entry]] = []
        for of_tree in trees.values():
            in_turn = self._fair_order_of(of_tree)
            for entry in in_turn:
                if not (self.settings.preemptors_first and entry.preempts):
                    later.append(chain((entry,), in_turn))
                    break
                yield entry
        yield from chain.from_iterable(later)

    def _fair_order_of(self, of_tree: Sequence[Entry]) -> Iterator[Entry]:
        left = {entry.workload.key: entry for entry in of_tree}
        try:
            for each in fair_order(self.snapshot, of_tree):  # type: ignore[arg-type]
                yield left.pop(each.workload.key)
        except Exception as failure:
            for entry in left.values():
                self._fail(entry, failure)

    def _classical_order(self, entries: Sequence[Entry]) -> list[Entry]:
        ranks = {}
        for entry in entries:
            try:
                ranks[entry.workload.key] = classical_order(entry, self.settings)
            except Exception as failure:
                self._fail(entry, failure)
        ranked = (entry for entry in entries if entry.workload.key in ranks)
        return sorted(ranked, key=lambda each: ranks[each.workload.key])

    def _fail(self, entry: Entry, failure: Exception) -> None:
        """Undo what was done for a head, and set it aside."""
        holdings, key = self.holdings, entry.workload.key
        self.result.entries = [each for each in self.result.entries if each is not entry]
        for target in entry.issued:
            holdings.eviction_failed(target.holder.key)
        if key in holdings.holders:
            holdings.release(key)
        if entry.replaced is not None and entry.replaced.key not in holdings.holders:
            holdings.hold(entry.replaced.workload)
        entry.issued, entry.admission, entry.scan = (), None, None
        entry.failure, entry.outcome = failure, Outcome.FAULT
        entry.reason = Unready.PENDING
        if self.settings.gates.unadmitted_workloads_observability:
            entry.reason = Unready.PENDING_EVALUATION
        seconds = (self.queues.fail(entry.workload) - self.now) // SECOND
        entry.message = (
            f"A fault of the operator keeps it from being decided about; tried again after "
            f"{seconds}s: {type(failure).__name__}: {failure}"
        )
        self.result.entries.append(entry)
        # Who comes after it in its ClusterQueue is the head now.
        self.result.progress = True

    def _decide(self, entry: Entry) -> None:
        self._look_again(entry)
        if self._waits_for_places(entry):
            return
        assignment = entry.assignment
        assert assignment is not None
        mode = entry.mode
        entry.requeue = RequeueReason.FAILED_AFTER_NOMINATION
        if mode is Mode.NO_FIT:
            entry.reason, entry.message = why_no_fit(assignment, entry.whole)
            entry.requeue = RequeueReason.NO_FIT
            self._finish(entry, Outcome.NO_FIT)
        elif mode is Mode.PREEMPT and not entry.targets:
            self._no_candidates(entry, assignment)
        elif mode is Mode.PREEMPT and waits_for_gates(entry.workload, self.settings.gates):
            entry.reason = Unready.ADMISSION_GATED
            entry.message = "Workload requires preemption, but it's gated"
            entry.requeue, entry.scan = RequeueReason.PREEMPTION_GATED, None
            self._finish(entry, Outcome.GATED)
        elif mode is Mode.DEFERRED_FIT:
            message = (
                "Workload has overlapping preemption targets with another workload, "
                "but will fit after these preemptions complete"
            )
            self._defer(entry, assignment, message)
        elif self.room.overlaps(entry):
            self._skip(
                entry, "Workload has overlapping preemption targets with another workload", True
            )
        elif not self.room.fits(entry):
            message = "Workload no longer fits after processing another workload"
            self._skip(entry, message, mode is Mode.PREEMPT)
        elif later := self.plans.awaited(entry) or self.plans.after_leaving(entry):
            entry.assignment, entry.targets, entry.deferred = later, (), True
            message = "Fits once the work that is evicted already has ended"
            before = f"{assignment.message}. " if assignment.message else ""
            self._defer(entry, later, f"{before}{message}")
        elif refused := self.nodes.refusal_of_cheapest(entry, assignment):
            entry.reason = Unready.WAITING_FOR_QUOTA
            outcome, why = refused
            entry.message = f"{assignment.message}. {why}"
            # Others of its shape may have pods that nodes accept.
            entry.requeue = RequeueReason.GENERIC
            self._finish(entry, outcome)
        elif mode is Mode.PREEMPT and (over := self.evictions.refused_by_budgets(entry)):
            message = (
                f"{assignment.message}. Harm budget {over.account[0]} does not allow all of "
                f"{len(entry.targets)} preemptions before {format_instant(over.until)}"
            )
            # Decided again at once, with no more of them than fit.
            self._skip(entry, message, True)
        elif mode is Mode.PREEMPT and entry.workload.preempts_from > self.now:
            self._delay(entry, entry.assignment or assignment)
        else:
            if mode is Mode.PREEMPT:
                self.evictions.prove(entry, entry.assignment or assignment)
            self._accept(entry, entry.assignment or assignment)

    def _look_again(self, entry: Entry) -> None:
        """Nominate an entry again whose victims or nodes an earlier one has used."""
        overlap = self.room.overlaps(entry)
        if overlap and self.settings.gates.recompute_assignment_upon_preemption_targets_overlap:
            without = self.snapshot.without(self.room.leaving(entry))
            key = (entry.cluster_queue, self.nominations.again(entry, without))
            self.result.recomputations[key] = self.result.recomputations.get(key, 0) + 1
        elif self.settings.gates.tas_recompute_assignment_within_scheduling_cycle:
            self._place_again(entry)

    def _defer(self, entry: Entry, assignment: Assignment, message: str) -> None:
        """Have an entry wait for pods that leave for others, and keep what it will use."""
        entry.reason, entry.message = Unready.WAITING_FOR_PREEMPTED_WORKLOADS, message
        entry.scan = None
        self._count(entry, assignment)
        self._finish(entry, Outcome.DEFERRED)

    def _place_again(self, entry: Entry) -> None:
        """Nominate an entry again whose nodes an earlier one has used, though quota is left."""
        if entry.placed and self.room.lacks_places_alone(entry):
            without = self.snapshot.without(())
            self.nominations.again(entry, without, deferred=False)

    def _count(self, entry: Entry, assignment: Assignment) -> None:
        """Count what an entry uses before the next one is looked at."""
        self.snapshot.add_usage(entry.queue, assignment.usage.items())
        self.plans.reserve(entry)

    def _waits_for_places(self, entry: Entry) -> bool:
        """Return whether an entry waits until idle work was looked at, before places are made."""
        why = self.nodes.make_places(entry)
        if why:
            assert entry.assignment is not None
            entry.reason = Unready.WAITING_FOR_QUOTA
            entry.message = f"{entry.assignment.message}. {why}"
            entry.requeue = RequeueReason.GENERIC
            self._finish(entry, Outcome.AWAITS_IDLE)
        return bool(why)

    def _accept(self, entry: Entry, assignment: Assignment) -> None:
        if assignment.mode is Mode.PREEMPT:
            entry.free = self.room.free_for(entry)
        self.room.designate(entry)
        self._count(entry, assignment)
        if assignment.mode is Mode.PREEMPT:
            self._preempt(entry, assignment)
        elif self.settings.block_admission and not self.holdings.all_ready:
            entry.reason = Unready.WAITING_FOR_PODS_READY
            entry.message = "waiting for all admitted workloads to be in PodsReady condition"
            self._finish(entry, Outcome.BLOCKED)
        else:
            entry.reason = ""
            entry.admission = Admission(
                entry.cluster_queue, tuple(each.admitted for each in assignment.pod_sets)
            )
            held = replace(
                entry.workload,
                admission=entry.admission,
                reserved_at=self.now,
                evicted=None,
                preempted=None,
                pods_ready=not self.settings.block_admission,
            )
            entry.outcome = Outcome.ADMITTED
            if entry.replaced is not None:
                self.snapshot.remove_usage(entry.replaced.queue, entry.replaced.held)
                self.holdings.release(entry.replaced.key)
            self.queues.admitted(entry.workload.key)
            if self.ledger is not None:
                self.ledger.admitted(entry.workload, self.now)
            self.holdings.hold(held)
            self.result.entries.append(entry)
            self.result.progress = True

    def _preempt(self, entry: Entry, assignment: Assignment) -> None:
        entry.reason = Unready.WAITING_FOR_PREEMPTED_WORKLOADS
        entry.requeue, entry.scan = RequeueReason.PENDING_PREEMPTION, None
        entry.saves_until = until = self.evictions.wait_for_saves(entry, assignment)
        if until is not None:
            entry.message = (
                f"{assignment.message}. Preempts {len(entry.targets)} workload(s) once their work "
                f"is saved, which is expected by {format_instant(until)}"
            )
            self.result.retry_at(entry, until)
            self._finish(entry, Outcome.PREEMPTING)
            return
        self.evictions.issue(entry)
        self.plans.note(entry, entry.assignment or assignment)
        self.result.progress = self.result.progress or bool(entry.issued)
        count = len(entry.targets)
        entry.message = f"{assignment.message}. Pending the preemption of {count} workload(s)"
        if entry.made:
            entry.message += f", and then of {len(entry.made)} pod(s) that no topology has placed"
        self._finish(entry, Outcome.PREEMPTING)

    def _delay(self, entry: Entry, assignment: Assignment) -> None:
        """Preempt no workload yet; keep what is free, so that no more victims are needed then."""
        until = entry.workload.preempts_from
        kept = reserved_amounts(self.snapshot, entry.queue, assignment.usage, entry.level)
        self.snapshot.add_usage(entry.queue, kept.items())
        self.result.retry_at(entry, until)
        entry.reason = Unready.WAITING_FOR_QUOTA
        entry.message = (
            f"{assignment.message}. No work is preempted for it before {format_instant(until)}"
        )
        entry.requeue, entry.scan = RequeueReason.PREEMPTION_DELAYED, None
        self._finish(entry, Outcome.DELAYED)

    def _no_candidates(self, entry: Entry, assignment: Assignment) -> None:
        rules = self.snapshot.configuration.cluster_queues[entry.cluster_queue].preemption
        first = self.settings.preemptors_first and entry.preempts
        if rules.reclaim_within_cohort is not Policy.ANY or first:
            kept = reserved_amounts(self.snapshot, entry.queue, assignment.usage, entry.level)
            self.snapshot.add_usage(entry.queue, kept.items())
            self.plans.reserve(entry)
        entry.reason, entry.message = Unready.WAITING_FOR_QUOTA, assignment.message
        entry.requeue = RequeueReason.PREEMPTION_NO_CANDIDATES
        if self.ledger is not None:
            self.ledger.fits.pop(entry.workload.key, None)
        if entry.spared is not None and entry.spared.message:
            entry.message += f". {entry.spared.message}"
            if entry.spared.paired:
                # Others of its shape may preempt whom it may not.
                entry.requeue = RequeueReason.GENERIC
        self._finish(entry, Outcome.NO_CANDIDATES)

    def _skip(self, entry: Entry, message: str, preemption: bool) -> None:
        entry.reason, entry.message = Unready.WAITING_FOR_QUOTA, message
        if not self.settings.gates.flavor_fungibility_preserve_scan_progress:
            entry.scan = None
        if preemption:
            skipped = self.result.skipped_preemptions
            skipped[entry.cluster_queue] = skipped.get(entry.cluster_queue, 0) + 1
        self._finish(entry, Outcome.SKIPPED)

    def _finish(self, entry: Entry, outcome: Outcome) -> None:
        entry.outcome = outcome
        if entry.made and outcome is not Outcome.PREEMPTING:
            self.nodes.undo(entry)
        if entry.spared is not None and entry.spared.until is not None:
            self.result.retry_at(entry, entry.spared.until)
        if not self.settings.gates.unadmitted_workloads_observability:
            entry.reason = Unready.PENDING
        self.result.entries.append(entry)
        if self.plans.keeps_its_turn(entry):
            entry.requeue, entry.scan = RequeueReason.PENDING_PREEMPTION, None
        before = self.queues.last_scan(entry.workload.key)
        anew = entry.scan is not None and not entry.scan.pending and not begins(entry.resumed)
        moved = self.queues.requeue(entry.workload.key, entry.requeue, entry.scan, anew=anew)
        bookmarks = (before and before.bookmark, entry.scan and entry.scan.bookmark)
        self.result.progress = self.result.progress or moved
        self.result.scanned = self.result.scanned or bookmarks[0] != bookmarks[1]

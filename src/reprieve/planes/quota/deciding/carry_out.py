"""The one place that carries out effects of cycles, in their order.

Admissions are written by `admissions`, each preemption in a task of its own; what cannot be written
is undone. A failure to report or to count undoes no decision. Source: specification of the quota
plane, sections 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, assert_never

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.taking_back import preemptions_failed
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError
from reprieve.planes.common.solve import TookTooLong
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.deciding.effects import (
    Admit,
    DecideAgain,
    Effect,
    EvictForNode,
    Explain,
    ExplainAlike,
    LeaveOut,
    Marking,
    Measure,
    NodesRefused,
    PlaceDelayed,
    Preempt,
    ReplaceNode,
    RetryAt,
    Sample,
    TellFault,
    TellUnplaced,
    Undo,
)
from reprieve.planes.quota.deciding.failed_nodes import FailedNodes
from reprieve.planes.quota.deciding.held_pairs import HeldPairs
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.deciding.preemptions import Preemptions
from reprieve.planes.quota.queue_status.meters import ready_for
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.admissions import Admissions
from reprieve.planes.quota.workload_status.explanations import Explanations
from reprieve.planes.quota.workload_status.transitions import evictions_of
from reprieve.planes.quota.workload_status.waiting import Waiting
from reprieve.wording import kueue
from reprieve.wording.events import EventText

__all__ = ["CarryOut"]


class CarryOut:
    """Carries out effects on the engine's state and the API server.

    `retry_at` tries what is set aside in a ClusterQueue again at a wall instant; `ask` requests
    another run.
    """

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        preemptions: Preemptions,
        admissions: Admissions,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        held_pairs: HeldPairs,
        explanations: Explanations,
        nodes: NodeView,
        waiting: Waiting,
        failed_nodes: FailedNodes,
        *,
        retry_at: Callable[[str, Nanos], None],
        ask: Callable[[], None],
    ) -> None:
        self._context = context
        self._state = state
        self._preemptions = preemptions
        self._admissions = admissions
        self._spawn = spawn
        self._held_pairs = held_pairs
        self._explanations = explanations
        self._nodes = nodes
        self._waiting = waiting
        self._failed_nodes = failed_nodes
        self._retry_at = retry_at
        self._ask = ask
        self._last_skips: set[str] = set()
        preemptions.evicted = self._evicted

    def all(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects of one run."""
        for effect in effects:
            self._one(effect)

    def _one(self, effect: Effect) -> None:
        match effect:
            case RetryAt(queue, at):
                self._retry_at(queue, at)
            case NodesRefused(queue):
                self._nodes.refused(queue)
            case Preempt():
                self._issue(effect)
            case Undo(entry, fault):
                self._undo(entry, fault)
            case Admit(entry):
                self._admissions.admit(entry)
                self._waiting.admitted(entry.workload.key)
            case ReplaceNode(entry):
                self._failed_nodes.replaced(entry)
            case PlaceDelayed(entry):
                self._failed_nodes.placed(entry)
            case TellUnplaced(entry):
                self._failed_nodes.report_unplaced(entry)
            case EvictForNode(entry):
                self._failed_nodes.evict(entry)
            case DecideAgain():
                self._ask()
            case LeaveOut(queue, fault):
                log.error(
                    "ClusterQueue %s is excluded from decisions for a pause after an error",
                    queue,
                    exc_info=fault,
                )
            case TellFault(entry, event):
                self._report_fault(entry, event)
            case Explain() | ExplainAlike() | Measure() | Sample():
                self._record(effect)
            case _:
                assert_never(effect)

    def _record(self, effect: Explain | ExplainAlike | Measure | Sample) -> None:
        try:
            match effect:
                case Explain(entry):
                    self._explanations.explain(entry)
                case ExplainAlike(considered):
                    self._explanations.report_those_alike(considered)
                case Measure():
                    self._measure(effect)
                case Sample(entry, decision_input):
                    self._waiting.sampled(entry, decision_input)
        except Exception:
            what = effect.entry.workload.key if isinstance(effect, Explain) else "a run of cycles"
            log.exception("the observer of the decision about %s failed", what)

    def _report_fault(self, entry: Entry, event: EventText) -> None:
        if isinstance(entry.failure, TookTooLong):
            stopped = self._context.metrics.decisions_stopped
            stopped.labels(Plane.QUOTA.value, "stopped").inc()
        log.error("deciding about %s failed", entry.workload.key, exc_info=entry.failure)
        workload = self._state.workload(entry.workload.key)
        if workload is not None:
            self._context.announce(reference_of(workload), event)

    def _measure(self, cycle: Measure) -> None:
        metrics = self._context.quota_metrics
        metrics.cycle(cycle.seconds, cycle.admitted)
        metrics.skipped(self._last_skips | cycle.skipped.keys(), cycle.skipped)
        self._last_skips |= cycle.skipped.keys()
        for (queue, what), count in cycle.recomputations.items():
            metrics.recomputed(queue, str(what), count)

    # Preemptions

    def _issue(self, effect: Preempt) -> None:
        entry, preemptor = effect.entry, self._state.workload(effect.entry.workload.key)
        if preemptor is None:
            return
        gap = effect.plan.proof.gap
        if gap is not None:
            self._context.metrics.preemption_gap.labels(Plane.QUOTA.value).observe(gap / 100)
        try:
            for marking in effect.markings:
                self._held_pairs.issued(entry.workload, marking.victim)
            self._spawn(self._carry(effect, preemptor))
        except Exception as fault:
            self._undo(entry, fault)

    def _undo(self, entry: Entry, fault: Exception) -> None:
        key = entry.workload.key
        log.error("the preemptions for %s are not issued", key, exc_info=fault)
        failed = {target.holder.key for target in entry.issued}
        preemptions_failed(self._state.holdings, self._state.queues, entry, failed)

    async def _carry(self, effect: Preempt, preemptor: Workload) -> None:
        entry, plan, markings = effect.entry, effect.plan, effect.markings
        failed = {marking.victim.key for marking in markings}
        unrecorded: ApiError | None = None
        runs = entry.outcome is Outcome.NODE_PREEMPTING
        try:
            failed = await self._preemptions.carry(
                plan, preemptor, entry.cluster_queue, markings, effect.decision_input
            )
        except Deposed:
            raise
        except ApiError as failure:
            unrecorded = failure
        except Exception:
            log.exception("plan %s was not carried out", plan.id)
        if failed:
            async with self._state.engine:
                preemptions_failed(self._state.holdings, self._state.queues, entry, failed)
                victims = (m.victim.uid for m in markings if m.victim.key in failed)
                self._held_pairs.failed(entry.workload, victims)
                if unrecorded is not None and runs:
                    log.error("plan %s was not carried out: %s", plan.id, unrecorded)
                elif unrecorded is not None:
                    self._set_aside(entry, preemptor, plan, unrecorded)
            for key in failed:
                self._state.look_at(key)
            if not runs:
                self._explanations.explain(entry)
        self._held_pairs.written(entry.workload, (each.victim for each in markings))

    def _set_aside(self, entry: Entry, preemptor: Workload, plan: Plan, failure: ApiError) -> None:
        """Delay and notify workloads whose plan could not be recorded; no other waits for them."""
        log.error("plan %s was not carried out: %s", plan.id, failure)
        self._context.metrics.unrecorded.labels(plan.plane.value).inc()
        now = self._context.clock.wall()
        until = self._state.queues.fail_to_record(entry.workload.key, now)
        if until is not None:
            self._retry_at(entry.cluster_queue, until)
            pause = (until - now) // SECOND
            event = kueue.preemption_not_recorded(entry.workload, str(failure), pause)
            self._context.announce(reference_of(preemptor), event)

    def _evicted(self, stored: Workload, marking: Marking) -> None:
        self._context.quota_metrics.evicted(
            self._state.place(stored),
            "Preempted",
            first=evictions_of(stored, "Preempted") == 1,
            ready_for=ready_for(stored, self._context.clock.wall()),
        )

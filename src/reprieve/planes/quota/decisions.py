"""The runs of cycles, and what each entry writes.

Changes are taken over, cycles run back to back in the solver thread until they change nothing, and
then everything that they decided is written, the next run not waiting for it: admissions by
`admissions`, each preemption in a task of its own. What cannot be written is taken back. A fault of
ours in deciding about one workload is logged and told to that one (`engine.quota.cycle`); after one
that is nobody's own there is a pause, longer each time. Source: specification of the quota plane,
sections 8 and 9; the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from reprieve.api.kueue import Workload
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota.cycle import preemptions_failed
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.plans import plan_of
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.persistent import Pauses
from reprieve.planes.common.solve import Solver, SolverPace, TookTooLong
from reprieve.planes.quota.admissions import Admissions
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.explanations import Explanations
from reprieve.planes.quota.held_pairs import HeldPairs
from reprieve.planes.quota.meters import place_of, ready_for
from reprieve.planes.quota.node_view import NodeView
from reprieve.planes.quota.preemptions import Preemptions
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.transitions import evictions_of
from reprieve.planes.quota.victims import Marking
from reprieve.planes.quota.waiting import Waiting
from reprieve.telemetry.quota_record import policy_text, recorded_cycles
from reprieve.units.durations import MILLISECOND, SECOND
from reprieve.wording import kueue

__all__ = ["Decisions"]

_MOST: Final = 1_000  # cycles in one run
_MOST_ADMITTED: Final = 1_000  # in one run, but that a cycle is done to its end
_PAUSE: Final = 5 * MILLISECOND
# How much longer than a run the pause before the next one is, and how long at most.
_REST: Final = 4
_LONGEST_PAUSE: Final = 100 * MILLISECOND


class Decisions:
    """Decides whenever something has changed. `held_back` says why nothing is decided now."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        preemptions: Preemptions,
        admissions: Admissions,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        held_back: Callable[[], str],
        held_pairs: HeldPairs,
        explanations: Explanations,
        nodes: NodeView,
        waiting: Waiting,
    ) -> None:
        self._context = context
        self._state = state
        self._preemptions = preemptions
        self._admissions = admissions
        self._spawn = spawn
        self._held_back = held_back
        self._solver = Solver(Plane.QUOTA, context.decision_limit, interrupts=False)
        self._wake = asyncio.Event()
        self._number = 0
        self._held_pairs = held_pairs
        self._explanations = explanations
        self._nodes = nodes
        self._waiting = waiting
        # ClusterQueues in which somebody was spared for a time, or set aside.
        self.retries: DirtyKeys[str] = DirtyKeys(context.clock)
        self._last_skips: set[str] = set()

    def wake(self) -> None:
        """Ask for a run."""
        self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled."""
        clock = self._context.clock
        try:
            pause, pauses = _PAUSE, Pauses()
            while True:
                await self._wake.wait()
                # What comes together is decided together, the more of it the longer that takes.
                await clock.sleep(pause)
                await self._admissions.room()
                self._wake.clear()
                if self._held_back():
                    await clock.sleep(SECOND // 5)
                    self._wake.set()
                    continue
                started = clock.monotonic()
                try:
                    fault = await self._decide()
                except Deposed:
                    raise
                except Exception as unexpected:
                    fault = unexpected
                if fault is not None:
                    log.error("nothing more is decided for now", exc_info=fault)
                    await clock.sleep(pauses.after_fault())
                    self._wake.set()
                    continue
                pauses.well()
                pause = max(_PAUSE, min(_REST * (clock.monotonic() - started), _LONGEST_PAUSE))
        finally:
            self._solver.close()

    async def retry(self, cluster_queue: str) -> None:
        """Try again what was set aside in a ClusterQueue: somebody is not spared any more."""
        async with self._state.engine:
            self._state.queues.flush([cluster_queue])
        self.wake()

    async def _decide(self) -> Exception | None:
        """Run cycles and carry them out; return the fault that ended them early."""
        state, clock = self._state, self._context.clock
        async with state.engine:
            state.settle()
            started, now = clock.monotonic(), clock.wall()
            ledger = self._held_pairs.ledger
            await self._held_pairs.show(now)
            proof = self._nodes.proof(now)
            recorded = await self._solver.run(
                lambda: recorded_cycles(
                    state.holdings,
                    state.queues,
                    now,
                    _MOST,
                    _MOST_ADMITTED,
                    self._number,
                    ledger,
                    proof,
                    SolverPace(Plane.QUOTA, self._context.decision_limit.suspects),
                )
            )
            self._number += len(recorded)
            seconds = (clock.monotonic() - started) / SECOND
            last: dict[str, Entry] = {}
            for result, inputs in recorded:
                for queue, until in result.retries.items():
                    self.retries.add_at(queue, until)
                for entry in result.entries:
                    last[entry.workload.key] = entry
                    if entry.outcome is Outcome.UNPROVEN:
                        self._nodes.refused(entry.cluster_queue)
                    if entry.issued:
                        self._issue(entry, inputs.get(entry.workload.key))
            admitted = [entry for entry in last.values() if entry.outcome is Outcome.ADMITTED]
            for entry in admitted:
                self._admissions.put(entry)
                self._waiting.admitted(entry.workload.key)
            if len(admitted) >= _MOST_ADMITTED:
                self._wake.set()
            self._say([result for result, _ in recorded], last, seconds)
        return next((result.fault for result, _ in recorded if result.fault is not None), None)

    def _say(self, results: Sequence[CycleResult], last: dict[str, Entry], seconds: float) -> None:
        """Tell people and metrics; what fails of it undoes no decision."""
        for result in results:
            for queue, failure in result.queue_faults.items():
                log.error("ClusterQueue %s is left out for now", queue, exc_info=failure)
            for entry in result.of(Outcome.FAULT):
                key = entry.workload.key
                if isinstance(entry.failure, TookTooLong):
                    stopped = self._context.metrics.decisions_stopped
                    stopped.labels(Plane.QUOTA.value, "stopped").inc()
                log.error("deciding about %s failed", key, exc_info=entry.failure)
                workload = self._state.workload(key)
                if workload is not None:
                    event = kueue.decision_failed(key, entry.message)
                    self._context.announce(reference_of(workload), event)
        for entry in last.values():
            if entry.outcome is not Outcome.ADMITTED:
                try:
                    self._explanations.tell(entry)
                except Exception:
                    log.exception("%s is not told why it waits", entry.workload.key)
        try:
            self._explanations.tell_those_alike(last)
            self._measure([result for result in results if result.entries], seconds)
        except Exception:
            log.exception("a run of cycles is not told")

    # Preemptions

    def _issue(self, entry: Entry, decision_input: dict[str, Any] | None) -> None:
        try:
            self._preempt(entry, decision_input)
        except Exception:
            log.exception("the preemptions for %s are not issued", entry.workload.key)
            failed = {target.holder.key for target in entry.issued}
            preemptions_failed(self._state.holdings, self._state.queues, entry, failed)

    def _preempt(self, entry: Entry, decision_input: dict[str, Any] | None) -> None:
        state = self._state
        tree, settings = state.holdings.tree, state.configuration.settings
        policy = policy_text(state.configuration, entry.cluster_queue)
        plan = plan_of(entry, tree, state.revision, policy)
        preemptor = state.workload(entry.workload.key)
        if plan is None or preemptor is None:
            return
        boosted, markings = settings.gates.priority_boost, []
        for target in entry.issued:
            victim = target.holder.workload
            message = kueue.preemption_message(
                entry.workload,
                target.reason,
                tree.cohort_path(entry.queue),
                tree.cohort_path(target.holder.queue),
            )
            name = tree.names[target.holder.queue]
            self._held_pairs.issued(entry.workload, victim)
            events = kueue.eviction_events(entry.workload, victim, message, boosted)
            told = kueue.preempted_workload_event(entry.workload, victim, name, boosted)
            markings.append(Marking(victim, target.reason, message, events, told))
        self._spawn(self._carry(entry, preemptor, plan, tuple(markings), decision_input))

    async def _carry(
        self,
        entry: Entry,
        preemptor: Workload,
        plan: Plan,
        markings: tuple[Marking, ...],
        decision_input: dict[str, Any] | None,
    ) -> None:
        failed = {marking.victim.key for marking in markings}
        unrecorded: ApiError | None = None
        try:
            failed = await self._preemptions.carry(
                plan, preemptor, entry.cluster_queue, markings, self._evicted, decision_input
            )
        except Deposed:
            raise
        except ApiError as failure:
            unrecorded = failure
        except Exception:
            log.exception("plan %s was not begun", plan.id)
        if failed:
            async with self._state.engine:
                preemptions_failed(self._state.holdings, self._state.queues, entry, failed)
                victims = (m.victim.uid for m in markings if m.victim.key in failed)
                self._held_pairs.failed(entry.workload, victims)
                if unrecorded is not None:
                    self._set_aside(entry, preemptor, plan, unrecorded)
            for key in failed:
                self._state.look_at(key)
            self._explanations.tell(entry)
        self._held_pairs.written(entry.workload, (each.victim for each in markings))

    def _set_aside(self, entry: Entry, preemptor: Workload, plan: Plan, failure: ApiError) -> None:
        """Let wait and tell whose plan could not be recorded; nobody else waits for it."""
        log.error("plan %s was not begun: %s", plan.id, failure)
        self._context.metrics.unrecorded.labels(plan.plane.value).inc()
        now = self._context.clock.wall()
        until = self._state.queues.fail_to_record(entry.workload.key, now)
        if until is not None:
            self.retries.add_at(entry.cluster_queue, until)
            pause = (until - now) // SECOND
            event = kueue.preemption_not_recorded(entry.workload, str(failure), pause)
            self._context.announce(reference_of(preemptor), event)

    def _evicted(self, stored: Workload, marking: Marking) -> None:
        self._context.quota_metrics.evicted(
            place_of(stored),
            "Preempted",
            first=evictions_of(stored, "Preempted") == 1,
            ready_for=ready_for(stored, self._context.clock.wall()),
        )

    def _measure(self, results: Sequence[CycleResult], seconds: float) -> None:
        metrics = self._context.quota_metrics
        for result in results:
            admitted = bool(result.of(Outcome.ADMITTED))
            metrics.cycle(seconds / len(results), admitted)
            skipped = result.skipped_preemptions
            metrics.skipped(self._last_skips | skipped.keys(), skipped)
            self._last_skips |= skipped.keys()
            for (queue, what), count in result.recomputations.items():
                metrics.recomputed(queue, str(what), count)

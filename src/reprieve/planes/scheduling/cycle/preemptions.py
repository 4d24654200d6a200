"""Carries preemptions out, from their record to the end of the last victim.

1. The plan is recorded, nominations of lower pods on the target node are removed, the victims are
   marked and deleted (`victims`).
2. Meanwhile, and until the deletions are seen, the preemptor is held before the queue. A call that
   fails for good makes it ready at once and closes the record.
3. The record is closed when every victim has ended and the preemptor is placed or no longer needs
   the capacity.

Source: specification 9; the design's "Intent log and executor" and "Recovery".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final

from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.api.reprieve import Preemption, VictimState
from reprieve.engine.cluster.snapshot import Nomination
from reprieve.engine.demands import Beside
from reprieve.engine.plan import Plan, Plane
from reprieve.execution.carried import Carried
from reprieve.execution.executor import Executor
from reprieve.execution.fence import Deposed
from reprieve.execution.letting_save import LettingSave
from reprieve.execution.notices import Notices
from reprieve.execution.records.book import Book, Retention
from reprieve.execution.records.intents import IntentExists
from reprieve.intake.lineage import pod_participant
from reprieve.kube.bodies import Json
from reprieve.kube.errors import ApiError
from reprieve.planes.common.disruptions.displacements import Issued
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.cycle.displacements import SchedulingDisplacements
from reprieve.planes.scheduling.cycle.effects import Record
from reprieve.planes.scheduling.cycle.joint_side import Deferrals
from reprieve.planes.scheduling.cycle.notice_terms import NoticeTerms
from reprieve.planes.scheduling.cycle.preemptor import Preemptor
from reprieve.planes.scheduling.cycle.victims import HELD, SchedulingVictims
from reprieve.planes.scheduling.set_aside import SetAside
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.records.displacements import stored
from reprieve.records.harm import stored_harm
from reprieve.units.ids import Uid
from reprieve.wording.plans import plan_text

__all__ = ["Preemptions"]


_RETENTION: Final = Retention()
_AGAIN: Final = SECOND
_SEEN_WITHIN: Final = 5 * SECOND
_LOOK: Final = 10 * MILLISECOND
NOMINATED_FOR: Final = MINUTE
_LONGEST_WAIT: Final = 10 * SECOND  # of a preemptor whose plan failed without an eviction


class Preemptions:
    """All preemptions of one plane. `spawn` runs a task.

    `unrecorded`: units whose plan cannot be recorded, which pause. `displacements`: reports them to
    the governor of disruptions. `deferrals` knows what the idle plane stated.
    """

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        namespace: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        unrecorded: SetAside,
        displacements: SchedulingDisplacements,
        deferrals: Deferrals,
    ) -> None:
        self._context = context
        self._deferrals = deferrals
        self._displacements = displacements
        self._unrecorded = unrecorded
        self._state = state
        self._statuses = statuses
        self._spawn = spawn
        self.book = Book(
            Plane.SCHEDULING,
            context.full_client,
            namespace,
            context.fence,
            context.clock,
            context.metrics,
            sizes=context.record_sizes,
            retention=lambda: _RETENTION,
            demands=context.joint.demands,
        )
        self.notices = context.notices or Notices(context.clock, context.metrics)
        self.notices.expect(Plane.SCHEDULING)
        NoticeTerms(context, state, self.notices)
        self._victims = SchedulingVictims(context, state, displacements.not_evictable)
        displacements.harm.lost_with = self._victims.lost_with_pod
        self._executor = Executor[Json](
            self.book,
            self._victims,
            context.clock,
            spawn,
            ended=self._ended,
            disruptions=context.disruptions,
            saving=LettingSave(self.notices, self._victims, context.clock),
        )
        self.open_plans = self._victims.open_plans
        self.open_plans.all = self._executor.open.values
        self._failures: dict[str, int] = {}  # in a row, without an eviction, by preemptor

    async def recover(self) -> None:
        """Finish or abandon what a former process left open.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        left = await self._executor.recover()
        records = await self.book.log.all_whole(left.records)
        self._displacements.restore(map(left.known, records), left.interrupted)
        self.notices.histories.restore(records)
        for each in left.plans:
            self._keep_room(each)
            self._keep_waiting(each)
        self.notices.inherited(Plane.SCHEDULING)

    def begin(
        self,
        plan: Plan,
        preemptor: Preemptor,
        lower: Sequence[Nomination],
        after: Callable[[], None] = lambda: None,
        *,
        record: Record | None = None,
    ) -> None:
        """Carry the plan out in a task of its own; `after` is called once the calls are over.

        `record` makes the input of the decision for the intent.
        """
        issued = self._displacements.issue(
            plan, _pods_of(plan, preemptor), self._victims.lost_with(plan)
        )
        known = self._beside(plan, preemptor)
        self._spawn(self._carry(plan, preemptor, lower, after, record, issued, known))

    def record_dry_run(
        self, plan: Plan, preemptor: Preemptor, record: Record | None = None
    ) -> None:
        """Write down what a dry run would have done, once for each plan."""
        if not self.book.noted(plan):
            log.info("dry run: plan %s %s", plan.id, plan_text(plan))
            self._spawn(self._record_dry_run(plan, record, self._beside(plan, preemptor)))

    def deadline(self, preemptor: str) -> int | None:
        """Return by when the victims of a preemptor are to have ended (`SchedulingVictims`)."""
        return self._victims.deadline(preemptor)

    async def reconcile(self) -> None:
        """Complete what is over, plan around what does not end.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        await self._executor.reconcile()

    async def keep_few_records(self) -> None:
        """Remove old records once in a while, until cancelled."""
        await self.book.keep_few(self._failures.clear)

    def _keep_waiting(self, each: Carried[Json]) -> None:
        """Do not decide anew about a preemptor whose victims may still save, or leave just now."""
        if each.busy:
            queue, now = self._state.queue, self._context.clock.monotonic()
            keys = {queue.hold_back(row.uid, now) for row in self._victims.waiting(each.intent)}
            self._spawn(self._release_after(each, keys - {""}))

    async def _release_after(self, each: Carried[Json], keys: Collection[str]) -> None:
        clock = self._context.clock
        while each.busy:
            await clock.sleep(SECOND)
        self._keep_room(each)
        for key in keys:
            self._state.queue.release(key, clock.monotonic(), activate=True)
        self._state.changed()

    def _keep_room(self, each: Carried[Json]) -> None:
        """Keep the nodes of an adopted plan for the pods that it evicts for."""
        if not each.any_over or each.ending is not None:
            return
        nodes = {place.uid: place.node for place in each.intent.spec.placement}
        deadline = self._context.clock.monotonic() + NOMINATED_FOR
        for row in self._victims.waiting(each.intent):
            if row.nominated != nodes[row.uid]:
                group = self._state.group(f"{row.namespace}/{row.group}") if row.group else None
                priority = row.priority if group is None else group.priority
                self._state.cluster.nominate(row.uid, nodes[row.uid], priority, deadline)
                self._statuses.pod(row, nominated=nodes[row.uid])

    # One plan.

    def _beside(self, plan: Plan, preemptor: Preemptor) -> Beside | None:
        """Return what the record of a plan that was decided just now states of other planes."""
        context, pods = self._context, _pods_of(plan, preemptor)
        row = next((row for uid in pods if (row := self._state.pod(uid)) is not None), None)
        whole = self._state.group(preemptor.unit.group) if preemptor.unit.group else row
        return context.joint.beside(
            context.governor,
            None if row is None else pod_participant(row),
            context.clock.wall(),
            idle=self._deferrals.rejection(preemptor.unit),
            mixed=self._deferrals.is_mixed(preemptor.unit),
            priority=None if whole is None else whole.priority,
        )

    async def _carry(
        self,
        plan: Plan,
        preemptor: Preemptor,
        lower: Sequence[Nomination],
        after: Callable[[], None],
        record: Record | None,
        issued: Issued,
        beside: Beside | None,
    ) -> None:
        clock, scheduler = self._context.clock, self._context.scheduler_metrics
        start, failed, aside = clock.monotonic(), True, 0
        unrecorded: ApiError | None = None
        try:
            each = await self._evict(plan, preemptor, lower, record, issued, beside)
            states = each.outcome()
            failed = each.stalled or not all(state.state.over for state in states)
            if failed:
                stay = (state for state in states if not state.state.over)
                detail = next((state.message for state in stay if state.message), "a victim stays")
                log.warning("preemption for %s: %s", preemptor.called, detail)
                if not (each.pending or each.stalled or each.abandoned):
                    await self._executor.give_up(each, "a victim could not be deleted")
                self._executor.watch(each)
                if not any(state.state.over for state in states):
                    await self._wait_after_failure(preemptor)
            else:
                self._failures.pop(preemptor.key, None)
                self._executor.watch(each)
                await self._seen(each)
                log.info("plan %s %s", plan.id, plan_text(plan))
        except IntentExists as chosen:
            self._displacements.reported.withdraw(issued)
            log.warning("preemption for %s: %s", preemptor.called, chosen)
            await clock.sleep(_AGAIN)
        except ApiError as failure:
            self._displacements.reported.withdraw(issued)
            unrecorded = failure
        except Deposed:
            raise
        except Exception:
            log.exception("preemption for %s failed", preemptor.called)
            await self._wait_after_failure(preemptor)
        finally:
            result = "error" if failed else "success"
            seconds = (clock.monotonic() - start) / SECOND
            scheduler.execution_seconds.labels(preemptor.kind, result).observe(seconds)
            scheduler.goroutine_seconds.labels(result).observe(seconds)
            scheduler.goroutines.labels(result).inc()
            outcome_word = "failed" if failed else "evicted"
            self._context.metrics.count_plan(plan.id, plan.plane, outcome_word)
            after()
            if unrecorded is not None:
                # Only now: its report replaces what the attempt itself reports.
                aside = self._unrecorded.add_unrecorded(preemptor.unit, unrecorded)
            again = failed and not aside
            self._state.queue.release(preemptor.key, clock.monotonic(), activate=again)
            if aside:
                self._state.queue.remind(preemptor.unit, aside)
            self._state.changed()

    async def _evict(
        self,
        plan: Plan,
        preemptor: Preemptor,
        lower: Sequence[Nomination],
        record: Record | None,
        issued: Issued,
        beside: Beside | None,
    ) -> Carried[Json]:
        """Record the plan, and make the calls for its victims; what is left is tried again."""
        decided_on = await _input(plan, record)
        if decided_on is not None:
            decided_on |= stored(issued.displacements)
            if self._context.governor.harm:
                firsts = [row.uid for row in issued.displacements]
                decided_on |= stored_harm(issued.harms, firsts)
        intent = await self.book.write(
            plan,
            decision_input=decided_on,
            at_stake=self._victims.at_stake(plan),
            beside=beside,
            notices=self._victims.notices(plan, preemptor, self.notices),
        )
        self._displacements.reported.recorded(intent.metadata.name, issued)
        self._unrecorded.forget(preemptor.unit)
        for nomination in lower:
            row = self._state.pod(nomination.uid)
            if row is not None:
                await self._statuses.pod(row, nominated="").wait()
        self._victims.begin(intent, preemptor)
        each = await self._executor.mark(intent)
        if not (each.abandoned or each.stalled):
            await self._executor.evict(each)
        clock = self._context.clock
        end = clock.monotonic() + HELD
        while each.pending and not each.stalled and (each.next_try <= end or each.away):
            await clock.sleep(max(each.next_try - clock.monotonic(), 0))
            await self._executor.try_again(each)
        return each

    def _ended(self, each: Carried[Json], record: Preemption | None) -> None:
        self._victims.forget(each.intent)
        evicted = {uid for uid, s in each.states.items() if s.state is VictimState.EVICTED}
        reported, lost = self._displacements.reported, self.notices.lost(each.intent)
        reported.ended(each.name, evicted, interrupted=each.interrupted, lost=lost)

    async def _record_dry_run(
        self, plan: Plan, record: Record | None, beside: Beside | None
    ) -> None:
        given = await _input(plan, record)
        await self.book.record_dry_run(plan, decision_input=given, beside=beside)

    async def _wait_after_failure(self, preemptor: Preemptor) -> None:
        """Nothing has changed, so that the next attempt may fail alike: pause longer each time."""
        failures = self._failures[preemptor.key] = self._failures.get(preemptor.key, 0) + 1
        await self._context.clock.sleep(min(_AGAIN << min(failures - 1, 8), _LONGEST_WAIT))

    async def _seen(self, each: Carried[Json]) -> None:
        """Wait until the watch shows that the victims are on their way."""
        clock = self._context.clock
        end = clock.monotonic() + _SEEN_WITHIN
        for victim in each.intent.spec.victims:
            while clock.monotonic() < end:
                row = self._state.pod(Uid(victim.root.uid))
                if row is None or row.deleting or row.finished:
                    break
                await clock.sleep(_LOOK)


def _pods_of(plan: Plan, preemptor: Preemptor) -> list[Uid]:
    """Return the pods for which others are preempted."""
    return [*preemptor.unit.pods, *(Uid(uid) for uid, _ in plan.placement)]


async def _input(plan: Plan, record: Record | None) -> dict[str, Any] | None:
    """Return the input of the decision as the record holds it."""
    if record is None:
        return None
    try:
        return await asyncio.to_thread(record)
    except Exception:
        # What cannot be explained later must be carried out all the same.
        log.exception("the input of plan %s is not recorded", plan.id)
        return None

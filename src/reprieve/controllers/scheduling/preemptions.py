"""Carries preemptions out, from their intent to the end of the last victim.

1. The intent is committed, nominations of lower pods on the target node are taken away, the victims
   are deleted, the last one last.
2. Meanwhile, and until the deletions are seen, the preemptor is held before the queue. A call that
   fails for good makes it ready at once and closes the intent.
3. The intent is completed when every victim is gone and the preemptor is placed or has let go.
4. A victim that does not end in time is planned around: event, metric, and the preemptor is ready.
5. Where a part of a unit has gone and another could not be deleted, that is tried again for ten
   minutes, with a growing pause. After the first tries it is planned around.

Source: specification 9; the design's "Intent log and executor" and "Recovery".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.api.reprieve import Preemption, PreemptionSpec, Victim, VictimState
from reprieve.controllers.persistent import alone
from reprieve.controllers.scheduling.context import SchedulingContext, log
from reprieve.controllers.scheduling.recording import Record, Recording
from reprieve.controllers.scheduling.references import pod_reference
from reprieve.controllers.scheduling.set_aside import SetAside
from reprieve.controllers.scheduling.state import ClusterState
from reprieve.controllers.scheduling.statuses import Statuses
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Nomination
from reprieve.engine.cluster.trees import Way
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.scheduling.harm import lost_by
from reprieve.engine.scheduling.outcome import Unit
from reprieve.execution.executor import Outcome
from reprieve.execution.fence import Deposed
from reprieve.execution.intents import IntentLog, IntentTaken
from reprieve.execution.preempt import PodPreemption, is_torn
from reprieve.execution.recovery import claim_open, remove_old
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.series_events import Reference
from reprieve.telemetry.victim_states import victim_states
from reprieve.units.durations import HOUR, MILLISECOND, MINUTE, SECOND
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording

__all__ = ["Preemptions", "Preemptor"]

_DEFAULT_GRACE: Final = 30
_SERVED_WITHIN: Final = 10 * MINUTE
_RECORD_TIME_TO_LIVE: Final = 168 * HOUR
_RECORD_CAP: Final = 5_000
_CLEAN_EVERY: Final = 5 * MINUTE
_AGAIN: Final = SECOND
_SEEN_WITHIN: Final = 5 * SECOND
_LOOK: Final = 10 * MILLISECOND
_PAUSES: Final = (SECOND, 2 * SECOND, 4 * SECOND)  # while the preemptor is held
_LONGEST_PAUSE: Final = MINUTE
_LONGEST_WAIT: Final = 10 * SECOND  # of a preemptor whose plan failed with nobody evicted


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Who needs room: `key` of its queue entry, its kind's word, target, and the related object."""

    unit: Unit
    key: str
    kind: str
    uid: Uid
    scheduler_name: str
    target: str
    reference: Reference
    message: str = ""  # of its victims' condition, where that is not kube-scheduler's own
    preempted: Callable[[str], wording.EventText] | None = None  # a victim's event, by its node


@dataclass(slots=True)
class _Open:
    """An intent whose victims have been told to go. `deadlines`: monotonic, by victim.

    `torn_since`: since when a part of a unit is left that could not be deleted; `again`: when that
    is tried next, None while it is being tried. `pause`: until the try after that.
    """

    outcome: Outcome
    preemptor: Preemptor | None
    left: set[Uid]
    deadlines: dict[Uid, int] = field(default_factory=dict)
    gone_since: int | None = None
    torn_since: int | None = None
    again: int | None = None
    pause: int = 8 * SECOND


class Preemptions:
    """All preemptions of one plane. `spawn` runs a task.

    `unrecorded`: whose plan cannot be written down, which pause.
    """

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        namespace: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        unrecorded: SetAside,
    ) -> None:
        self._context = context
        self._unrecorded = unrecorded
        self._state = state
        self._statuses = statuses
        self._spawn = spawn
        self._intents = IntentLog(
            context.client, namespace, context.fence, context.clock, context.record_sizes
        )
        self._pods = PodPreemption(
            context.client,
            self._intents,
            context.fence,
            context.clock,
            evicted=self._evicted,
            seen=self._seen_metadata,
        )
        self._recording = Recording(context, self._intents, self._pods)
        self._open: dict[str, _Open] = {}
        self._preemptors: dict[str, Preemptor] = {}  # by intent, while victims are being deleted
        self._graces: dict[Uid, int] = {}
        self._failures: dict[str, int] = {}  # in a row, with nobody evicted, by preemptor
        self._noted: set[str] = set()  # plans of a dry run

    async def recover(self) -> None:
        """Finish or abandon what a former process left open.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        listed = await self._intents.list()
        records = [each for each in listed if each.spec.plane == Plane.SCHEDULING]
        self._recording.restore(records)
        context = self._context
        claimed = await claim_open(self._intents, context.fence, context.clock, records)
        gone = await self._evicted_by(records) if claimed else set()
        for intent in sorted(claimed, key=lambda each: each.spec.decided_at):
            needed = self._needed(intent.spec)
            outcome = await self._pods.resume(intent, needed=needed, evicted=gone)
            gone.update(v.uid for v in outcome.victims if v.state is VictimState.EVICTED)
            if not any(v.state.over for v in outcome.victims):
                reason = "no victim was marked before its execution was interrupted"
                await self._close(outcome, reason)
                continue
            self._watch(outcome, None)

    async def _evicted_by(self, records: Iterable[Preemption]) -> set[str]:
        """Return the uids of those who stand as evicted in a record that is over."""
        closed = [record for record in records if not record.status.phase.open]
        return {
            uid
            for record in await self._intents.all_whole(closed)
            for uid, each in victim_states(record).items()
            if each.state is VictimState.EVICTED
        }

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

        `record` makes the input of the decision that goes into the intent.
        """
        self._spawn(self._carry(plan, preemptor, lower, after, record))

    def note(self, plan: Plan, preemptor: Preemptor, record: Record | None = None) -> None:
        """Write down what a dry run would have done, once for each plan."""
        if plan.id not in self._noted:
            self._noted.add(plan.id)
            victims = ", ".join(f"{v.root.namespace}/{v.root.name}" for v in plan.victims)
            log.info("dry run: %s would be evicted for %s", victims, preemptor.key)
            self._spawn(self._recording.note(plan, record))

    def pod_gone(self, row: PodRow) -> None:
        """A pod ended: it may be the last victim of somebody."""
        now = self._context.clock.monotonic()
        for each in self._open.values():
            if row.uid in each.left:
                each.left.discard(row.uid)
                each.deadlines.pop(row.uid, None)
                if not each.left:
                    each.gone_since = now

    async def look(self) -> None:
        """Complete what is over, plan around what does not end.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        now = self._context.clock.monotonic()

        async def look_at(name: str, each: _Open) -> None:
            with alone(log, name):
                await self._look_at(name, each, now)

        await asyncio.gather(*(look_at(name, each) for name, each in list(self._open.items())))
        self._context.metrics.intents_open.labels(Plane.SCHEDULING.value).set(len(self._open))
        await self._recording.settle(now)

    async def keep_few_records(self) -> None:
        """Remove old records every five minutes, until cancelled.

        Apart from `look`, as thousands of deletions may take minutes, in which what is on its way
        has to be looked at.
        """
        while True:
            try:
                await self._remove_old_records()
            except ApiError as failure:
                log.warning("old records stay for now: %s", failure)
            await self._context.clock.sleep(_CLEAN_EVERY)

    async def _remove_old_records(self) -> None:
        listed = await self._intents.list(bare=True)
        records = [each for each in listed if each.spec.plane == Plane.SCHEDULING]
        self._recording.forget_all_but(records)
        self._failures.clear()
        wall = self._context.clock.wall()
        await remove_old(
            self._intents, Plane.SCHEDULING, records, wall, _RECORD_TIME_TO_LIVE, _RECORD_CAP
        )

    async def _look_at(self, name: str, each: _Open, now: int) -> None:
        for uid, deadline in list(each.deadlines.items()):
            if deadline <= now:
                self._overdue(each, uid)
        if each.torn_since is not None:
            if each.again is not None and each.again <= now:
                each.again = None
                self._spawn(self._complete(name, each))
            return
        if each.left:
            return
        served = self._served(each.outcome.intent.spec)
        since = now if each.gone_since is None else each.gone_since
        if served or now - since >= _SERVED_WITHIN:
            del self._open[name]
            await self._close(each.outcome, "" if served else "the preemptor did not come")

    # One plan.

    async def _carry(
        self,
        plan: Plan,
        preemptor: Preemptor,
        lower: Sequence[Nomination],
        after: Callable[[], None],
        record: Record | None,
    ) -> None:
        clock, scheduler = self._context.clock, self._context.scheduler_metrics
        start = clock.monotonic()
        failed, aside = True, 0
        unrecorded: ApiError | None = None
        try:
            outcome = await self._delete(plan, preemptor, lower, record)
            for pause in _PAUSES:
                if is_torn(outcome):
                    await clock.sleep(pause)
                    outcome = await self._pods.complete(outcome)
            failed = not all(v.state.over for v in outcome.victims)
            if failed:
                stay = (v for v in outcome.victims if not v.state.over)
                detail = next((v.message for v in stay if v.message), "a victim stays")
                log.warning("preemption for %s: %s", preemptor.key, detail)
                if is_torn(outcome):
                    self._watch(outcome, preemptor)
                else:
                    await self._close(outcome, "a victim could not be deleted")
                if not any(v.state.over for v in outcome.victims):
                    await self._wait_after_failure(preemptor)
            else:
                self._failures.pop(preemptor.key, None)
                self._watch(outcome, preemptor)
                await self._seen(outcome)
                log.info("plan %s: %d victims for %s", plan.id, len(plan.victims), preemptor.key)
        except IntentTaken as taken:
            log.warning("preemption for %s: %s", preemptor.key, taken)
            await clock.sleep(_AGAIN)
        except ApiError as failure:
            unrecorded = failure
        except Deposed:
            raise
        except Exception:
            log.exception("preemption for %s failed", preemptor.key)
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
                # Only now: what is told of it takes the place of what the attempt itself tells.
                aside = self._unrecorded.put_unrecorded(preemptor.unit, unrecorded)
            again = failed and not aside
            self._state.queue.release(preemptor.key, clock.monotonic(), activate=again)
            if aside:
                self._state.queue.remind(preemptor.unit, aside)
            self._state.changed()

    async def _delete(
        self,
        plan: Plan,
        preemptor: Preemptor,
        lower: Sequence[Nomination],
        record: Record | None,
    ) -> Outcome:
        intent = await self._recording.write(plan, record)
        self._unrecorded.forget(preemptor.unit)
        name = intent.metadata.name
        self._preemptors[name] = preemptor
        for each in lower:
            row = self._state.pod(each.uid)
            if row is not None:
                await self._statuses.pod(row, nominated="").wait()
        message = preemptor.message or wording.disruption_message(
            preemptor.scheduler_name, preemptor.kind
        )
        try:
            return await self._pods.evict(intent, message)
        finally:
            del self._preemptors[name]

    async def _wait_after_failure(self, preemptor: Preemptor) -> None:
        """Nothing has changed, so that the next attempt may fail alike: pause longer each time."""
        failures = self._failures[preemptor.key] = self._failures.get(preemptor.key, 0) + 1
        await self._context.clock.sleep(min(_AGAIN << min(failures - 1, 8), _LONGEST_WAIT))

    async def _seen(self, outcome: Outcome) -> None:
        """Wait until the watch shows that the victims are on their way."""
        clock = self._context.clock
        end = clock.monotonic() + _SEEN_WITHIN
        for victim in outcome.victims:
            while clock.monotonic() < end:
                row = self._state.pod(Uid(victim.uid))
                if row is None or row.deleting or row.finished:
                    break
                await clock.sleep(_LOOK)

    def _seen_metadata(self, victim: Victim) -> dict[str, Any] | None:
        """Return what marks of a victim refer to, None where it leaves or is not known."""
        row = self._state.pod(Uid(victim.root.uid))
        if row is None or row.deleting or row.finished:
            return None
        return {
            "namespace": row.namespace,
            "name": row.name,
            "uid": row.uid,
            "resourceVersion": str(row.version),
            "generation": row.generation,
        }

    def _evicted(self, intent: Preemption, victim: Victim, grace: int) -> None:
        self._graces[Uid(victim.root.uid)] = grace
        self._context.metrics.count_preemption(
            _plan_id(intent), Plane.SCHEDULING, victim.rule, "evicted"
        )
        row = self._state.pod(Uid(victim.root.uid))
        if row is not None:
            group = self._state.group(f"{row.namespace}/{row.group}") if row.group else None
            lost = lost_by(row, group, self._context.clock.wall() // SECOND)
            self._context.metrics.lost_device_seconds.labels(
                Plane.SCHEDULING.value, victim.rule
            ).inc(lost)
        preemptor = self._preemptors.get(intent.metadata.name)
        if preemptor is None:
            return
        root = victim.root
        about = (
            pod_reference(row)
            if row is not None
            else Reference("v1", "Pod", root.namespace, root.name, root.uid)
        )
        text = wording.preempted(preemptor.kind, preemptor.uid, preemptor.target)
        if preemptor.preempted is not None:
            text = preemptor.preempted(row.node if row is not None else "")
        self._context.announce(about, text, preemptor.scheduler_name, preemptor.reference)

    def _watch(self, outcome: Outcome, preemptor: Preemptor | None) -> None:
        now = self._context.clock.monotonic()
        over = {Uid(each.uid) for each in outcome.victims if each.state.over}
        left = {uid for uid in over if self._there(uid)}
        slack = self._context.settings.victim_deadline
        deadlines = {
            uid: now + self._graces.pop(uid, _DEFAULT_GRACE) * SECOND + slack for uid in left
        }
        for uid in over:
            self._graces.pop(uid, None)
        gone = None if left else now
        name = outcome.intent.metadata.name
        each = self._open[name] = _Open(outcome, preemptor, left, deadlines, gone)
        if is_torn(outcome):
            each.torn_since, each.again = now, now + each.pause
            failed = (each for each in outcome.victims if each.state is VictimState.FAILED)
            self._state.overdue.update(Uid(each.uid) for each in failed)

    async def _complete(self, name: str, each: _Open) -> None:
        """Try once more to delete what is left of a unit, and say when to try again.

        Raises:
            Deposed: the process lease is lost.
        """
        try:
            each.outcome = await self._pods.complete(each.outcome)
        finally:
            now = self._context.clock.monotonic()
            each.pause = min(2 * each.pause, _LONGEST_PAUSE)
            each.again = now + each.pause
        assert each.torn_since is not None, "only what is torn is completed"
        torn = is_torn(each.outcome)
        if torn and now - each.torn_since < _SERVED_WITHIN:
            return
        if torn:
            log.warning("preemption %s: a part of a unit stays, nobody may delete it", name)
        self._watch(each.outcome, each.preemptor)
        self._open[name].torn_since = None

    def _there(self, uid: Uid) -> bool:
        row = self._state.pod(uid)
        return row is not None and not row.finished

    def _served(self, spec: PreemptionSpec) -> bool:
        for place in spec.placement:
            row = self._state.pod(Uid(place.uid))
            if row is not None and not row.node and row.nominated:
                return False
        return True

    def _needed(self, spec: PreemptionSpec) -> bool:
        """Whether a pod of the preemptor still waits for a node, with all groups above it there."""
        rows = (self._state.pod(Uid(place.uid)) for place in spec.placement)
        waiting = [row for row in rows if row is not None and self._state.ours(row)]
        groups = {f"{row.namespace}/{row.group}" for row in waiting if row.group}
        if not self._context.policy.gates.generic_workload:
            groups.clear()
        return bool(waiting) and all(self._state.root(key)[0] is not Way.MISSING for key in groups)

    def _overdue(self, each: _Open, uid: Uid) -> None:
        each.deadlines.pop(uid)
        each.left.discard(uid)
        row = self._state.pod(uid)
        if row is None:
            return
        log.warning("victim %s/%s does not end: planned around", row.namespace, row.name)
        self._context.scheduler_metrics.overdue_victims.inc()
        self._state.overdue.add(uid)
        preemptor = each.preemptor
        if preemptor is not None:
            text = wording.victim_overdue(row.namespace, row.name)
            self._context.announce(pod_reference(row), text, preemptor.scheduler_name)
            self._state.queue.activate((preemptor.key,), self._context.clock.monotonic())

    async def _close(self, outcome: Outcome, reason: str) -> None:
        try:
            await self._pods.finish(outcome, reason)
        except (Conflict, NotFound) as failure:
            log.info("intent %s: %s", outcome.intent.metadata.name, failure)
        except ApiError as failure:
            log.warning("intent %s stays open: %s", outcome.intent.metadata.name, failure)
            self._open[outcome.intent.metadata.name] = _Open(outcome, None, set())


def _plan_id(intent: Preemption) -> Any:
    return intent.spec.plan_id

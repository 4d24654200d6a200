"""Preemptions by quota: the record first, then the marks; jobs are stopped because of the marks.

A record is closed when each of its victims has given its quota back, or was never marked.

Source: specification of the quota plane, section 9; the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.api.kueue import Workload
from reprieve.api.reprieve import NOTICE, Action, Preemption, Victim, VictimState
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.demands import Beside
from reprieve.engine.lost_work import devices_of
from reprieve.engine.notice.granting import Grant
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota import model
from reprieve.engine.quota.displacements import participant_of
from reprieve.engine.quota.holdings.holders import effective_priority
from reprieve.engine.quota.model import Policy
from reprieve.execution.carried import Carried
from reprieve.execution.executor import Executor
from reprieve.execution.letting_save import LettingSave
from reprieve.execution.notices import Asking, Notices
from reprieve.execution.records.book import Book, Retention
from reprieve.intake.cluster.metadata import notice_of
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.planes.common.joint import REJECTIONS
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.deciding.effects import Marking, marking_of
from reprieve.planes.quota.deciding.notice_facts import asked_by
from reprieve.planes.quota.deciding.refused_evictions import RefusedEvictions
from reprieve.planes.quota.deciding.victims import QuotaVictims, Reported
from reprieve.planes.quota.queue_status.meters import devices_held, lost_with
from reprieve.planes.quota.state import QuotaState, key_of
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.records.plans.at_stake import AtStake, Stake, lineage_of
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.kube_scheduler import notice_ignored

__all__ = ["Preemptions"]

# Owners of Workloads whose pods are gated, and deleted when they are preempted.
_GATED: Final = ("Pod", "StatefulSet", "LeaderWorkerSet")
# Teams that lend each other quota preempt all day, and a new leader reads all of it.
_RETENTION: Final = Retention(24 * HOUR, cap=500, fresh_cap=5_000, every=MINUTE)

#: Called with a plan that is over, the evicted roots, and the losses of those that had saved.
Over: TypeAlias = Callable[[Preemption, Collection[str], Mapping[str, int]], None]


class Preemptions:
    """The preemptions of the quota plane. `spawn` runs a task; `pods`: those of a Workload."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        namespace: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        refusals: RefusedEvictions,
        pods: Callable[[str], Sequence[PodRow]],
        restore: Callable[[list[Preemption], Collection[str]], None] = lambda intents, names: None,
        over: Over = lambda intent, evicted, lost: None,
    ) -> None:
        self._context = context
        self._state = state
        self._restore = restore
        self._over = over
        self.book = Book(
            Plane.QUOTA,
            context.full_client,
            namespace,
            context.fence,
            context.clock,
            context.metrics,
            retention=self._retention,
            demands=context.joint.demands,
        )
        #: Called with each victim that was evicted for another.
        self.evicted: Callable[[Workload, Marking], None] = lambda stored, marking: None
        self._pods = pods
        self._spawn = spawn
        self.notices = context.notices or Notices(context.clock, context.metrics)
        self.notices.expect(Plane.QUOTA)
        state.reported.credit, state.reported.pods = self.notices.credit, pods
        # Plans of former processes whose victims save, with the keys of these.
        self._claimed: dict[str, list[str]] = {}
        self._victims = QuotaVictims(context, state, writer, refusals, pods, self._made_again)
        self._executor = Executor[Workload](
            self.book,
            self._victims,
            context.clock,
            spawn,
            ended=self._ended,
            disruptions=context.disruptions,
            saving=LettingSave(self.notices, self._victims, context.clock),
        )

    def _ended(self, each: Carried[Workload], record: Preemption | None) -> None:
        self._victims.forget(each.intent)
        evicted = {uid for uid, s in each.states.items() if s.state is VictimState.EVICTED}
        self._over(each.intent, evicted, self.notices.lost(each.intent))
        claimed = self._claimed.pop(each.name, [])
        if claimed and each.abandoned:
            self._spawn(self._let_go(each.intent, claimed))

    async def recover(self) -> None:
        """Adopt the intents that a former process left open.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        async with self._state.engine:
            self._state.settle()
        left = await self._executor.recover()
        for each in left.plans:
            log.info(
                "preemption %s of a former process is resumed: %d victims are marked",
                each.name,
                len(each.left),
            )
            if each.busy:
                await self._claim(each.intent)
        self.notices.inherited(Plane.QUOTA)
        records = await self.book.log.all_whole(left.records)
        self._restore(list(map(left.known, records)), left.interrupted)
        self.notices.histories.restore(records)

    async def carry(
        self,
        plan: Plan,
        preemptor: Workload,
        queue: str,
        markings: Sequence[Marking],
        decision_input: dict[str, Any] | None = None,
    ) -> set[str]:
        """Write the intent and the marks; return the keys of victims that could not be marked.

        `decision_input` is what the plan was decided on, for the record. A plan whose victims have
        all ended by themselves since it was made is not written.

        Raises:
            Deposed: the fence is closed.
            ApiError: the intent could not be written; no victim is marked.
        """
        if not any(self._holds_quota(marking.victim) for marking in markings):
            log.info(
                "plan %s is not carried out: none of its victims holds quota any more", plan.id
            )
            return {marking.victim.key for marking in markings}
        actions = [self._action(each.subject) for each in plan.victims]
        intent = await self.book.write(
            plan,
            actions=actions,
            decision_input=decision_input,
            at_stake=self._at_stake(preemptor, markings),
            beside=self._beside(preemptor, queue),
            notices=self._grants(preemptor, markings),
        )
        self._victims.begin(intent, markings, self._reported(plan.id, preemptor, queue))
        each = await self._executor.carry(intent)
        failed = {m.victim.key for m in markings if m.victim.uid not in each.left}
        await self._recorded(key_of(preemptor))
        return failed

    async def reconcile(self) -> None:
        """Close the intents that are over.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        await self._executor.reconcile()

    # Notice.

    def _grants(self, preemptor: Workload, markings: Sequence[Marking]) -> Sequence[Grant]:
        """Return the notice of each victim before its eviction, empty for none."""
        context, settings = self._context, self._state.configuration.settings
        urgent = None if context.governor is None else context.governor.policy.emergency_priority
        priority = effective_priority(self._state.row(preemptor), settings)
        asking = []
        for each in markings:
            key = each.victim.key
            rows = [row for row in self._pods(key) if not row.finished]
            asked = [row.notice * SECOND for row in rows if row.notice > 0]
            stored, allowed = self._state.workload(key), 0
            if stored is not None:
                self._report_unreadable(stored, rows)
                asked = asked or [notice_of(stored.metadata) * SECOND]
                allowed = self._state.protections.notice_max(stored)
            pods = [row.uid for row in rows]
            asking.append(Asking(str(each.victim.uid), asked, pods, allowed))
            if stored is not None:
                asking[-1] = self._weighed(asking[-1], each, stored)
        hurried = urgent is not None and priority >= urgent
        waiting = _devices_asked(self._state.row(preemptor)) if settings.harm_order else None
        return self.notices.grants(context.options.notice, asking, hurried=hurried, devices=waiting)

    def _report_unreadable(self, stored: Workload, rows: Sequence[PodRow]) -> None:
        said = [notice_of(stored.metadata), *(row.notice for row in rows)]
        if self._context.options.notice.most and min(said) < 0:
            self._context.announce(reference_of(stored), notice_ignored(NOTICE))

    def _weighed(self, asking: Asking, each: Marking, stored: Workload) -> Asking:
        """Return a victim with what it is expected to lose."""
        devices = devices_held(stored)
        lost = lost_with(stored, self._context.clock.wall() // SECOND)
        return asking._replace(
            undone=lost * SECOND // devices if devices else 0,
            devices=devices,
            save=asked_by(stored, self._pods(each.victim.key))[1] * SECOND,
            lineage=lineage_of(participant_of(each.victim)),
        )

    async def _claim(self, intent: Preemption) -> None:
        """Count the victims of a plan that was adopted as leaving, while they save."""
        state, now = self._state, self._context.clock.wall()
        keys = [f"{each.subject.namespace}/{each.subject.name}" for each in intent.spec.victims]
        async with state.engine:
            for key, victim in zip(keys, intent.spec.victims, strict=True):
                holder = state.holdings.holders.get(key)
                if holder is not None and holder.workload.uid == victim.subject.uid:
                    state.holdings.expect_eviction(key, model.Reason(victim.rule), now)
            if intent.spec.preemptor is not None:
                preemptor = intent.spec.preemptor
                state.queues.expect_preemption(f"{preemptor.namespace}/{preemptor.name}")
        self._claimed[intent.metadata.name] = keys

    async def _let_go(self, intent: Preemption, keys: Sequence[str]) -> None:
        """Undo `_claim`: its victims stay."""
        state, preemptor = self._state, intent.spec.preemptor
        async with state.engine:
            for key in keys:
                state.holdings.eviction_failed(key)
            if preemptor is not None:
                state.queues.preemption_failed(f"{preemptor.namespace}/{preemptor.name}")
        for key in keys:
            state.look_at(key)

    def _made_again(self, intent: Preemption, victim: Victim) -> tuple[Marking, Reported] | None:
        """Return how a victim in a record of a former process is marked, and which had notice."""
        state, whom = self._state, intent.spec.preemptor
        assert whom is not None, "a plan of this plane has one"
        tree, key = state.holdings.tree, f"{whom.namespace}/{whom.name}"
        preemptor, home = state.workload(key), state.queues.home(key)
        at = f"{victim.subject.namespace}/{victim.subject.name}"
        holder = state.holdings.holders.get(at)
        if preemptor is None or home not in tree.queues or holder is None:
            return None
        marking = marking_of(
            state.row(preemptor),
            tree.queues[home],
            holder.workload,
            holder.queue,
            model.Reason(victim.rule),
            tree,
            state.configuration.settings,
        )
        return marking, self._reported(intent.spec.plan_id, preemptor, home)

    # What is reported.

    def _reported(self, plan: str, preemptor: Workload, queue: str) -> Reported:
        def reported(marking: Marking, stored: Workload, foreign: bool) -> None:
            self._report(plan, preemptor, queue, marking, stored, foreign=foreign)
            self.evicted(stored, marking)

        return reported

    def _report(
        self,
        plan: str,
        preemptor: Workload,
        queue: str,
        marking: Marking,
        stored: Workload,
        *,
        foreign: bool,
    ) -> None:
        self._context.quota_metrics.preempted(queue, str(marking.reason))
        if not foreign:
            lost = lost_with(stored, self._context.clock.wall() // SECOND)
            self._context.metrics.lost_device_seconds.labels(
                Plane.QUOTA.value, str(marking.reason)
            ).inc(lost)
        for event in marking.events:
            self._context.announce(reference_of(stored), event)
        self._context.announce(reference_of(preemptor), marking.reported)
        log.info(
            "%s is preempted for %s, plan %s: %s",
            marking.victim.key,
            key_of(preemptor),
            plan,
            marking.reason,
        )

    async def _recorded(self, preemptor: str) -> None:
        """Begin anew with the pauses of one whose earlier plans could not be recorded."""
        unrecorded = self._state.queues.unrecorded
        if preemptor in unrecorded:
            async with self._state.engine:
                unrecorded.forget(preemptor)

    def _holds_quota(self, victim: model.Workload) -> bool:
        workload = self._state.workload(victim.key)
        return (
            workload is not None
            and workload.metadata.uid == victim.uid
            and workload.status.admission is not None
            and not is_condition_true(workload, "Finished")
        )

    def _at_stake(self, preemptor: Workload, markings: Sequence[Marking]) -> AtStake:
        now = self._context.clock.wall() // SECOND
        stakes = []
        for each in markings:
            workload = self._state.workload(each.victim.key)
            lost = 0 if workload is None else lost_with(workload, now)
            stakes.append(Stake(lineage_of(participant_of(each.victim)), lost))
        return AtStake(lineage_of(self._state.lineages.of(preemptor)), stakes)

    def _beside(self, preemptor: Workload, queue: str) -> Beside | None:
        """Return what the record of a plan states of other planes."""
        context = self._context
        demand, idle = self._state.lineages.of(preemptor), None
        if context.joint.idle is not None:
            (said,) = context.joint.idle.queued_verdicts([Uid(preemptor.metadata.uid)])
            idle = REJECTIONS[said]
        priority, reclaims_any = self._could_evict(preemptor, queue)
        return context.joint.beside(
            context.governor,
            demand,
            context.clock.wall(),
            idle=idle,
            priority=priority,
            reclaims_any=reclaims_any,
        )

    def _could_evict(self, preemptor: Workload, queue: str) -> tuple[int | None, bool]:
        """Return below which priority, and whether at any, Workloads could be evicted for one."""
        configuration = self._state.configuration
        found = configuration.cluster_queues.get(queue)
        own = effective_priority(self._state.row(preemptor), configuration.settings)
        return own, found is not None and found.preemption.reclaim_within_cohort is Policy.ANY

    def _action(self, victim: Reference) -> Action:
        """Return what becomes of a victim: pods are deleted, all else is suspended."""
        workload = self._state.workload(f"{victim.namespace}/{victim.name}")
        owners = workload.metadata.owner_references if workload is not None else None
        gated = any(each.kind in _GATED for each in owners or ())
        return Action.DELETE if gated else Action.SUSPEND

    def _retention(self) -> Retention:
        # The next process reads from the latest ones which pairs are held.
        return replace(_RETENTION, fresh=self._context.options.loop_window)


def _devices_asked(row: model.Workload) -> int:
    return sum(each.count * devices_of(each.requests.items()) for each in row.pod_sets)

"""The scheduling plane: everything wired together, run under the process lease.

Order: watches, the first lists, recovery of open intents, then decisions. Source: the design's
"Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.diagnosis.model import Diagnosis, Fix
from reprieve.engine.diagnosis.refusals import marked_imposed
from reprieve.engine.diagnosis.scheduling_figures import with_figures
from reprieve.engine.diagnosis.scheduling_fixes import Question, fixes_for
from reprieve.engine.disruptions.ledger import Displacement
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.queueing.entries import Backoff
from reprieve.engine.scheduling.queueing.queue import Queue
from reprieve.execution.turns import NodeTurns
from reprieve.intake.lineage import pod_lineage
from reprieve.kube.errors import ApiError
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.disruptions.other_actors import OtherActors
from reprieve.planes.common.persistent import persistent, recovered
from reprieve.planes.common.workers import spawn
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.cycle.bindings import Bindings
from reprieve.planes.scheduling.cycle.carry_out import CarryOut
from reprieve.planes.scheduling.cycle.decisions import Decisions
from reprieve.planes.scheduling.cycle.delays import Delays
from reprieve.planes.scheduling.cycle.displacements import SchedulingDisplacements
from reprieve.planes.scheduling.cycle.joint_side import Deferrals, SchedulingJoint
from reprieve.planes.scheduling.cycle.preemptions import Preemptions
from reprieve.planes.scheduling.gangs.carry_out import GangCarryOut
from reprieve.planes.scheduling.gangs.plane import GangPlane, QueueFacts
from reprieve.planes.scheduling.kinds import snapshot_kinds
from reprieve.planes.scheduling.protections import report_ignored
from reprieve.planes.scheduling.set_aside import SetAside
from reprieve.planes.scheduling.short_groups import ShortGroups
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.planes.scheduling.waiting import Waiting, WaitingUnit
from reprieve.planes.scheduling.watches import Watches
from reprieve.telemetry.metrics import Remembered

__all__ = ["SchedulingPlane"]

_PERIOD: Final = SECOND
_CLEARED_FOR: Final = MINUTE
_RETRIED: Final = 100  # units in a period that no hint has moved


class SchedulingPlane:
    """A scheduler for the names of its profiles. `namespace`: where its intents are."""

    name = "scheduling"

    def __init__(self, context: SchedulingContext, namespace: str) -> None:
        self.context = context
        self._tasks: asyncio.TaskGroup | None = None
        self.state = ClusterState(
            Cluster(snapshot_kinds(context.policy, classes=context.settings.reads_classes)),
            context.clock,
            context.scheduler_names,
            changed=self._changed,
            pod_gone=self._pod_gone,
            group_gone=self._group_gone,
            forest=Forest(trees=context.policy.gates.composite_pod_group),
        )
        settings = context.settings
        self.gangs = GangPlane(context, self.state)
        self.state.gangs = self.gangs
        self.state.queue = Queue(
            QueueFacts(self.state, self.gangs),
            groups=context.policy.gates.generic_workload,
            backoff=Backoff(
                settings.initial_backoff_seconds * SECOND, settings.max_backoff_seconds * SECOND
            ),
        )
        turns = None
        if context.shared_nodes:
            turns = NodeTurns(context.full_client, context.fence, context.clock, self.state.claimed)
        self.watches = Watches(context, self.state, turns)
        self.loops = context.loops or LoopNotices(
            context.governor,
            context.metrics,
            context.events,
            context.disruptions,
            lambda: not context.dry_run,
        )
        self.displacements = SchedulingDisplacements(
            context.governor,
            self.state,
            context.clock,
            self._others(),
            self.loops,
            None if context.disruptions is None else context.disruptions.returns,
            restores=not context.dry_run,
        )
        self._budgets_changed = asyncio.Event()
        context.governor.harm.observers.append(self._budgets_changed.set)
        reported = self.displacements.reported
        context.metrics.remembers(Remembered.NAMED_VICTIMS, lambda: reported.remembers)
        self.statuses = Statuses(context, self.state, lambda: self.watches.groups)
        self.bindings = Bindings(
            context,
            self.state,
            self.statuses,
            self._spawn,
            lambda: self.watches.condition_type,
            turns,
        )
        self.stopped = SetAside(
            context, self.state, self.statuses, lambda: self.watches.condition_type
        )
        self.unrecorded = SetAside(
            context, self.state, self.statuses, lambda: self.watches.condition_type
        )
        self.waiting = Waiting(
            context,
            self.state,
            self.gangs.book,
            (self.stopped, self.unrecorded),
            lambda key: self.preemptions.deadline(key),
        )
        deferrals = Deferrals(context.joint, context.clock, self._demand_names, self._owner)
        self._delays = Delays(context, self.state)
        self.preemptions = Preemptions(
            context,
            self.state,
            self.statuses,
            namespace,
            self._spawn,
            self.unrecorded,
            self.displacements,
            deferrals,
        )
        self.gangs.withdraw = self._withdraw_nomination
        carry_out = CarryOut(context, self.state, self.statuses, self.bindings, self.preemptions)
        self.gang_carry_out = GangCarryOut(context, self.state, self.gangs, carry_out)
        self._short_groups = ShortGroups(
            context,
            self.state,
            self.statuses,
            self.gangs.book,
            lambda: self.watches.condition_type,
        )
        self.decisions = Decisions(
            context,
            self.state,
            carry_out,
            condition_type=lambda: self.watches.condition_type,
            held_back=self._held_back,
            stopped=self.stopped,
            unrecorded=self.unrecorded,
            waiting=self.waiting,
            gangs=self.gangs,
            gang_carry_out=self.gang_carry_out,
            holds=self.displacements.holds,
            loop_of=self.displacements.loop_of,
            refuses=self.displacements.harm.refuses,
            deferrals=deferrals,
            delays=self._delays,
            saving=self.preemptions.open_plans.saving,
        )
        solver = self.decisions.loop.solver
        self.side = SchedulingJoint(
            context,
            self.state,
            solver,
            deferrals,
            plugins=context.plugins,
            jobs=self.gangs.options_now,
            holds=self.displacements.holds,
            delays=self._delays,
        )

    def _demand_names(self, unit: Unit) -> Iterator[str]:
        """Yield by what the demand of a unit is known in records."""
        yield from unit.pods
        if unit.group:
            yield f"group/{unit.group}"
        for row in map(self.state.pod, unit.pods):
            if row is not None:
                yield pod_lineage(row)

    def _owner(self, unit: Unit) -> str:
        """Return the uid of the object that creates the pods of a unit one by one; empty: none."""
        row = None if unit.group else self.state.pod(unit.pods[0])
        return "" if row is None else row.controller

    @property
    def ready(self) -> bool:
        """Whether all kinds were listed."""
        return self.watches.ready and self.gangs.watches.ready

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read."""
        return [*self.watches.troubles(), *self.gangs.watches.troubles()]

    def notice(self) -> str:
        """Return why nothing is written; this plane always writes, but in a dry run."""
        return ""

    def diagnosis(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        fixes: bool = False,
        classes: Sequence[tuple[int, str]] = (),
        imposed: frozenset[str] = frozenset(),
        stop: Callable[[], bool] = lambda: False,
        report: Callable[[Diagnosis], None] = lambda diagnosis: None,
    ) -> Diagnosis | None:
        """Return why a `Pod`, `PodGroup` or `CompositePodGroup` waits, with figures.

        None: it does not wait, or nothing has been decided about it yet. A pod of a group waits for
        what its group waits for. `fixes`: with changes that would help, for which the engine
        decides up to 20 times, until `stop` returns that it has been long enough; `classes` are
        values and names of priority classes to try, as they are not watched; `imposed` are keys of
        node selectors that others set for its pods. With `fixes` `report` is called with the
        diagnosis before any is tried, and after each that helps. Nothing is written.
        """
        found = self.waiting.unit(kind, namespace, name)
        if found is None:
            return None
        question = replace(self._question(found), classes=tuple(classes), imposed=imposed)
        policy, unit, now = question.policy, question.unit, question.now
        known = self.waiting.with_deadline(found)
        reported = with_figures(question.snapshot, policy, unit, known, now=now)
        reported = replace(reported, nodes=marked_imposed(reported.nodes, imposed))
        if not fixes:
            return reported
        report(reported)

        def helping(found: tuple[Fix, ...]) -> None:
            report(replace(reported, fixes=found))

        helpful = fixes_for(question, reported, stop=stop, report=helping)
        return replace(reported, fixes=helpful)

    def _question(self, waiting: WaitingUnit) -> Question:
        context = self.context
        pods = tuple(row.uid for row in waiting.pods)
        unit = Unit(pods, "" if waiting.kind == "Pod" else waiting.key)
        return Question(
            self.state.cluster.snapshot(),
            context.policy,
            unit,
            context.clock.wall() // SECOND if context.policy.timed else 0,
            frozenset(self.state.overdue),
            self.gangs.groups([unit]),
            self.gangs.options_now(),
            context.plugins,
            context.scorers,
            self.displacements.holds([unit]).get(unit, {}),
        )

    async def synced(self) -> None:
        """Wait until all kinds were listed."""
        await self.watches.synced()
        await self.gangs.watches.synced()

    async def run(self) -> None:
        """Schedule until cancelled, or until the lease is lost (`Deposed` in a group)."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            histories = self.context.joint.histories
            if not self.context.dry_run:
                histories.begins(Plane.SCHEDULING, self.context.clock.monotonic())
            tasks.create_task(self.watches.run())
            tasks.create_task(self.gangs.run())
            await self.synced()
            if not self.context.dry_run:
                await recovered(self.preemptions.recover, self.context.clock, log)
            histories.known(Plane.SCHEDULING)
            tasks.create_task(self.statuses.run())
            tasks.create_task(self.decisions.loop.run())
            clock = self.context.clock
            tasks.create_task(persistent(self._housekeeping, clock, log, "housekeeping"))
            if not self.context.dry_run:
                tidying = self.preemptions.keep_few_records
                tasks.create_task(persistent(tidying, clock, log, "the removal of old records"))
            names = ", ".join(sorted(self.context.scheduler_names))
            log.info("scheduling pods of %s", names)

    async def _housekeeping(self) -> None:
        clock, queue = self.context.clock, self.state.queue
        while True:
            now = clock.monotonic()
            assumed, _ = self.state.cluster.expire(now)
            queue.retry(self.state.cluster.progress.helped, now, _RETRIED)
            if self._budgets_changed.is_set():
                self._budgets_changed.clear()
                queue.activate([entry.key for entry in queue.entries()], now)
            for uid in assumed:
                row = self.state.pod(uid)
                if row is not None and self.state.ours(row):
                    log.warning(
                        "pod %s/%s was not observed as bound in time", row.namespace, row.name
                    )
                    queue.add(row, now)
            report_ignored(self.context, self.state)
            self.gangs.reconcile(now)
            self.gang_carry_out.show()
            self._short_groups.reconcile(now)
            self.waiting.reconcile(now)
            await self.loops.show(clock.wall())
            self.context.scheduler_metrics.show_queue(queue.entities(), queue.pods())
            for (place, event, kind), number in queue.incoming.items():
                self.context.scheduler_metrics.incoming.labels(place, event, kind).inc(number)
            queue.incoming.clear()
            if not self.context.dry_run:
                try:
                    await self.preemptions.reconcile()
                except ApiError as failure:
                    log.warning("intents: %s", failure)
            self.decisions.loop.ask()
            await clock.sleep(_PERIOD)

    def _held_back(self) -> str:
        if self.context.lagging():
            return "the event loop lags"
        if not self.context.dry_run and not self.context.fence.open:
            return "the lease is not held for long enough"
        if not self.context.governor.harm.known():
            return "harm budgets are not known yet"
        return next(iter(self.troubles()), "")

    def _others(self) -> Callable[[Displacement], bool] | None:
        """Return the follower of what others displaced, None where none looks for it."""
        context = self.context
        if not context.watch_others:
            return None
        reported = context.disruptions
        others = context.others or OtherActors(
            context.client,
            context.mirror,
            context.clock,
            context.governor,
            (lambda row: None) if reported is None else reported.note,
        )
        return others.displaced

    def _changed(self) -> None:
        self.decisions.loop.ask()

    def _withdraw_nomination(self, row: PodRow) -> None:
        self.statuses.pod(row, nominated="")

    def _pod_gone(self, row: PodRow) -> None:
        self.statuses.forget(row.uid)
        self.bindings.seen(row.uid)

    def _group_gone(self, group: GroupRow) -> None:
        """When its pods come again is not known: the capacity kept for them is for others."""
        self.statuses.forget(group.uid)
        deadline = self.context.clock.monotonic() + _CLEARED_FOR
        for row in self.state.members(group.key):
            if self.state.ours(row):
                self.state.cluster.nominate(row.uid, "", row.priority, deadline)
                self.statuses.pod(row, nominated="")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None, "the plane runs"
        spawn(self._tasks, work, log)

"""Open intents: carried from commit to completion, resumed after a crash, folded into claims.

1. An intent that no task of this process works on is resumed, and a GpuWorkload found in Preempting
   without an open intent is given one and finished: a hand-made or former operator's mark is
   finished even if its demand is deleted, as the reference does.
2. What has failed for a passing reason is tried again, and an intent whose victims' pods have ended
   is closed once its demand needs it no more (`execution.executor`).

Claims and the capacity of nodes are folded from the open intents that the watch shows and from
those of this process that it does not show yet. Source: the design's "Intent log and executor",
steps 5 and 6, and "State that can be trusted".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence, Set
from typing import Any, Final

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import (
    NOTICE,
    Preemption,
    PreemptionSpec,
    VictimState,
)
from reprieve.engine.idle.model import Phase
from reprieve.engine.idle.outcome import RULE_BESIDE_PRIORITY
from reprieve.engine.notice.granting import Grant
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.execution.carried import Carried
from reprieve.execution.executor import SERVED_WITHIN, Executor
from reprieve.execution.fence import Deposed
from reprieve.execution.letting_save import LettingSave
from reprieve.execution.notices import Asking, Notices
from reprieve.execution.records.book import Book
from reprieve.execution.records.intents import IntentExists
from reprieve.intake.cluster.metadata import notice_in
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.lineages import participant_of_root
from reprieve.planes.idle.evaluating.root_answers import RootAnswers
from reprieve.planes.idle.evaluating.victims import IdleVictims
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads, key_of
from reprieve.records.plans.at_stake import AtStake, Stake
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.wording.kube_scheduler import notice_ignored

__all__ = ["OpenIntents"]

_RULE_FOUND_PREEMPTING: Final = "FoundPreempting"
_AT_ONCE: Final = 8
_RETRY: Final = SECOND
#: How long a queued demand waits for what its victims have left, which a failed node may have had.
_USED_WITHIN: Final = MINUTE


class OpenIntents:
    """The intents that are not over, and the tasks that carry them.

    `intents` gives all Preemptions of the plane; `roots` what is known of roots; `again` requests
    another look at a wall instant; `displacements`: reports to the governor; `keep` is called while
    the victims of a plan leave, `evicted` when they have been evicted.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        book: Book,
        *,
        intents: Callable[[], Sequence[Preemption]],
        roots: RootAnswers,
        changed: Callable[[GpuWorkloadKey], None],
        again: Callable[[Nanos], None],
        displacements: IdleDisplacements,
        keep: Callable[[PreemptionSpec], None],
        evicted: Callable[[PreemptionSpec], None],
    ) -> None:
        self._roots = roots
        self.notices = context.notices or Notices(context.clock, context.metrics)
        self.notices.expect(Plane.IDLE)
        self._resuming = 0
        self._keep, self._evicted = keep, evicted
        self._displacements = displacements
        self._context = context
        self._workloads = workloads
        self._book = book
        self._intents = intents
        self._again = again
        # Plans of this process by id, for the texts of their events.
        self._plans: dict[str, Plan] = {}
        self._victims = IdleVictims(
            context,
            workloads,
            self._plans.get,
            changed,
            roots.lost_with,
            roots.pods_left,
            displacements.not_evictable,
            roots.pods_of,
            displacements.kept,
        )
        self._executor = Executor[None](
            book,
            self._victims,
            context.clock,
            self._spawn,
            ended=self._ended,
            disruptions=context.disruptions,
            saving=LettingSave(self.notices, self._victims, context.clock),
        )
        # Intents in parts that others have begun, assembled, by name.
        self._whole: dict[str, PreemptionSpec] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, plan: Plan, intent: Preemption) -> Carried[None]:
        """Write the marks of a plan that stands in the book.

        Raises:
            Deposed: the process lease is lost.
        """
        self._plans[plan.id] = plan
        async with self._slots:
            return await self._executor.mark(intent)

    def begin_noticed(self, plan: Plan, intent: Preemption, hold: Callable[[Plan], None]) -> None:
        """Have the victims of a plan save, in a task of its own, and evict them then.

        `hold` is called where they stay.
        """
        self._plans[plan.id] = plan
        self._spawn(self._carry_noticed(plan, intent, hold))

    async def _carry_noticed(
        self, plan: Plan, intent: Preemption, hold: Callable[[Plan], None]
    ) -> None:
        each = await self._executor.mark(intent)
        if each.abandoned or each.stalled:
            hold(plan)
        else:
            await self._evict(each)

    def grants(self, plan: Plan) -> Sequence[Grant]:
        """Return the notice of each victim of a plan before its eviction, empty for none."""
        urgent = self._context.governor.policy.emergency_priority
        priority = self._displacements.priority_of(plan)
        asking = []
        for victim in plan.victims:
            asked = notice_in(self._roots.annotations_of(victim.root)) * SECOND
            if asked < 0 and self._context.start.notice.most:
                self._context.announce(victim.root, notice_ignored(NOTICE))
            pods = [pod.uid for pod in self._roots.pods_of(victim.root)]
            allowed = self._roots.notice_allowed(victim.root)
            asking.append(Asking(victim.unit or str(victim.root.uid), (asked,), pods, allowed))
        hurried = urgent is not None and priority is not None and priority >= urgent
        return self.notices.grants(self._context.start.notice, asking, hurried=hurried)

    def at_stake(self, plan: Plan) -> AtStake:
        """Return what a plan costs whom; a lineage is what a root has made."""
        demand = plan.preemptor and self._workloads.get(
            key_of(plan.preemptor.namespace, plan.preemptor.name)
        )
        return AtStake(
            participant_of_root(demand.root).lineage if demand else "",
            [
                Stake(participant_of_root(each.root).lineage, self._roots.lost_with(each.root))
                for each in plan.victims
            ],
        )

    def carry(self, each: Carried[None]) -> None:
        """Evict the victims of a plan whose marks are written, in a task of its own."""
        self._spawn(self._evict(each))

    async def reconcile(self) -> None:
        """Resume, adopt and complete what there is.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        await self._read_parts()
        self._resume_open()
        if not self._resuming:
            self.notices.inherited(Plane.IDLE)
        await self._adopt()
        await self._executor.reconcile()
        clock = self._context.clock
        now, wall = clock.monotonic(), clock.wall()
        for each in self._executor.open.values():
            if each.ending is None and each.gone_since is None:
                # Victims that save first leave later than a reservation lasts.
                self._keep(each.intent.spec)
            if each.ending is not None or each.stalled or each.pending:
                # Also where it is over but for its record, which could not be written.
                self._again(Nanos(wall + max(each.next_try - now, _RETRY)))
            elif each.gone_since is not None:
                self._again(Nanos(wall + max(each.gone_since + SERVED_WITHIN - now, _RETRY)))
            elif (overdue := self._victims.overdue_at(each.intent)) is not None:
                self._again(Nanos(wall + max(overdue - now, 0) + _RETRY))

    def stop(self) -> None:
        """End all tasks; the next holder of the lease continues from what the objects state."""
        for task in self._tasks:
            task.cancel()

    def pod_ended(self, owners: Set[str]) -> None:
        """Request an evaluation if an intent may be complete now that a pod of these is deleted."""
        if any(
            victim.root.uid in owners
            for each in self._executor.open.values()
            for victim in each.intent.spec.victims
        ):
            self._again(self._context.clock.wall())

    def placements(self) -> Iterator[tuple[GpuWorkloadKey, tuple[tuple[Uid, str], ...]]]:
        """Yield, for each open intent with a placement, whose pods it keeps which nodes for."""
        for spec in self.specs():
            if spec.preemptor is not None and spec.placement:
                demand = key_of(spec.preemptor.namespace, spec.preemptor.name)
                yield demand, tuple((Uid(each.uid), each.node) for each in spec.placement)

    def claims(self) -> dict[Uid, GpuWorkloadKey | None]:
        claims: dict[Uid, GpuWorkloadKey | None] = {}
        for spec in self.specs():
            whom = key_of(spec.preemptor.namespace, spec.preemptor.name) if spec.preemptor else None
            for victim in spec.victims:
                claims[Uid(victim.root.uid)] = whom
        return claims

    def unused(self) -> frozenset[GpuWorkloadKey]:
        """Return the demands that have not started though all their victims ended a minute ago."""
        now = self._context.clock.monotonic()
        return frozenset(
            key_of(spec.preemptor.namespace, spec.preemptor.name)
            for each in self._executor.open.values()
            if (spec := each.intent.spec).preemptor is not None
            and each.gone_since is not None
            and now - each.gone_since >= _USED_WITHIN
        )

    def mixed(self) -> dict[GpuWorkloadKey, frozenset[Uid]]:
        """Return for demands that evict work of lower priority, too, the idle roots."""
        return {
            key_of(spec.preemptor.namespace, spec.preemptor.name): frozenset(
                Uid(victim.root.uid) for victim in spec.victims
            )
            for spec in self.specs()
            if spec.preemptor is not None
            and any(victim.rule == RULE_BESIDE_PRIORITY for victim in spec.victims)
        }

    def specs(self) -> list[PreemptionSpec]:
        """Return the specs of all open intents, seen or written by this process, once each."""
        if self._context.dry_run:
            return []
        open_specs = {
            intent.metadata.name: self._whole.get(intent.metadata.name, intent.spec)
            for intent in self._intents()
            if intent.status.phase.open and not intent.spec.dry_run
        }
        return list({**open_specs, **self._book.open}.values())

    async def _evict(self, each: Carried[None]) -> None:
        async with self._slots:
            await self._executor.evict(each)
        self._executor.watch(each)
        self._evicted(each.intent.spec)

    async def _resume(self, intent: Preemption) -> None:
        log.info("resuming %s, plan %s", intent.metadata.name, intent.spec.plan_id)
        try:
            async with self._slots:
                started = await self._book.log.start(intent)
                whole = await self._book.log.whole(started)
                # What the last holder of the lease freed is the demand's from the start on.
                self._keep(whole.spec)
                await self._executor.resume(whole)
        except (Conflict, NotFound):
            pass  # written by another client: the watch shows it again
        finally:
            self._resuming -= 1
            name = intent.metadata.name
            if name not in self._executor.open:
                self._book.let_go(name)

    async def _read_parts(self) -> None:
        """Place open intents of others together: who is preempted is known before a decision."""
        before, self._whole = self._whole, {}
        for intent in self._intents():
            name = intent.metadata.name
            if intent.spec.parts and intent.status.phase.open and name not in self._book.open:
                self._whole[name] = before.get(name) or (await self._book.log.whole(intent)).spec

    def _resume_open(self) -> None:
        for intent in self._intents():
            name = intent.metadata.name
            if intent.status.phase.open and not intent.spec.dry_run and name not in self._book.open:
                self._book.open[name] = self._whole.get(name, intent.spec)
                self._resuming += 1
                self._spawn(self._resume(intent))

    async def _adopt(self) -> None:
        """Give an intent to every Preempting GpuWorkload that no open intent names."""
        named = {victim.root.uid for spec in self.specs() for victim in spec.victims}
        orphans = [
            held
            for held in self._workloads
            if held.status.phase is Phase.PREEMPTING and held.root.uid not in named
        ]
        for held in orphans:
            await self._adopt_one(held)

    async def _adopt_one(self, held: TrackedWorkload) -> None:
        wanted = held.status.preempted_for
        demand = self._workloads.get(key_of(held.ref.namespace, wanted)) if wanted else None
        gpus = dict(held.object.spec.gpu_resources)
        plan = Plan(
            id=plan_id(Plane.IDLE, None, [held.root.uid], _RULE_FOUND_PREEMPTING),
            plane=Plane.IDLE,
            revision=0,
            proof=Proof(level=ProofLevel.EXEMPT, freed=gpus, compatible=True),
            preemptor=demand.ref if demand is not None else None,
            victims=(
                Victim(
                    held.ref,
                    held.root,
                    gpus,
                    _RULE_FOUND_PREEMPTING,
                    held.status.preemption_reason,
                ),
            ),
        )
        try:
            intent = await self._book.write(
                plan, actions=[self._roots.action_of(held.root)], at_stake=self.at_stake(plan)
            )
        except (IntentExists, Conflict):
            return
        name = intent.metadata.name
        log.info("%s was in phase Preempting: %s resumes its preemption", held.key, name)
        self._context.metrics.count_plan(plan.id, plan.plane, "adopted")
        self._spawn(self._evict(self._executor.marked(intent)))

    def _ended(self, each: Carried[None], record: Preemption | None) -> None:
        if record is not None:
            log.info("plan %s %s: %s", each.intent.spec.plan_id, *_ending(record))
        evicted = {uid for uid, s in each.states.items() if s.state is VictimState.EVICTED}
        reported, lost = self._displacements.reported, self.notices.lost(each.intent)
        reported.ended(each.name, evicted, interrupted=each.interrupted, lost=lost)
        self._victims.forget(each.intent)
        self._plans.pop(each.intent.spec.plan_id, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            pause = _RETRY
            try:
                await work
                pause = 0
            except Deposed:
                log.warning(
                    "open preemptions are not resumed: the lease does not last for another write"
                )
            except ApiError as failure:
                log.warning("an open preemption is stalled and resumed later: %s", failure)
            except Exception:
                log.exception(
                    "an open preemption is stalled by an internal error and resumed later"
                )
            finally:
                self._again(Nanos(self._context.clock.wall() + pause))

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ending(intent: Preemption) -> tuple[str, str]:
    """Return how a preemption ended and why, for the log."""
    failed = [v.message for v in intent.status.victims if v.state is VictimState.FAILED]
    why = "; ".join(filter(None, (intent.status.reason, *failed)))
    return intent.status.phase.value.lower(), why

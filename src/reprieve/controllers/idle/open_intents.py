"""Open intents: carried from commit to completion, resumed after a crash, folded into claims.

1. An intent that nobody of this process works on is resumed, and a GpuWorkload found in Preempting
   without an open intent is given one and finished: a hand-made or former operator's mark is
   finished even if its demand is gone, as the reference does.
2. Victims whose eviction failed for a passing reason are tried again, less and less often.
3. An intent whose victims' pods are gone is completed once its demand has let go.

Claims and the room on nodes are folded from the open intents that the watch shows and from those of
this process that it does not show yet. Source: the design's "Intent log and executor", steps 5 and
6, and "State that can be trusted".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence, Set
from typing import Final

from msgspec.structs import replace

from reprieve.api.reprieve import (
    Action,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    VictimState,
    VictimStatus,
)
from reprieve.controllers.idle.context import IdleContext, log
from reprieve.controllers.idle.marks import IdleMarks
from reprieve.controllers.idle.workloads import TrackedWorkload, TrackedWorkloads, key_of
from reprieve.engine.idle.model import Phase
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Ref, Victim, plan_id
from reprieve.execution.executor import Begun, Executor, Outcome
from reprieve.execution.fence import Deposed
from reprieve.execution.intents import IntentLog, IntentTaken, intent_name, intent_spec
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.instants import Nanos
from reprieve.wording.kaiwo import EventText

__all__ = ["OpenIntents"]

_RULE_FOUND_PREEMPTING: Final = "FoundPreempting"
_AT_ONCE: Final = 8
_RETRY: Final = SECOND
_LONGEST_PAUSE: Final = 30 * SECOND
#: How long after its victims' end an intent waits for a demand that does not let go.
_SERVED_WITHIN: Final = 10 * MINUTE
_OVERDUE: Final = 5 * MINUTE


class OpenIntents:
    """The intents that are not over, and the tasks that carry them.

    `intents` gives all Preemptions of the plane; `pods_left` whether pods of a root still exist;
    `lost_with` what work is lost with it; `action_of` what a root's owner wants to happen to it;
    `again` asks for another look at a wall instant.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        executor: Executor,
        intent_log: IntentLog,
        *,
        intents: Callable[[], Sequence[Preemption]],
        pods_left: Callable[[Ref], bool],
        lost_with: Callable[[Ref], int],
        action_of: Callable[[Ref], Action],
        changed: Callable[[GpuWorkloadKey], None],
        again: Callable[[Nanos], None],
    ) -> None:
        self._context = context
        self._workloads = workloads
        self._executor = executor
        self._log = intent_log
        self._intents = intents
        self._pods_left = pods_left
        self._action_of = action_of
        self._again = again
        self._marks = IdleMarks(context, workloads, self._plan, changed, lost_with)
        # Plans of this process by id, for the texts of their events.
        self._plans: dict[str, Plan] = {}
        # Intents that a task of this process works on, by name, as last written or as planned.
        self._active: dict[str, PreemptionSpec] = {}
        # Intents in parts that others have begun, put together, by name.
        self._whole: dict[str, PreemptionSpec] = {}
        # What became of the victims of open intents whose execution ended here.
        self._outcomes: dict[str, Outcome] = {}
        self._released: dict[str, Nanos] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, plan: Plan, name: str, spec: PreemptionSpec) -> Outcome | Begun:
        """Write the intent and the marks of a plan; the name is taken before the first await.

        Raises:
            Deposed, IntentTaken, ApiError: as `Executor.begin`; the name is free again.
        """
        self._active[name] = spec
        self._plans[plan.id] = plan
        try:
            async with self._slots:
                begun = await self._executor.begin(name, spec, self._marks)
        except BaseException:
            # It may have been written: then the watch shows it, and it is resumed.
            self._let_go(name, plan.id)
            raise
        if isinstance(begun, Outcome):
            self._let_go(name, plan.id)
        return begun

    def carry(self, begun: Begun) -> None:
        """Evict the victims of a begun plan, in a task of its own."""
        self._spawn(begun.intent.metadata.name, self._evict(begun))

    async def look(self) -> None:
        """Resume, adopt and complete what there is.

        Raises:
            Deposed: the process lease is lost.
            ApiError: to be tried again.
        """
        await self._read_parts()
        self._resume_open()
        await self._adopt()
        await self._complete()

    def stop(self) -> None:
        """End all tasks; the next holder of the lease goes on from what the objects say."""
        for task in self._tasks:
            task.cancel()

    def pod_ended(self, owners: Set[str]) -> None:
        """Ask for an evaluation if an intent may be complete now that a pod of these is gone."""
        if any(
            victim.root.uid in owners
            for outcome in self._outcomes.values()
            for victim in outcome.intent.spec.victims
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

    def specs(self) -> list[PreemptionSpec]:
        """Return the specs of all open intents, seen or written by this process, once each."""
        if self._context.dry_run:
            return []
        open_specs = {
            intent.metadata.name: self._whole.get(intent.metadata.name, intent.spec)
            for intent in self._intents()
            if intent.status.phase.open and not intent.spec.dry_run
        }
        return list({**open_specs, **self._active}.values())

    def next_attempt(self, plan: Plan) -> int:
        prefix = intent_name(plan, 0)[:-1]
        names = {*(intent.metadata.name for intent in self._intents()), *self._active}
        numbers = [
            int(name[len(prefix) :])
            for name in names
            if name.startswith(prefix) and name[len(prefix) :].isdigit()
        ]
        return max(numbers, default=0) + 1

    async def _evict(self, begun: Begun) -> None:
        async with self._slots:
            outcome = await self._executor.evict(begun, self._marks)
        await self._until_finished(outcome)

    async def _resume(self, intent: Preemption) -> None:
        log.info("resuming %s, plan %s", intent.metadata.name, intent.spec.plan_id)
        try:
            async with self._slots:
                outcome = await self._executor.resume(intent, self._marks)
        except (Conflict, NotFound):
            return  # written by somebody else: the watch shows it again
        if outcome.intent.status.phase.open:
            await self._until_finished(outcome)
        else:
            log.info("%s abandoned: %s", intent.metadata.name, outcome.intent.status.reason)

    async def _until_finished(self, outcome: Outcome) -> None:
        """Try victims again whose eviction failed for a passing reason."""
        started = self._context.clock.monotonic()
        done = {victim.uid: victim for victim in outcome.victims}
        overdue, pause = False, _RETRY
        while pending := [
            victim
            for victim in outcome.intent.spec.victims
            if done[victim.root.uid].state is VictimState.PENDING
        ]:
            if not overdue and self._context.clock.monotonic() - started > _OVERDUE:
                overdue = True
                self._report_overdue(outcome.intent, [done[v.root.uid] for v in pending])
            await self._context.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            begun = Begun(outcome.intent, tuple(pending), again=True)
            async with self._slots:
                again = await self._executor.evict(begun, self._marks)
            done.update({victim.uid: victim for victim in again.victims})
        self._outcomes[outcome.intent.metadata.name] = Outcome(outcome.intent, tuple(done.values()))
        self._again(self._context.clock.wall())

    def _report_overdue(self, intent: Preemption, victims: Sequence[VictimStatus]) -> None:
        for state in victims:
            victim = next(v for v in intent.spec.victims if v.root.uid == state.uid)
            message = f"{victim.root.kind}/{victim.root.name} is still there: {state.message}"
            log.warning("plan %s: %s", intent.spec.plan_id, message)
            self._context.announce(
                _ref(victim.subject),
                EventText("Warning", "EvictionOverdue", message),
                intent.spec.plan_id,
            )

    async def _read_parts(self) -> None:
        """Put open intents of others together: who makes way is known before a decision."""
        before, self._whole = self._whole, {}
        for intent in self._intents():
            name = intent.metadata.name
            if intent.spec.parts and intent.status.phase.open and name not in self._active:
                self._whole[name] = before.get(name) or (await self._log.whole(intent)).spec

    def _resume_open(self) -> None:
        for intent in self._intents():
            name = intent.metadata.name
            if (
                intent.status.phase.open
                and not intent.spec.dry_run
                and name not in self._active
                and name not in self._outcomes
            ):
                self._active[name] = self._whole.get(name, intent.spec)
                self._spawn(name, self._resume(intent))

    async def _adopt(self) -> None:
        """Give an intent to every Preempting GpuWorkload that no open intent names."""
        named = {victim.subject.uid for spec in self.specs() for victim in spec.victims}
        orphans = [
            held
            for held in self._workloads
            if held.status.phase is Phase.PREEMPTING and held.ref.uid not in named
        ]
        for held in orphans:
            await self._adopt_one(held)

    async def _adopt_one(self, held: TrackedWorkload) -> None:
        context, now = self._context, self._context.clock.wall()
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
        attempt = self.next_attempt(plan)
        name = intent_name(plan, attempt)
        spec = intent_spec(plan, attempt, now, actions=[self._action_of(held.root)])
        self._active[name] = spec
        log.info("%s was found in Preempting: %s finishes it", held.key, name)
        try:
            intent = await self._log.start(await self._log.create(name, spec))
        except (IntentTaken, Conflict):
            del self._active[name]
            return
        except ApiError:
            del self._active[name]
            raise
        context.metrics.count_plan(plan.id, plan.plane, "adopted")
        self._spawn(name, self._evict(Begun(intent, tuple(intent.spec.victims), again=True)))

    async def _complete(self) -> None:
        """Close intents whose victims are gone and whose demand has what it needs or let go."""
        now = self._context.clock.wall()
        for name, outcome in list(self._outcomes.items()):
            evicted = {v.uid for v in outcome.victims if v.state.over}
            roots = [victim.root for victim in outcome.intent.spec.victims]
            if any(self._pods_left(_ref(root)) for root in roots if root.uid in evicted):
                continue
            since = self._released.setdefault(name, now)
            if self._waits(outcome.intent) and now - since < _SERVED_WITHIN:
                self._again(Nanos(since + _SERVED_WITHIN))
                continue
            plan = outcome.intent.spec.plan_id
            try:
                ended = await self._executor.complete(outcome.intent, outcome.victims)
                log.info("plan %s %s: %s", plan, *_ending(ended))
            except Conflict:
                current = next((i for i in self._intents() if i.metadata.name == name), None)
                if current is not None and current.status.phase.open:
                    again = replace(current, spec=outcome.intent.spec)
                    self._outcomes[name] = Outcome(again, outcome.victims)
                    self._again(Nanos(now + _RETRY))
                    continue
            except NotFound:
                pass
            self._outcomes.pop(name)
            self._released.pop(name, None)
            self._active.pop(name, None)
            self._plans.pop(outcome.intent.spec.plan_id, None)

    def _waits(self, intent: Preemption) -> bool:
        preemptor = intent.spec.preemptor
        if preemptor is None:
            return False
        demand = self._workloads.get(key_of(preemptor.namespace, preemptor.name))
        return (
            demand is not None
            and demand.ref.uid == preemptor.uid
            and demand.status.phase is Phase.PENDING_GPU
        )

    def _plan(self, identity: str) -> Plan | None:
        return self._plans.get(identity)

    def _spawn(self, name: str, work: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Deposed:
                log.warning("%s is left to the next holder of the lease", name)
            except ApiError as failure:
                log.warning("%s put off: %s", name, failure)
            except Exception:
                log.exception("%s put off after a fault of ours", name)
            finally:
                if name not in self._outcomes:
                    self._active.pop(name, None)
                    self._again(Nanos(self._context.clock.wall() + _RETRY))

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _let_go(self, name: str, plan: str) -> None:
        self._active.pop(name, None)
        self._plans.pop(plan, None)


def _ending(intent: Preemption) -> tuple[str, str]:
    """Return how a preemption ended and why, for the log."""
    failed = [v.message for v in intent.status.victims if v.state is VictimState.FAILED]
    why = "; ".join(filter(None, (intent.status.reason, *failed)))
    return intent.status.phase.value.lower(), why


def _ref(ref: ObjectRef) -> Ref:
    return Ref(ref.api_version, ref.kind, ref.namespace, ref.name, Uid(ref.uid))

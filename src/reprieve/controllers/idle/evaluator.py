"""Who makes way for whom, and that it happens: decide, commit, execute, complete.

1. Open intents that nobody works on are resumed, and GpuWorkloads found in Preempting without an
   open intent are given one and finished (a hand-made or former operator's mark is finished even
   if its demand is gone, as the reference does).
2. A snapshot is decided in the solver thread. Only when that gives a plan is the Lease
   `gpu-preemption-eval` taken, the newest snapshot decided again, and each plan checked against its
   proof and committed; a plan that fails its check is never executed.
3. Marks are written while the Lease is held, roots are evicted after it is released.
4. Intents whose victims' pods are gone are completed once the demand has let go.

Claims are folded from open intents and from the plans of this process that the watch does not show
yet. Source: specification of the idle plane, section 14; the design's "How data flows".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from reprieve.api.reprieve import (
    Action,
    Preemption,
    PreemptionSpec,
    VictimState,
    VictimStatus,
)
from reprieve.controllers.dirty import DirtyKeys
from reprieve.controllers.idle.context import IdleContext, log
from reprieve.controllers.idle.evaluation_lease import evaluation_lease
from reprieve.controllers.idle.marks import IdleMarks
from reprieve.controllers.idle.workloads import TrackedWorkload, TrackedWorkloads, key_of
from reprieve.controllers.solve import Solver
from reprieve.engine.check import check
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.evaluation import Evaluation, evaluate
from reprieve.engine.idle.model import IdleSnapshot, Phase
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Ref, Victim, plan_id
from reprieve.execution.executor import Begun, Executor, Outcome
from reprieve.execution.fence import Deposed
from reprieve.execution.intents import IntentLog, IntentTaken, intent_name, intent_spec
from reprieve.execution.recovery import expired
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.telemetry.record import encode
from reprieve.units.durations import HOUR, MINUTE, SECOND
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.instants import Nanos
from reprieve.wording.kaiwo import EventText, declined_text, with_reasons

__all__ = ["RECORD_CAP", "RECORD_TIME_TO_LIVE", "Evaluator"]

RECORD_TIME_TO_LIVE: Final = 168 * HOUR
RECORD_CAP: Final = 5_000

_EVALUATION: Final = "evaluation"
_RULE_FOUND_PREEMPTING: Final = "FoundPreempting"
_AT_ONCE: Final = 8
_RETRY: Final = SECOND
_COALESCE: Final = SECOND // 10
_FAULT_PAUSE: Final = 30 * SECOND
_LONGEST_PAUSE: Final = 30 * SECOND
#: How long after its victims' end an intent waits for a demand that does not let go.
_SERVED_WITHIN: Final = 10 * MINUTE
_OVERDUE: Final = 5 * MINUTE


class Evaluator:
    """Runs evaluations one at a time, whenever asked and when time alone may change the answer.

    `snapshot` gives the engine's view with the claims handed in; `intents` all Preemptions of the
    operator's namespace; `pods_left` whether pods of a root still exist; `action_of` what a root's
    owner wants to happen to it; `held_back` why nothing may be decided now.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        executor: Executor,
        intent_log: IntentLog,
        solver: Solver,
        *,
        snapshot: Callable[[Mapping[Uid, GpuWorkloadKey | None]], IdleSnapshot],
        intents: Callable[[], Sequence[Preemption]],
        pods_left: Callable[[Ref], bool],
        action_of: Callable[[Ref], Action],
        changed: Callable[[GpuWorkloadKey], None],
        held_back: Callable[[], str],
    ) -> None:
        self._held_back = held_back
        self._context = context
        self._workloads = workloads
        self._executor = executor
        self._log = intent_log
        self._solver = solver
        self._snapshot = snapshot
        self._intents = intents
        self._pods_left = pods_left
        self._action_of = action_of
        self._marks = IdleMarks(context, workloads, self._plan, changed)
        self._due: DirtyKeys[str] = DirtyKeys(context.clock)
        # Plans of this process by id, for the texts of their events.
        self._plans: dict[str, Plan] = {}
        # Intents that a task of this process works on, by name, as last written or as planned.
        self._active: dict[str, PreemptionSpec] = {}
        # What became of the victims of open intents whose execution ended here.
        self._outcomes: dict[str, Outcome] = {}
        self._released: dict[str, Nanos] = {}
        # By plan id: until when (monotonic) a plan that was abandoned is held, and the pause.
        self._held: dict[str, tuple[int, int]] = {}
        self._said_back = ""  # why nothing is decided, as last logged
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        """Ask for an evaluation now."""
        self._due.add(_EVALUATION)

    def ask_at(self, wall: Nanos) -> None:
        """Ask for an evaluation at a wall instant."""
        self._due.add_at(_EVALUATION, wall)

    def pod_ended(self, owners: Set[str]) -> None:
        """Ask for an evaluation if an intent may be complete now that a pod of these is gone."""
        if any(
            victim.root.uid in owners
            for outcome in self._outcomes.values()
            for victim in outcome.intent.spec.victims
        ):
            self.ask()

    async def run(self) -> None:
        """Evaluate until cancelled.

        Raises:
            Deposed: the process lease is lost.
        """
        try:
            while True:
                await self._due.next()
                # What comes in the next moment is decided on together.
                await self._context.clock.sleep(_COALESCE)
                try:
                    await self._once()
                except Deposed:
                    raise
                except ApiError as failure:
                    log.warning("evaluation put off: %s", failure)
                    self.ask_at(Nanos(self._context.clock.wall() + _RETRY))
                except Exception:
                    log.exception("evaluation put off after a fault of ours")
                    self.ask_at(Nanos(self._context.clock.wall() + _FAULT_PAUSE))
        finally:
            for task in self._tasks:
                task.cancel()

    async def _once(self) -> None:
        context = self._context
        if context.read_only:
            return
        if not context.dry_run:
            if not context.fence.open:
                self.ask_at(Nanos(context.clock.wall() + _RETRY))
                return
            self._resume_open()
            await self._adopt()
            await self._complete()
        held_back = self._held_back()
        if held_back != self._said_back:
            self._said_back = held_back
            if held_back:
                log.warning("nothing is decided: %s", held_back)
            else:
                log.info("decisions go on")
        if held_back:
            self.ask_at(Nanos(context.clock.wall() + _RETRY))
            return
        now = context.clock.wall()
        snapshot, evaluation = await self._decide(now)
        self._note(evaluation)
        if not evaluation.plans:
            return
        if context.dry_run:
            await self._record_dry_run(evaluation.plans, snapshot, now)
            return
        namespace, holder = self._log.namespace, context.fence.identity
        async with evaluation_lease(context.client, namespace, holder, context.clock) as held:
            if not held:
                self.ask_at(Nanos(context.clock.wall() + _RETRY))
                return
            # Waiting for the Lease may have changed the world: decide on the newest snapshot.
            snapshot = self._snapshot(self._claims())
            now = context.clock.wall()
            evaluation = await self._solver.run(evaluate, snapshot, context.start.policy, now)
            decided_on = await self._recorded(snapshot, now, len(evaluation.plans))
            begun = await asyncio.gather(
                *(
                    self._begin(plan, seen, now, decided_on)
                    for plan, seen in before_each(
                        evaluation.plans, snapshot, evaluation.reservations
                    )
                    if not self._holds(plan)
                ),
                return_exceptions=True,
            )
        for ready in begun:
            if isinstance(ready, Begun):
                self._spawn(ready.intent.metadata.name, self._evict(ready))
        for failure in begun:
            # Only now: what the others have begun has to be carried through.
            if isinstance(failure, BaseException):
                raise failure

    async def _decide(self, now: Nanos) -> tuple[IdleSnapshot, Evaluation]:
        context = self._context
        snapshot = self._snapshot(self._claims())
        with context.metrics.evaluation_seconds.labels(Plane.IDLE.value).time():
            return snapshot, await self._solver.run(evaluate, snapshot, context.start.policy, now)

    async def _recorded(self, snapshot: IdleSnapshot, now: Nanos, plans: int) -> dict[str, Any]:
        """Return what the records of a run hold of the snapshot that it was decided on."""
        return await self._solver.run(encode, snapshot, self._context.start.policy, now, plans)

    def _note(self, evaluation: Evaluation) -> None:
        for declined in evaluation.declined:
            self._context.metrics.declined.labels(Plane.IDLE.value, declined.reason.value).inc()
            log.debug("%s: %s", declined.subject.name, declined_text(declined))
        if evaluation.next_due is not None:
            self.ask_at(evaluation.next_due)

    async def _begin(
        self, plan: Plan, snapshot: IdleSnapshot, now: Nanos, decided_on: dict[str, Any]
    ) -> Begun | None:
        context = self._context
        violations = check(plan, snapshot, context.start.policy, now)
        if violations:
            log.error("plan %s is not executed: %s", plan.id, "; ".join(map(str, violations)))
            context.metrics.count_plan(plan.id, plan.plane, "refused")
            return None
        plan = with_reasons(plan, snapshot.workloads, now)
        attempt = self._next_attempt(plan)
        name = intent_name(plan, attempt)
        spec = intent_spec(
            plan,
            attempt,
            now,
            actions=[self._action_of(victim.root) for victim in plan.victims],
            decision_input=decided_on,
        )
        # Reserved before the first await, so that no other plan of this run takes the name.
        self._active[name] = spec
        self._plans[plan.id] = plan
        log.info("plan %s: %s", plan.id, _summary(plan))
        try:
            async with self._slots:
                begun = await self._executor.begin(name, spec, self._marks)
        except (IntentTaken, Conflict) as stale:
            log.info("plan %s is stale: %s", plan.id, stale)
            del self._active[name]
            self.ask_at(Nanos(context.clock.wall() + _RETRY))
            return None
        except ApiError:
            # It may have been written: recovery finds it through the watch.
            del self._active[name]
            raise
        if isinstance(begun, Outcome):
            log.info("plan %s abandoned: %s", plan.id, begun.intent.status.reason)
            context.metrics.count_plan(plan.id, plan.plane, "abandoned")
            del self._active[name]
            del self._plans[plan.id]
            self._hold(plan)
            return None
        self._held.pop(plan.id, None)
        context.metrics.count_plan(plan.id, plan.plane, "committed")
        return begun

    def _hold(self, plan: Plan) -> None:
        """Keep a plan that came to nothing from being tried again at once."""
        clock = self._context.clock
        _, pause = self._held.get(plan.id, (0, _RETRY // 2))
        pause = min(2 * pause, _LONGEST_PAUSE)
        self._held[plan.id] = (clock.monotonic() + pause, pause)
        self.ask_at(Nanos(clock.wall() + pause))

    def _holds(self, plan: Plan) -> bool:
        until, _ = self._held.get(plan.id, (0, 0))
        return self._context.clock.monotonic() < until

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
            begun = Begun(outcome.intent, tuple(pending))
            async with self._slots:
                again = await self._executor.evict(begun, self._marks)
            done.update({victim.uid: victim for victim in again.victims})
        self._outcomes[outcome.intent.metadata.name] = Outcome(outcome.intent, tuple(done.values()))
        self.ask()

    def _report_overdue(self, intent: Preemption, victims: Sequence[VictimStatus]) -> None:
        for state in victims:
            victim = next(v for v in intent.spec.victims if v.root.uid == state.uid)
            message = f"{victim.root.kind}/{victim.root.name} is still there: {state.message}"
            log.warning("plan %s: %s", intent.spec.plan_id, message)
            subject = victim.subject
            about = Ref(
                subject.api_version,
                subject.kind,
                subject.namespace,
                subject.name,
                Uid(subject.uid),
            )
            self._context.announce(
                about, EventText("Warning", "EvictionOverdue", message), intent.spec.plan_id
            )

    def _resume_open(self) -> None:
        for intent in self._intents():
            name = intent.metadata.name
            if (
                intent.status.phase.open
                and not intent.spec.dry_run
                and name not in self._active
                and name not in self._outcomes
            ):
                self._active[name] = intent.spec
                self._spawn(name, self._resume(intent))

    async def _adopt(self) -> None:
        """Give an intent to every Preempting GpuWorkload that no open intent names."""
        named = {victim.subject.uid for spec in self._open_specs() for victim in spec.victims}
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
        attempt = self._next_attempt(plan)
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
        self._spawn(name, self._evict(Begun(intent, tuple(intent.spec.victims))))

    async def _complete(self) -> None:
        """Close intents whose victims are gone and whose demand has what it needs or let go."""
        now = self._context.clock.wall()
        for name, outcome in list(self._outcomes.items()):
            roots = [victim.root for victim in outcome.intent.spec.victims]
            left = any(
                self._pods_left(Ref(r.api_version, r.kind, r.namespace, r.name, Uid(r.uid)))
                for victim, r in zip(outcome.victims, roots, strict=False)
                if victim.state is VictimState.EVICTED
            )
            if left:
                continue
            since = self._released.setdefault(name, now)
            if self._waits(outcome.intent) and now - since < _SERVED_WITHIN:
                self.ask_at(Nanos(since + _SERVED_WITHIN))
                continue
            try:
                await self._executor.complete(outcome.intent, outcome.victims)
            except Conflict:
                current = next((i for i in self._intents() if i.metadata.name == name), None)
                if current is not None and current.status.phase.open:
                    self._outcomes[name] = Outcome(current, outcome.victims)
                    self.ask_at(Nanos(now + _RETRY))
                    continue
            except NotFound:
                pass
            log.info("plan %s completed", outcome.intent.spec.plan_id)
            self._outcomes.pop(name)
            self._released.pop(name, None)
            self._active.pop(name, None)
            self._plans.pop(outcome.intent.spec.plan_id, None)

    async def remove_expired(self) -> None:
        """Remove records beyond their time to live or the cap."""
        now = self._context.clock.wall()
        for record in expired(self._intents(), now, RECORD_TIME_TO_LIVE, RECORD_CAP):
            await self._log.remove(record)

    async def _record_dry_run(
        self, plans: Sequence[Plan], snapshot: IdleSnapshot, now: Nanos
    ) -> None:
        named = [(intent_name(plan, 0, dry_run=True), plan) for plan in plans]
        new = [(name, plan) for name, plan in named if name not in self._active]
        if not new:
            return
        decided_on = await self._recorded(snapshot, now, len(new))
        for name, plan in new:
            worded = with_reasons(plan, snapshot.workloads, now)
            spec = intent_spec(
                worded,
                0,
                now,
                actions=[self._action_of(victim.root) for victim in plan.victims],
                dry_run=True,
                decision_input=decided_on,
            )
            self._active[name] = spec
            log.info("dry run, plan %s: %s", plan.id, _summary(plan))
            try:
                await self._log.create(name, spec)
            except IntentTaken:
                continue

    def placements(self) -> Iterator[tuple[GpuWorkloadKey, tuple[tuple[Uid, str], ...]]]:
        """Yield, for each open intent with a placement, whose pods it keeps which nodes for."""
        for spec in self._open_specs():
            if spec.preemptor is not None and spec.placement:
                demand = key_of(spec.preemptor.namespace, spec.preemptor.name)
                yield demand, tuple((Uid(each.uid), each.node) for each in spec.placement)

    def _claims(self) -> dict[Uid, GpuWorkloadKey | None]:
        claims: dict[Uid, GpuWorkloadKey | None] = {}
        for spec in self._open_specs():
            whom = key_of(spec.preemptor.namespace, spec.preemptor.name) if spec.preemptor else None
            for victim in spec.victims:
                claims[Uid(victim.root.uid)] = whom
        return claims

    def _open_specs(self) -> list[PreemptionSpec]:
        """Return the specs of all open intents, seen or written by this process, once each."""
        if self._context.dry_run:
            return []
        open_specs = {
            intent.metadata.name: intent.spec
            for intent in self._intents()
            if intent.status.phase.open and not intent.spec.dry_run
        }
        return list({**open_specs, **self._active}.values())

    def _next_attempt(self, plan: Plan) -> int:
        prefix = intent_name(plan, 0)[:-1]
        names = {*(intent.metadata.name for intent in self._intents()), *self._active}
        numbers = [
            int(name[len(prefix) :])
            for name in names
            if name.startswith(prefix) and name[len(prefix) :].isdigit()
        ]
        return max(numbers, default=0) + 1

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
            finally:
                if name not in self._outcomes:
                    self._active.pop(name, None)
                    self.ask_at(Nanos(self._context.clock.wall() + _RETRY))

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _summary(plan: Plan) -> str:
    victims = ", ".join(f"{v.subject.namespace}/{v.subject.name}" for v in plan.victims)
    whom = f"{plan.preemptor.namespace}/{plan.preemptor.name}" if plan.preemptor else "nobody"
    return f"{victims} for {whom} (proof {plan.proof.level})"

"""Preemptions by quota: the intent first, then the marks; jobs are stopped because of the marks.

The mark of a victim is its condition `Evicted`, written with `Preempted` in one go. From then on
the reconciler of jobs suspends it, and frees its quota once its pods are gone; it needs nothing
from here, so that a mark that was written is always finished, by whoever leads. An intent is closed
when each of its victims has given its quota back, or was never marked. After a hand-over victims
without a mark are spared: the next cycle decides afresh.

Source: specification of the quota plane, section 9; the design's "Intent log and executor".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from reprieve.api.kueue import Workload
from reprieve.api.reprieve import (
    Action,
    IntentPhase,
    Preemption,
    VictimState,
    VictimStatus,
)
from reprieve.controllers.persistent import alone
from reprieve.controllers.quota.context import QuotaContext, log, reference_of
from reprieve.controllers.quota.meters import lost_with
from reprieve.controllers.quota.state import QuotaState
from reprieve.controllers.quota.transitions import preempted
from reprieve.controllers.quota.writing import StatusWriter
from reprieve.engine.plan import Plan, Plane, Ref
from reprieve.engine.quota import model
from reprieve.execution.intents import IntentLog, IntentTaken, intent_name, intent_spec
from reprieve.execution.recovery import Unbegun, claim_open, remove_old
from reprieve.intake.quota_workloads import condition_of, is_condition_true, is_true
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from reprieve.kube.writes import Priority
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.instants import Nanos, format_instant, parse_instant
from reprieve.wording import kueue

__all__ = ["Marking", "Preemptions"]

_AT_ONCE: Final = 8
_ATTEMPTS: Final = 5
# Owners of Workloads whose pods are gated, and deleted when they make way.
_GATED: Final = ("Pod", "StatefulSet", "LeaderWorkerSet")
_RECORD_TIME_TO_LIVE: Final = 24 * 60 * MINUTE
_RECORD_CAP: Final = 500
_RECORDS_AT_MOST: Final = 5_000
_CLEAN_EVERY: Final = MINUTE


@dataclass(frozen=True, slots=True)
class Marking:
    """One victim: the engine's row, why, the message for it, and the events that follow."""

    victim: model.Workload
    reason: model.Reason
    message: str
    events: tuple[kueue.Event, ...]
    told: kueue.Event  # about the preemptor


@dataclass(slots=True)
class _Open:
    """An intent whose victims are marked; `marked` are their keys by uid.

    `foreign`: those that were evicted for somebody else already.
    """

    intent: Preemption
    states: dict[str, VictimStatus]
    marked: dict[str, str]
    foreign: set[str] = field(default_factory=set)


class Preemptions:
    """The intents of the quota plane."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: StatusWriter,
        namespace: str,
        restore: Callable[[list[Preemption]], None] = lambda intents: None,
    ) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        self._restore = restore
        self._log = IntentLog(context.client, namespace, context.fence, context.clock)
        self._open: dict[str, _Open] = {}
        self._attempts: dict[str, int] = {}
        self._unbegun = Unbegun()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def recover(self) -> None:
        """Take over the intents that a former process left open.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        records = [each for each in await self._log.list() if each.spec.plane == Plane.QUOTA]
        listed = await self._log.all_whole(records)
        for intent in listed:
            if intent.spec.preemptor is not None:
                uid = intent.spec.preemptor.uid
                self._attempts[uid] = max(self._attempts.get(uid, 0), intent.spec.attempt)
        context = self._context
        for intent in await claim_open(self._log, context.fence, context.clock, records):
            found = _Open(intent, {}, {})
            for victim in intent.spec.victims:
                subject = victim.subject
                key = f"{subject.namespace}/{subject.name}"
                workload = self._state.workload(key)
                if workload is None or workload.metadata.uid != subject.uid:
                    self._note(found, subject.uid, VictimState.GONE, "gone")
                elif is_true(evicted := condition_of(workload.status.conditions, "Evicted")):
                    found.marked[subject.uid] = key
                    if evicted is not None and not _is_for(evicted.message, intent):
                        found.foreign.add(subject.uid)
                elif workload.status.admission is None:
                    # One that was about to be admitted may never have held what was planned with.
                    free = _evicted_since(workload, intent)
                    state = VictimState.EVICTED if free else VictimState.SPARED
                    detail = "its quota is free" if free else "it holds no quota"
                    self._note(found, subject.uid, state, detail)
                elif _admitted_again(workload, intent):
                    self._note(found, subject.uid, VictimState.EVICTED, "admitted again since")
                else:
                    detail = "its preemption was interrupted before it was marked"
                    self._note(found, subject.uid, VictimState.SPARED, detail)
            self._open[intent.metadata.name] = found
            log.info("%s taken over: %d marked", intent.metadata.name, len(found.marked))
        self._restore([_as_known(each, self._open.get(each.metadata.name)) for each in listed])

    async def carry(
        self,
        plan: Plan,
        preemptor: Workload,
        queue: str,
        markings: tuple[Marking, ...],
        evicted: Callable[[Workload, Marking], None],
        decision_input: dict[str, Any] | None = None,
    ) -> set[str]:
        """Write the intent and the marks; return the keys of victims that could not be marked.

        `decision_input` is what the plan was decided on, for the record. A plan whose victims have
        all ended by themselves since it was made is not written.

        Raises:
            Deposed: the fence is closed.
            ApiError: the intent could not be written; nobody is marked.
        """
        if not any(self._holds_quota(marking.victim) for marking in markings):
            log.info("plan %s is over before it begins: no victim holds quota any more", plan.id)
            return {marking.victim.key for marking in markings}
        intent = await self._begin(plan, decision_input)
        found = _Open(intent, {}, {})
        self._open[intent.metadata.name] = found
        results = await asyncio.gather(*(self._mark(found, marking) for marking in markings))
        failed = set()
        for marking, stored in zip(markings, results, strict=True):
            key = marking.victim.key
            if stored is None:
                failed.add(key)
                continue
            self._context.quota_metrics.preempted(queue, str(marking.reason))
            if marking.victim.uid not in found.foreign:
                lost = lost_with(stored, self._context.clock.wall() // SECOND)
                self._context.metrics.lost_device_seconds.labels(
                    Plane.QUOTA.value, str(marking.reason)
                ).inc(lost)
            for event in marking.events:
                self._context.announce(reference_of(stored), event)
            self._context.announce(reference_of(preemptor), marking.told)
            evicted(stored, marking)
            log.info(
                "%s makes way for %s/%s, plan %s: %s",
                key,
                preemptor.metadata.namespace,
                preemptor.metadata.name,
                plan.id,
                marking.reason,
            )
        return failed

    def _holds_quota(self, victim: model.Workload) -> bool:
        workload = self._state.workload(victim.key)
        return (
            workload is not None
            and workload.metadata.uid == victim.uid
            and workload.status.admission is not None
            and not is_condition_true(workload, "Finished")
        )

    async def look(self) -> None:
        """Close the intents that are over.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        for name, found in list(self._open.items()):
            with alone(log, name):
                await self._look_at(name, found)
        await self._unbegun.settle(self._log, self._context.clock.monotonic())

    async def keep_few_records(self) -> None:
        """Remove old records once in a while, until cancelled; what is on its way does not wait."""
        while True:
            try:
                await self._remove_old_records()
            except ApiError as failure:
                log.warning("old records stay for now: %s", failure)
            await self._context.clock.sleep(_CLEAN_EVERY)

    async def _look_at(self, name: str, found: _Open) -> None:
        for uid, key in list(found.marked.items()):
            workload = self._state.workload(key)
            if workload is None or workload.metadata.uid != uid:
                self._leave(found, uid, "gone")
            elif is_condition_true(workload, "Finished"):
                # It ended before it could be stopped, and keeps its admission for good.
                self._leave(found, uid, "finished")
            elif workload.status.admission is None or not is_condition_true(workload, "Evicted"):
                self._leave(found, uid)
        if not found.marked and len(found.states) == len(found.intent.spec.victims):
            await self._close(name, found)

    def _action(self, victim: Ref) -> Action:
        """Return what becomes of a victim: pods are deleted, all else is suspended."""
        workload = self._state.workload(f"{victim.namespace}/{victim.name}")
        owners = workload.metadata.owner_references if workload is not None else None
        gated = any(each.kind in _GATED for each in owners or ())
        return Action.DELETE if gated else Action.SUSPEND

    async def _begin(self, plan: Plan, decision_input: dict[str, Any] | None) -> Preemption:
        assert plan.preemptor is not None
        uid = plan.preemptor.uid
        attempt = self._attempts[uid] = self._attempts.get(uid, 0) + 1
        failures = 0
        while True:
            actions = [self._action(each.subject) for each in plan.victims]
            now = self._context.clock.wall()
            spec = intent_spec(plan, attempt, now, actions=actions, decision_input=decision_input)
            name = intent_name(plan, attempt)
            try:
                return await self._log.start(await self._log.create(name, spec))
            except IntentTaken:
                attempt = self._attempts[uid] = attempt + 1
            except (Conflict, ServerError, TooManyRequests, Unreachable):
                # Written twice it is still one: creating it again finds it.
                failures += 1
                if failures == _ATTEMPTS:
                    self._unbegun.add(name, self._context.clock.monotonic())
                    raise
                await self._context.client.transport.pause(failures)
            except ApiError:
                self._unbegun.add(name, self._context.clock.monotonic())
                raise

    async def _mark(self, found: _Open, marking: Marking) -> Workload | None:
        victim = marking.victim
        now = self._context.clock.wall()

        def change(workload: Workload) -> Workload | None:
            over = is_condition_true(workload, "Finished")
            if workload.status.admission is None or over:
                return None
            if is_condition_true(workload, "Evicted"):
                return workload
            return preempted(workload, marking.reason, marking.message, now)

        try:
            async with self._slots:
                stored = await self._writer.change(victim.key, victim.uid, change, Priority.EVICT)
        except ApiError as failure:
            self._note(found, victim.uid, VictimState.FAILED, str(failure))
            return None
        if stored is None:
            self._note(found, victim.uid, VictimState.SPARED, "it holds no quota any more")
        else:
            found.marked[victim.uid] = victim.key
            evicted = condition_of(stored.status.conditions, "Evicted")
            if evicted is None or evicted.message != marking.message:
                # It was on its way out already, and has lost its work to that.
                found.foreign.add(victim.uid)
        return stored

    def _leave(self, found: _Open, uid: str, message: str = "") -> None:
        """A victim is out of the way, by this plan or by what evicted it before."""
        foreign = uid in found.foreign
        state = VictimState.GONE if foreign else VictimState.EVICTED
        self._note(found, uid, state, message or ("evicted for somebody else" if foreign else ""))

    def _note(self, found: _Open, uid: str, state: VictimState, message: str = "") -> None:
        found.marked.pop(uid, None)
        at = format_instant(self._context.clock.wall())
        found.states[uid] = VictimStatus(uid, state, at, message)

    async def _close(self, name: str, found: _Open) -> None:
        states = list(found.states.values())
        evicted = sum(state.state.over for state in states)
        phase = IntentPhase.COMPLETED if evicted else IntentPhase.ABANDONED
        reason = f"{evicted} of {len(states)} victims gave their quota back"
        try:
            await self._log.finish(found.intent, phase, reason, states)
        except (Conflict, NotFound):
            current = await self._log.current(name)
            if current is not None and current.status.phase.open:
                found.intent = replace(current, spec=found.intent.spec)
                return
        del self._open[name]

    async def _remove_old_records(self) -> None:
        listed = await self._log.list(bare=True)
        records = [each for each in listed if each.spec.plane == Plane.QUOTA]
        wall = self._context.clock.wall()
        # The next process reads from the latest ones which pairs are held.
        since = format_instant(Nanos(wall - self._context.options.loop_window))
        late = sum(record.metadata.creation_timestamp > since for record in records)
        cap = min(max(_RECORD_CAP, late), _RECORDS_AT_MOST)
        await remove_old(self._log, Plane.QUOTA, records, wall, _RECORD_TIME_TO_LIVE, cap)


def _evicted_since(workload: Workload, intent: Preemption) -> bool:
    """Tell whether anybody has evicted a victim since the plan; instants are whole seconds."""
    evicted = condition_of(workload.status.conditions, "Evicted")
    decided = parse_instant(intent.spec.decided_at)
    return evicted is not None and parse_instant(evicted.last_transition_time) >= decided


def _admitted_again(workload: Workload, intent: Preemption) -> bool:
    """Tell whether a victim without a mark had one: it got the quota that it holds later.

    Instants are whole seconds; within one, what it was evicted for before decides.
    """
    decided = parse_instant(intent.spec.decided_at)
    reserved = condition_of(workload.status.conditions, "QuotaReserved")
    if is_true(reserved) and parse_instant(reserved.last_transition_time) > decided:
        return True
    before = condition_of(workload.status.conditions, "Evicted")
    if before is None or intent.spec.preemptor is None:
        return False
    since = parse_instant(before.last_transition_time) >= decided
    return since and _is_for(before.message, intent)


def _is_for(message: str, intent: Preemption) -> bool:
    """Tell whether a condition's message names the preemptor of the intent."""
    preemptor = intent.spec.preemptor
    return preemptor is not None and f"(UID: {preemptor.uid}," in message


def _as_known(intent: Preemption, found: _Open | None) -> Preemption:
    """Return an intent with what is known of its victims by now."""
    if found is None:
        return intent
    status = replace(intent.status, victims=list(found.states.values()))
    return replace(intent, status=status)

"""The executor: carries one plan from its intent to the last victim, or leaves nothing behind.

For every plane the same order, the source being the design's "Intent log and executor":

1. create the intent (`Planned`), then `Evicting` with owner and epoch;
2. read every victim and every guard again; one that no longer holds abandons the plan untouched;
3. mark all victims as their system does, by resourceVersion; one that changed meanwhile spares the
   others again, since nothing has been evicted yet;
4. evict each root with preconditions;
5. the intent stays open until the victims are gone and the preemptor has what it needs (`settle`).

A crash or a hand-over may come between any two writes; `resume` goes on from what the objects say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reprieve.api.reprieve import (
    IntentPhase,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.evict import Eviction, Result, evict, obstacle
from reprieve.execution.fence import Fence
from reprieve.execution.intents import IntentLog
from reprieve.kube.client import Client
from reprieve.kube.discovery import RestMapper
from reprieve.kube.errors import Conflict
from reprieve.units.clock import Clock
from reprieve.units.instants import format_instant

__all__ = ["Begun", "Executor", "Marks", "Outcome", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the subject of a victim or guard says now, read from the API server.

    `marked`: it carries the mark of this plan. `evicted`: its system holds it for evicted.
    """

    exists: bool
    phase: str = ""
    resource_version: str = ""
    marked: bool = False
    evicted: bool = False


class Marks(Protocol):
    """How one plane writes its marks; all writes go by resourceVersion and raise `Conflict`."""

    async def read(self, subject: ObjectRef, intent: Preemption) -> Reading:
        """Return what the subject says now."""
        ...

    async def mark(self, intent: Preemption, victim: Victim, reading: Reading) -> None:
        """Write that the victim is being preempted, and for whom."""
        ...

    async def spare(self, intent: Preemption, victim: Victim, reading: Reading, why: str) -> None:
        """Take the mark back, or touch an unmarked subject so that a delayed mark fails."""
        ...

    async def settle(self, intent: Preemption, victim: Victim, eviction: Eviction) -> None:
        """Write what became of a marked victim: evicted, or back with the reason why not."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a plan came: the intent as last written and the state of each victim."""

    intent: Preemption
    victims: tuple[VictimStatus, ...]

    @property
    def unfinished(self) -> bool:
        """Whether some victim has to be tried again."""
        return any(victim.state is VictimState.PENDING for victim in self.victims)


@dataclass(frozen=True, slots=True)
class Begun:
    """A plan whose marks are written: whom to evict, and who was left out.

    `again`: a call for them may have been made before, so that who is gone may have gone by it.
    """

    intent: Preemption
    victims: tuple[Victim, ...]
    spared: tuple[VictimStatus, ...] = ()
    again: bool = False


class Executor:
    """Carries out plans one call at a time; calls for disjoint plans may run side by side.

    `by_name` and `partial` are the literal switches `deleteWithoutUid` and `partialSetsMarked`.
    """

    def __init__(
        self,
        client: Client,
        mapper: RestMapper,
        log: IntentLog,
        fence: Fence,
        clock: Clock,
        *,
        by_name: bool = False,
        partial: bool = False,
    ) -> None:
        self._by_name = by_name
        self._partial = partial
        self._client = client
        self._mapper = mapper
        self._log = log
        self._fence = fence
        self._clock = clock

    async def begin(self, name: str, spec: PreemptionSpec, marks: Marks) -> Outcome | Begun:
        """Write the intent and all marks; return whom to evict, or how it was abandoned.

        Raises:
            Deposed: the fence is closed.
            IntentTaken: the name stands for another plan.
            ApiError: the API server failed; the intent, if there is one, is found by recovery.
        """
        intent = await self._log.start(await self._log.create(name, spec))
        stale = await self._stale(intent, marks, only=() if self._partial else None)
        if stale:
            return await self._abandon(intent, stale)
        marked: list[Victim] = []
        spared: list[VictimStatus] = []
        for victim in intent.spec.victims:
            refusal = await self._mark(intent, victim, marks)
            if not refusal:
                marked.append(victim)
            elif self._partial:
                spared.append(self._state(victim, VictimState.SPARED, refusal))
            else:
                for other in marked:
                    await self._spare(intent, other, marks, refusal)
                return await self._abandon(intent, refusal)
        if not marked:
            return await self._abandon(intent, "no victim could be marked")
        return Begun(intent, tuple(marked), tuple(spared))

    async def evict(self, begun: Begun, marks: Marks) -> Outcome:
        """Evict the roots of marked victims and write what became of each.

        Raises:
            Deposed: the fence is closed.
        """
        states = await asyncio.gather(
            *(self._evict(begun, victim, marks) for victim in begun.victims)
        )
        return Outcome(begun.intent, (*states, *begun.spared))

    async def resume(self, intent: Preemption, marks: Marks) -> Outcome:
        """Go on with an intent that another process, or a failed call, left open.

        No mark: abandoned, to be decided afresh. Some marks: those are finished, since their owners
        may have been told already; the rest is evicted only while every guard still holds.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent.
        """
        intent = await self._log.whole(await self._log.start(intent))
        readings = [await marks.read(victim.subject, intent) for victim in intent.spec.victims]
        paired = list(zip(intent.spec.victims, readings, strict=True))
        if not any(reading.marked or reading.evicted for reading in readings):
            reason = "no victim was marked before its execution was interrupted"
            for victim, _ in paired:
                await self._spare(intent, victim, marks, reason)
            return await self._abandon(intent, reason)
        going, spared = [victim for victim, reading in paired if reading.marked], []
        unmarked = [victim for victim, reading in paired if not (reading.marked or reading.evicted)]
        if unmarked:
            stale = await self._stale(intent, marks, only=unmarked)
            for victim in unmarked:
                refusal = stale or await self._mark(intent, victim, marks)
                if refusal:
                    await self._spare(intent, victim, marks, refusal)
                    spared.append(self._state(victim, VictimState.SPARED, refusal))
                else:
                    going.append(victim)
        done = await self.evict(Begun(intent, tuple(going), tuple(spared), again=True), marks)
        before = [
            self._state(victim, VictimState.EVICTED)
            for victim, reading in paired
            if reading.evicted
        ]
        return Outcome(done.intent, (*before, *done.victims))

    async def complete(self, intent: Preemption, victims: Sequence[VictimStatus]) -> Preemption:
        """Close an intent whose victims are gone and whose preemptor is served or has let go.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent.
        """
        evicted = sum(victim.state is VictimState.EVICTED for victim in victims)
        over = any(victim.state.over for victim in victims)
        phase = IntentPhase.COMPLETED if over else IntentPhase.ABANDONED
        reason = f"{evicted} of {len(intent.spec.victims)} victims evicted"
        return await self._log.finish(intent, phase, reason, victims)

    async def _stale(
        self, intent: Preemption, marks: Marks, only: Sequence[Victim] | None = None
    ) -> str:
        """Return why the plan no longer holds, read from the API server; empty when it does."""
        victims = intent.spec.victims if only is None else only
        considered = {victim.subject.uid for victim in intent.spec.victims} - {
            victim.subject.uid for victim in victims
        }
        for guard in intent.spec.guards:
            if guard.subject.uid in considered:
                continue
            reading = await marks.read(guard.subject, intent)
            if not reading.exists or reading.phase not in guard.phases:
                found = reading.phase or "gone" if reading.exists else "gone"
                wanted = " or ".join(guard.phases)
                return f"{guard.subject.namespace}/{guard.subject.name} is {found}, not {wanted}"
        for victim in victims:
            blocked = await obstacle(
                self._client, self._mapper, victim, ask=len(intent.spec.victims) > 1
            )
            if blocked is not None:
                if blocked.result is not Result.FAILED:
                    await marks.settle(intent, victim, blocked)
                return f"{victim.root.kind}/{victim.root.name}: {blocked.detail}"
        return ""

    async def _mark(self, intent: Preemption, victim: Victim, marks: Marks) -> str:
        """Mark one victim; return why it could not be, empty when it is."""
        phases = next(
            (guard.phases for guard in intent.spec.guards if guard.subject == victim.subject), None
        )
        for _ in range(3):
            reading = await marks.read(victim.subject, intent)
            if reading.marked:
                return ""
            if not reading.exists or (phases is not None and reading.phase not in phases):
                break
            self._fence.check()
            try:
                await marks.mark(intent, victim, reading)
            except Conflict:
                continue
            return ""
        return f"{victim.subject.namespace}/{victim.subject.name} changed before it was marked"

    async def _spare(self, intent: Preemption, victim: Victim, marks: Marks, why: str) -> None:
        for _ in range(3):
            reading = await marks.read(victim.subject, intent)
            if not reading.exists:
                return
            self._fence.check()
            try:
                await marks.spare(intent, victim, reading, why)
            except Conflict:
                continue
            return

    async def _evict(self, begun: Begun, victim: Victim, marks: Marks) -> VictimStatus:
        eviction = await evict(
            self._client, self._mapper, self._fence, victim, by_name=self._by_name
        )
        if eviction.result is Result.FAILED:
            return self._state(victim, VictimState.PENDING, eviction.detail)
        await marks.settle(begun.intent, victim, eviction)
        if eviction.result is Result.EVICTED or (eviction.over and begun.again):
            state = VictimState.EVICTED
        else:
            state = VictimState.GONE if eviction.over else VictimState.FAILED
        return self._state(victim, state, eviction.detail)

    async def _abandon(self, intent: Preemption, reason: str) -> Outcome:
        states = tuple(self._state(victim, VictimState.SPARED) for victim in intent.spec.victims)
        closed = await self._log.finish(intent, IntentPhase.ABANDONED, reason, states)
        return Outcome(closed, states)

    def _state(self, victim: Victim, state: VictimState, message: str = "") -> VictimStatus:
        return VictimStatus(victim.root.uid, state, format_instant(self._clock.wall()), message)

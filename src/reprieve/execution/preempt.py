"""Carry out one preemption of pods: all victims but the last, then the last.

The intent is committed first. A victim is read, marked with the condition `DisruptionTarget` and
deleted with its own grace period, both by uid and resourceVersion; one that is gone, replaced or
being deleted gets no call. If a call fails for good the last victim is not touched.

Plans may name the same victim: one that leaves already still stands on its node when the next plan
is made, and a preemptor of higher priority takes whom a lower one has chosen. Such plans take turns
at it, and it is evicted by the one whose deletion it was; to all others it is gone.

Victims of one unit go together or not at all. All of them are marked before any victim is deleted;
if one cannot be marked, nobody is deleted and the marks are taken back. Hence whoever takes over
knows a unit that has begun to go: a pod of it is gone or ending, and all others were marked. Such a
unit is finished, whatever became of its preemptor. One that was marked at most is finished while
the preemptor needs the room and loses its marks otherwise; one without a mark is spared. Source:
specification 7.3 and 9.2 to 9.4; the design's "Intent log and executor".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from reprieve.api.reprieve import (
    IntentPhase,
    Preemption,
    PreemptionSpec,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.executor import Outcome
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.intents import IntentLog
from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.client import Client
from reprieve.kube.errors import (
    ApiError,
    Conflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from reprieve.kube.resource import PODS
from reprieve.kube.writes import Priority
from reprieve.units.clock import Clock
from reprieve.units.instants import format_instant

__all__ = ["PodPreemption", "is_marked", "is_torn"]

log: Final = logging.getLogger("reprieve.execution")

T = TypeVar("T")
R = TypeVar("R")
_ATTEMPTS: Final = 5
_AT_ONCE: Final = 32  # victims, twice as many as there are places for writes
_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"
_DEFAULT_GRACE: Final = 30
_RESUMED: Final = "preempting to accommodate a higher priority workload"
_GONE: Final = "gone or on its way already, not by this plan"
_LOST: Final = (ServerError, TooManyRequests, Unreachable)  # what was asked may have been done


def is_marked(pod: Json) -> bool:
    """Whether the pod's first `DisruptionTarget` is true and the scheduler's own (7.2)."""
    mark = _mark_of(pod)
    return (mark.get("status"), mark.get("reason")) == ("True", _REASON)


def is_torn(outcome: Outcome) -> bool:
    """Whether a part of a unit has gone, and another part could not be deleted."""
    return bool(_torn_units(outcome))


class PodPreemption:
    """Carries out plans whose victims are pods; several may run side by side.

    `evicted` is told of every victim whose deletion was ours, and of its grace period in seconds.
    `seen` gives the metadata of a victim as a watch showed it last, so that it need not be read
    before it is marked: if it has changed since, the mark is a conflict. None: it has to be read.
    """

    def __init__(
        self,
        client: Client,
        intents: IntentLog,
        fence: Fence,
        clock: Clock,
        *,
        evicted: Callable[[Preemption, Victim, int], None],
        seen: Callable[[Victim], Json | None] = lambda victim: None,
    ) -> None:
        self._client = client
        self._intents = intents
        self._fence = fence
        self._clock = clock
        self._evicted = evicted
        self._seen = seen
        self._writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unanswered: set[tuple[str, str]] = set()  # deletions: plan and victim

    async def begin(self, name: str, spec: PreemptionSpec) -> Preemption:
        """Write the intent, as planned and then as begun.

        Raises:
            Deposed: the fence is closed.
            IntentTaken: the name stands for another plan.
            ApiError: the API server failed; the intent, if there is one, is found by recovery.
        """
        return await self._intents.start(await self._intents.create(name, spec))

    async def evict(self, intent: Preemption, message: str) -> Outcome:
        """Mark and delete the victims; `message`: of their condition.

        Raises:
            Deposed: the fence is closed.
        """
        together = [victim for victim in intent.spec.victims if victim.unit]
        told = await _each(together, lambda victim: self._tell(victim, message))
        marked = dict(zip((victim.root.uid for victim in together), told, strict=True))
        if any(isinstance(each, ApiError) for each in told):
            return await self._take_back(intent, marked)
        *first, last = intent.spec.victims

        async def evict(victim: Victim) -> VictimStatus:
            known = marked.get(victim.root.uid) if victim.unit else self._as_seen(victim)
            return await self._evict(intent, victim, message, known)

        states = await _each(first, evict)
        failed = next((state for state in states if state.state is VictimState.FAILED), None)
        begun = last.unit and any(
            victim.unit == last.unit and state.state.over
            for victim, state in zip(first, states, strict=True)
        )
        pod = marked.get(last.root.uid)
        if failed is None or begun:
            states.append(await evict(last))
        else:
            if isinstance(pod, dict) and is_marked(pod):
                await self._let_be(pod)
            detail = f"not touched: {failed.message}"
            states.append(self._state(last, VictimState.SPARED, detail))
        return Outcome(intent, tuple(states))

    async def complete(self, outcome: Outcome) -> Outcome:
        """Try again to delete what is left of units of which a part has gone already.

        Raises:
            Deposed: the fence is closed.
        """
        torn = _torn_units(outcome)

        async def again(victim: Victim, state: VictimStatus) -> VictimStatus:
            if victim.unit not in torn or state.state.over:
                return state
            return await self._evict(outcome.intent, victim, _RESUMED)

        pairs = list(zip(outcome.intent.spec.victims, outcome.victims, strict=True))
        states = await _each(pairs, lambda pair: again(*pair))
        return Outcome(outcome.intent, tuple(states))

    async def resume(
        self, intent: Preemption, *, needed: bool = True, evicted: Collection[str] = ()
    ) -> Outcome:
        """Finish what a former process began: delete whom it marked, spare the others.

        A unit is treated as one. `needed` False: the preemptor has let go, so that who is only
        marked loses its mark. `evicted`: uids of victims that other records have as evicted.

        Raises:
            Deposed: the fence is closed.
            ApiError: a victim could not be read.
        """
        victims = intent.spec.victims
        pods = await _each(victims, self._read)
        units: dict[str, list[Json | None]] = {}
        for victim, pod in zip(victims, pods, strict=True):
            units.setdefault(_unit(victim), []).append(pod)
        messages = {unit: _message(of_unit) for unit, of_unit in units.items()}
        finished = {unit for unit, of_unit in units.items() if _to_finish(of_unit, needed=needed)}

        async def settle(victim: Victim, pod: Json | None) -> VictimStatus:
            unit = _unit(victim)
            if pod is None or _ends(pod):
                # Nobody is deleted here without a mark.
                foreign = victim.root.uid in evicted or (pod is not None and not _mark_of(pod))
                if foreign:
                    return self._state(victim, VictimState.GONE, _GONE)
                return self._state(victim, VictimState.EVICTED, "gone or on its way")
            if unit in finished:
                return await self._evict(intent, victim, messages[unit])
            if is_marked(pod):
                await self._unmark(pod)
                return self._state(victim, VictimState.SPARED, "its preemptor has let go")
            detail = "its preemption was interrupted before it was marked"
            return self._state(victim, VictimState.SPARED, detail)

        pairs = list(zip(victims, pods, strict=True))
        return Outcome(intent, tuple(await _each(pairs, lambda pair: settle(*pair))))

    async def finish(self, outcome: Outcome, reason: str) -> Preemption:
        """Write what became of the plan: completed when every victim is out of the way.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent.
        """
        over = all(state.state.over for state in outcome.victims)
        phase = IntentPhase.COMPLETED if over else IntentPhase.ABANDONED
        name = outcome.intent.metadata.name
        self._unanswered -= {(name, victim.uid) for victim in outcome.victims}
        return await self._intents.finish(outcome.intent, phase, reason, outcome.victims)

    async def _tell(self, victim: Victim, message: str) -> Json | ApiError | None:
        """Mark the victim; return it as it is then, None when it is gone, or why it failed."""
        failure: ApiError | None = None
        known = self._as_seen(victim)
        for attempt in range(_ATTEMPTS):
            try:
                if isinstance(failure, _LOST):
                    await self._client.transport.pause(attempt - 1)
                pod, known = known or await self._read(victim), None
                if pod is None or _ends(pod) or is_marked(pod):
                    return pod
                return await self._mark(pod, message)
            except NotFound:
                return None
            except (Conflict, *_LOST) as error:
                failure = error
            except ApiError as error:
                return error
            except Deposed:
                raise
            except Exception as fault:
                log.exception("victim %s/%s is not told", victim.root.namespace, victim.root.name)
                return ApiError(f"a fault of the operator: {fault!r}")
        return failure

    async def _take_back(
        self, intent: Preemption, marked: dict[str, Json | ApiError | None]
    ) -> Outcome:
        """Spare everybody, as a victim cannot be marked and its unit cannot go without it."""
        failed = next(each for each in marked.values() if isinstance(each, ApiError))
        states = []
        for victim in intent.spec.victims:
            pod = marked.get(victim.root.uid)
            if isinstance(pod, ApiError):
                states.append(self._state(victim, VictimState.FAILED, str(pod)))
                continue
            if pod is not None and not _ends(pod):
                await self._let_be(pod)
            states.append(self._state(victim, VictimState.SPARED, f"not touched: {failed}"))
        return Outcome(intent, tuple(states))

    async def _evict(
        self,
        intent: Preemption,
        victim: Victim,
        message: str,
        known: Json | ApiError | None = None,
    ) -> VictimStatus:
        """Mark and delete one victim; `known`: the pod, where it was read or marked just now.

        A fault of ours about it is its failure, so that the others of its unit do not wait for it.
        """
        turn = self._turns.setdefault(victim.root.uid, asyncio.Lock())
        try:
            async with turn:
                return await self._try_to_evict(intent, victim, message, known)
        except Deposed:
            raise
        except Exception as fault:
            log.exception("victim %s/%s is not evicted", victim.root.namespace, victim.root.name)
            detail = f"a fault of the operator: {fault!r}"
            return self._state(victim, VictimState.FAILED, detail)

    def _tell_evicted(self, intent: Preemption, victim: Victim, pod: Json) -> None:
        try:
            self._evicted(intent, victim, _grace(pod))
        except Exception:
            # It is evicted all the same.
            log.exception("the end of %s/%s is not told", victim.root.namespace, victim.root.name)

    async def _try_to_evict(
        self,
        intent: Preemption,
        victim: Victim,
        message: str,
        known: Json | ApiError | None,
    ) -> VictimStatus:
        failure: ApiError | None = None
        asked = (intent.metadata.name, victim.root.uid)
        for attempt in range(_ATTEMPTS):
            try:
                if isinstance(failure, _LOST):
                    await self._client.transport.pause(attempt - 1)
                pod = known if isinstance(known, dict) else await self._read(victim)
                known = None
                if pod is None or _ends(pod):
                    return self._found_gone(intent, victim, pod)
                if not is_marked(pod):
                    pod = await self._mark(pod, message)
                await self._delete(asked, pod)
            except NotFound:
                return self._found_gone(intent, victim, None)
            except (Conflict, *_LOST) as error:
                # Somebody wrote the pod, or the answer was lost: read it and judge again.
                failure = error
            except ApiError as error:
                return self._state(victim, VictimState.FAILED, str(error))
            else:
                self._tell_evicted(intent, victim, pod)
                return self._state(victim, VictimState.EVICTED)
        return self._state(victim, VictimState.FAILED, str(failure))

    async def _delete(self, asked: tuple[str, str], pod: Json) -> None:
        metadata = pod["metadata"]
        try:
            await self._writer.delete(
                PODS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except _LOST:
            self._unanswered.add(asked)
            raise

    def _found_gone(self, intent: Preemption, victim: Victim, pod: Json | None) -> VictimStatus:
        """Return the state of one that leaves without a call: ours if we had asked for it."""
        if (intent.metadata.name, victim.root.uid) not in self._unanswered:
            return self._state(victim, VictimState.GONE, _GONE)
        if pod is not None:
            self._tell_evicted(intent, victim, pod)
        return self._state(victim, VictimState.EVICTED, "gone or on its way")

    def _as_seen(self, victim: Victim) -> Json | None:
        """Return the victim as a watch showed it, with nothing but what a mark needs."""
        metadata = self._seen(victim)
        return None if metadata is None else {"metadata": metadata, "spec": {}}

    async def _read(self, victim: Victim) -> Json | None:
        """Return the victim as it is now, None when it is gone or another has its name."""
        try:
            pod: Json = await self._client.get(PODS, victim.root.namespace, victim.root.name, dict)
        except NotFound:
            return None
        return pod if pod["metadata"]["uid"] == victim.root.uid else None

    async def _let_be(self, pod: Json) -> None:
        """Take the mark back; should that fail kube-controller-manager does it in two minutes."""
        with contextlib.suppress(ApiError):
            await self._unmark(pod)

    async def _unmark(self, pod: Json) -> None:
        """Take the mark back, as kube-controller-manager does with one that led to nothing."""
        with contextlib.suppress(Conflict, NotFound):
            await self._mark(pod, "", status="False")

    async def _mark(self, pod: Json, message: str, status: str = "True") -> Json:
        metadata = pod["metadata"]
        condition = {
            "type": _CONDITION,
            "status": status,
            "reason": _REASON,
            "message": message,
            "lastTransitionTime": format_instant(self._clock.wall()),
        }
        if metadata.get("generation"):
            condition["observedGeneration"] = metadata["generation"]
        patch = {
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "status": {"conditions": [condition]},
        }
        marked: Json = await self._writer.patch(
            PODS,
            metadata["namespace"],
            metadata["name"],
            patch,
            dict,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
        )
        return marked

    def _state(self, victim: Victim, state: VictimState, message: str = "") -> VictimStatus:
        return VictimStatus(victim.root.uid, state, format_instant(self._clock.wall()), message)


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Do the work for each item, in this order, so many at a time; return the results in order."""
    found: dict[int, R] = {}
    numbers = iter(range(len(items)))

    async def worker() -> None:
        for number in numbers:
            found[number] = await work(items[number])

    await asyncio.gather(*(worker() for _ in range(min(_AT_ONCE, len(items)))))
    return [found[number] for number in range(len(items))]


def _unit(victim: Victim) -> str:
    """Return what tells the victim's unit from all others of the plan."""
    return f"unit {victim.unit}" if victim.unit else victim.root.uid


def _torn_units(outcome: Outcome) -> set[str]:
    pairs = list(zip(outcome.intent.spec.victims, outcome.victims, strict=True))
    gone = {victim.unit for victim, state in pairs if state.state.over}
    left = {victim.unit for victim, state in pairs if state.state is VictimState.FAILED}
    return (gone & left) - {""}


def _to_finish(pods: Sequence[Json | None], *, needed: bool) -> bool:
    """Whether a unit goes on going: it has begun, or it was told so and its room is needed."""
    left = [pod for pod in pods if pod is not None and not _ends(pod)]
    # No pod of a unit is deleted before all of them were marked; a mark may have been reset.
    begun = len(left) < len(pods) and all(_mark_of(pod) for pod in left)
    return begun or (needed and any(is_marked(pod) for pod in left))


def _message(pods: Sequence[Json | None]) -> str:
    """Return what those of the unit that were marked were told."""
    told = (_mark_of(pod).get("message") for pod in pods if pod is not None and is_marked(pod))
    return next((message for message in told if message), _RESUMED)


def _mark_of(pod: Json) -> Json:
    """Return the pod's first `DisruptionTarget`, empty without one."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == _CONDITION:
            found: Json = condition
            return found
    return {}


def _ends(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _grace(pod: Json) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if seconds is None else int(seconds)

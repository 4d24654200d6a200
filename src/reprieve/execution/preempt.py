"""Carry out one preemption of pods: all victims but the last, then the last.

The intent is committed first. A victim is read, marked with the condition `DisruptionTarget` and
deleted with its own grace period, both by uid and resourceVersion; one that is gone, replaced or
being deleted gets no call. If a call fails for good the last victim is not touched. Source:
specification 9.2 to 9.4; the design's "Intent log and executor".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from reprieve.api.reprieve import (
    IntentPhase,
    Preemption,
    PreemptionSpec,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.executor import Outcome
from reprieve.execution.fence import Fence
from reprieve.execution.intents import IntentLog
from reprieve.kube.client import Client, Json, PatchType
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

__all__ = ["PodPreemption", "is_marked"]

_ATTEMPTS: Final = 5
_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"
_DEFAULT_GRACE: Final = 30


def is_marked(pod: Json) -> bool:
    """Whether the pod's first `DisruptionTarget` is true and the scheduler's own (7.2)."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == _CONDITION:
            return (condition.get("status"), condition.get("reason")) == ("True", _REASON)
    return False


class PodPreemption:
    """Carries out plans whose victims are pods; several may run side by side.

    `evicted` is told of every victim whose deletion was ours, and of its grace period in seconds.
    """

    def __init__(
        self,
        client: Client,
        intents: IntentLog,
        fence: Fence,
        clock: Clock,
        *,
        evicted: Callable[[Preemption, Victim, int], None],
    ) -> None:
        self._client = client
        self._intents = intents
        self._fence = fence
        self._clock = clock
        self._evicted = evicted
        self._writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)

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
        *first, last = intent.spec.victims
        states = list(await asyncio.gather(*(self._evict(intent, v, message) for v in first)))
        failed = next((state for state in states if state.state is VictimState.FAILED), None)
        if failed is None:
            states.append(await self._evict(intent, last, message))
        else:
            detail = f"not touched: {failed.message}"
            states.append(self._state(last, VictimState.SPARED, detail))
        return Outcome(intent, tuple(states))

    async def resume(self, intent: Preemption, *, needed: bool = True) -> Outcome:
        """Finish what a former process began: delete whom it marked, spare the others.

        `needed` False: the preemptor has let go, so that who is only marked loses its mark.

        Raises:
            Deposed: the fence is closed.
            ApiError: a victim could not be read.
        """
        states = []
        for victim in intent.spec.victims:
            pod = await self._read(victim)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                states.append(self._state(victim, VictimState.EVICTED, "gone or on its way"))
            elif is_marked(pod) and needed:
                states.append(await self._evict(intent, victim, ""))
            elif is_marked(pod):
                await self._unmark(pod)
                states.append(self._state(victim, VictimState.SPARED, "its preemptor has let go"))
            else:
                detail = "its preemption was interrupted before it was marked"
                states.append(self._state(victim, VictimState.SPARED, detail))
        return Outcome(intent, tuple(states))

    async def finish(self, outcome: Outcome, reason: str) -> Preemption:
        """Write what became of the plan: completed when every victim is out of the way.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent.
        """
        over = all(state.state is VictimState.EVICTED for state in outcome.victims)
        phase = IntentPhase.COMPLETED if over else IntentPhase.ABANDONED
        return await self._intents.finish(outcome.intent, phase, reason, outcome.victims)

    async def _evict(self, intent: Preemption, victim: Victim, message: str) -> VictimStatus:
        failure: ApiError | None = None
        for attempt in range(_ATTEMPTS):
            try:
                if isinstance(failure, ServerError | TooManyRequests | Unreachable):
                    await self._client.transport.pause(attempt - 1)
                pod = await self._read(victim)
                if pod is None or pod["metadata"].get("deletionTimestamp"):
                    # A lost answer to our own deletion ends here too.
                    if failure is not None and pod is not None and is_marked(pod):
                        self._evicted(intent, victim, _grace(pod))
                    return self._state(victim, VictimState.EVICTED, "gone or on its way")
                if not is_marked(pod):
                    pod = await self._mark(pod, message)
                metadata = pod["metadata"]
                await self._writer.delete(
                    PODS,
                    victim.root.namespace,
                    victim.root.name,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                )
            except NotFound:
                return self._state(victim, VictimState.EVICTED, "gone")
            except (Conflict, ServerError, TooManyRequests, Unreachable) as error:
                # Somebody wrote the pod, or the answer was lost: read it and judge again.
                failure = error
            except ApiError as error:
                return self._state(victim, VictimState.FAILED, str(error))
            else:
                self._evicted(intent, victim, _grace(pod))
                return self._state(victim, VictimState.EVICTED)
        return self._state(victim, VictimState.FAILED, str(failure))

    async def _read(self, victim: Victim) -> Json | None:
        """Return the victim as it is now, None when it is gone or another has its name."""
        try:
            pod: Json = await self._client.get(PODS, victim.root.namespace, victim.root.name, dict)
        except NotFound:
            return None
        return pod if pod["metadata"]["uid"] == victim.root.uid else None

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


def _grace(pod: Json) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if seconds is None else int(seconds)

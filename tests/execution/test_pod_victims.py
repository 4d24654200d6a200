"""A pod that several plans name is evicted in one record, whichever answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import (
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    Proof,
    Victim,
    VictimState,
)
from reprieve.execution.fence import Fence
from reprieve.execution.pod_victims import PodVictims
from reprieve.execution.victims import Standing
from reprieve.kube.errors import Unreachable
from reprieve.kube.transport import Request
from tests.execution.test_fence import Tenure
from tests.kube.fakes import FakeAnswer, FakeWire, client_over, refusal, status

T = TypeVar("T")
_MARK = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


class Cluster:
    """One marked pod; `lost`: of how many deletions in turn the answer, or the refusal, is lost."""

    def __init__(self, *, lost: set[int]) -> None:
        self.deletions = 0
        self.lost = lost
        self.leaving = False

    @property
    def pod(self) -> dict[str, Any]:
        metadata = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}
        if self.leaving:
            metadata |= {"resourceVersion": "8", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": metadata, "spec": {}, "status": {"conditions": [_MARK]}}

    def answer(self, request: Request) -> FakeAnswer:
        if request.method != "DELETE":
            return FakeAnswer(body=self.pod)
        self.deletions += 1
        late, self.leaving = self.leaving, True
        if self.deletions in self.lost:
            raise Unreachable("the test loses the answer")
        return refusal(409, "Conflict") if late else FakeAnswer(body=status(200))


def _plan(name: str) -> Preemption:
    spec = PreemptionSpec("scheduling", name, 1, Proof("minimal"), victims=[], decided_at="")
    return Preemption(metadata=Metadata(name=name), spec=spec)


async def _over(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """Do it, and let the time pass for which it waits."""
    task = asyncio.create_task(work)
    for _ in range(20):
        await clock.advance(SECOND)
    return await asyncio.wait_for(task, 1)


def _victims(cluster: Cluster, clock: VirtualClock) -> PodVictims:
    fence = Fence(Tenure(clock.monotonic() + 60 * SECOND), clock, 15 * SECOND)  # type: ignore[arg-type]
    client = client_over(FakeWire(cluster.answer), clock)
    return PodVictims(client, fence, clock, evicted=lambda intent, victim, grace: None)


@pytest.mark.parametrize(
    "lost", [set(), {1}, {2}, {1, 2}], ids=["none", "answer", "refusal", "both"]
)
async def test_a_pod_that_two_plans_delete_is_evicted_in_the_first_alone(lost: set[int]) -> None:
    cluster = Cluster(lost=lost)
    clock = VirtualClock()
    victims = _victims(cluster, clock)
    ref = ObjectRef(api_version="v1", kind="Pod", namespace="team", name="x", uid="u")
    victim = Victim(subject=ref, root=ref, amounts={}, rule="")
    seen = cluster.pod  # both plans marked it before either deleted it

    first = await _over(clock, victims.evict(_plan("first"), victim, seen, again=False))
    second = await _over(clock, victims.evict(_plan("second"), victim, seen, again=False))

    assert (first.state, second.state) == (VictimState.EVICTED, VictimState.GONE)
    for plan, standing in (("first", Standing.EVICTED), ("second", Standing.GONE)):
        reading = await victims.read(_plan(plan), victim, elsewhere=False)
        assert reading.standing is standing, plan
    assert cluster.deletions == 2

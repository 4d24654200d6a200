"""How many calls a server gets that never does what it is asked: one place decides, once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.kueue import Workload
from reprieve.api.reprieve import (
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    Proof,
    Victim,
)
from reprieve.execution.fence import Fence
from reprieve.execution.pod_victims import PodVictims
from reprieve.execution.writes.bind import bind
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from reprieve.kube.retry import ATTEMPTS, AWAY, retried
from reprieve.kube.transport import Request
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.units.ids import Uid
from tests.execution.test_fence import Tenure
from tests.kube.fakes import FakeAnswer, FakeWire, client_over, refusal

METADATA = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}
VICTIM = ObjectRef(api_version="v1", kind="Pod", namespace="team", name="x", uid="u")
REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "Unavailable"}

Door = Callable[[Client, VirtualClock], Awaitable[object]]


def _fence(clock: VirtualClock) -> Fence:
    return Fence(Tenure(clock.monotonic() + 60 * MINUTE), clock, 15 * SECOND)  # type: ignore[arg-type]


def _victims(client: Client, clock: VirtualClock) -> tuple[PodVictims, Preemption, Victim]:
    victims = PodVictims(client, _fence(clock), clock, evicted=lambda intent, victim, grace: None)
    spec = PreemptionSpec("scheduling", "plan", 1, Proof("minimal"), victims=[], decided_at="")
    plan = Preemption(metadata=Metadata(name="plan"), spec=spec)
    return victims, plan, Victim(subject=VICTIM, root=VICTIM, amounts={}, rule="")


async def a_pod_is_bound(client: Client, clock: VirtualClock) -> object:
    return await bind(client, _fence(clock), "team", "x", Uid("u"), "node")


async def a_pod_is_marked(client: Client, clock: VirtualClock) -> object:
    victims, plan, victim = _victims(client, clock)
    return await victims.mark(plan, victim)


async def a_pod_is_evicted(client: Client, clock: VirtualClock) -> object:
    victims, plan, victim = _victims(client, clock)
    return await victims.evict(plan, victim, None, again=False)


async def the_status_of_a_workload_is_written(client: Client, clock: VirtualClock) -> object:
    state: Any = SimpleNamespace(
        workload=lambda key: None, wrote=lambda stored: None, gone=lambda key: None
    )
    context: Any = SimpleNamespace(client=client, full_client=client, fence=_fence(clock))

    def change(found: Workload) -> Workload:
        return Workload(metadata=found.metadata, status={"clusterName": "other"})  # type: ignore[arg-type]

    return await WorkloadStatuses(context, state).change("team/x", "u", change)


async def a_status_is_written_that_is_worked_out_anew(
    client: Client, clock: VirtualClock
) -> object:
    async def once() -> object:
        await client.get(PODS, "team", "x", dict)
        change = StatusChange(PODS, "team", "x", "u", {"phase": "Running"}, "7")
        return await write_status(client, change, dict)

    return await retried(once, client.transport.pause, AWAY)


async def an_object_is_modified(client: Client, clock: VirtualClock) -> object:
    return await client.modify(PODS, "team", "x", lambda found: {**found, "spec": {"a": 1}})


async def an_object_is_applied(client: Client, clock: VirtualClock) -> object:
    return await client.apply(PODS, {"metadata": METADATA}, dict)


async def an_object_is_read(client: Client, clock: VirtualClock) -> object:
    return await client.get(PODS, "team", "x", dict)


DOORS: tuple[Door, ...] = (
    a_pod_is_bound,
    a_pod_is_marked,
    a_pod_is_evicted,
    the_status_of_a_workload_is_written,
    a_status_is_written_that_is_worked_out_anew,
    an_object_is_modified,
    an_object_is_applied,
    an_object_is_read,
)


@pytest.mark.parametrize("reads", [False, True], ids=["all refused", "writes refused"])
@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_a_server_that_never_does_it_gets_so_many_calls_and_no_more(
    door: Door, code: int, reads: bool
) -> None:
    clock, got = VirtualClock(), Counter[str]()

    def answer(request: Request) -> FakeAnswer:
        got["reads" if request.method == "GET" else "writes"] += 1
        if reads and request.method == "GET":
            return FakeAnswer(body={"metadata": METADATA, "spec": {}, "status": {}})
        return refusal(code, REASONS[code])

    task = asyncio.ensure_future(_refused(door(client_over(FakeWire(answer), clock), clock)))
    while not task.done():
        await clock.advance(SECOND)
    await task

    # A first look that was enough, and what is read before each further try.
    assert max(got.values()) <= ATTEMPTS, got
    if not reads:
        assert sum(got.values()) <= ATTEMPTS, got
    if door is an_object_is_read and code != 409 and not reads:
        assert got == {"reads": ATTEMPTS}


async def _refused(work: Awaitable[object]) -> None:
    with contextlib.suppress(ApiError):
        await work

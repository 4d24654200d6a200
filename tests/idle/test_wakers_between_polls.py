"""What lets idle work be evicted wakes the idle plane within 5 s, long before the next poll.

The victim is idle, and a demand waits beside it, since something keeps it from the victim's node.
Whatever that is, the change that ends it is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.engine.idle.model import Phase, Policy
from reprieve.engine.idle.vendors import NVIDIA
from reprieve.kube.cache import Cache
from reprieve.kube.resource import PODS
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.idle.evaluating.causes import QUIET, EvaluationCauses
from reprieve.planes.idle.watches import Watches
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.scenarios.model import NodeSpec
from tests.idle.site import NAMESPACE, Object, Site, container, job, open_site
from tests.kube.fakes import Collection, FakeWire, client_over

WITHIN_S: Final = 5
_RARELY: Final = {"GPU_PREEMPTION_POLLING_INTERVAL": "60s"}
_FLAGS: Final = ("--controllers", "idle")
_VICTIM, _DEMAND = "Job/victim", "Job/demand"
_PENDING: Final = Phase.PENDING_GPU
_AWAY: Final = {"key": "example.com/away", "effect": "NoSchedule"}


def _node(name: str) -> NodeSpec:
    return NodeSpec(name, {"amd.com/gpu": "4", "cpu": "16", "memory": "64Gi", "pods": "110"})


@dataclass(frozen=True)
class Obstacle:
    """What keeps the demand from the node `victims`, and what ends it."""

    change: Callable[[Site], Awaitable[object]]
    node: Object | None = None
    wanted: int = 1  # cpus of the demand
    demand: Object | None = None
    stranger: str = ""  # the cpus of a pod without GPUs on that node


def _of_node(**patch: Any) -> Callable[[Site], Awaitable[object]]:
    return lambda site: site.patch("nodes", "victims", patch, namespace="")


async def _tolerate(site: Site) -> None:
    (pod,) = [each for each in await site.all("pods", NAMESPACE) if _is_of(each, "demand")]
    held = [*(pod["spec"].get("tolerations") or ()), {**_AWAY, "operator": "Exists"}]
    await site.patch("pods", pod["metadata"]["name"], {"spec": {"tolerations": held}})


def _is_of(pod: Object, name: str) -> bool:
    return bool(pod["metadata"]["name"].startswith(name))


_OBSTACLES: Final = {
    "cordon": Obstacle(_of_node(spec={"unschedulable": None}), {"spec": {"unschedulable": True}}),
    "taint": Obstacle(_of_node(spec={"taints": None}), {"spec": {"taints": [_AWAY]}}),
    "toleration": Obstacle(_tolerate, {"spec": {"taints": [_AWAY]}}),
    "label": Obstacle(
        _of_node(metadata={"labels": {"pool": "a"}}), demand={"nodeSelector": {"pool": "a"}}
    ),
    "a pod without GPUs that ends": Obstacle(
        lambda site: site.delete("pods", "stranger"), stranger="12", wanted=8
    ),
}


def test_every_watch_calls_for_an_evaluation_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = VirtualClock()
    mirror = Mirror(client_over(FakeWire(Collection(PODS).handle), clock), clock)
    watches = Watches(
        mirror,
        clock,
        (NVIDIA,),
        nodes=True,
        services=True,
        limits=True,
        report=lambda trouble: None,
    )
    heard: list[Any] = []
    monkeypatch.setattr(Cache, "subscribe", lambda cache, hear: heard.append(cache))
    causes = EvaluationCauses(watches, TrackedWorkloads(Policy()), clock, lambda: None)
    causes.subscribe()
    quiet = [getattr(watches, name).cache for name in QUIET]
    every = [watch.cache for watch in watches]
    assert all(QUIET.values())
    assert sorted(map(id, [*heard, *quiet])) == sorted(map(id, every))


@pytest.mark.parametrize(
    ("took_ms", "pause_s"), [(0, 2), (100, 2), (101, 2.02), (500, 10), (60_000, 15)]
)
async def test_after_a_long_evaluation_changes_are_gathered_for_longer(
    took_ms: int, pause_s: float
) -> None:
    clock, evaluated = VirtualClock(), list[int]()
    workloads = cast("TrackedWorkloads", [SimpleNamespace(status=SimpleNamespace(phase=_PENDING))])
    causes = EvaluationCauses(
        cast("Watches", None),
        workloads,
        clock,
        lambda: evaluated.append(clock.monotonic()),
        took=lambda: took_ms * SECOND // 1_000,
    )
    task = asyncio.create_task(causes.run())
    try:
        began = clock.monotonic()
        causes.note()
        await clock.advance(int(pause_s * SECOND) - 1)
        assert not evaluated
        await clock.advance(1)
        assert evaluated == [began + int(pause_s * SECOND)]
        await clock.advance(60 * SECOND)
        assert len(evaluated) == 1, "nothing has changed since"
    finally:
        task.cancel()


@pytest.mark.parametrize("name", _OBSTACLES)
async def test_what_lets_idle_work_be_evicted_is_answered_before_the_next_poll(
    name: str, tmp_path: Path
) -> None:
    obstacle = _OBSTACLES[name]
    async with open_site(tmp_path, [_node("victims"), _node("others")]) as site:
        await site.patch("nodes", "others", {"metadata": {"labels": {"pool": "a"}}}, namespace="")
        victim = job("victim", container(gpu=4), enabled="true")
        victim["spec"]["template"]["spec"]["nodeName"] = "victims"
        busy = job("busy", container(gpu=4))
        busy["spec"]["template"]["spec"]["nodeName"] = "others"
        await site.create(victim, busy)
        if obstacle.stranger:
            await site.create(_stranger(obstacle.stranger))
        if obstacle.node:
            await site.patch("nodes", "victims", obstacle.node, namespace="")
        site.busy("Job/busy", 90)
        await site.run(_RARELY, *_FLAGS)
        await site.until_phase(_VICTIM, "Idle")
        asked = container(gpu=4)
        asked["resources"]["requests"] = {"cpu": str(obstacle.wanted)}
        demand = job("demand", asked, enabled="true")
        demand["spec"]["template"]["spec"] |= obstacle.demand or {}
        await site.create(demand)
        await site.until_phase(_DEMAND, "PendingGpu")
        await asyncio.sleep(20)
        assert await site.phase(_VICTIM) == "Idle"

        await obstacle.change(site)
        await asyncio.sleep(WITHIN_S)
        (record,) = await site.records()
        assert record["spec"]["preemptor"]["name"].startswith("job-demand-")


def _stranger(cpu: str) -> Object:
    worker = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": NAMESPACE},
        "spec": {"nodeName": "victims", "containers": [worker]},
    }

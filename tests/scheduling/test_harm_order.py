"""`harmOrder` on a running plane: annotations and idle work are read, recorded and counted."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.answers.preemptions.recorded import differences
from reprieve.api.reprieve import Preemption
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.records.scheduling.replay import decide_scheduling_again
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

GPU = "example.com/gpu"
WORKLOADS = "gpuworkloads.kaiwo.silogen.ai"


def with_gpu(obj: Object, checkpoint: str = "") -> Object:
    obj["spec"]["containers"][0]["resources"]["requests"][GPU] = "1"
    if checkpoint:
        obj["metadata"]["annotations"] = {"reprieve.dev/last-checkpoint": checkpoint}
    return obj


async def full(cluster: Memory, checkpoint: int) -> None:
    """Two nodes; what runs on the first was saved so long ago, after both had run for an hour."""
    cluster.nodes([4, 4])
    for found in list(cluster.api.objects["nodes"].values()):
        amounts = {**found["status"]["allocatable"], GPU: "1"}
        cluster.api.put("nodes", {**found, "status": {"allocatable": amounts}})
    cluster.running(with_gpu(pod("other", 4, priority="low")), "node-1")
    cluster.running(with_gpu(pod("saved", 4, priority="low")), "node-0")
    await cluster.pass_time(HOUR)
    saved = with_gpu(cluster.pod("saved"), format_instant(Nanos(cluster.clock.wall() - checkpoint)))
    cluster.api.put("pods", saved)
    cluster.create(
        group("gang", min_count=1, priority="high"),
        with_gpu(pod("member", 4, group="gang", priority="high")),
    )


def recorded(cluster: Memory) -> dict[str, str]:
    """Return the rule of each victim; deciding again on the stored input gives the same plan."""
    (intent,) = cluster.intents()
    record = msgspec.convert(intent, Preemption)
    given: Any = record.spec.input
    replay = decide_scheduling_again(given, GROUP_POST_FILTERS)
    assert differences(record.spec, replay) == ""
    return {victim.root.name: victim.rule for victim in record.spec.victims}


async def test_the_victim_that_loses_least_is_taken_recorded_and_counted() -> None:
    async with memory() as cluster:
        await full(cluster, 10 * MINUTE)
        cluster.start(section={"harmOrder": True})
        await cluster.until(lambda: cluster.victims() == {"saved"})
        rule = "lower priority, least lost work"
        assert recorded(cluster) == {"saved": rule}
        registry = cluster.planes[0].context.metrics.registry
        lost = registry.get_sample_value(
            "reprieve_lost_device_seconds_total", {"plane": "scheduling", "reason": rule}
        )
        assert lost is not None and 600 <= lost < 660


async def test_idle_work_goes_before_what_loses_less() -> None:
    async with memory() as cluster:
        await full(cluster, 10 * MINUTE)
        idle = {
            "apiVersion": "kaiwo.silogen.ai/v1alpha1",
            "kind": "GpuWorkload",
            "metadata": {"name": "job-other", "namespace": NAMESPACE},
            "spec": {
                "workloadRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "other"},
                "gpuResources": {GPU: 1},
            },
            "status": {
                "phase": "Idle",
                "trackedPods": [{"podName": "other"}],
                "lastMetricsUpdate": format_instant(cluster.clock.wall()),
            },
        }
        cluster.api.put(WORKLOADS, idle)
        cluster.start(section={"harmOrder": True})
        await cluster.until(lambda: cluster.victims() == {"other"})
        assert recorded(cluster) == {"other": "lower priority, idle"}

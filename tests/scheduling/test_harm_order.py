"""`harmOrder` on a running plane: annotations and idle work are read, recorded and counted."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeworld.units.durations import HOUR, MINUTE, SECOND
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
        said = obj["metadata"].setdefault("annotations", {})
        said["reprieve.dev/last-checkpoint"] = checkpoint
    return obj


async def full(cluster: Memory, checkpoint: int, **notices: str) -> None:
    """Two nodes; what runs on the first was saved so long ago, after both had run for an hour.

    `notices`: what each of them asks for; its save takes half a minute.
    """
    cluster.nodes([4, 4])
    for found in list(cluster.api.objects["nodes"].values()):
        amounts = {**found["status"]["allocatable"], GPU: "1"}
        cluster.api.put("nodes", {**found, "status": {"allocatable": amounts}})
    for name, node in (("other", "node-1"), ("saved", "node-0")):
        found = with_gpu(pod(name, 4, priority="low"))
        if name in notices:
            said = {"reprieve.dev/notice": notices[name], "reprieve.dev/save-cost": "30s"}
            found["metadata"]["annotations"] = said
        cluster.running(found, node)
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


# Notice. Without history half of what is undone is expected to be saved.

WITH_NOTICE = {"harmOrder": True, "notice": {"max": "5m"}}


async def test_work_that_would_be_told_goes_before_work_that_would_lose_more() -> None:
    async with memory() as cluster:
        await full(cluster, 40 * MINUTE, other="5m")
        cluster.start(section=WITH_NOTICE)
        await cluster.until(cluster.intents)
        assert recorded(cluster) == {"other": "lower priority, least lost work"}
        (intent,) = cluster.intents()
        assert intent["spec"]["victims"][0]["notice"]["deadline"]
        assert intent["status"]["phase"] == "Noticed"


async def test_without_notice_allowed_the_same_work_stays() -> None:
    async with memory() as cluster:
        await full(cluster, 40 * MINUTE, other="5m")
        cluster.start(section={"harmOrder": True})
        await cluster.until(lambda: cluster.victims() == {"saved"})


async def test_who_has_hardly_anything_to_save_is_not_waited_for() -> None:
    async with memory() as cluster:
        await full(cluster, 20 * SECOND, saved="5m")
        cluster.start(section=WITH_NOTICE)
        await cluster.until(lambda: cluster.victims() == {"saved"})
        assert "notice" not in cluster.intents()[0]["spec"]["victims"][0]


async def test_without_harm_order_notice_changes_nothing_but_the_time() -> None:
    async with memory() as cluster:
        await full(cluster, 20 * SECOND, saved="5m", other="5m")
        cluster.start(section={"notice": {"max": "5m"}})
        await cluster.until(cluster.intents)
        with_notice = recorded(cluster)
        assert cluster.intents()[0]["spec"]["victims"][0]["notice"]["deadline"]
    async with memory() as cluster:
        await full(cluster, 20 * SECOND, saved="5m", other="5m")
        cluster.start()
        await cluster.until(cluster.intents)
        assert recorded(cluster) == with_notice

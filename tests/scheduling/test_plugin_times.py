"""`scheduler_plugin_execution_duration_seconds`: each call of a plugin, by its outcome."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry

from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod

_METRIC = "scheduler_plugin_execution_duration_seconds"
_MILLISECOND = 1_000_000
_Observed = dict[tuple[str, str, str], tuple[float, float]]


def _observed(registry: CollectorRegistry) -> _Observed:
    """Return (calls, seconds) by plugin, extension point and status."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in (f"{_METRIC}_count", f"{_METRIC}_sum"):
                labels = sample.labels
                key = labels["plugin"], labels["extension_point"], labels["status"]
                found.setdefault(key, {})[sample.name] = sample.value
    return {
        key: (each[f"{_METRIC}_count"], round(each[f"{_METRIC}_sum"], 9))
        for key, each in found.items()
    }


def _take(cluster: Memory, nanoseconds: int) -> None:
    """Let time pass inside of a decision, in which nobody else has a turn."""
    for _ in cluster.clock.advance(nanoseconds, settle=0).__await__():
        raise AssertionError("the clock waited for somebody")


async def _after_a_group(cluster: Memory, plugins: dict[str, Any]) -> _Observed:
    """A group needs the room of a running pod; return what was measured until all is done."""
    cluster.nodes([4])
    cluster.running(pod("low", 4, priority="low"), "node-0")
    plane = cluster.start(plugins=MappingProxyType({**GROUP_POST_FILTERS, **plugins}))
    cluster.create(
        group("high", min_count=1, priority="high"),
        pod("high-0", 4, group="high", priority="high"),
    )
    await cluster.settle()
    return _observed(plane.context.metrics.registry)


async def test_every_plugin_that_is_asked_is_measured_with_its_own_status() -> None:
    async with memory() as cluster:

        def slow(*facts: Any) -> Any:
            _take(cluster, 3 * _MILLISECOND)
            return GROUP_POST_FILTERS["DefaultPreemption"](*facts)

        found = await _after_a_group(cluster, {"DefaultPreemption": slow})
        assert cluster.victims() == {"low"}
    assert found == {
        ("DynamicResources", "PodGroupPostFilter", "Unschedulable"): (1, 0),
        ("DefaultPreemption", "PodGroupPostFilter", "Success"): (1, 0.003),
    }


async def test_a_plugin_that_raises_counts_as_an_error_and_is_not_swallowed() -> None:
    async with memory() as cluster:

        def broken(*facts: Any) -> Any:
            _take(cluster, 2 * _MILLISECOND)
            raise RuntimeError("no idea")

        found = await _after_a_group(cluster, {"DynamicResources": broken})
        assert cluster.victims() == set()
    assert found == {("DynamicResources", "PodGroupPostFilter", "Error"): (1, 0.002)}


async def test_the_preemption_of_a_single_pod_is_measured_at_post_filter() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        plane = cluster.start()
        cluster.create(pod("high", 4, priority="high"))
        await cluster.settle()
        assert cluster.victims() == {"low"}
        found = _observed(plane.context.metrics.registry)
        assert found == {("DefaultPreemption", "PostFilter", "Success"): (1, 0)}
        cluster.create(pod("huge", 5, priority="high"))
        await cluster.settle()
        found = _observed(plane.context.metrics.registry)
    assert found == {
        ("DefaultPreemption", "PostFilter", "Success"): (1, 0),
        ("DefaultPreemption", "PostFilter", "Unschedulable"): (1, 0),
    }

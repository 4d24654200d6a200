"""Texts of tenants that cannot be read: the pods count, can be victims, and are told about it."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.reprieve import PREEMPT_MIN_RUNTIME
from reprieve.api.scheduling import PodObject
from reprieve.intake.cluster.metadata import DISRUPTION, DISRUPTION_FLOOR, LAST_CHECKPOINT
from reprieve.intake.cluster.pod_classes import PodClasses
from reprieve.intake.cluster.pods import pod_row
from reprieve.planes.scheduling import kinds
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import Object, group, pod

LONG = "1" * 5_000
HUGE = "9" * 40
KOORDINATOR = "gang.scheduling.koordinator.sh/"


def saying(obj: Object, **annotations: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


async def nobody_is_bound_beside(cluster: Memory, name: str) -> None:
    """A pod of a higher priority preempts the one that fills the node, and comes after it."""
    cluster.start()
    cluster.create(pod("urgent", 4, priority="high"))
    await cluster.until(lambda: cluster.victims() == {name}, MINUTE)
    await cluster.pass_time(10 * SECOND)
    assert cluster.placed() == {name: "node-0"}
    cluster.end_all()
    await cluster.until(lambda: cluster.placed() == {"urgent": "node-0"}, MINUTE)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PREEMPT_MIN_RUNTIME, LONG),
        (PREEMPT_MIN_RUNTIME, f"{LONG}s"),
        (LAST_CHECKPOINT, f"2026-03-04T10:00:00.{LONG}Z"),
        (DISRUPTION, LONG),
        (DISRUPTION_FLOOR, LONG),
        (f"{KOORDINATOR}min-available", LONG),
        (f"{KOORDINATOR}waiting-time", f"{LONG}s"),
        (f"{KOORDINATOR}groups", "[" * 50_000),
        (f"{KOORDINATOR}groups", f"[{LONG}]"),
    ],
)
async def test_a_pod_with_an_unreadable_annotation_counts_and_can_be_a_victim(
    key: str, text: str
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        notes = {key: text}
        if key.startswith(KOORDINATOR):
            notes = {f"{KOORDINATOR}name": "gang", f"{KOORDINATOR}min-available": "1", key: text}
        cluster.running(saying(pod("odd", 4, priority="low"), **notes), "node-0")
        await nobody_is_bound_beside(cluster, "odd")


async def test_an_unreadable_minimum_runtime_is_told_on_the_pod_that_is_no_less_a_victim() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        odd = saying(pod("odd", 4, priority="low"), **{PREEMPT_MIN_RUNTIME: LONG})
        cluster.running(odd, "node-0")
        cluster.start(section={"maxMinRuntime": "30m"})
        cluster.create(pod("urgent", 4, priority="high"))
        await cluster.until(lambda: cluster.victims() == {"odd"}, MINUTE)
        [told] = cluster.events("MinRuntimeIgnored")
        assert told["regarding"]["name"] == "odd"
        assert told["note"] == (
            "reprieve.dev/preempt-min-runtime is ignored; accepted: durations from 0s on, such as "
            "90s, 5m or 1h"
        )


@pytest.mark.parametrize("fault", [ValueError, RecursionError, OverflowError, TypeError])
async def test_a_bound_pod_whose_intake_fails_counts_on_its_node_and_is_told(
    fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(obj: PodObject, classes: PodClasses) -> object:
        if obj.metadata.name.startswith("odd"):
            raise fault("whatever it is")
        return pod_row(obj, classes)

    monkeypatch.setattr(kinds, "pod_row", fails)
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.create(group("odd", min_count=1, priority="low"))
        cluster.running(pod("odd-0", 4, priority="low", group="odd"), "node-0")
        cluster.create(pod("odd-1", 1, priority="low"))
        await nobody_is_bound_beside(cluster, "odd-0")
        told = {event["regarding"]["name"]: event["note"] for event in cluster.events("NotRead")}
        text = (
            f"A fault of the operator ({fault.__name__}) keeps the object from being read: it "
            "counts with what it requests and is not placed"
        )
        assert told == {"odd-0": text, "odd-1": text}
        cluster.end("urgent")
        await cluster.pass_time(MINUTE)
        assert "odd-1" not in cluster.placed()
        assert (
            "a part of it that cannot be read"
            in cluster.condition(cluster.pod("odd-1"), "PodScheduled")[2]
        )


def asking(obj: Object, cpu: str) -> Object:
    """Return the pod with another request."""
    [container] = obj["spec"]["containers"]
    changed = {**container, "resources": {"requests": {"cpu": cpu}}}
    return {**obj, "spec": {**obj["spec"], "containers": [changed]}}


async def test_a_request_beyond_all_numbers_is_one_that_fits_nowhere() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start()
        cluster.create(asking(pod("odd", priority="high"), HUGE))
        await cluster.until(
            lambda: cluster.condition(cluster.pod("odd"), "PodScheduled")[1] != "", MINUTE
        )
        assert cluster.condition(cluster.pod("odd"), "PodScheduled")[1] == "Unschedulable"
        assert cluster.victims() == set()


@pytest.mark.parametrize("in_group", [False, True], ids=["pod", "group"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
async def test_bound_pods_with_requests_beyond_all_numbers_can_be_victims(
    count: int, in_group: bool
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        names = {f"odd-{number}" for number in range(count)}
        for name in sorted(names):
            cluster.running(asking(pod(name, priority="low"), HUGE), "node-0")
        cluster.start()
        if in_group:
            cluster.create(group("urgent", min_count=1, priority="high"))
        gang = "urgent" if in_group else ""
        cluster.create(pod("urgent-0", 4, priority="high", group=gang))
        await cluster.until(lambda: cluster.victims() == names, MINUTE)
        cluster.end_all()
        await cluster.until(lambda: cluster.placed() == {"urgent-0": "node-0"}, MINUTE)

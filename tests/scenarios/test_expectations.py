"""What a scenario asserts can fail, and then says what was seen instead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.writes.merging import merge_patch
from reprieve.scenarios import expectations
from reprieve.scenarios.observer import GPUWORKLOADS, Observer
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.play import Play, StepFailed
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.steps import (
    CountStays,
    ExpectNoGpuWorkload,
    ExpectPresent,
    ExpectStatus,
    NeverPhase,
    Reference,
    WaitAbsent,
    WaitCount,
    WaitEvent,
    WaitGpuWorkload,
    WaitGpuWorkloadAbsent,
)


class Cluster:
    """The observer and the live objects of one scenario, both fed by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.observer = Observer(self.clock)
        self.live: dict[tuple[str, str], Any] = {}
        self._version = 0

    def resource_of(self, api_version: str, kind: str) -> str:
        return {"Job": "jobs.batch", "GpuWorkload": GPUWORKLOADS}[kind]

    def resource_named(self, kind: str) -> str | None:
        return "jobs.batch" if kind == "Job" else None

    async def get(self, resource: str, namespace: str, name: str) -> Any:
        return self.live.get((resource, name))

    def play(self) -> Play:
        stage = cast("Any", Stage)(self, self.observer, None, None, self.clock, None)
        return Play(stage, "ml", cast("OperatorProcesses", None))

    def phase(self, phase: str, job: str = "a", **status: Any) -> None:
        self._version += 1
        item = {
            "metadata": {
                "namespace": "ml",
                "name": f"job-{job}-1",
                "resourceVersion": str(self._version),
                "creationTimestamp": "2026-03-04T10:00:00Z",
            },
            "spec": {
                "workloadRef": {"kind": "Job", "name": job},
                "gpuResources": {"amd.com/gpu": 4},
            },
            "status": {"phase": phase, **status},
        }
        self.observer.apply(GPUWORKLOADS, item)
        self.live[GPUWORKLOADS, f"job-{job}-1"] = item

    async def after(self, seconds: int, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a step and let that much time pass."""
        task = asyncio.ensure_future(step)
        await self.clock.advance(seconds * SECOND)
        return task


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_a_wait_for_a_phase_that_does_not_come_says_what_was_seen(cluster: Cluster) -> None:
    cluster.phase("Active")
    step = WaitGpuWorkload("Job/a", 30, phase="Idle")
    task = await cluster.after(30, expectations.wait_gpuworkload(cluster.play(), step))

    with pytest.raises(
        StepFailed,
        match=r"not seen within 30 s; last seen: job-a-1 in phase Active with {'amd.com/gpu': 4}",
    ):
        await task


@pytest.mark.parametrize(
    ("step", "holds"),
    [
        (WaitGpuWorkload("Job/a", 0), True),
        (WaitGpuWorkload("Job/a", 0, phase="Idle"), True),
        (WaitGpuWorkload("Job/a", 0, phase_not="Idle"), False),
        (WaitGpuWorkload("Job/a", 0, phase_in=["Active", "Idle"]), True),
        (WaitGpuWorkload("Job/a", 0, phase_in=["Active"]), False),
        (WaitGpuWorkload("Job/a", 0, spec={"gpuResources": {"amd.com/gpu": 4}}), True),
        (WaitGpuWorkload("Job/a", 0, spec={"gpuResources": {"amd.com/gpu": 3}}), False),
        (WaitGpuWorkload("Job/a", 0, spec={"gracePeriod": "1s"}), False),
        (WaitGpuWorkload("Job/b", 0), False),
    ],
)
async def test_each_condition_of_a_wait_counts(
    cluster: Cluster, step: WaitGpuWorkload, holds: bool
) -> None:
    cluster.phase("Idle")
    task = await cluster.after(1, expectations.wait_gpuworkload(cluster.play(), step))

    assert (task.exception() is None) is holds


async def test_a_gpuworkload_without_a_phase_yet_is_not_one_in_another_phase(
    cluster: Cluster,
) -> None:
    cluster.phase("")
    step = WaitGpuWorkload("Job/a", 1, phase_not="PendingOther")
    task = await cluster.after(1, expectations.wait_gpuworkload(cluster.play(), step))

    assert isinstance(task.exception(), StepFailed)


async def test_a_phase_that_came_and_went_between_two_looks_was_seen(cluster: Cluster) -> None:
    cluster.phase("Idle")
    step = NeverPhase("Job/a", ["Preempting"], 10)
    task = await cluster.after(5, expectations.never_phase(cluster.play(), step))
    cluster.phase("Preempting")
    cluster.phase("Idle")

    with pytest.raises(StepFailed, match="phase Preempting was seen"):
        await task


async def test_a_phase_of_before_does_not_count_but_the_present_one_does(cluster: Cluster) -> None:
    cluster.phase("Idle")
    cluster.phase("Active")
    calm = NeverPhase("Job/a", ["Idle"], 3)
    await (await cluster.after(3, expectations.never_phase(cluster.play(), calm)))

    with pytest.raises(StepFailed, match="phase Active was seen"):
        await expectations.never_phase(cluster.play(), NeverPhase("Job/a", ["Active"], 3))


async def test_a_number_that_changes_for_a_moment_did_not_stay(cluster: Cluster) -> None:
    cluster.phase("Preempted")
    cluster.phase("Idle", "b")
    step = CountStays(["Preempting", "Preempted"], 1, 6)
    task = await cluster.after(1, expectations.count_stays(cluster.play(), step))
    cluster.phase("Preempting", "b")

    with pytest.raises(StepFailed, match="there were 2"):
        await task


async def test_a_count_that_is_not_reached_is_told(cluster: Cluster) -> None:
    cluster.phase("Idle")
    step = WaitCount("Idle", 2, 5)
    task = await cluster.after(5, expectations.wait_count(cluster.play(), step))

    with pytest.raises(StepFailed, match="after 5 s there are 1"):
        await task


async def test_an_event_counts_for_its_own_root_reason_and_type_only(cluster: Cluster) -> None:
    cluster.phase("Idle")
    cluster.phase("Idle", "b")
    cluster.observer.apply(
        "events",
        {
            "metadata": {"namespace": "ml", "name": "e"},
            "involvedObject": {"kind": "GpuWorkload", "name": "job-a-1"},
            "reason": "PreemptionFailed",
            "type": "Warning",
        },
    )

    async def sent(root: str, reason: str, kind: str) -> bool:
        step = WaitEvent(root, reason, cast("Any", kind), 0)
        task = await cluster.after(1, expectations.wait_event(cluster.play(), step))
        return task.exception() is None

    assert await sent("Job/a", "PreemptionFailed", "Warning")
    assert not await sent("Job/b", "PreemptionFailed", "Warning")
    assert not await sent("Job/a", "PreemptionStarted", "Warning")
    assert not await sent("Job/a", "PreemptionFailed", "Normal")


async def test_status_fields_are_compared_with_literals_names_and_what_was_remembered(
    cluster: Cluster,
) -> None:
    cluster.phase("Preempted", preemptedFor="job-b-1", preemptedAt="t")
    cluster.phase("PendingGpu", "b")
    play = cluster.play()
    play.remembered["then"] = "t"

    await expectations.expect_status(
        play,
        ExpectStatus(
            "Job/a",
            {
                "phase": "Preempted",
                "preemptedFor": Reference(gpuworkload_of="Job/b"),
                "preemptedAt": Reference(remembered="then"),
                "idleSince": None,
            },
        ),
    )
    with pytest.raises(StepFailed, match=r"status.preemptedFor is 'job-b-1', expected 'job-a-1'"):
        await expectations.expect_status(
            play, ExpectStatus("Job/a", {"preemptedFor": Reference(gpuworkload_of="Job/a")})
        )
    with pytest.raises(StepFailed, match=r"status.preemptedAt is 't', expected None"):
        await expectations.expect_status(play, ExpectStatus("Job/a", {"preemptedAt": None}))
    with pytest.raises(StepFailed, match="nothing was remembered as 'never'"):
        await expectations.expect_status(
            play, ExpectStatus("Job/a", {"preemptedAt": Reference(remembered="never")})
        )


async def test_what_has_to_be_absent_or_present_is_looked_up(cluster: Cluster) -> None:
    cluster.phase("Idle")
    play = cluster.play()
    with pytest.raises(StepFailed, match="there is one: job-a-1 in phase Idle"):
        await expectations.expect_no_gpuworkload(play, ExpectNoGpuWorkload("Job/a"))
    task = await cluster.after(
        2, expectations.wait_gpuworkload_absent(play, WaitGpuWorkloadAbsent("Job/a", 2))
    )
    with pytest.raises(StepFailed, match="still there after 2 s"):
        await task

    with pytest.raises(StepFailed, match="it does not exist"):
        await expectations.expect_present(play, ExpectPresent("Job", "a"))
    cluster.live["jobs.batch", "a"] = {"metadata": {"deletionTimestamp": "t"}}
    with pytest.raises(StepFailed, match="it is being deleted"):
        await expectations.expect_present(play, ExpectPresent("Job", "a"))
    task = await cluster.after(3, expectations.wait_absent(play, WaitAbsent("Job", "a", 2)))
    with pytest.raises(StepFailed, match="still there after 2 s"):
        await task
    with pytest.raises(StepFailed, match="the cluster does not serve the kind Widget"):
        await expectations.expect_present(play, ExpectPresent("Widget", "a"))


def test_a_manifest_is_merged_as_a_json_merge_patch() -> None:
    present = {"metadata": {"annotations": {"a": "1", "b": "2"}, "uid": "u"}, "spec": {"x": [1]}}
    patch = {"metadata": {"annotations": {"a": "3", "b": None}}, "spec": {"x": [2, 3]}}

    assert merge_patch(present, patch) == {
        "metadata": {"annotations": {"a": "3"}, "uid": "u"},
        "spec": {"x": [2, 3]},
    }

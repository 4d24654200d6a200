"""The observer misses no phase, and waits end at the change that fulfils them."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.scenarios.observer import GPUWORKLOADS, Observer


def gpuworkload(phase: str, version: int, *, name: str = "job-a-1", root: str = "a") -> Any:
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "resourceVersion": str(version),
            "creationTimestamp": f"2026-03-04T10:00:0{version}Z",
        },
        "spec": {"workloadRef": {"kind": "Job", "name": root}},
        "status": {
            "phase": phase,
            "preemptionReason": "because",
            "conditions": [{"type": "PhaseUpdated", "message": f"is {phase}"}],
        },
    }


def test_each_phase_is_one_transition_with_its_reason() -> None:
    observer = Observer(VirtualClock())
    observer.apply(GPUWORKLOADS, gpuworkload("Active", 1))
    observer.apply(GPUWORKLOADS, gpuworkload("Active", 1))
    observer.apply(GPUWORKLOADS, gpuworkload("Active", 2))
    observer.apply(GPUWORKLOADS, gpuworkload("Preempted", 3))
    observer.drop(GPUWORKLOADS, gpuworkload("Preempted", 3))

    assert [(t.old, t.new, t.root, t.reason) for t in observer.transitions] == [
        ("", "Active", "Job/a", "is Active"),
        ("Active", "Preempted", "Job/a", "because"),
        ("Preempted", "gone", "Job/a", ""),
    ]
    assert list(observer.phases_since(1, "ml", "Job/a")) == ["Preempted", "gone"]
    assert observer.all(GPUWORKLOADS) == []


def test_the_newest_gpuworkload_of_a_root_is_the_one_that_counts() -> None:
    observer = Observer(VirtualClock())
    observer.apply(GPUWORKLOADS, gpuworkload("Deleted", 1, name="job-a-2"))
    observer.apply(GPUWORKLOADS, gpuworkload("Active", 2, name="job-a-1"))

    newest = observer.gpuworkload("ml", "Job/a")

    assert newest is not None
    assert newest["metadata"]["name"] == "job-a-1"
    assert observer.gpuworkload("ml", "Job/b") is None
    assert observer.gpuworkload("other", "Job/a") is None


def test_of_two_gpuworkloads_of_one_second_the_one_seen_last_is_the_newest() -> None:
    observer = Observer(VirtualClock())
    for name in ("job-a-2", "job-a-3", "job-a-1"):
        observer.apply(GPUWORKLOADS, gpuworkload("Active", 1, name=name))

    newest = observer.gpuworkload("ml", "Job/a")

    assert newest is not None
    assert newest["metadata"]["name"] == "job-a-1"


async def test_a_wait_ends_at_the_change_that_fulfils_it() -> None:
    clock = VirtualClock()
    observer = Observer(clock)
    waiting = asyncio.create_task(
        observer.until(lambda: len(observer.transitions) == 2 or None, seconds=30)
    )
    await clock.advance(5 * SECOND)
    observer.apply(GPUWORKLOADS, gpuworkload("Active", 1))
    await clock.advance(5 * SECOND)
    assert not waiting.done()
    observer.apply(GPUWORKLOADS, gpuworkload("Idle", 2))

    assert await waiting is True
    assert clock.monotonic() == 10 * SECOND


async def test_a_wait_for_what_does_not_come_ends_in_time_with_nothing() -> None:
    clock = VirtualClock()
    observer = Observer(clock)
    waiting = asyncio.create_task(observer.until(lambda: None, seconds=30))
    await clock.advance(29 * SECOND)
    assert not waiting.done()
    await clock.advance(SECOND)

    await waiting

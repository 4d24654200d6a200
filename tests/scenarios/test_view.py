"""The live view of `reprieve up` says what is used, what is idle and what was reclaimed."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from reprieve.cli.view import headline, render
from reprieve.scenarios.observer import GPUWORKLOADS, Observer
from reprieve.units.clock import VirtualClock
from reprieve.units.instants import parse_instant


def shown(observer: Observer, log: list[str] | None = None) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=150, force_terminal=False)
    now = parse_instant("2026-03-04T10:00:09Z")
    console.print(render(observer, now, log or [], "step 3"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in text.splitlines()]
    return [row for row in rows if len(row) > 1]


def pod(name: str, gpus: str, *, node: str | None, phase: str = "Running") -> Any:
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"amd.com/gpu": gpus, "cpu": "1"}}}],
        },
        "status": {"phase": phase},
    }


def gpuworkload(name: str, phase: str, pods: list[str], version: str, **status: Any) -> Any:
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "resourceVersion": version,
            "creationTimestamp": "2026-03-04T10:00:00Z",
        },
        "spec": {"workloadRef": {"kind": "Job", "name": name.removeprefix("job-")}},
        "status": {"phase": phase, "trackedPods": [{"podName": p} for p in pods], **status},
    }


def test_the_view_counts_used_and_idle_gpus_and_lists_workloads_and_preemptions() -> None:
    observer = Observer(VirtualClock(parse_instant("2026-03-04T10:00:05Z")))
    observer.put(
        "nodes",
        {
            "metadata": {"name": "gpu-0", "resourceVersion": "1"},
            "status": {"allocatable": {"cpu": "64", "hugepages-1Gi": "0", "amd.com/gpu": "8"}},
        },
    )
    observer.put("pods", pod("busy", "3", node="gpu-0"))
    observer.put("pods", pod("lazy", "2", node="gpu-0"))
    observer.put("pods", pod("done", "1", node="gpu-0", phase="Succeeded"))
    observer.put("pods", pod("waits", "4", node=None, phase="Pending"))
    observer.put(
        GPUWORKLOADS,
        gpuworkload(
            "job-lazy",
            "Idle",
            ["lazy"],
            "1",
            aggregatedUtilization=1.25,
            idleSince="2026-03-04T10:00:02Z",
        ),
    )
    observer.put(GPUWORKLOADS, gpuworkload("job-gone", "Preempting", [], "1"))
    observer.put(
        GPUWORKLOADS, gpuworkload("job-gone", "Preempted", [], "2", preemptionReason="for others")
    )

    assert shown(observer) == [
        ["gpu-0", "amd.com/gpu", "8", "5", "2"],
        ["ml", "job-gone", "Job/gone", "Preempted", "", ""],
        ["ml", "job-lazy", "Job/lazy", "Idle", "1.25", "7s"],
        ["2026-03-04T10:00:05Z", "ml Job/gone", "for others"],
    ]
    assert [headline(transition) for transition in observer.transitions] == [
        "2026-03-04T10:00:05Z ml/job-lazy - -> Idle",
        "2026-03-04T10:00:05Z ml/job-gone - -> Preempting",
        "2026-03-04T10:00:05Z ml/job-gone Preempting -> Preempted  for others",
    ]


def test_the_view_ends_with_the_operators_last_lines() -> None:
    observer = Observer(VirtualClock())
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(render(observer, VirtualClock().wall(), [f"line {n}" for n in range(10)], ""))
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert [n for n in range(10) if f"line {n}" in text] == [4, 5, 6, 7, 8, 9]

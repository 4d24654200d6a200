"""The live view of `reprieve up` says what is used, what is idle and what was reclaimed."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from kubeworld.units.clock import VirtualClock
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.cli.texts.view import event_line, headline, queue_line, render
from reprieve.scenarios.observer import CLUSTER_QUEUES, GPUWORKLOADS, Observer


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
    observer.apply(
        "nodes",
        {
            "metadata": {"name": "gpu-0", "resourceVersion": "1"},
            "status": {"allocatable": {"cpu": "64", "hugepages-1Gi": "0", "amd.com/gpu": "8"}},
        },
    )
    observer.apply("pods", pod("busy", "3", node="gpu-0"))
    observer.apply("pods", pod("lazy", "2", node="gpu-0"))
    observer.apply("pods", pod("done", "1", node="gpu-0", phase="Succeeded"))
    observer.apply("pods", pod("waits", "4", node=None, phase="Pending"))
    observer.apply(
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
    observer.apply(GPUWORKLOADS, gpuworkload("job-gone", "Preempting", [], "1"))
    observer.apply(
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


def cluster_queue(name: str, version: str, **status: Any) -> Any:
    quotas = [{"name": "amd.com/gpu", "nominalQuota": 3}, {"name": "cpu", "nominalQuota": "8"}]
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {
            "cohortName": "all",
            "resourceGroups": [{"flavors": [{"name": "default", "resources": quotas}]}],
        },
        "status": status,
    }


def test_the_view_shows_what_queues_hold_borrow_and_what_share_that_is() -> None:
    observer = Observer(VirtualClock())
    held = [
        {"name": "amd.com/gpu", "total": "9", "borrowed": "6"},
        {"name": "cpu", "total": "2500m", "borrowed": "0"},
    ]
    busy = cluster_queue(
        "busy",
        "2",
        flavorsReservation=[{"name": "default", "resources": held}],
        admittedWorkloads=4,
        pendingWorkloads=1,
        fairSharing={"weightedShare": 667},
    )
    new = cluster_queue("new", "1")
    observer.apply(CLUSTER_QUEUES, busy)
    observer.apply(CLUSTER_QUEUES, new)

    assert shown(observer) == [
        ["busy", "all", "amd.com/gpu: 9 of 3, 6 borrowed", "4", "1", "667"],
        ["", "", "cpu: 2500m of 8", "", "", ""],
        ["new", "all", "amd.com/gpu: 0 of 3", "0", "0", ""],
        ["", "", "cpu: 0 of 8", "", "", ""],
    ]
    assert queue_line(new) == ""
    assert queue_line(busy) == (
        "ClusterQueue busy: amd.com/gpu: 9 of 3, 6 borrowed; cpu: 2500m of 8; "
        "4 admitted, 1 waiting; share 667"
    )


def test_preemptions_and_admissions_are_told_at_the_time_of_their_last_event() -> None:
    def event(kind: str, reason: str, action: str, **more: Any) -> Any:
        about = {"kind": kind, "namespace": "ml", "name": "one"}
        at = "2026-03-04T10:00:00.000000Z"
        return {
            "metadata": {"namespace": "ml", "name": reason + kind, "resourceVersion": "1"},
            "involvedObject": about,
            "reason": reason,
            "action": action,
            "eventTime": at,
            "message": "said",
            **more,
        }

    again = {"count": 2, "lastObservedTime": "2026-03-04T10:00:07.000000Z"}
    events = [
        event("Workload", "Admitted", "Admitted", series=again),
        event("Workload", "Preempted", "Preempted"),
        event("Workload", "QuotaReserved", "QuotaReserved"),
        event("Pod", "Preempted", "Preempting"),
        event("Pod", "Preempted", "Else"),
    ]
    assert [event_line(each) for each in events] == [
        "2026-03-04T10:00:07Z ml/one  said",
        "2026-03-04T10:00:00Z ml/one  said",
        "",
        "2026-03-04T10:00:00Z ml/one  said",
        "",
    ]
    observer = Observer(VirtualClock())
    for each in events:
        observer.apply("events", each)
    assert shown(observer) == [
        ["2026-03-04T10:00:00Z", "ml Pod/one", "said"],
        ["2026-03-04T10:00:00Z", "ml Workload/one", "said"],
    ]


def test_without_the_idle_plane_the_view_shows_groups_and_nothing_that_is_idle() -> None:
    observer = Observer(VirtualClock(parse_instant("2026-03-04T10:00:05Z")))
    for name, allocatable in (("gpu-0", {"amd.com/gpu": "8"}), ("plain", {"pods": "110"})):
        observer.apply(
            "nodes",
            {
                "metadata": {"name": name, "resourceVersion": "1"},
                "status": {"allocatable": {"cpu": "64", **allocatable}},
            },
        )
    runs, waits, ends = (
        pod(name, "1", node=node) for name, node in (("a", "gpu-0"), ("b", None), ("c", "plain"))
    )
    for one in (runs, waits):
        one["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    ends["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "old"}
    ends["metadata"]["deletionTimestamp"] = "2026-03-04T10:00:00Z"
    for one in (runs, waits, ends, pod("alone", "1", node="gpu-0")):
        observer.apply("pods", one)
    console = Console(file=io.StringIO(), width=150, force_terminal=False)
    console.print(render(observer, Nanos(0), planes=["scheduling"]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in text.splitlines()]
    assert "Idle" not in text and "GpuWorkload" not in text
    assert [row for row in rows if len(row) > 3] == [
        ["gpu-0", "amd.com/gpu", "8", "2"],
        ["plain", "pods", "110", "1"],
        ["ml", "old", "1", "0", "0", "1"],
        ["ml", "train", "2", "1", "1", "0"],
    ]

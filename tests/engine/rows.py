"""Rows for tests of the idle plane: small builders, and cases of the oracle as engine rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.engine.idle.model import (
    Aggregation,
    GpuSample,
    IdleSnapshot,
    NodeRow,
    Phase,
    PodRow,
    Policy,
    PreemptionPolicy,
    Settings,
    Status,
    TrackedPod,
    Workload,
)
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference

NOW = parse_instant("2026-03-04T10:15:00Z")
DEFAULTS = Settings(5.0, 10 * MINUTE, PreemptionPolicy.ON_PRESSURE, Aggregation.MAX, 24 * HOUR)


def ago(seconds: float) -> Nanos:
    return Nanos(NOW - round(seconds * SECOND))


def pod(name: str = "pod-0", phase: str = "Running", **changes: Any) -> PodRow:
    values: dict[str, Any] = {"gpus": {"amd.com/gpu": 4}, "created": ago(7200), **changes}
    return PodRow(Uid(f"{name}-uid"), name, phase, **values)


def sample(utilization: float = 0.0, seen: float | None = 0.0, gpu_id: str = "0") -> GpuSample:
    """A sample last polled `seen` seconds ago, or not by this process."""
    polled = None if seen is None else ago(seen)
    return GpuSample(gpu_id, utilization, ago(30) if polled is None else polled, polled)


def workload(
    name: str = "w",
    phase: Phase = Phase.IDLE,
    gpus: Mapping[str, int] | int = 4,
    pods: Sequence[PodRow] | None = None,
    samples: Mapping[str, Sequence[GpuSample]] | None = None,
    settings: Settings = DEFAULTS,
    namespace: str = "ml-team",
    created: Nanos | None = None,
    released: Nanos | None = None,
    **status: Any,
) -> Workload:
    """A workload with one running pod and a fresh sample of 0 %, idle for half an hour."""
    amounts = {"amd.com/gpu": gpus} if isinstance(gpus, int) else dict(gpus)
    if pods is None:
        pods = [pod(f"{name}-0", gpus=amounts)]
    if samples is None:
        samples = {each.name: [sample()] for each in pods if each.phase == "Running"}
    if phase is Phase.IDLE:
        status.setdefault("idle_since", ago(1800))
    tracked = tuple(TrackedPod(each.name, tuple(samples.get(each.name, ()))) for each in pods)
    return Workload(
        ref=Reference(
            "kaiwo.silogen.ai/v1alpha1", "GpuWorkload", namespace, name, Uid(f"{name}-gw")
        ),
        root=Reference("batch/v1", "Job", namespace, name, Uid(f"{name}-uid")),
        created=ago(7200) if created is None else created,
        gpus=amounts,
        settings=settings,
        status=Status(phase=phase, tracked_pods=tracked, **status),
        pods=tuple(pods),
        released=released,
    )


def demand(name: str = "demand", gpus: Mapping[str, int] | int = 4, **changes: Any) -> Workload:
    """A workload whose one pod waits for its GPUs."""
    amounts = {"amd.com/gpu": gpus} if isinstance(gpus, int) else dict(gpus)
    pods = changes.pop("pods", None) or [pod(f"{name}-0", "Pending", gpus=amounts, demand=True)]
    return workload(name, Phase.PENDING_GPU, amounts, pods, {}, **changes)


def snapshot(*workloads: Workload, **changes: Any) -> IdleSnapshot:
    return IdleSnapshot(revision=7, workloads=workloads, **changes)


def with_settings(row: Workload, **changes: Any) -> Workload:
    return replace(row, settings=replace(row.settings, **changes))


def instant(seconds: int | None) -> Nanos | None:
    return None if seconds is None else Nanos(seconds * SECOND)


def rows_of(case: dict[str, Any]) -> IdleSnapshot:
    """A case of the oracle as a snapshot."""
    return IdleSnapshot(
        revision=1,
        workloads=tuple(row_of(each) for each in case["workloads"]),
        nodes=tuple(NodeRow(name, free) for name, free in case["nodes"].items()),
        claims={
            Uid(root): None if key is None else GpuWorkloadKey(key)
            for root, key in case["claims"].items()
        },
    )


def row_of(each: dict[str, Any]) -> Workload:
    namespace, name = each["key"].split("/")
    pods = tuple(
        PodRow(
            Uid(p["name"]),
            p["name"],
            p["phase"],
            p["gpus"],
            p["node"],
            p.get("demand", p["phase"] == "Pending"),
            p.get("terminating", False),
            instant(p.get("heard")),
            None if p["nodes"] is None else frozenset(p["nodes"]),
            asks=p.get("asks", {}),
        )
        for p in each["pods"]
    )
    tracked = tuple(
        TrackedPod(
            p["name"],
            tuple(
                GpuSample(str(index), value, Nanos((seen or 0) * SECOND), instant(seen))
                for index, (seen, value) in enumerate(
                    zip(p["seen"], p.get("values") or [0.0] * len(p["seen"]), strict=True)
                )
            ),
        )
        for p in each["pods"]
    )
    return Workload(
        ref=Reference(
            "kaiwo.silogen.ai/v1alpha1", "GpuWorkload", namespace, name, Uid(f"gw-{name}")
        ),
        root=Reference("batch/v1", "Job", namespace, name, Uid(each["root"])),
        created=Nanos(each["created"] * SECOND),
        gpus=each["gpus"],
        settings=replace(
            DEFAULTS,
            grace_period=each["grace"] * SECOND,
            policy=PreemptionPolicy(each["policy"]),
        ),
        status=Status(
            phase=Phase(each["phase"]),
            tracked_pods=tracked,
            idle_since=instant(each["idle_since"]),
            preempted_for=each["preempted_for"],
            preempted_at=instant(each["preempted_at"]),
        ),
        pods=pods,
    )


def policy_of(case: dict[str, Any], **changes: Any) -> Policy:
    return Policy(
        polling_interval=case["window"] // 3 * SECOND,
        settling=case["settling"] * SECOND,
        **changes,
    )

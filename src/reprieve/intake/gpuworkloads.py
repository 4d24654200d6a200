"""GpuWorkload <-> engine row.

Durations and instants of the status become integers and are written back as the API writes them:
RFC 3339 with whole seconds. Samples read from a status have not been seen by this process (`seen`
is None); `remembered` gives them what the process knew before the write came back to it. Source:
specification of the idle plane, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kubeworld.units.instants import Nanos, format_instant, instant_or_none
from reprieve.api.core import ObjectMeta
from reprieve.api.kaiwo import (
    Condition,
    GpuMetric,
    GpuWorkload,
    GpuWorkloadSpec,
    GpuWorkloadStatus,
    WorkloadReference,
)
from reprieve.api.kaiwo import TrackedPod as ApiTrackedPod
from reprieve.engine.idle.discovery import Root, gpu_workload_name
from reprieve.engine.idle.model import (
    GpuSample,
    Phase,
    PodRow,
    Settings,
    Status,
    TrackedPod,
    Workload,
)
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = [
    "initial_status",
    "new_gpu_workload",
    "ref_of",
    "remembered",
    "root_of",
    "status_from_api",
    "status_to_api",
    "workload_row",
]


def workload_row(
    gpu_workload: GpuWorkload,
    settings: Settings,
    pods: Sequence[PodRow] = (),
    released: Nanos | None = None,
    status: Status | None = None,
) -> Workload:
    """Return the engine's row of a GpuWorkload whose settings are resolved.

    `status`: what is known beyond the object's own, which is read otherwise.
    """
    return Workload(
        ref=ref_of(gpu_workload),
        root=root_of(gpu_workload),
        created=instant_or_none(gpu_workload.metadata.creation_timestamp) or Nanos(0),
        gpus=dict(gpu_workload.spec.gpu_resources),
        settings=settings,
        status=status_from_api(gpu_workload.status) if status is None else status,
        pods=tuple(sorted(pods, key=lambda pod: (pod.name, pod.uid))),
        released=released,
    )


def ref_of(gpu_workload: GpuWorkload) -> Reference:
    """Return the GpuWorkload itself."""
    metadata = gpu_workload.metadata
    return Reference(
        gpu_workload.api_version,
        gpu_workload.kind,
        metadata.namespace,
        metadata.name,
        Uid(metadata.uid),
    )


def root_of(gpu_workload: GpuWorkload) -> Reference:
    """Return its root owner."""
    root = gpu_workload.spec.workload_ref
    return Reference(
        root.api_version, root.kind, gpu_workload.metadata.namespace, root.name, Uid(root.uid)
    )


def new_gpu_workload(root: Root, namespace: str, gpus: Mapping[str, int]) -> GpuWorkload:
    """Return a new GpuWorkload for a root, without overrides and status.

    No ownerReference: the record outlives its root.
    """
    ref = root.ref
    return GpuWorkload(
        metadata=ObjectMeta(
            name=gpu_workload_name(ref.kind, ref.name, ref.uid), namespace=namespace
        ),
        spec=GpuWorkloadSpec(
            workload_ref=WorkloadReference(ref.api_version, ref.kind, ref.name, ref.uid),
            gpu_resources=dict(gpus),
        ),
    )


def initial_status(root: Root) -> Status:
    """Return the status that a new GpuWorkload is given."""
    return Status(phase=Phase.PENDING_OTHER, owner_chain=root.chain)


def status_from_api(status: GpuWorkloadStatus) -> Status:
    """Return the engine's status; an unknown phase counts as none, a bad instant as unset."""
    try:
        phase = Phase(status.phase)
    except ValueError:
        phase = Phase.NEW
    return Status(
        phase=phase,
        tracked_pods=tuple(_tracked(pod) for pod in status.tracked_pods or ()),
        aggregated_utilization=status.aggregated_utilization,
        last_metrics_update=instant_or_none(status.last_metrics_update),
        idle_since=instant_or_none(status.idle_since),
        finished_at=instant_or_none(status.finished_at),
        owner_chain=status.owner_chain,
        preempted_at=instant_or_none(status.preempted_at),
        preempted_for=status.preempted_for,
        preemption_reason=status.preemption_reason,
    )


def status_to_api(status: Status, conditions: Iterable[Condition] = ()) -> GpuWorkloadStatus:
    """Return the status as it is written."""
    return GpuWorkloadStatus(
        phase=status.phase.value,
        tracked_pods=[
            ApiTrackedPod(
                pod.name,
                [GpuMetric(s.utilization, format_instant(s.updated), s.gpu_id) for s in pod.samples]
                or None,
            )
            for pod in status.tracked_pods
        ]
        or None,
        aggregated_utilization=status.aggregated_utilization,
        last_metrics_update=_text(status.last_metrics_update),
        idle_since=_text(status.idle_since),
        finished_at=_text(status.finished_at),
        owner_chain=status.owner_chain,
        preempted_at=_text(status.preempted_at),
        preempted_for=status.preempted_for,
        preemption_reason=status.preemption_reason,
        conditions=list(conditions) or None,
    )


def remembered(status: Status, earlier: Status) -> Status:
    """Return `status` with what only this process knows of its samples, from `earlier`.

    Entries are paired by pod, GPU id and their order among equal ids.
    """
    known: dict[tuple[str, str], list[GpuSample]] = {}
    for pod in earlier.tracked_pods:
        for sample in pod.samples:
            known.setdefault((pod.name, sample.gpu_id), []).append(sample)
    pods = []
    for pod in status.tracked_pods:
        samples = []
        for sample in pod.samples:
            pairs = known.get((pod.name, sample.gpu_id))
            if pairs and sample.seen is None:
                pair = pairs.pop(0)
                sample = replace(sample, seen=pair.seen, partition=pair.partition)
            samples.append(sample)
        pods.append(TrackedPod(pod.name, tuple(samples)))
    return replace(status, tracked_pods=tuple(pods))


def _tracked(pod: ApiTrackedPod) -> TrackedPod:
    return TrackedPod(
        pod.pod_name,
        tuple(
            GpuSample(
                metric.gpu_id, metric.utilization, instant_or_none(metric.last_update) or Nanos(0)
            )
            for metric in pod.gpu_metrics or ()
        ),
    )


def _text(instant: Nanos | None) -> str | None:
    return None if instant is None else format_instant(instant)

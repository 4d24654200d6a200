"""A pod into its row; what its spec states to the scheduler is its class (`pod_classes`).

Source: specification 2.5, 7.2 and 21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Final, TypeVar

from kubeworld.objects.pods import OVER
from kubeworld.units.untrusted import integer_or_none
from reprieve.api.gangs import RELEASED
from reprieve.api.kueue_topology import INDEX_OFFSET
from reprieve.api.reprieve import NOTICE, NOTICE_SPEAKER, PREEMPT_MIN_RUNTIME, SAVE_COST
from reprieve.api.scheduling import PodObject, PodSpec
from reprieve.engine.cluster.rows import PodClass, PodRow
from reprieve.intake.cluster.failures import disrupted_by, failed_at, is_stuck
from reprieve.intake.cluster.metadata import (
    DISRUPTION,
    LAST_CHECKPOINT,
    PREEMPTION_PRIORITY_CLASS,
    checkpoint_of,
    claims_of,
    controller_of,
    created_of,
    disruption_of,
    min_runtime_of,
    notice_of,
    protection_of,
    save_cost_in,
    seconds_of,
    speaks_of,
    uid_of,
    version_of,
)
from reprieve.intake.cluster.pod_classes import DEFAULT_SCHEDULER, PodClasses, pod_class
from reprieve.intake.cluster.requests import NOTHING, Requests, requests_of
from reprieve.intake.cluster.selectors import labels_of
from reprieve.intake.gangs import NAMING, gang_annotations, gang_name, left_by_gang

__all__ = ["counted_pod_row", "pod_row"]

T = TypeVar("T")

_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"  # of a Workload with the same name
#: Labels and annotations that state what the pod belongs to.
_BELONGING: Final = NAMING | {_WORKLOAD, _GROUP}
#: Of a pod's annotations those that are read whatever else it states; gangs have more.
_NOTES: Final = _BELONGING.union(
    (
        LAST_CHECKPOINT,
        PREEMPTION_PRIORITY_CLASS,
        DISRUPTION,
        PREEMPT_MIN_RUNTIME,
        NOTICE,
        NOTICE_SPEAKER,
        SAVE_COST,
        INDEX_OFFSET,
    ),
    RELEASED,
)


def pod_row(pod: PodObject, classes: PodClasses | None = None) -> PodRow:
    """Return the row of a pod; `classes` spares reading a template again.

    Names that many pods mention are kept once.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    deleting = metadata.deletion_timestamp is not None
    group = spec.scheduling_group
    labels, notes = metadata.labels or {}, metadata.annotations or {}
    # Of nearly all pods no annotation is read.
    said = not _NOTES.isdisjoint(notes)
    belongs = said or not _BELONGING.isdisjoint(labels)
    gang = gang_name(labels, notes) if belongs else ""
    kind, owner, controller = controller_of(metadata)
    # In the order of the fields: matching that many names costs more than making the row.
    return PodRow(
        uid_of(metadata),
        intern(metadata.namespace),
        metadata.name,
        version_of(metadata),
        pod_class(pod) if classes is None else classes.of(pod, controller),
        labels_of(metadata.labels) if classes is None else classes.labels.of(metadata.labels),
        intern(spec.node_name or ""),
        status.nominated_node_name or "",
        spec.priority or 0,
        intern(group.pod_group_name or "") if group is not None else "",
        seconds_of(status.start_time),
        created_of(metadata),
        deleting,
        deleting and _is_preempted(pod),
        status.phase in OVER,
        tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        claims_of(spec.resource_claims, status.resource_claim_statuses)
        if spec.resource_claims
        else (),
        (kind, owner) if classes is None else classes.labels.pair((kind, owner)),
        f"{metadata.namespace}/{gang}" if gang else "",
        gang_annotations(notes) if gang else (),
        left_by_gang(notes) if said else (),
        (status.phase or "") if gang else "",
        tuple(each.name for each in metadata.owner_references or ()) if gang else (),
        _workload(metadata.namespace, labels, notes) if belongs else "",
        checkpoint_of(metadata) if said else 0,
        protection_of(metadata) if said else "",
        disruption_of(metadata) if said else "",
        min_runtime_of(metadata) if said else None,
        metadata.generation,
        controller,
        failed_at(pod),
        is_stuck(pod),
        disrupted_by(pod),
        notice_of(metadata) if said else 0,
        speaks_of(metadata) if said else False,
        save_cost_in(notes) if said else 0,
        _index_offset(notes) if INDEX_OFFSET in notes else 0,
    )


def counted_pod_row(pod: PodObject) -> PodRow:
    """Return what must not be lost of a pod that `pod_row` fails to read.

    That is what it uses of its node, which pods it is evicted with and whose victim it may be; a
    part of this that cannot be read either counts as not stated. A pod that waits is not placed,
    since it is unknown where it may be placed.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    group = spec.scheduling_group
    kind, owner, controller = _or(("", "", ""), lambda: controller_of(metadata))
    return PodRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=_or(0, lambda: version_of(metadata)),
        pod_class=_counted_class(_or(NOTHING, lambda: requests_of(pod)), spec),
        labels=_or((), lambda: labels_of(metadata.labels)),
        node=spec.node_name or "",
        priority=spec.priority or 0,
        group=(group.pod_group_name or "") if group is not None else "",
        start=_or(None, lambda: seconds_of(status.start_time)),
        created=_or(0, lambda: created_of(metadata)),
        deleting=metadata.deletion_timestamp is not None,
        finished=status.phase in OVER,
        owner=(kind, owner),
        controller=controller,
    )


def _counted_class(requests: Requests, spec: PodSpec) -> PodClass:
    return PodClass(
        requests=requests.amounts,
        scored_cpu=requests.scored[0],
        scored_memory=requests.scored[1],
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        priority_class=spec.priority_class_name or "",
        unsupported="a part of it that cannot be read",
    )


def _or(otherwise: T, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception:
        return otherwise


def _workload(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the key of the Kueue Workload that a pod was started for, or is gated for."""
    name = annotations.get(_WORKLOAD) or annotations.get(_GROUP) or labels.get(_GROUP)
    return f"{namespace}/{name}" if name else ""


def _index_offset(annotations: Mapping[str, str]) -> int:
    number = integer_or_none(annotations[INDEX_OFFSET], 0, 2**31 - 1)
    return -1 if number is None else number


def _is_preempted(pod: PodObject) -> bool:
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False

"""Workloads and queues as the page keeps them: who has quota, who waits for it, and why."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.quantities import InvalidQuantity
from kubeworld.units.untrusted import cut
from reprieve.answers.conditions import of_workload
from reprieve.api import kueue
from reprieve.intake.pod_defaults import completed
from reprieve.intake.quota_limits import NO_LIMITS
from reprieve.intake.quota_requests import UnreadableRequest, amounts_of, pod_requests
from reprieve.intake.quota_workloads import condition_of, is_condition_true
from reprieve.kube.objects import version_number
from reprieve.web.mirror.pods import NEVER
from reprieve.web.mirror.units import controller_uid, controller_unit
from reprieve.wording.diagnosis import sentence

__all__ = [
    "LocalQueueRecord",
    "QueueRecord",
    "Quota",
    "WorkloadRecord",
    "WorkloadState",
    "cluster_queue_record",
    "cohort_record",
    "local_queue_record",
    "workload_record",
]

_NO_POLICY: Final = "None"
_LONGEST: Final = 1_000
_TURNS: Final = ("QuotaReserved", "Admitted", "PodsReady", "Evicted", "Finished")


class WorkloadState(enum.StrEnum):
    """What a Workload is at."""

    PENDING = "Pending"
    #: Has quota, and waits for checks.
    RESERVING = "Reserving"
    ADMITTED = "Admitted"
    INACTIVE = "Inactive"
    FINISHED = "Finished"

    @property
    def holds(self) -> bool:
        """Whether it has quota."""
        return self in (WorkloadState.RESERVING, WorkloadState.ADMITTED)


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """A Workload.

    Attributes:
        unit: the job that it stands for, or itself; `owner`: the job's uid, empty without one.
        queue: the name of its LocalQueue.
        cluster_queue: where it holds quota; empty without.
        amounts: what all of its pods request, by resource; cpu in thousandths.
        held: what it holds, by flavor and resource.
        shape: what one pod of each set requests, and how many there are, without claims; `claims`:
            their ResourceClaims and templates, one of the two each.
        since: it waits, or has quota, since.
        reason, message: why it waits, as its conditions state.
        turns: since when each of the conditions that state its life is true, by type.
        requeued: not tried again before, after an eviction.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    owner: str
    queue: str
    cluster_queue: str
    priority: int
    created: Nanos
    state: WorkloadState
    amounts: tuple[tuple[str, int], ...]
    held: tuple[tuple[str, str, int], ...]
    shape: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
    since: Nanos
    reason: str
    message: str
    turns: Mapping[str, Nanos]
    requeued: Nanos | None = None
    claims: tuple[tuple[tuple[str, str], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    """A Topology; `levels` are its labels from the widest to the narrowest."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    levels: tuple[str, ...]


def topology_record(topology: kueue.Topology) -> TopologyRecord:
    """Return what is kept of a Topology."""
    metadata = topology.metadata
    return TopologyRecord(
        metadata.uid,
        "",
        metadata.name,
        version_number(metadata.resource_version),
        tuple(each.node_label for each in topology.spec.levels),
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """What a queue has of one resource in one flavor; a limit of None is no limit."""

    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A ClusterQueue or a Cohort.

    `weight`: in fair sharing, in thousandths. `share`: as its status states it, None where it does
    not.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    parent: str
    quotas: tuple[Quota, ...]
    weight: int
    share: int | None
    stopped: bool
    active: bool
    message: str


@dataclass(frozen=True, slots=True)
class LocalQueueRecord:
    """A namespace's door to a ClusterQueue.

    Attributes:
        used, reserved: quota of what was admitted, or has quota and waits for checks, too: by
            flavor and resource, as its status states.
        pending, admitted: numbers of Workloads; None where the status does not state.
        message: why it accepts nothing; empty where it does.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    cluster_queue: str
    used: tuple[tuple[str, str, int], ...] = ()
    reserved: tuple[tuple[str, str, int], ...] = ()
    pending: int | None = None
    admitted: int | None = None
    stopped: bool = False
    message: str = ""


def workload_record(workload: kueue.Workload) -> WorkloadRecord:
    """Return what is kept of a Workload; what it requests and cannot be read counts as nothing."""
    metadata, spec, status = workload.metadata, workload.spec, workload.status
    created = instant_or_none(metadata.creation_timestamp) or NEVER
    state = _state(workload)
    reported = "QuotaReserved" if state is WorkloadState.RESERVING else "Admitted"
    begun = condition_of(status.conditions, reported)
    since = (
        instant_or_none(begun.last_transition_time) if begun and state.holds else None
    ) or created
    reason = message = ""
    if state in (WorkloadState.PENDING, WorkloadState.RESERVING):
        said = of_workload(_reported(workload))
        since = said.since or since
        message = said.message
        if said.diagnosis is not None:
            reason, message = said.diagnosis.reason.value, sentence(said.diagnosis)
    read = list(_shape(workload))
    shape = tuple((count, amounts) for count, amounts, _ in read)
    total: dict[str, int] = {}
    for count, amounts in shape:
        for name, amount in amounts:
            total[name] = total.get(name, 0) + count * amount
    return WorkloadRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        controller_unit(metadata, "workload"),
        sys.intern(controller_uid(metadata)),
        sys.intern(spec.queue_name),
        sys.intern(status.admission.cluster_queue) if status.admission else "",
        spec.priority or 0,
        created,
        state,
        tuple(total.items()),
        tuple(_held(status.admission)),
        shape,
        since,
        reason,
        message,
        dict(_turns(workload)),
        None if status.requeue_state is None else instant_or_none(status.requeue_state.requeue_at),
        tuple(claims for *_, claims in read),
    )


def cluster_queue_record(queue: kueue.ClusterQueue) -> QueueRecord:
    """Return what is kept of a ClusterQueue."""
    active = condition_of(queue.status.conditions, "Active")
    share = queue.status.fair_sharing
    return QueueRecord(
        queue.metadata.uid,
        "",
        queue.metadata.name,
        version_number(queue.metadata.resource_version),
        queue.spec.cohort_name,
        tuple(_quotas(queue.spec.resource_groups)),
        _weight(queue.spec.fair_sharing),
        None if share is None else share.weighted_share,
        queue.spec.stop_policy != _NO_POLICY,
        active is None or active.status == "True",
        "" if active is None or active.status == "True" else active.message,
    )


def cohort_record(cohort: kueue.Cohort) -> QueueRecord:
    """Return what is kept of a Cohort."""
    share = cohort.status.fair_sharing
    return QueueRecord(
        cohort.metadata.uid,
        "",
        cohort.metadata.name,
        version_number(cohort.metadata.resource_version),
        cohort.spec.parent_name,
        tuple(_quotas(cohort.spec.resource_groups)),
        _weight(cohort.spec.fair_sharing),
        None if share is None else share.weighted_share,
        False,
        True,
        "",
    )


def local_queue_record(queue: kueue.LocalQueue) -> LocalQueueRecord:
    """Return what is kept of a LocalQueue."""
    status = queue.status
    active = condition_of(status.conditions or [], "Active")
    return LocalQueueRecord(
        queue.metadata.uid,
        sys.intern(queue.metadata.namespace),
        queue.metadata.name,
        version_number(queue.metadata.resource_version),
        sys.intern(queue.spec.cluster_queue),
        tuple(_usage(status.flavors_usage)),
        tuple(_usage(status.flavors_reservation)),
        status.pending_workloads,
        status.admitted_workloads,
        queue.spec.stop_policy != _NO_POLICY,
        "" if active is None or active.status == "True" else cut(active.message, _LONGEST),
    )


def _usage(flavors: list[kueue.FlavorUsage] | None) -> Iterator[tuple[str, str, int]]:
    for flavor in flavors or ():
        for each in flavor.resources:
            try:
                amount = amounts_of({each.name: each.total or "0"})[each.name]
            except InvalidQuantity:
                continue
            yield sys.intern(flavor.name), sys.intern(each.name), amount


def _state(workload: kueue.Workload) -> WorkloadState:
    if is_condition_true(workload, "Finished"):
        return WorkloadState.FINISHED
    if is_condition_true(workload, "Admitted"):
        return WorkloadState.ADMITTED
    if is_condition_true(workload, "QuotaReserved"):
        return WorkloadState.RESERVING
    return WorkloadState.PENDING if workload.spec.active else WorkloadState.INACTIVE


def _turns(workload: kueue.Workload) -> Iterator[tuple[str, Nanos]]:
    for each in workload.status.conditions or ():
        at = instant_or_none(each.last_transition_time)
        if each.type in _TURNS and each.status == "True" and at is not None:
            yield sys.intern(each.type), at


def _reported(workload: kueue.Workload) -> dict[str, Any]:
    """Return those fields of a Workload that state why it waits."""
    status = workload.status
    return {
        "metadata": {"creationTimestamp": workload.metadata.creation_timestamp},
        "spec": {
            "podSets": [
                {"name": each.name, "topologyRequest": msgspec.to_builtins(each.topology_request)}
                for each in workload.spec.pod_sets
                if each.topology_request is not None
            ]
        },
        "status": {
            "conditions": msgspec.to_builtins(status.conditions or []),
            "admissionChecks": msgspec.to_builtins(status.admission_checks or []),
            "requeueState": msgspec.to_builtins(status.requeue_state or {}),
        },
    }


def _shape(
    workload: kueue.Workload,
) -> Iterator[tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]]:
    for each in workload.spec.pod_sets:
        try:
            asked = pod_requests(completed(each.template.spec, NO_LIMITS))
        except UnreadableRequest:
            continue
        claims = tuple(
            (entry.resource_claim_name or "", entry.resource_claim_template_name or "")
            for entry in each.template.spec.resource_claims or ()
        )
        amounts = tuple((sys.intern(name), amount) for name, amount in asked.items())
        yield each.count, amounts, claims


def _held(admission: kueue.Admission | None) -> Iterator[tuple[str, str, int]]:
    for each in admission.pod_set_assignments if admission else ():
        flavors: Mapping[str, str] = each.flavors or {}
        try:
            used = amounts_of(each.resource_usage)
        except InvalidQuantity:
            continue
        for name, amount in used.items():
            yield sys.intern(flavors.get(name, "")), sys.intern(name), amount


def _quotas(groups: list[kueue.ResourceGroup]) -> Iterator[Quota]:
    for group in groups:
        for flavor in group.flavors:
            for each in flavor.resources:
                given = {
                    "nominal": each.nominal_quota,
                    "borrowing": each.borrowing_limit,
                    "lending": each.lending_limit,
                }
                try:
                    found = {
                        key: amounts_of({each.name: amount})[each.name]
                        for key, amount in given.items()
                        if amount is not None
                    }
                except InvalidQuantity:
                    continue
                yield Quota(
                    flavor.name,
                    each.name,
                    found.get("nominal", 0),
                    found.get("borrowing"),
                    found.get("lending"),
                )


def _weight(sharing: kueue.FairSharing | None) -> int:
    if sharing is None or sharing.weight is None:
        return 1000
    try:
        return amounts_of({"cpu": sharing.weight})["cpu"]
    except InvalidQuantity:
        return 1000

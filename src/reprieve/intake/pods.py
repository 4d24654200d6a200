"""Pod -> engine row: GPUs it requests, whether it is a GPU demand, which nodes admit it.

Demand: the scheduler states `Insufficient <name>` of a tracked name, or that it cannot allocate all
claims of a pod that requests a tracked name by claim; or Kueue keeps the pod gated for
lack of GPU quota: its Workload, or that of what it belongs to, waits for quota that others may give
back. What can never fit is none, nor is that for which capacity is being freed already: by quota,
or by its scheduler, which nominates a node for it. Nothing is to be freed twice.

GPUs: of each container the larger of request and limit, then `objects.pod_sum`; zeros are dropped.

Admission looks at node selector, required node affinity and taints, so that the placement proof
never counts a node that the scheduler would refuse for those. Source: specification of the idle
plane, sections 8 and 13 (with its Kueue extension, difference D8); the design's "Where the planes
meet".
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from kubeworld.objects.pod_sum import ALWAYS, pod_sum, raise_to
from kubeworld.units.instants import instant_or_none
from kubeworld.units.quantities import InvalidQuantity, parse_quantity
from kubeworld.units.untrusted import Form
from reprieve.api.core import (
    KUEUE_MANAGED,
    ContainerResources,
    KueuePodSpec,
    KueueWorkload,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Taint,
    TemplatedObject,
)
from reprieve.engine.idle.model import NodeRow, PodRow
from reprieve.engine.idle.resources import (
    DEFAULT_VENDORS,
    is_gpu,
)
from reprieve.engine.idle.vendors import Vendor
from reprieve.engine.selectors import covers, requirement_holds
from reprieve.intake.cluster.requests import amount_in_base_units, plain_requests
from reprieve.intake.gangs import gang_name
from reprieve.units.ids import Uid

__all__ = [
    "admitted_nodes",
    "counted_pod_row",
    "gpu_share",
    "gpus_of",
    "is_demand",
    "lacks_quota",
    "node_amounts",
    "node_row",
    "other_requests",
    "pod_row",
    "quota_short",
    "template_gpus",
    "workload_gpus",
]

PODS: Final = "pods"
#: Of a device plugin that shares GPUs and renames them, and HAMi's beside its number of shares.
#: `.shared` is what the device plugin appends to the names of whole GPUs and of MIG profiles.
_SHARES: Final = (
    "nvidia.com/*.shared",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
_NOTHING: Final[Mapping[str, int]] = {}
_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_REPELLING: Final = ("NoSchedule", "NoExecute")
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_LONGEST_MESSAGE: Final = 32_768  # of a condition, by its schema
#: Kueue's words about flavors that could not give the quota if no other work had any of it.
_NEVER: Final = Form(
    r"insufficient quota for \S++ in flavor [^\s,]++, previously considered podsets requests "
    r"\([^()]*+\) \+ current podset request \([^()]*+\) > maximum capacity \([^()]*+\)"
    r"|resource \S++ unavailable in ClusterQueue",
    _LONGEST_MESSAGE,
)
_NO_DEVICES: Final = "cannot allocate all claims"
_PREEMPTING: Final = ". Pending the preemption of "
_WORKLOADS: Final = Form(r"[0-9]++ workload\(s\)")


def gpus_of(pod: Pod, vendors: Sequence[Vendor] = DEFAULT_VENDORS) -> dict[str, int]:
    """Return the GPUs that a pod requests, per resource name; empty when it requests none.

    A quantity that cannot be read counts as not requested; the API server stores no such pod.
    """
    return _gpus(pod.spec, vendors)


def gpu_share(spec: PodSpec) -> str:
    """Return the first resource name by which a pod requests a share of a GPU; empty for none."""
    asked: set[str] = set()
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        resources = container.resources
        for amounts in () if resources is None else (resources.limits, resources.requests):
            asked.update(amounts or ())
    found = (name for share in _SHARES for name in sorted(asked) if fnmatchcase(name, share))
    return next(found, "")


def template_gpus(
    thing: TemplatedObject, vendors: Sequence[Vendor] = DEFAULT_VENDORS
) -> dict[str, int]:
    """Return the GPUs of one pod that the object will make: of its template, else of its spec."""
    spec = thing.spec if thing.spec.template is None else thing.spec.template.spec
    return _gpus(spec, vendors)


def pod_row(
    pod: Pod,
    gpus: Mapping[str, int],
    tracked: Iterable[str],
    kueue: Iterable[KueueWorkload] = (),
    nodes: Sequence[Node] | None = None,
    of_root: Iterable[KueueWorkload] = (),
    asks: Mapping[str, int] = _NOTHING,
    claimed: Collection[str] = (),
) -> PodRow:
    """Return the engine's row.

    `gpus`: its own GPUs (`gpus_of`). `tracked`: the GPU names of its workload's total. `kueue`:
    Kueue Workloads, of which those that it owns count; `of_root`: those of its workload. `nodes`:
    all nodes, and `asks`: its other requests, to be given where a placement is to be proven.
    `claimed`: the names among `gpus` that it waits for by claim.
    """
    return PodRow(
        uid=Uid(pod.metadata.uid),
        name=pod.metadata.name,
        phase=sys.intern(pod.status.phase),
        gpus=gpus,
        node=sys.intern(pod.spec.node_name or "") or None,
        demand=is_demand(pod, tracked, kueue, of_root, claimed),
        terminating=pod.metadata.deletion_timestamp is not None,
        started=instant_or_none(pod.status.start_time),
        nodes=None if nodes is None or pod.spec.node_name else admitted_nodes(pod, nodes),
        created=instant_or_none(pod.metadata.creation_timestamp),
        # The API sets it to the time of the request plus the grace period.
        ends=instant_or_none(pod.metadata.deletion_timestamp),
        group=sys.intern(_group(pod)),
        asks=asks,
        gated=_is_gated(pod),
    )


def counted_pod_row(
    pod: Pod, gpus: Mapping[str, int], asks: Mapping[str, int] = _NOTHING
) -> PodRow:
    """Return what must not be lost of a pod that `pod_row` fails to read: what it holds, where."""
    return PodRow(
        uid=Uid(pod.metadata.uid),
        name=pod.metadata.name,
        phase=sys.intern(pod.status.phase),
        gpus=gpus,
        asks=asks,
        node=sys.intern(pod.spec.node_name or "") or None,
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def other_requests(
    pod: Pod, vendors: Sequence[Vendor] = DEFAULT_VENDORS
) -> tuple[tuple[str, int], ...]:
    """Return what a pod requests of a node beside GPUs, one of its places among it, by name."""
    requests = plain_requests(pod.spec)
    beside = {name: amount for name, amount in requests.items() if not is_gpu(name, vendors)}
    return tuple(sorted({**beside, PODS: 1}.items()))


def is_demand(
    pod: Pod,
    tracked: Iterable[str],
    kueue: Iterable[KueueWorkload] = (),
    of_root: Iterable[KueueWorkload] = (),
    claimed: Collection[str] = (),
) -> bool:
    """Return whether the pod waits for GPUs of one of the tracked names."""
    if pod.status.phase != "Pending" or pod.status.nominated_node_name:
        return False
    scheduled = next((c for c in pod.status.conditions or () if c.type == "PodScheduled"), None)
    if scheduled is None or scheduled.status != "False":
        return False
    if scheduled.reason == "Unschedulable":
        message = (scheduled.message or "").lower()
        by_claim = claimed if _NO_DEVICES in message else ()
        return any(
            f"insufficient {name}".lower() in message or name in by_claim for name in tracked
        )
    return (
        scheduled.reason == "SchedulingGated"
        and (pod.metadata.labels or {}).get(KUEUE_MANAGED) == "true"
        and (
            quota_short(Uid(pod.metadata.uid), tracked, kueue)
            or any(lacks_quota(each, tracked) for each in of_root)
        )
    )


def quota_short(owner: Uid, tracked: Iterable[str], kueue: Iterable[KueueWorkload]) -> bool:
    """Return whether a Kueue Workload of this owner waits for quota of a tracked GPU name."""
    return any(
        lacks_quota(workload, tracked)
        for workload in kueue
        if any(reference.uid == owner for reference in workload.metadata.owner_references or ())
    )


def lacks_quota(workload: KueueWorkload, tracked: Iterable[str]) -> bool:
    """Return whether a Kueue Workload waits for quota of a tracked GPU name.

    Not if it can never have it, nor if it has preempted others for it.
    """
    for condition in workload.status.conditions or ():
        if condition.type == "QuotaReserved" and condition.status == "False":
            message = condition.message or ""
            _, preempting, whom = message.rpartition(_PREEMPTING)
            if preempting and _WORKLOADS.fullmatch(whom):
                return False
            waits = _NEVER.without(message).lower()
            return any(name.lower() in waits for name in tracked)
    return False


def workload_gpus(
    workload: KueueWorkload, vendors: Sequence[Vendor] = DEFAULT_VENDORS
) -> dict[str, int] | None:
    """Return the GPUs that all pods of a Kueue Workload request together; None without pods."""
    if not workload.spec.pod_sets:
        return None
    total: dict[str, int] = {}
    for pod_set in workload.spec.pod_sets:
        for name, count in _gpus(pod_set.template.spec, vendors).items():
            total[name] = total.get(name, 0) + count * pod_set.count
    return total


def node_amounts(node: Node) -> dict[str, int]:
    """Return what a node offers, in base units; a quantity that cannot be read counts as none."""
    return {
        name: _base_units(name, quantity)
        for name, quantity in (node.status.allocatable or {}).items()
    }


def node_row(name: str, offered: Mapping[str, int], used: Mapping[str, int]) -> NodeRow:
    """Return what is free on a node; `used`: by all pods on it that are not finished."""
    free = {each: offered.get(each, 0) - used.get(each, 0) for each in {*offered, *used}}
    return NodeRow(name, dict(sorted(free.items())))


def admitted_nodes(pod: Pod, nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the nodes that selector, required affinity and taints leave."""
    return frozenset(node.metadata.name for node in nodes if _admits(node, pod))


def _group(pod: Pod) -> str:
    """Return the group that the pod starts with, whatever keeps it together; empty for none."""
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    group = pod.spec.scheduling_group
    return (
        (group.pod_group_name if group is not None else None)
        or annotations.get(_KUEUE_GROUP)
        or labels.get(_KUEUE_GROUP)
        or gang_name(labels, annotations)
    )


def _gpus(spec: PodSpec | KueuePodSpec, vendors: Sequence[Vendor]) -> dict[str, int]:
    total = pod_sum(
        (_asked(each.resources, vendors) for each in spec.containers or ()),
        (
            (each.restart_policy == ALWAYS, _asked(each.resources, vendors))
            for each in spec.init_containers or ()
        ),
    )
    return {name: total[name] for name in sorted(total) if total[name] > 0}


def _asked(resources: ContainerResources | None, vendors: Sequence[Vendor]) -> dict[str, int]:
    asked: dict[str, int] = {}
    for amounts in () if resources is None else (resources.requests, resources.limits):
        raise_to(
            asked,
            {name: _count(each) for name, each in (amounts or {}).items() if is_gpu(name, vendors)},
        )
    return asked


def _base_units(name: str, quantity: str | int | float) -> int:
    try:
        return amount_in_base_units(name, quantity)
    except InvalidQuantity:
        return 0


def _is_gated(pod: Pod) -> bool:
    return any(
        c.type == "PodScheduled" and c.status == "False" and c.reason == "SchedulingGated"
        for c in pod.status.conditions or ()
    )


def _count(quantity: str | int | float) -> int:
    try:
        return max(parse_quantity(quantity), 0)
    except InvalidQuantity:
        return 0


def _admits(node: Node, pod: Pod) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if required and not any(_meets(node, term) for term in required.node_selector_terms or ()):
        return False
    taints = list(node.spec.taints or ())
    if node.spec.unschedulable:
        taints.append(_UNSCHEDULABLE)
    return all(
        any(covers(toleration, taint) for toleration in pod.spec.tolerations or ())
        for taint in taints
        if taint.effect in _REPELLING
    )


def _meets(node: Node, term: NodeSelectorTerm) -> bool:
    labels = node.metadata.labels or {}
    fields = {"metadata.name": node.metadata.name}
    expressions = term.match_expressions or ()
    others = term.match_fields or ()
    if not expressions and not others:
        return False  # an empty term matches nothing
    return _hold(expressions, labels) and _hold(others, fields)


def _hold(requirements: Iterable[NodeSelectorRequirement], labels: Mapping[str, str]) -> bool:
    return all(
        requirement_holds(each.operator, each.values or (), labels.get(each.key))
        for each in requirements
    )

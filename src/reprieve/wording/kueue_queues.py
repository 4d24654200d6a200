"""Kueue's texts about queues: the condition Active, and why a workload's queue keeps it waiting.

A ClusterQueue that is not active for several reasons names them all and carries the first one's
reason. A cohort in a cycle is no reason of the reference, which states nothing about it; here it is
stated with the reason that the reference keeps for what it does not know.

Source: specification of the quota plane, sections 1.1 and 8.4; the reference's objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    LocalQueue,
    StopPolicy,
    Workload,
)

__all__ = [
    "Active",
    "cluster_queue_active",
    "local_queue_active",
    "queue_blocker",
    "reservation_blocker",
]

# status, reason, message
Active = tuple[str, str, str]

_NONE: Final[Mapping[str, str]] = {}
_CANNOT: Final = "Can't admit new workloads"
_CANNOT_SUBMIT: Final = "Can't submit new workloads to clusterQueue"


def cluster_queue_active(
    queue: ClusterQueue,
    flavors: Collection[str],
    checks: Mapping[str, bool],
    *,
    in_cycle: bool = False,
    unsupported: Mapping[str, str] = _NONE,
    lost_topology: str = "",
) -> Active:
    """Return the condition Active of a ClusterQueue.

    Args:
        queue: as it is configured.
        flavors: names of the ResourceFlavors that exist.
        checks: whether each AdmissionCheck that exists is active, by name.
        in_cycle: its cohort is above itself.
        unsupported: AdmissionChecks that no controller here can answer, by name, and of what they
            are.
        lost_topology: which Topology of a flavor is missing, empty for none.
    """
    if queue.terminating:
        return "False", "Terminating", f"{_CANNOT}; clusterQueue is terminating"
    reasons: list[tuple[str, str]] = []
    if queue.stop_policy is not StopPolicy.NONE:
        reasons.append(("Stopped", "is stopped"))
    missing = [
        flavor.flavor
        for group in queue.groups
        for flavor in group.flavors
        if flavor.flavor not in flavors
    ]
    if missing:
        names = ",".join(missing)
        reasons.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {names}"))
    if lost_topology and not missing:
        reasons.append(("TopologyNotFound", lost_topology))
    unknown = ",".join(sorted(name for name in queue.checks if name not in checks))
    if unknown:
        text = f"references missing AdmissionCheck(s): {unknown}"
        reasons.append(("AdmissionCheckNotFound", text))
    for kind in sorted({unsupported[name] for name in queue.checks if name in unsupported}):
        foreign = ",".join(sorted(n for n in queue.checks if unsupported.get(n) == kind))
        text = f"references AdmissionCheck(s) of {kind}: {foreign}"
        reasons.append(("AdmissionCheckInactive", text))
    idle = ",".join(
        sorted(n for n in queue.checks if checks.get(n) is False and n not in unsupported)
    )
    if idle:
        text = f"references inactive AdmissionCheck(s): {idle}"
        reasons.append(("AdmissionCheckInactive", text))
    if in_cycle:
        reasons.append(("Unknown", "its cohort is part of a cycle"))
    if not reasons:
        return "True", "Ready", "Can admit new workloads"
    return "False", reasons[0][0], f"{_CANNOT}: {', '.join(text for _, text in reasons)}."


def local_queue_active(queue: LocalQueue, *, known: bool, active: bool) -> Active:
    """Return the condition Active of a LocalQueue whose ClusterQueue is `known` and `active`."""
    if queue.stop_policy is not StopPolicy.NONE:
        return "False", "Stopped", "LocalQueue is stopped"
    if not known:
        return "False", "ClusterQueueDoesNotExist", _CANNOT_SUBMIT
    if not active:
        return "False", "ClusterQueueIsInactive", _CANNOT_SUBMIT
    return "True", "Ready", "Can submit new workloads to localQueue"


def queue_blocker(
    workload: Workload,
    local_queue: LocalQueue | None,
    cluster_queues: Collection[str],
    inactive: Collection[str],
) -> tuple[str, str]:
    """Return reason and message of `QuotaReserved=False` that follow from the queues, else empty.

    Args:
        workload: that waits.
        local_queue: the one it names, if it exists.
        cluster_queues: names of those that exist.
        inactive: names of those that cannot admit.
    """
    if local_queue is None:
        name = workload.queue.partition("/")[2]
        return "Misconfigured", f"LocalQueue {name} doesn't exist"
    if local_queue.stop_policy is not StopPolicy.NONE:
        return "Suspended", f"LocalQueue {local_queue.key.partition('/')[2]} is inactive"
    if local_queue.cluster_queue not in cluster_queues:
        return "Misconfigured", f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    if local_queue.cluster_queue in inactive:
        return "Suspended", f"ClusterQueue {local_queue.cluster_queue} is inactive"
    return "", ""


def reservation_blocker(workload: Workload, configuration: Configuration) -> tuple[str, str]:
    """Return why a workload loses a reservation that was not admitted yet; empty if it keeps it."""
    assert workload.admission is not None
    name = workload.admission.cluster_queue
    local = configuration.local_queues.get(workload.queue)
    queue = configuration.cluster_queues.get(name)
    door = workload.queue.partition("/")[2]
    if local is None:
        return "Misconfigured", f"LocalQueue {door} is terminating or missing"
    if local.stop_policy is not StopPolicy.NONE:
        return "Suspended", f"LocalQueue {door} is stopped"
    if queue is None or queue.terminating:
        return "Misconfigured", f"ClusterQueue {name} is terminating or missing"
    if queue.stop_policy is not StopPolicy.NONE:
        return "Suspended", f"ClusterQueue {name} is stopped"
    return "", ""

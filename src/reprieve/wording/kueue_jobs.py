"""The text about jobs that cannot be suspended, and of pods.

Source: specification of the quota plane, sections 10.4, 10.5 and 10.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = [
    "CHILD",
    "DELETED",
    "MISSING",
    "NON_SUSPENDABLE",
    "NOT_ADMITTED",
    "NOT_GATED",
    "NOT_LISTED",
    "NO_SURPLUS",
    "OUT_OF_SYNC",
    "UNMATCHED",
    "beyond_admission_text",
    "claims_text",
    "conflicting_workload",
    "exposed",
    "orphaned",
    "released_text",
    "resized_text",
    "resizing_refused",
    "set_not_gated",
    "surplus_replica",
    "surplus_replicas",
    "surplus_text",
]

# Why a job is stopped.
MISSING: Final = "Missing Workload; unable to restore pod templates"
UNMATCHED: Final = "No matching Workload; restoring pod templates according to existent Workload"
NOT_ADMITTED: Final = "Not admitted by cluster queue"
DELETED: Final = "Workload is deleted"
OUT_OF_SYNC: Final = "The prebuilt workload is out of sync with its user job"
CHILD: Final = "Kueue managed child job suspended"
#: Reason of the event about a job that nothing stops but the loss of its pods.
NON_SUSPENDABLE: Final = "NonSuspendableInPreemptibleQueue"
#: Event about pods that were not gated at their creation.
NOT_GATED: Final = (
    "this pod was not held back at its creation, since no webhook was called; it runs without "
    "quota, and is ended after a minute"
)
#: Warning about pods that are gated and that no controller ungates.
NOT_LISTED: Final = (
    "this pod is held back and nothing starts it: the framework pod is not listed in "
    "integrations.frameworks, so that only pods of listed Deployments, StatefulSets and "
    "LeaderWorkerSets are queued"
)
#: What a pod states that is no longer one too many.
NO_SURPLUS: Final = "this pod is one of those that its group may have"


def surplus_text(group: str, count: int) -> str:
    """Return why a pod stays gated although its group has quota."""
    return (
        f"pod group '{group}' may have {count} pods and has them: this one is one more, and stays "
        "gated until one of them is deleted, or the group is queued again with more"
    )


def claims_text(pod: str, resources: Sequence[str]) -> str:
    """Return why a Workload is deleted of which a pod has claims of more devices."""
    return (
        f"the claims of pod '{pod}' are of more {', '.join(resources)} than was admitted, since "
        "their template was replaced: the work is stopped, and queued again for what it requests"
    )


def resized_text(workload: str, resources: Sequence[str]) -> str:
    """Return why a pod is ended that requests more since it was resized in place."""
    return (
        f"this pod was changed while it ran, and requests more {', '.join(resources)} than its "
        f"Workload '{workload}' was admitted for: it is ended after a minute unless it is resized "
        "to what was admitted"
    )


def released_text(workload: str) -> str:
    """Return why a pod is ended that its job does not control any more."""
    return (
        f"this pod was made for Workload '{workload}' and no job controls it any more: it runs "
        "without quota, and is ended after a minute"
    )


def resizing_refused(workload: str, resources: Sequence[str]) -> str:
    """Return why a pod may not be resized in place."""
    return (
        f"spec: Forbidden: Workload '{workload}' was admitted for pods that request less "
        f"{', '.join(resources)}; a job that needs more is changed itself, and queued again"
    )


def surplus_replica(kind: str, name: str, count: int, total: int) -> str:
    """Return why a replica stays gated although the set that it is of has quota."""
    return (
        f"{kind} '{name}' got quota for {count} of its {total} replicas, and this is another one: "
        f"it stays gated until the {kind} is queued again; scale it to 0 and then to {total}"
    )


def beyond_admission_text(owner: str, resources: Sequence[str], again: str) -> str:
    """Return why a pod stays gated that requests more than its pod set was admitted for.

    `resources`: of which it requests more; empty where its requests cannot be counted.
    """
    if not resources:
        return (
            f"the requests of this pod cannot be counted, and {owner} has quota for pods whose "
            f"requests can: it stays gated until {again}"
        )
    return (
        f"{owner} has quota for pods that request less {', '.join(resources)} than this one: "
        f"it stays gated until {again}"
    )


def surplus_replicas(kind: str, count: int, total: int) -> str:
    """Return the message to the owner of a set that was scaled up after it got its quota."""
    return (
        f"it got quota for {count} of its {total} replicas, and the others stay gated; "
        f"scale the {kind} to 0 and then to {total} to have all of them queued"
    )


def set_not_gated(kind: str) -> str:
    """Return the warning about a set whose pods run without quota."""
    return (
        f"no webhook was called when this {kind} was made: its pods were not held back, and run "
        "without quota; they are ended after a minute, made again, held back and queued"
    )


def exposed(kind: str, namespace: str, local_queue: str, settings: Sequence[str]) -> str:
    """Return the message to a job's owner; `settings` name what can hit the queue."""
    return (
        f"{kind} cannot be suspended, and LocalQueue {namespace}/{local_queue} can be hit by "
        f"preemption ({'; '.join(settings)}), which deletes its pods; use a queue that cannot"
    )


def orphaned(key: str) -> str:
    """Return the text about the Workload of a deleted pod."""
    return (
        f"Workload '{key}' is declared finished: its pod was deleted, and a pod of its own is not "
        "started again"
    )


def conflicting_workload(group: str) -> str:
    """Return what is stated where another's Workload has the name of a group."""
    return (
        f"Workload '{group}' is not that of the pod group '{group}', whose pods stay gated; "
        "choose another name for the group, or delete the Workload"
    )

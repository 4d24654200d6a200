"""What webhooks of all queued kinds share: who is managed, what is filled in and warned of.

Source: specification of the quota plane, sections 10.1, 10.7 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kubeworld.objects.paths import Json, first
from reprieve.api.kueue_validation_jobs import PRIORITY_CLASS, QUEUE_NAME
from reprieve.jobs.model import JobKind
from reprieve.planes.quota.webhooks.reviews import Asked
from reprieve.wording.kueue_jobs import exposed

__all__ = [
    "DEFAULT",
    "PASSED_ON",
    "JobRules",
    "Tenancy",
    "concerns",
    "exposure_warnings",
    "fill_in",
    "is_managed",
    "labels_of",
]

#: Name of the LocalQueue and of the WorkloadPriorityClass that are filled in where they exist.
DEFAULT: Final = "default"
#: Names of the labels that pods get from their set.
PASSED_ON: Final = (QUEUE_NAME, PRIORITY_CLASS)


class Tenancy(Protocol):
    """What the plane knows of namespaces, queues and owners."""

    def manages(self, namespace: str) -> bool:
        """Return whether jobs of this namespace are managed."""
        ...

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether there is such a LocalQueue."""
        ...

    def has_priority_class(self, name: str) -> bool:
        """Return whether there is such a WorkloadPriorityClass."""
        ...

    def has_managed_owner(self, namespace: str, job: Json) -> bool:
        """Return whether the controller of a job is of an enabled or an external kind."""
        ...

    def has_ancestor(self, namespace: str, job: Json) -> bool:
        """Return whether a job stands below one that is queued itself."""
        ...

    def set_above(self, namespace: str, pod: Json) -> tuple[JobKind, Json] | None:
        """Return the set with a queue that makes a pod, and its kind; None where there is none."""
        ...

    def can_be_hit(self, namespace: str, local_queue: str) -> Sequence[str]:
        """Return what can hit workloads of a LocalQueue: a setting and its ClusterQueue, each."""
        ...

    def is_leaving(self, workload: str) -> bool:
        """Return whether a Workload `namespace/name` is being deleted."""
        ...

    def outgrown(self, namespace: str, pod: Json, before: Json) -> tuple[str, tuple[str, ...]]:
        """Return the Workload that a pod runs for, and of what it would outgrow its admission.

        `before`: the pod as it is; what it does not request more of is not named.
        """
        ...

    def resolved(self, kind: JobKind, job: Json) -> Json:
        """Return a job with the runtime that describes its pods, where its kind has one."""
        ...


@dataclass(frozen=True, slots=True)
class JobRules:
    """How jobs are treated. `selector`: namespaces for which webhooks are called, as JSON."""

    without_queue_name: bool = False
    layered_slices: bool = True
    default_classes: bool = True
    failure_policy: str = "Ignore"
    selector: Mapping[str, Any] | None = None


def fill_in(job: Json, namespace: str, tenancy: Tenancy, rules: JobRules) -> None:
    """Give a job the default queue and the default class, where there are such."""
    labels = labels_of(job)
    wants = not labels.get(QUEUE_NAME) and tenancy.manages(namespace)
    if wants and tenancy.has_local_queue(namespace, DEFAULT):
        _set_label(job, QUEUE_NAME, DEFAULT)
    wants = rules.default_classes and not labels.get(PRIORITY_CLASS)
    if wants and tenancy.has_priority_class(DEFAULT):
        _set_label(job, PRIORITY_CLASS, DEFAULT)


def is_managed(job: Json, namespace: str, tenancy: Tenancy, rules: JobRules) -> bool:
    """Return whether a job is queued itself."""
    if tenancy.has_ancestor(namespace, job):
        return False
    if labels_of(job).get(QUEUE_NAME):
        return True
    return rules.without_queue_name and tenancy.manages(namespace)


def concerns(asked: Asked, tenancy: Tenancy, rules: JobRules) -> bool:
    """Return whether a job is queued, or was before the change, so that it has to be right."""
    versions = (asked.obj, *(() if asked.old is None else (asked.old,)))
    return any(labels_of(each).get(QUEUE_NAME) for each in versions) or any(
        is_managed(each, asked.namespace, tenancy, rules) for each in versions
    )


def exposure_warnings(kind: str, asked: Asked, tenancy: Tenancy) -> tuple[str, ...]:
    """Return the warning for a job that cannot be suspended in a queue that can be hit.

    Once for each queue: not again when something else is changed.
    """
    queue = labels_of(asked.obj).get(QUEUE_NAME)
    if not queue or (asked.old is not None and labels_of(asked.old).get(QUEUE_NAME) == queue):
        return ()
    settings = tenancy.can_be_hit(asked.namespace, queue)
    return (exposed(kind, asked.namespace, queue, settings),) if settings else ()


def labels_of(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object."""
    return first(job, "metadata.labels") or {}


def _set_label(job: Json, name: str, value: str) -> None:
    metadata = job.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), name: value}

"""What a Workload is made of: pod sets, priority, labels and owner.

The priority is the first of: the class that the label names; the class of the first pod set that
names one; the cluster's default class; 0. Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.objects.paths import Json, first
from kubeworld.units.untrusted import integer_or_none
from reprieve.api.kueue import API_VERSION, RESOURCE_IN_USE, Workload
from reprieve.intake.quota_workloads import JOB_UID
from reprieve.jobs.model import JobKind
from reprieve.kube.own_writer import OwnWriter
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.job_reconciler.job_lookup import queue_name
from reprieve.planes.quota.watches import Watches
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["PRIORITY_CLASS", "Composer", "labels_of", "most_seconds", "owner", "typed"]

PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
_MOST_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"


class Composer:
    """Makes Workloads of jobs, and reports on jobs."""

    def __init__(self, context: QuotaContext, watches: Watches) -> None:
        self._context = context
        self._watches = watches

    def workload(
        self,
        kind: JobKind,
        job: Json,
        key: str,
        pod_sets: Sequence[Json],
        owners: Sequence[Json],
        annotations: dict[str, str] | None = None,
    ) -> Json | None:
        """Return the Workload `key` for a job; None where the job's class does not exist."""
        priority = self.priority(kind, job, pod_sets)
        if priority is None:
            return None
        labels, said = labels_of(job), first(job, "metadata.annotations") or {}
        spec: Json = {
            "podSets": list(pod_sets),
            "queueName": queue_name(job),
            "active": True,
            **priority,
        }
        seconds = most_seconds(job)
        if seconds is not None:
            spec["maximumExecutionTimeSeconds"] = seconds
        kept = dict(annotations or {})
        if said.get(_GATED_BY):
            kept[_GATED_BY] = said[_GATED_BY]
        namespace, _, name = key.partition("/")
        return {
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {**self.copied(labels), JOB_UID: job["metadata"]["uid"]},
                **({"annotations": kept} if kept else {}),
                "finalizers": [RESOURCE_IN_USE],
                "ownerReferences": list(owners),
            },
            "spec": spec,
        }

    def copied(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return those labels of a job that its Workload gets too."""
        names = self._context.options.copied_labels
        return {name: labels[name] for name in names if name in labels}

    def priority(self, kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> Json | None:
        """Return the part of a spec about priority; None where the class does not exist."""
        name = labels_of(job).get(PRIORITY_CLASS, "")
        if name:
            held = self._watches.classes.cache.named("", name)
            if held is None:
                text = f'WorkloadPriorityClass "{name}" not found'
                self.announce(
                    kind, job, EventText("Warning", "WorkloadPriorityClassNotFound", text)
                )
                return None
            return _priority("kueue.x-k8s.io", "WorkloadPriorityClass", name, held.object.value)
        named = [first(job, path) for path in kind.priority]
        named += [first(each, "template.spec.priorityClassName") for each in pod_sets]
        for pod_class in filter(None, named):
            found = self._watches.priorities.cache.named("", pod_class)
            if found is not None:
                value = found.object.value
                return _priority("scheduling.k8s.io", "PriorityClass", pod_class, value)
        for default in self._watches.priorities.cache:
            if default.object.global_default:
                value = default.object.value
                return _priority("scheduling.k8s.io", "PriorityClass", default.name, value)
        return {"priority": 0}

    def fenced(self, priority: Priority = Priority.STATUS) -> OwnWriter:
        """Return a client for writes to Workloads."""
        fence = self._context.fence
        return self._context.client.at(priority, fence.check, timeout=fence.request_timeout)

    def announce(self, kind: JobKind, job: Json, event: EventText) -> None:
        """Send an event about a job."""
        metadata = job["metadata"]
        reference = Reference(
            kind.api_version, kind.kind, metadata["namespace"], metadata["name"], metadata["uid"]
        )
        self._context.announce(reference, event, f"{kind.framework}-kueue-controller")


def labels_of(job: Json) -> dict[str, str]:
    """Return the labels of an object."""
    return first(job, "metadata.labels") or {}


def most_seconds(job: Json) -> int | None:
    """Return for how long a job may run at most."""
    seconds = integer_or_none(labels_of(job).get(_MOST_SECONDS, ""))
    return None if seconds is None or seconds < 0 else seconds


def owner(kind: JobKind, job: Json, *, controller: bool = True) -> Json:
    """Return the reference of a Workload to its job."""
    found = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return {**found, "controller": True, "blockOwnerDeletion": True} if controller else found


def typed(stored: Json) -> Workload:
    """Return a Workload that was read or written as JSON."""
    return msgspec.convert(stored, Workload)


def _priority(group: str, kind: str, name: str, value: int) -> Json:
    reference: dict[str, Any] = {"group": group, "kind": kind, "name": name}
    return {"priorityClassRef": reference, "priority": value}

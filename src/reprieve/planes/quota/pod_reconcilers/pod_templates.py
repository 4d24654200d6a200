"""What a scheduler would see of the pods of a Workload: from its job's templates, or its own.

The job states everything; a Workload, which is kept without what quota does not need, states what
its pods request and which nodes they can run on. Source: specification of the quota plane, sections
2 and 10.1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from kubeworld.objects.paths import Json
from reprieve.api.core import ObjectMeta
from reprieve.api.kueue import Workload
from reprieve.api.scheduling import PodObject, PodSpec
from reprieve.engine.quota import model
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.intake.cluster.pod_classes import PodClasses
from reprieve.intake.cluster.selectors import labels_of
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup
from reprieve.planes.quota.state import QuotaState

__all__ = ["PodTemplates"]


class _Template(msgspec.Struct):
    """A pod template, for whether it can be read."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class PodTemplates:
    """Reads the caches; called in the solver's thread, one entry at a time."""

    def __init__(
        self, state: QuotaState, lookup: JobLookup, preempts_below: Callable[[str], int]
    ) -> None:
        """`preempts_below`: which priority pods of a class preempt, the default one for none."""
        self._preempts_below = preempts_below
        self._state = state
        self._lookup = lookup
        self._classes = PodClasses()

    def __call__(self, workload: model.Workload) -> dict[str, Template]:
        """Return the templates by pod set; one that cannot be read is left out."""
        found = self._state.workload(workload.key)
        if found is None:
            return {}
        of_job = self._of_job(found)
        templates = {}
        for pod_set in found.spec.pod_sets:
            said = of_job.get(pod_set.name)
            if said is None:
                said = msgspec.to_builtins(pod_set.template)
            template = self._template(workload.namespace, said)
            if template is not None:
                templates[pod_set.name] = template
        return templates

    def _of_job(self, workload: Workload) -> dict[str, Json]:
        owner = self._lookup.owner_of(workload)
        if owner is None or owner[0].gate:
            return {}
        kind, held = owner
        job = self._lookup.resolved(kind, held.object)
        return {each.name: each.template for each in found_pod_sets(kind, job)}

    def _template(self, namespace: str, said: Json) -> Template | None:
        try:
            msgspec.convert(said, _Template)
        except msgspec.ValidationError:
            return None
        labels = (said.get("metadata") or {}).get("labels") or {}
        spec = _completed(said.get("spec") or {}, self._state.pod_rows(namespace))
        metadata = {"namespace": namespace, "labels": labels}
        pod = msgspec.convert({"metadata": metadata, "spec": spec}, PodObject)
        below = self._preempts_below(spec.get("priorityClassName") or "")
        return Template(self._classes.of(pod), labels_of(labels), below)


def _completed(spec: Json, rows: PodSetRows) -> Json:
    """Return a pod's spec with the requests that its pods will have, as the API server gives them.

    A container that names a limit requests it, and otherwise what its namespace gives by default; a
    runtime class adds its overhead.
    """
    found: Json = copy.deepcopy(spec)
    containers: list[Any] = [*(found.get("containers") or ()), *(found.get("initContainers") or ())]
    for container in containers:
        resources = container.get("resources") or {}
        requests = {
            **rows.limits.default_request,
            **(resources.get("limits") or {}),
            **(resources.get("requests") or {}),
        }
        if requests:
            container["resources"] = {**resources, "requests": requests}
    overhead = rows.overheads.get(found.get("runtimeClassName") or "")
    if overhead is not None:
        found.setdefault("overhead", dict(overhead))
    return found

"""The pods of what is queued: made when it is released, deleted when it is stopped.

A Job has as many pods as it may run at a time, and replaces those that are lost. Of every other
kind the pods are made once, from its row of the table of jobs, as its own controller would make
them in the end, and one that is lost is made anew as it was; how they are owned in between does not
matter to a decision. What is suspended holds all that stands under it. A kind that is stopped
states that nothing of it runs any more when its last pod is deleted, as its row requires.

Source: `kubeworld.controllers.jobs`; specification of the quota plane, section 10.2.
"""

from __future__ import annotations

import copy
from itertools import count
from typing import Any, Final

from kubeworld.controllers.jobs import (
    is_managed_here,
    job_pod,
    note_suspension,
    wanted_pods,
)
from kubeworld.objects.owners import child
from kubeworld.objects.paths import Json, first, set_at
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from kubeworld.writes.refusals import Refused
from reprieve.execution.writes.jobs import resource_of
from reprieve.jobs.evaluation import holds
from reprieve.jobs.model import JobKind, Test
from reprieve.jobs.pod_sets import Found, found_pod_sets
from reprieve.jobs.table import job_kinds
from reprieve.jobs.training import RUNTIME
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.made_pods import MadePods
from reprieve.whatif.controllers.owned_pods import OwnedPods, Tally, facts_of
from reprieve.whatif.controllers.pod_claims import PodClaims
from reprieve.whatif.controllers.pod_templates import admitted_pod
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["JobPods", "is_numbered"]

_SUSPENDS: Final = {(kind.group, kind.kind): kind.suspend for kind in job_kinds() if kind.suspend}
#: What a pod that is made anew has of the one before.
_KEPT: Final = ("namespace", "labels", "annotations", "ownerReferences")
#: Pods that their controllers make when all the others are made.
_LAST: Final = ("launcher",)
#: A pod that KubeRay makes when all the others are ready.
_SUBMITTER: Final = "submitter"


class JobPods:
    """Makes and ends the pods of jobs, as many as may be made; `owned`: those that there are."""

    def __init__(
        self,
        overlay: Overlay,
        clock: Clock,
        owned: OwnedPods,
        made: MadePods,
        claims: PodClaims,
    ) -> None:
        self._overlay = overlay
        self._clock = clock
        self._owned = owned
        self._made = made
        self._claims = claims

    def reconcile(self, kind: JobKind, job: Json, *, started: bool) -> None:
        """Do what a change of a job, or of one of its pods, needs; `started`: it was released."""
        job = self._resolved(kind, job)
        tally = self._owned.of(job["metadata"]["uid"])
        if any(holds(test, job) for test in (*kind.succeeded, *kind.failed)):
            return
        if first(job, kind.suspend) or self._is_held_above(job):
            if tally.active:
                self._end(job["metadata"]["uid"])
        elif kind.kind == "Job":
            self._fill(job, tally)
        elif started and not tally.pods:
            self._make(kind, job)
        elif tally.pods and tally.ready == tally.pods:
            self._submit(kind, job, tally)
        self._notify(kind, job["metadata"])

    def replace(self, kind: JobKind, job: Json | None, pod: Json) -> None:
        """Make a pod anew that its job has lost; of a listed Job its number identifies it.

        Without a `job` its kind is not listed, and it is assumed to exist.
        """
        if facts_of(pod).over or (job is not None and not self._replaces(kind, job)):
            return
        if not self._made.allowed(job or pod, 1, 1):
            return
        old = pod["metadata"]
        namespace, name = old.get("namespace", ""), old["name"]
        if not is_numbered(pod):
            stem = name.rpartition("-")[0] + "-"
            name = stem + self._overlay.suffix(PODS, namespace, stem)
        kept = {key: old[key] for key in _KEPT if key in old}
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        body = {"metadata": {**kept, "name": name}, "spec": copy.deepcopy(spec)}
        self._claims.create_pod({**body, "status": {"phase": "Pending"}})

    def _replaces(self, kind: JobKind, job: Json) -> bool:
        over = any(holds(test, job) for test in (*kind.succeeded, *kind.failed))
        leaving = job["metadata"].get("deletionTimestamp")
        held = first(job, kind.suspend) or self._is_held_above(job)
        return kind.kind != "Job" and not over and not leaving and not held

    def _is_held_above(self, obj: Json) -> bool:
        """Return whether something that stands above an object is suspended, which holds it."""
        for owner, above in self._overlay.owners(obj):
            path = _SUSPENDS.get((str(owner["apiVersion"]).rpartition("/")[0], owner["kind"]))
            if (path and first(above, path)) or self._is_held_above(above):
                return True
        return False

    def _resolved(self, kind: JobKind, job: Json) -> Json:
        """Return a job with the runtime that describes its pods, where its kind has one."""
        if kind.runtime is None:
            return job
        rows = {each[0]: each for each in kind.runtime.kinds}
        row = rows.get(str(first(job, kind.runtime.kind) or kind.runtime.kinds[0][0]))
        name = str(first(job, kind.runtime.name) or "")
        if row is None:
            return job
        group, _, version = row[1].rpartition("/")
        resource = Resource(group, version, row[2], row[0], row[3])
        namespace = job["metadata"].get("namespace", "") if row[3] else ""
        runtime = self._overlay.single(resource, namespace, name)
        return job if runtime is None else {**job, RUNTIME: runtime.get("spec") or {}}

    def _end(self, uid: str) -> None:
        """Delete the pods that are neither over nor leaving."""
        for pod in list(self._owned.below(uid)):
            facts, metadata = facts_of(pod), pod["metadata"]
            if not facts.over and not facts.leaving:
                self._delete(metadata.get("namespace", ""), metadata["name"])

    def _fill(self, job: Json, tally: Tally) -> None:
        """Make the pods that a Job lacks; of an indexed one each index has one."""
        if not is_managed_here(job):
            return  # another controller makes its pods, elsewhere or later
        spec = job["spec"]
        succeeded = max(tally.succeeded, first(job, "status.succeeded") or 0)
        wanted = wanted_pods(spec, succeeded, tally.active)
        if wanted <= tally.active:
            return
        suffix = self._overlay.suffixes(PODS, job)
        indexed = spec.get("completionMode") == "Indexed"
        free = (index for index in count() if str(index) not in tally.chosen)
        for _ in range(self._made.allowed(job, wanted, wanted - tally.active)):
            pod = job_pod(job, suffix, next(free) if indexed else None)
            self._claims.create_pod(admitted_pod(self._overlay, pod))

    def _make(self, kind: JobKind, job: Json) -> None:
        """Make all pods of another kind."""
        sets = found_pod_sets(kind, job)
        wanted = sum(one.count for one in sets)
        if not self._made.allowed(job, wanted, wanted):
            return
        first_ones = [one for one in sets if one.name != _SUBMITTER]
        for one in sorted(first_ones, key=lambda each: each.name in _LAST):
            self._make_set(job, one)

    def _submit(self, kind: JobKind, job: Json, tally: Tally) -> None:
        """Make the pod that submits to the others, all of which are ready, unless it is there."""
        sets = found_pod_sets(kind, job)
        last = next((one for one in sets if one.name == _SUBMITTER), None)
        if last is None or tally.pods != sum(one.count for one in sets) - last.count:
            return
        uid = job["metadata"]["uid"]
        if not any(_submits(pod, uid) for pod in self._owned.below(uid)):
            self._make_set(job, last)

    def _make_set(self, job: Json, one: Found) -> None:
        for number in range(one.count):
            name = f"{job['metadata']['name']}-{one.name}-{number}"
            template = copy.deepcopy(one.template)
            spec = template.setdefault("spec", {})
            spec["containers"] = [*(spec.get("containers") or ()), *one.added]
            pod = child(job, "v1", "Pod", name, template)
            self._claims.create_pod(admitted_pod(self._overlay, pod))

    def _notify(self, kind: JobKind, metadata: Json) -> None:
        """Write what the kind's own controller would state of its pods."""
        resource = resource_of(kind)
        job = self._overlay.get(resource, metadata.get("namespace", ""), metadata["name"])
        if job is None:
            return
        tally = self._owned.of(metadata["uid"])
        if kind.kind == "Job":
            status = self._job_status(job, tally)
        elif first(job, kind.suspend) and not tally.pods:
            status = _inactive(kind, job)
        else:
            return
        if status != (job.get("status") or {}):
            self._overlay.change(resource, {**job, "status": status})

    def _job_status(self, job: Json, tally: Tally) -> Json:
        status = copy.deepcopy(job.get("status") or {})
        status |= {"active": tally.active, "ready": tally.ready, "terminating": tally.leaving}
        note_suspension(job, status, format_instant(self._clock.wall()))
        return status

    def _delete(self, namespace: str, name: str) -> None:
        try:
            self._overlay.delete((PODS.group, PODS.plural), (namespace, name))
        except Refused as refusal:
            if refusal.code != 404:
                raise


def is_numbered(pod: Json) -> bool:
    """Return whether a pod is made anew under its own name, when that is free."""
    return str(pod["metadata"]["name"]).rpartition("-")[2].isdigit()


def _submits(pod: Json, uid: str) -> bool:
    """Return whether a pod is a submitter: made here, or by a Job that KubeRay made."""
    owners = pod["metadata"].get("ownerReferences") or ()
    made = any(each["uid"] == uid for each in owners)
    here = made and f"-{_SUBMITTER}-" in pod["metadata"]["name"]
    return here or any(each["kind"] == "Job" for each in owners)


def _inactive(kind: JobKind, job: Json) -> Json:
    """Return the status of a job of which nothing runs."""
    changed = copy.deepcopy(job)
    for test in kind.active:
        _refute(test, changed)
    status: Json = changed.get("status") or {}
    return status


def _refute(test: Test, job: Json) -> None:
    """Change a job so that a test of its row does not hold."""
    if not holds(test, job):
        return
    for path in test.positive:
        _zero(job, path)
    if test.condition:
        for each in first(job, "status.conditions") or ():
            if each.get("type") == test.condition:
                each["status"] = "False"
    if test.field:
        set_at(job, test.field, next(iter(test.without), "Suspended"))


def _zero(obj: Any, path: str) -> None:
    head, _, rest = path.partition(".")
    if head == "*":
        for each in obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ():
            _zero(each, rest)
    elif isinstance(obj, dict) and head in obj:
        if rest:
            _zero(obj[head], rest)
        else:
            obj[head] = 0

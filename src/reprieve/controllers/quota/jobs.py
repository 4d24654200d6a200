"""One job at a time: its Workload made and kept, itself started, stopped and declared finished.

What is done follows from the job and its Workload alone, so that every step that was interrupted is
taken again:

1. finished: the Workload is declared finished
2. no Workload: the job is suspended, and once it has no pods its Workload is made
3. changed: the Workload follows while it holds no quota, a running job is stopped otherwise
4. evicted or not admitted, and running: suspended; its own controller deletes the pods
5. evicted, and no pods left: the quota is free, and the templates are put back
6. admitted, and suspended: started with what the flavors ask for

Source: specification of the quota plane, sections 10.1 to 10.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from reprieve.api.kueue import API_VERSION, RESOURCE_IN_USE, Workload
from reprieve.controllers.quota.context import QuotaContext, log
from reprieve.controllers.quota.job_lookup import (
    JobLookup,
    queue_name,
    workload_key,
)
from reprieve.controllers.quota.state import QuotaState
from reprieve.controllers.quota.transitions import finished, pods_ready, reclaimed
from reprieve.controllers.quota.watches import WORKLOADS, Watches, resource_of
from reprieve.controllers.quota.workloads import WorkloadReconciler
from reprieve.controllers.quota.writing import StatusWriter
from reprieve.intake.quota_workloads import JOB_UID, condition_of, is_true
from reprieve.jobs.model import JobKind
from reprieve.jobs.paths import Json, first, put
from reprieve.jobs.reading import (
    digest,
    end,
    found_pod_sets,
    is_active,
    is_ready,
    is_suspended,
    reclaimable,
    stripped,
)
from reprieve.jobs.writing import Conflicting, Injection, is_restored, restored, started, stopped
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.series_events import Reference
from reprieve.kube.writes import Priority
from reprieve.wording.kueue import Event

__all__ = ["JobReconciler"]

_PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
_MOST_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
_POD_SET: Final = "kueue.x-k8s.io/podset"
_LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"
_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_LABEL: Final = 63
_UNMANAGED: Final = ("kube-system",)
_MISSING: Final = "Missing Workload; unable to restore pod templates"
_UNMATCHED: Final = "No matching Workload; restoring pod templates according to existent Workload"


class JobReconciler:
    """Looks at one job at a time. `namespace`: the operator's own, whose jobs are left alone."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        watches: Watches,
        writer: StatusWriter,
        jobs: JobLookup,
        workloads: WorkloadReconciler,
        namespace: str,
    ) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._writer = writer
        self._jobs = jobs
        self._workloads = workloads
        self._unmanaged = (*_UNMANAGED, namespace)
        # What Workloads were made of: uid, generation and digest by key.
        self._digests: dict[str, tuple[str, int, str]] = {}

    async def look(self, key: str) -> None:
        """Do what the job needs.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        kind, held = self._jobs.split(key)
        if held is None or first(held.object, "metadata.deletionTimestamp"):
            return
        job = held.object
        if not self._manages(job["metadata"]["namespace"]):
            return
        above = self._jobs.ancestor(job)
        if above is not None:
            await self._follow_ancestor(kind, job, *above)
            return
        if not queue_name(job) and not self._context.options.without_queue_name:
            return
        at = workload_key(kind, job)
        workload = self._state.workload(at)
        over = end(kind, job)
        if workload is None:
            if over is None:
                await self._make(kind, job)
            return
        if workload.metadata.deletion_timestamp or _true(workload, "Finished"):
            return
        if over is not None:
            reason = "Succeeded" if over.succeeded else "Failed"
            await self._finish(kind, job, at, workload, reason, over.message)
            return
        await self._keep(kind, job, at, workload)

    def _manages(self, namespace: str) -> bool:
        """Tell whether jobs of a namespace are queued."""
        selector = self._context.options.selector
        if selector is None:
            return namespace not in self._unmanaged
        held = self._watches.namespaces.cache.named("", namespace)
        labels = {} if held is None else held.object.metadata.labels or {}
        return selector.matches(labels)

    async def _keep(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        suspended, active = is_suspended(kind, job), is_active(kind, job)
        eviction = condition_of(workload.status.conditions, "Evicted")
        evicted, admitted = is_true(eviction), _true(workload, "Admitted")
        if evicted and eviction is not None and workload.status.admission is not None:
            if not suspended:
                await self._stop(kind, job, eviction.message)
            elif not active:
                await self._restore(kind, job, at)
                await self._workloads.release(at, workload)
            return
        if not suspended and not admitted:
            await self._stop(kind, job, "Not admitted by cluster queue")
            return
        if not await self._matches(kind, job, at, workload):
            return
        if suspended and admitted:
            await self._start(kind, job, at, workload)
        elif suspended and not active and workload.status.admission is None:
            await self._follow_labels(kind, job, at, workload)
            await self._restore(kind, job, at)
        await self._observe(kind, job, at, workload)

    # The Workload

    async def _make(self, kind: JobKind, job: Json) -> None:
        if not is_suspended(kind, job):
            await self._stop(kind, job, _MISSING)
            return
        if is_active(kind, job):
            return
        obj = self._workload_of(kind, job)
        if obj is None:
            return
        metadata = obj["metadata"]
        try:
            stored: Json = await self._fenced().create(WORKLOADS, obj, dict)
        except AlreadyExists:
            stored = await self._context.client.get(
                WORKLOADS, metadata["namespace"], metadata["name"], dict
            )
        self._note(stored)
        log.info("%s/%s: Workload %s made", kind.kind, job["metadata"]["name"], metadata["name"])
        text = f"Created Workload: {metadata['namespace']}/{metadata['name']}"
        self._tell(kind, job, Event("", "Normal", "CreatedWorkload", text))

    def _workload_of(self, kind: JobKind, job: Json) -> Json | None:
        """Return the Workload that the job should have; None where its class does not exist."""
        metadata = job["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        pod_sets = self._pod_sets(kind, job)
        priority = self._priority(kind, job, pod_sets)
        if priority is None:
            return None
        own = {
            name: value
            for name in self._context.options.copied_labels
            if (value := labels.get(name)) is not None
        }
        spec: Json = {"podSets": pod_sets, "queueName": queue_name(job), "active": True, **priority}
        seconds = labels.get(_MOST_SECONDS, "")
        if seconds.isdigit():
            spec["maximumExecutionTimeSeconds"] = int(seconds)
        kept = {_GATED_BY: annotations[_GATED_BY]} if annotations.get(_GATED_BY) else {}
        namespace, _, name = workload_key(kind, job).partition("/")
        owner = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {**own, JOB_UID: metadata["uid"]},
                **({"annotations": kept} if kept else {}),
                "finalizers": [RESOURCE_IN_USE],
                "ownerReferences": [owner],
            },
            "spec": spec,
        }

    def _pod_sets(self, kind: JobKind, job: Json) -> list[Json]:
        return [
            {
                "name": found.name,
                "count": found.count,
                "template": _plain(stripped(kind, found.template)),
                **({} if found.min_count is None else {"minCount": found.min_count}),
            }
            for found in found_pod_sets(kind, job)
        ]

    def _priority(self, kind: JobKind, job: Json, pod_sets: list[Json]) -> Json | None:
        labels = first(job, "metadata.labels") or {}
        name = labels.get(_PRIORITY_CLASS, "")
        if name:
            held = self._watches.classes.cache.named("", name)
            if held is None:
                text = f'WorkloadPriorityClass "{name}" not found'
                self._tell(kind, job, Event("", "Warning", "WorkloadPriorityClassNotFound", text))
                return None
            return _priority_of("kueue.x-k8s.io", "WorkloadPriorityClass", name, held.object.value)
        named = [first(each, "template.spec.priorityClassName") for each in pod_sets]
        for pod_class in filter(None, named):
            found = self._watches.priorities.cache.named("", pod_class)
            if found is not None:
                value = found.object.value
                return _priority_of("scheduling.k8s.io", "PriorityClass", pod_class, value)
        for default in self._watches.priorities.cache:
            if default.object.global_default:
                value = default.object.value
                return _priority_of("scheduling.k8s.io", "PriorityClass", default.name, value)
        return {"priority": 0}

    async def _matches(self, kind: JobKind, job: Json, at: str, workload: Workload) -> bool:
        """Tell whether the Workload is still that of the job; mend it where it is not."""
        wanted = self._pod_sets(kind, job)
        admission = workload.status.admission
        if admission is not None and kind.min_count:
            # A partly admitted job runs with a lower count than it asks for.
            full = {each.name: each for each in workload.spec.pod_sets}
            for pod_set in wanted:
                known = full.get(pod_set["name"])
                if known is not None and known.min_count is not None:
                    pod_set["count"], pod_set["minCount"] = known.count, known.min_count
        if digest(wanted) == await self._digest(at, workload):
            return True
        namespace, _, name = at.partition("/")
        if admission is None and is_suspended(kind, job):
            obj = self._workload_of(kind, job)
            if obj is None:
                return False
            patch = {"metadata": {"uid": workload.metadata.uid}, "spec": obj["spec"]}
            stored = await self._fenced().patch(WORKLOADS, namespace, name, patch, dict)
            self._note(stored)
            text = f"Updated not matching Workload for suspended job: {at}"
            self._tell(kind, job, Event("", "Normal", "UpdatedWorkload", text))
            return False
        if not is_suspended(kind, job):
            await self._stop(kind, job, _UNMATCHED)
        try:
            await self._fenced().delete(WORKLOADS, namespace, name, uid=workload.metadata.uid)
        except NotFound:
            self._state.gone(at)
        text = f"Deleted not matching Workload: {at}"
        self._tell(kind, job, Event("", "Normal", "DeletedWorkload", text))
        return False

    async def _digest(self, at: str, workload: Workload) -> str:
        metadata = workload.metadata
        known = self._digests.get(at)
        if known is None or known[:2] != (metadata.uid, metadata.generation):
            namespace, _, name = at.partition("/")
            self._note(await self._context.client.get(WORKLOADS, namespace, name, dict))
            known = self._digests.get(at)
        return known[2] if known is not None else ""

    def _note(self, stored: Json) -> None:
        """Take over a Workload as it is stored."""
        metadata = stored["metadata"]
        made = digest(stored["spec"]["podSets"])
        at = f"{metadata['namespace']}/{metadata['name']}"
        self._digests[at] = (metadata["uid"], metadata.get("generation", 0), made)
        self._state.wrote(_typed(stored))

    def forget(self, at: str) -> None:
        """Forget a Workload that is gone."""
        self._digests.pop(at, None)

    async def _follow_labels(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Let the Workload follow a changed queue name or priority class."""
        change: Json = {}
        if workload.spec.queue_name != queue_name(job):
            change["queueName"] = queue_name(job)
        labels = first(job, "metadata.labels") or {}
        reference = workload.spec.priority_class_ref
        name = labels.get(_PRIORITY_CLASS, "")
        if name and (reference is None or reference.name != name):
            change.update(self._priority(kind, job, []) or {})
        if change:
            namespace, _, name = at.partition("/")
            patch = {"metadata": {"uid": workload.metadata.uid}, "spec": change}
            stored = await self._fenced().patch(WORKLOADS, namespace, name, patch, dict)
            self._note(stored)

    # The job

    async def _start(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        admission = workload.status.admission
        assert admission is not None
        told = self._injections(at, workload)
        uid = job["metadata"]["uid"]

        def change(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid or not is_suspended(kind, current):
                return None
            return started(kind, current, told)

        try:
            written = await self._modify(kind, job, change)
        except Conflicting as conflict:
            await self._finish(kind, job, at, workload, "FailedToStart", str(conflict))
            return
        if written is not None:
            log.info("%s/%s started", kind.kind, job["metadata"]["name"])
            text = f"Admitted by clusterQueue {admission.cluster_queue}"
            self._tell(kind, job, Event("", "Normal", "Started", text))

    def _injections(self, at: str, workload: Workload) -> Mapping[str, Injection]:
        admission = workload.status.admission
        assert admission is not None
        updates: dict[str, list[Mapping[str, Any]]] = {}
        for check in workload.status.admission_checks or ():
            for update in check.pod_set_updates or ():
                updates.setdefault(update["name"], []).append(update)
        queues = {
            _LOCAL_QUEUE: workload.spec.queue_name,
            _CLUSTER_QUEUE: admission.cluster_queue,
        }
        told = {}
        for assigned in admission.pod_set_assignments:
            selector: dict[str, str] = {}
            tolerations: list[Json] = []
            labels = {_POD_SET: assigned.name}
            labels.update({n: v for n, v in queues.items() if v and len(v) <= _LABEL})
            annotations = {_WORKLOAD: at.partition("/")[2]}
            for flavor in dict.fromkeys((assigned.flavors or {}).values()):
                held = self._watches.flavors.cache.named("", flavor)
                if held is not None:
                    selector.update(held.object.spec.node_labels or {})
                    tolerations += [_given(t) for t in held.object.spec.tolerations or ()]
            for asked in updates.get(assigned.name, ()):
                selector.update(asked.get("nodeSelector") or {})
                labels.update(asked.get("labels") or {})
                annotations.update(asked.get("annotations") or {})
                tolerations += list(asked.get("tolerations") or ())
            told[assigned.name] = Injection(
                assigned.count, selector, tolerations, labels, annotations
            )
        return told

    async def _stop(self, kind: JobKind, job: Json, why: str) -> None:
        uid = job["metadata"]["uid"]

        def change(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid or is_suspended(kind, current):
                return None
            return stopped(kind, current)

        if await self._modify(kind, job, change, Priority.EVICT) is not None:
            log.info("%s/%s suspended: %s", kind.kind, job["metadata"]["name"], why)
            self._tell(kind, job, Event("", "Normal", "Stopped", why))

    async def _restore(self, kind: JobKind, job: Json, at: str) -> None:
        """Put back what a start changed in the templates."""
        annotations = [first(f.template, "metadata.annotations") for f in found_pod_sets(kind, job)]
        if not any(_WORKLOAD in (each or {}) for each in annotations):
            return
        namespace, _, name = at.partition("/")
        stored: Json = await self._context.client.get(WORKLOADS, namespace, name, dict)
        pod_sets, uid = stored["spec"]["podSets"], job["metadata"]["uid"]
        if is_restored(kind, job, pod_sets):
            return
        if kind.clear_status and first(job, kind.clear_status) is not None:
            # The API refuses another template for a job that has a start time.
            patch: dict[str, Any] = {"metadata": {"uid": uid}}
            put(patch, kind.clear_status, None)
            await self._fenced().patch(
                resource_of(kind),
                job["metadata"]["namespace"],
                job["metadata"]["name"],
                patch,
                dict,
                subresource="status",
            )

        def change(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid or not is_suspended(kind, current):
                return None
            return restored(kind, current, pod_sets)

        await self._modify(kind, job, change)

    async def _finish(
        self, kind: JobKind, job: Json, at: str, workload: Workload, reason: str, message: str
    ) -> None:
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if _true(current, "Finished"):
                return None
            return finished(current, reason, message, now)

        stored = await self._writer.change(at, workload.metadata.uid, change)
        if stored is None:
            return
        if workload.status.admission is not None:
            self._context.quota_metrics.ended(workload.status.admission.cluster_queue)
        log.info("%s is finished: %s", at, reason)
        text = f"Workload '{at}' is declared finished"
        self._tell(kind, job, Event("", "Normal", "FinishedWorkload", text))

    async def _observe(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Show in the Workload whether the pods are ready, and which are not needed any more."""
        admitted = _true(workload, "Admitted")
        ready = admitted and not is_suspended(kind, job) and is_ready(kind, job)
        surplus = reclaimable(kind, job)
        names = [each.name for each in found_pod_sets(kind, job)][:1]
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if _true(current, "Admitted") != admitted or _true(current, "Finished"):
                return None
            changed = pods_ready(current, ready, now)
            return (
                reclaimed(changed, [(name, surplus) for name in names])
                if kind.min_count
                else (changed)
            )

        if change(workload) is not workload:
            await self._writer.change(at, workload.metadata.uid, change)

    async def _follow_ancestor(self, kind: JobKind, job: Json, above: JobKind, owner: Any) -> None:
        workload = self._state.workload(workload_key(above, owner.object))
        if workload is not None and _true(workload, "Admitted"):
            return
        if not is_suspended(kind, job) and end(kind, job) is None:
            await self._stop(kind, job, "Kueue managed child job suspended")

    async def _modify(
        self,
        kind: JobKind,
        job: Json,
        change: Callable[[Json], Json | None],
        priority: Priority = Priority.STATUS,
    ) -> Json | None:
        metadata = job["metadata"]
        try:
            return await self._fenced(priority).modify(
                resource_of(kind), metadata["namespace"], metadata["name"], change
            )
        except NotFound:
            return None
        except ApiError as failure:
            log.warning("%s/%s: %s", kind.kind, metadata["name"], failure)
            raise

    def _fenced(self, priority: Priority = Priority.STATUS) -> Client:
        fence = self._context.fence
        return self._context.client.at(priority, fence.check, timeout=fence.request_timeout)

    def _tell(self, kind: JobKind, job: Json, event: Event) -> None:
        metadata = job["metadata"]
        reference = Reference(
            kind.api_version, kind.kind, metadata["namespace"], metadata["name"], metadata["uid"]
        )
        self._context.announce(reference, event, f"{kind.framework}-kueue-controller")


def _true(workload: Workload, kind: str) -> bool:
    return is_true(condition_of(workload.status.conditions, kind))


def _priority_of(group: str, kind: str, name: str, value: int) -> Json:
    return {
        "priorityClassRef": {"group": group, "kind": kind, "name": name},
        "priority": value,
    }


def _given(toleration: Any) -> Json:
    found: Json = msgspec.to_builtins(toleration)
    return {**found, "operator": toleration.operator or "Equal"}


def _typed(stored: Json) -> Workload:
    return msgspec.convert(stored, Workload)


def _plain(template: Json) -> Json:
    """Return a template in which each container names an environment variable once, the last."""
    spec = template.get("spec") or {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if container.get("env"):
            container["env"] = list({each["name"]: each for each in container["env"]}.values())
    return template

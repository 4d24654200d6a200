"""Stand-ins: what other controllers would do, as far as a decision depends on it.

1. Jobs, and every kind of the table of jobs with a suspend field: once it is released its pods are
   made of its templates, and when it is stopped or deleted they end. Pods that are lost are
   replaced. So do ReplicaSets, StatefulSets and LeaderWorkerSets, with or without a queue; a
   Deployment gets its ReplicaSet.
2. The kubelet: a pod that gets a node runs and is ready; one that is deleted has ended after a
   second, or its grace period where that is shorter: few use it up, and to a decision it is
   capacity on its way.
3. The garbage collector: what loses its last owner is deleted.
4. The disruption controller: what PodDisruptionBudgets allow follows their pods.
5. Device claims: a pod that requests one by template gets one, and gives it back when it has ended.

Objects that no write touched during the run are left as they were found. Source: the controllers of
Kubernetes 1.37; specification of the quota plane, section 10.2.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from kubeworld.controllers import garbage
from kubeworld.controllers.acts import Delete
from kubeworld.controllers.pod_statuses import running
from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import phase_of
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant
from kubeworld.writes.refusals import Refused
from reprieve.execution.writes.jobs import resource_of
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import DEVICE_TEMPLATES, PODS, Resource
from reprieve.whatif.controllers.budget_statuses import BudgetStatuses
from reprieve.whatif.controllers.job_pods import JobPods, is_numbered
from reprieve.whatif.controllers.made_pods import MadePods
from reprieve.whatif.controllers.namespace_index import NamespaceIndex
from reprieve.whatif.controllers.owned_pods import OwnedPods
from reprieve.whatif.controllers.pod_claims import PodClaims
from reprieve.whatif.controllers.pod_templates import LIMIT_RANGES, PRIORITIES, RUNTIME_CLASSES
from reprieve.whatif.controllers.replica_pods import ReplicaPods
from reprieve.whatif.copy.overlay import Change, Overlay

__all__ = ["StandIns"]

_STARTS_AFTER: Final = SECOND
_PACE: Final = SECOND // 1000
_ENDS_WITHIN: Final = 1  # seconds, unless the grace period is shorter
_DEPTH: Final = 10  # of owners above a pod
_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_THERE: Final[Json] = {"metadata": {}}  # an owner that exists
_DELETED: Final = b'"deletionTimestamp"'


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata


_POD: Final = msgspec.json.Decoder(_Pod)


class StandIns:
    """All of them over one overlay; `busy` while one of them is still to do something.

    Attributes:
        made_pods: how many pods they may make.
        owned: the pods that stand under each owner.
    """

    #: What they read beyond what the planes do.
    KINDS: Final = (PODS, PRIORITIES, RUNTIME_CLASSES, LIMIT_RANGES, DEVICE_TEMPLATES)

    def __init__(self, overlay: Overlay, clock: Clock) -> None:
        self._overlay = overlay
        self._clock = clock
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._woken = asyncio.Event()
        self.owned = OwnedPods(overlay)
        self._kinds: dict[tuple[str, str], JobKind] = {
            (kind.group, kind.plural): kind for kind in job_kinds() if kind.suspend
        }
        self._named = {(kind.group, kind.kind): kind for kind in self._kinds.values()}
        self.made_pods = MadePods()
        self._claims = PodClaims(overlay)
        self._jobs = JobPods(overlay, clock, self.owned, self.made_pods, self._claims)
        self._replicas = ReplicaPods(overlay, self.owned, self.made_pods, self._claims)
        self._budgets = BudgetStatuses(overlay, clock)
        self._index = NamespaceIndex(overlay, self.owned)
        self._end_leaving()
        overlay.subscribers.append(self._changed)

    @property
    def busy(self) -> bool:
        """Whether something is to be done, now or later."""
        return bool(self._timers) or not self._changes.empty()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._changes.empty():
                self._react(self._changes.get_nowait())
                self._budgets.write()
            now = self._clock.monotonic()
            if self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
                # One after the other, as nodes do: what waits sees each by itself.
                await self._clock.sleep(_PACE)
                continue
            self._woken.clear()
            pause = self._timers[0][0] - now if self._timers else None
            try:
                async with asyncio.timeout(None if pause is None else pause / SECOND):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _end_leaving(self) -> None:
        """Have the pods end that are being deleted from the start."""
        for (namespace, name), raw in self._overlay.naming(PODS, _DELETED):
            if _POD.decode(raw).metadata.deletion_timestamp:
                self._leaves(namespace, name)

    def _changed(self, change: Change) -> None:
        resource = self._overlay.table(*change.kind)
        assert resource is not None, "it was written there"
        self._index.before(resource, change)
        self.owned.changed(resource, change.old, change.new)
        self._budgets.changed(resource, change.old, change.new)
        self._changes.put_nowait(change)
        self._woken.set()

    def _after(self, pause: int, do: Callable[[], None]) -> None:
        due = self._clock.monotonic() + pause
        heapq.heappush(self._timers, (due, next(self._order), do))
        self._woken.set()

    def _react(self, change: Change) -> None:
        resource = self._overlay.table(*change.kind)
        assert resource is not None, "it was written there"
        metadata = change.object["metadata"]
        if change.new is None:
            self._collect(metadata["uid"])
        kind = self._kinds.get(change.kind)
        if kind is not None and change.new is not None:
            was_off = change.old is None or bool(first(change.old, kind.suspend))
            started = was_off and not first(change.new, kind.suspend)
            self._look_at_job(
                kind, metadata.get("namespace", ""), metadata["name"], started=started
            )
        if change.new is not None and self._replicas.makes(resource.group, resource.kind):
            self._look_at_set(resource, metadata.get("namespace", ""), metadata["name"])
        self._claims.changed(resource, change.old, change.new)
        if resource == PODS:
            self._look_at_pod(change)

    def _collect(self, uid: str) -> None:
        """Do with what was owned by a deleted object as the garbage collector does."""
        for resource, namespace, name in self.owned.gone(uid):
            found = self._overlay.get(resource, namespace, name)
            if found is None:
                continue
            named = found["metadata"].get("ownerReferences") or ()
            owners = {each["uid"]: None if each["uid"] == uid else _THERE for each in named}
            for act in garbage.step(found, owners, ()):
                if isinstance(act, Delete):
                    self._delete(resource, namespace, name)
                else:
                    self._overlay.change(resource, act.object)

    def _look_at_job(self, kind: JobKind, namespace: str, name: str, *, started: bool) -> None:
        job = self._overlay.get(resource_of(kind), namespace, name)
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            self._jobs.reconcile(kind, job, started=started)

    def _look_at_set(self, resource: Resource, namespace: str, name: str) -> None:
        owner = self._overlay.get(resource, namespace, name)
        if owner is not None:
            self._replicas.reconcile(owner)

    def _look_at_pod(self, change: Change) -> None:
        metadata = change.object["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if change.new is not None:
            before = (change.old or {}).get("metadata") or {}
            if metadata.get("deletionTimestamp") and not before.get("deletionTimestamp"):
                self._leaves(namespace, name, metadata.get("deletionGracePeriodSeconds", 0))
            elif first(change.new, "spec.nodeName") and not first(change.old, "spec.nodeName"):
                self._after(_STARTS_AFTER, lambda: self._runs(namespace, name))
        for owner in metadata.get("ownerReferences") or ():
            kind = self._job_kind(owner)
            if kind is not None:
                self._look_at_job(kind, namespace, owner["name"], started=False)
                self._replace(kind, owner, change)
            resource = self._overlay.resource_of(owner["apiVersion"], owner["kind"])
            if resource is not None and self._replicas.makes(resource.group, resource.kind):
                self._look_at_set(resource, namespace, owner["name"])
        self._look_above(change.object)

    def _job_kind(self, owner: Json) -> JobKind | None:
        """Return the row of what a reference names, if it is a job."""
        return self._named.get((str(owner["apiVersion"]).rpartition("/")[0], owner["kind"]))

    def _look_above(self, obj: Json, depth: int = _DEPTH) -> None:
        """Look at the jobs above the owners of a pod, as a RayJob is above its RayCluster."""
        for _, owner in self._overlay.owners(obj) if depth else ():
            metadata = owner["metadata"]
            for above in metadata.get("ownerReferences") or ():
                kind = self._job_kind(above)
                if kind is not None:
                    namespace = metadata.get("namespace", "")
                    self._look_at_job(kind, namespace, above["name"], started=False)
            self._look_above(owner, depth - 1)

    def _replace(self, kind: JobKind, owner: Json, change: Change) -> None:
        """Have a lost pod made anew: at once, or when its name is free."""
        pod = change.object
        numbered = is_numbered(pod)
        goes = change.new is not None and change.new["metadata"].get("deletionTimestamp")
        went = change.old is not None and change.old["metadata"].get("deletionTimestamp")
        lost = change.new is None and (numbered or not went)
        if lost or (goes and not went and not numbered):
            namespace = pod["metadata"].get("namespace", "")
            job = self._overlay.get(resource_of(kind), namespace, owner["name"])
            if job is not None and job["metadata"]["uid"] == owner["uid"]:
                self._jobs.replace(kind, job, pod)
            elif self._overlay.table(kind.group, kind.plural) is None:
                self._jobs.replace(kind, None, pod)

    def _leaves(self, namespace: str, name: str, grace: int = _ENDS_WITHIN) -> None:
        pause = min(grace, _ENDS_WITHIN) * SECOND
        self._after(pause, lambda: self._gone(namespace, name))

    def _gone(self, namespace: str, name: str) -> None:
        pod = self._overlay.get(PODS, namespace, name)
        if pod is None or not pod["metadata"].get("deletionTimestamp"):
            return
        finalizers = pod["metadata"].get("finalizers") or []
        if _TRACKING in finalizers:
            kept = [each for each in finalizers if each != _TRACKING]
            pod = self._overlay.change(
                PODS, {**pod, "metadata": {**pod["metadata"], "finalizers": kept}}
            )
        self._delete(PODS, namespace, name, at_once=True)

    def _runs(self, namespace: str, name: str) -> None:
        pod = self._overlay.get(PODS, namespace, name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if phase_of(pod) not in ("", "Pending"):
            return
        status = running(pod, "", format_instant(self._clock.wall()))
        self._overlay.change(PODS, {**pod, "status": status})

    def _delete(
        self, resource: Resource, namespace: str, name: str, *, at_once: bool = False
    ) -> None:
        options = {"gracePeriodSeconds": 0} if at_once else None
        try:
            self._overlay.delete((resource.group, resource.plural), (namespace, name), options)
        except Refused as refusal:
            if refusal.code != 404:
                raise

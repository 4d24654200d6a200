"""A dictionary with optimistic concurrency that implements `Objects`, for tests of the machines."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Sequence

from kubelocal.machines.objects import (
    AlreadyThere,
    Change,
    Changed,
    ChangeType,
    Gone,
    Object,
    Refused,
)
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from kubeworld.writes.changes import bound, deleted, generation_of, grace_of, is_gone, replaced
from kubeworld.writes.refusals import Refused as NotDone

KINDS = {
    ("v1", "Namespace"): "namespaces",
    ("v1", "Node"): "nodes",
    ("v1", "Pod"): "pods",
    ("v1", "Event"): "events",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Service"): "services",
    ("coordination.k8s.io/v1", "Lease"): "leases.coordination.k8s.io",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets.policy",
    ("discovery.k8s.io/v1", "EndpointSlice"): "endpointslices.discovery.k8s.io",
    ("batch/v1", "Job"): "jobs.batch",
    ("apps/v1", "Deployment"): "deployments.apps",
    ("apps/v1", "ReplicaSet"): "replicasets.apps",
    ("apps/v1", "StatefulSet"): "statefulsets.apps",
    ("apps/v1", "DaemonSet"): "daemonsets.apps",
    ("batch/v1", "CronJob"): "cronjobs.batch",
    ("ray.io/v1", "RayCluster"): "rayclusters.ray.io",
    ("ray.io/v1", "RayJob"): "rayjobs.ray.io",
    ("ray.io/v1", "RayService"): "rayservices.ray.io",
    ("kaiwo.silogen.ai/v1alpha1", "KaiwoJob"): "kaiwojobs.kaiwo.silogen.ai",
    ("kaiwo.silogen.ai/v1alpha1", "KaiwoService"): "kaiwoservices.kaiwo.silogen.ai",
    ("aim.silogen.ai/v1alpha1", "AIMService"): "aimservices.aim.silogen.ai",
    ("aim.eai.amd.com/v1alpha1", "AIMService"): "aimservices.aim.eai.amd.com",
    ("workload.codeflare.dev/v1beta2", "AppWrapper"): "appwrappers.workload.codeflare.dev",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets.jobset.x-k8s.io",
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
    ): "leaderworkersets.leaderworkerset.x-k8s.io",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjobs.kubeflow.org",
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijobs.kubeflow.org",
    ("serving.kserve.io/v1beta1", "InferenceService"): "inferenceservices.serving.kserve.io",
}
CLUSTER_SCOPED = {"nodes", "namespaces"}


class DictObjects:
    """Implements `Objects`; `writes` counts every accepted write per resource and verb."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.held: dict[tuple[str, str, str], Object] = {}
        self.writes: list[tuple[str, str, str]] = []  # verb, resource, name
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._watchers: list[asyncio.Queue[Change]] = []

    def resource_of(self, api_version: str, kind: str) -> str | None:
        return KINDS.get((api_version, kind))

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        await asyncio.sleep(0)
        namespace = "" if resource in CLUSTER_SCOPED else namespace
        found = self.held.get((resource, namespace, name))
        return copy.deepcopy(found)

    async def create(self, resource: str, obj: Object) -> Object:
        await asyncio.sleep(0)
        if resource != self.resource_of(obj["apiVersion"], obj["kind"]):
            raise Refused(f"{obj['kind']} is not stored in {resource}")
        new = copy.deepcopy(obj)
        metadata = new["metadata"]
        if resource in CLUSTER_SCOPED:
            metadata.pop("namespace", None)
        else:
            metadata.setdefault("namespace", "default")
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        if key in self.held:
            raise AlreadyThere(metadata["name"])
        metadata |= {
            "uid": f"00000000-0000-0000-0000-{next(self._uids):012}",
            "creationTimestamp": format_instant(self.clock.wall()),
            "generation": 1,
        }
        if resource == "pods":
            new.setdefault("status", {}).setdefault("phase", "Pending")
        self._store("create", ChangeType.ADDED, key, new)
        return copy.deepcopy(new)

    async def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        await asyncio.sleep(0)
        metadata = obj["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        old = self.held.get(key)
        if old is None or old["metadata"]["uid"] != metadata["uid"]:
            raise Gone(metadata["name"])
        if metadata["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Changed(metadata["name"])
        new = copy.deepcopy(obj)
        if not subresource or subresource == "status":
            new = generation_of(old, replaced(old, new, subresource, with_status=True))
        else:
            new = copy.deepcopy(old)
        if new == old:
            return copy.deepcopy(old)
        verb = f"update {subresource}".strip()
        if is_gone(new):
            self._remove(verb, key, new)
        else:
            self._store(verb, ChangeType.MODIFIED, key, new)
        return copy.deepcopy(new)

    async def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        await asyncio.sleep(0)
        namespace = "" if resource in CLUSTER_SCOPED else namespace
        key = (resource, namespace, name)
        old = self.held.get(key)
        if old is None:
            return
        if uid is not None and old["metadata"]["uid"] != uid:
            raise Changed(name)
        seconds = grace_of(old, grace_seconds) if resource == "pods" else 0
        new = deleted(
            copy.deepcopy(old), self.clock.wall(), seconds=seconds, propagation=propagation
        )
        if is_gone(new):
            self._remove("delete", key, new)
        else:
            self._store("delete", ChangeType.MODIFIED, key, new)

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        await asyncio.sleep(0)
        key = ("pods", namespace, pod)
        old = self.held.get(key)
        if old is None:
            raise Gone(pod)
        sent = {"metadata": {"uid": uid}, "target": {"name": node}}
        try:
            new = bound(copy.deepcopy(old), sent, self.clock.wall())
        except NotDone:
            raise Changed(pod) from None
        self._store("bind", ChangeType.MODIFIED, key, new)

    async def changes(self, resources: Sequence[str] | None = None) -> AsyncIterator[Change]:
        queue: asyncio.Queue[Change] = asyncio.Queue()
        for (resource, _, _), obj in self.held.items():
            queue.put_nowait(Change(ChangeType.ADDED, resource, copy.deepcopy(obj)))
        queue.put_nowait(Change(ChangeType.SYNCED, "", {}))
        self._watchers.append(queue)
        try:
            while True:
                change = await queue.get()
                if resources is None or not change.resource or change.resource in resources:
                    yield change
        finally:
            self._watchers.remove(queue)

    def _store(self, verb: str, kind: ChangeType, key: tuple[str, str, str], obj: Object) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self.held[key] = obj
        self._notify(verb, kind, key, obj)

    def _remove(self, verb: str, key: tuple[str, str, str], obj: Object) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        del self.held[key]
        self._notify(verb, ChangeType.DELETED, key, obj)

    def _notify(self, verb: str, kind: ChangeType, key: tuple[str, str, str], obj: Object) -> None:
        self.writes.append((verb, key[0], key[2]))
        for queue in self._watchers:
            queue.put_nowait(Change(kind, key[0], copy.deepcopy(obj)))

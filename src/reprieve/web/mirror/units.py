"""Which unit a pod belongs to: what people call their work, as `kind/namespace/name`.

Without requesting owners: a page that knew every ReplicaSet would cost more than it shows.

1. A gang or group of pods is one unit.
2. A controller above the pod's own that states it on its pods: JobSet, LeaderWorkerSet, Ray, the
   trainers, groups of pods in a queue.
3. The pod's controller; of a ReplicaSet its Deployment, by the hash in its name.
4. The pod.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from reprieve.api.core import ObjectMeta, OwnerReference, Pod
from reprieve.intake.gangs import gang_name

__all__ = ["controller_uid", "controller_unit", "unit_id", "unit_of_pod"]

#: Labels that controllers write on pods of their children: whose name stands there.
_ABOVE: Final = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset"),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset"),
    ("ray.io/originated-from-cr-name", "rayjob"),
    ("ray.io/cluster", "raycluster"),
    ("kueue.x-k8s.io/pod-group-name", "workload"),
)
_RAY_KIND: Final = "ray.io/originated-from-crd"
_HASH: Final = "pod-template-hash"


def unit_id(kind: str, namespace: str, name: str) -> str:
    """Return the id of a unit; one object for all that name it."""
    return sys.intern(f"{kind.lower()}/{namespace}/{name}")


def unit_of_pod(pod: Pod) -> str:
    """Return the id of the unit that a pod belongs to."""
    metadata = pod.metadata
    labels: Mapping[str, str] = metadata.labels or {}
    group = pod.spec.scheduling_group
    named = (group and group.pod_group_name) or gang_name(labels, metadata.annotations or {})
    if named:
        return unit_id("podgroup", metadata.namespace, named)
    for label, kind in _ABOVE:
        if above := labels.get(label):
            if label == "ray.io/originated-from-cr-name":
                kind = labels.get(_RAY_KIND) or kind
            return unit_id(kind, metadata.namespace, above)
    owner = _controller(metadata)
    if owner is None:
        return unit_id("pod", metadata.namespace, metadata.name)
    hashed = labels.get(_HASH)
    if owner.kind == "ReplicaSet" and hashed and owner.name.endswith(f"-{hashed}"):
        return unit_id("deployment", metadata.namespace, owner.name.removesuffix(f"-{hashed}"))
    return unit_id(owner.kind, metadata.namespace, owner.name)


def controller_unit(metadata: ObjectMeta, kind: str) -> str:
    """Return the unit of an object's controller, or first owner; its own, by kind, without one."""
    owner = _controller(metadata) or next(iter(metadata.owner_references or ()), None)
    if owner is None:
        return unit_id(kind, metadata.namespace, metadata.name)
    return unit_id(owner.kind, metadata.namespace, owner.name)


def controller_uid(metadata: ObjectMeta) -> str:
    """Return the uid of an object's controller, or first owner; empty without one."""
    owner = _controller(metadata) or next(iter(metadata.owner_references or ()), None)
    return "" if owner is None else owner.uid


def _controller(metadata: ObjectMeta) -> OwnerReference | None:
    for reference in metadata.owner_references or ():
        if reference.controller:
            return reference
    return None

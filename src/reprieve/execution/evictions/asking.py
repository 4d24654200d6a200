"""Notice requested by the pod of an Eviction, and what its class and queues allow.

Read once, when its eviction is requested: such evictions are few. What is not served or may not be
read allows everything. Source: `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kubeworld.objects.pods import OVER
from kubeworld.units.durations import SECOND
from reprieve.api import kueue
from reprieve.api.core import ObjectMeta
from reprieve.api.scheduling import PodObject
from reprieve.engine.notice.granting import MOST
from reprieve.intake.cluster.pods import pod_row
from reprieve.intake.lineage import pod_participant
from reprieve.kube.errors import Forbidden, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS, Resource
from reprieve.records.plans.at_stake import lineage_of
from reprieve.settings.notice import notice_max

__all__ = ["AskingPod", "asking_pod", "has_ended"]

_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
_VERSIONS: Final = ("v1beta2", "v1beta1")
_LABELS: Final = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/local-queue-name")


class AskingPod(NamedTuple):
    """A pod's requested and allowed notice in nanoseconds, and its lineage."""

    asked: int
    allowed: int
    lineage: str


class _Queue(msgspec.Struct, frozen=True, rename="camel"):
    cluster_queue: str = ""


class _Named(msgspec.Struct, frozen=True):
    """A class or queue, as far as it limits notices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Queue = _Queue()


async def asking_pod(client: Reader, namespace: str, name: str, uid: str) -> AskingPod | None:
    """Return the notice of a pod, None where it has ended, or another one has its name.

    Raises:
        ApiError: to be tried again.
    """
    pod = await _pod(client, namespace, name, uid)
    if pod is None:
        return None
    row = pod_row(pod)
    allowed = MOST
    if row.notice > 0:
        found = await _named(client, _CLASSES, "", row.pod_class.priority_class)
        allowed = min(_limit(found), await _of_queues(client, namespace, pod.metadata.labels or {}))
    return AskingPod(max(row.notice, 0) * SECOND, allowed, lineage_of(pod_participant(row)))


async def has_ended(client: Reader, namespace: str, name: str, uid: str) -> bool:
    """Return whether a pod has ended or does not exist.

    Raises:
        ApiError: to be tried again.
    """
    return await _pod(client, namespace, name, uid) is None


async def _pod(client: Reader, namespace: str, name: str, uid: str) -> PodObject | None:
    try:
        pod = await client.get(PODS, namespace, name, PodObject)
    except NotFound:
        return None
    return pod if pod.metadata.uid == uid and pod.status.phase not in OVER else None


async def _of_queues(client: Reader, namespace: str, labels: Mapping[str, str]) -> int:
    queue = next((labels[key] for key in _LABELS if labels.get(key)), "")
    for version in _VERSIONS:
        local = Resource(kueue.GROUP, version, "localqueues", "LocalQueue")
        found = await _named(client, local, namespace, queue)
        if found is not None:
            cluster = Resource(
                kueue.GROUP, version, "clusterqueues", "ClusterQueue", namespaced=False
            )
            above = await _named(client, cluster, "", found.spec.cluster_queue)
            return min(_limit(found), _limit(above))
    return MOST


async def _named(client: Reader, kind: Resource, namespace: str, name: str) -> _Named | None:
    if not name:
        return None
    try:
        return await client.get(kind, namespace, name, _Named)
    except (NotFound, Forbidden):
        return None


def _limit(found: _Named | None) -> int:
    return MOST if found is None else notice_max(found.metadata.annotations)

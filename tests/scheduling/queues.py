"""A LocalQueue with its ClusterQueue, as the scheduling plane reads them, and pods in it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.scheduling.memory import Memory
from tests.scheduling.site import NAMESPACE, Object

NOTHING: Mapping[str, str] = {}


def queued(
    cluster: Memory,
    *,
    local: Mapping[str, str] = NOTHING,
    cluster_queue: Mapping[str, str] = NOTHING,
) -> None:
    """Create the queue `door` of the ClusterQueue `team`, with these annotations."""
    cluster.api.put(
        "clusterqueues.kueue.x-k8s.io",
        {"metadata": {"name": "team", "annotations": dict(cluster_queue)}, "spec": {}},
    )
    metadata = {"name": "door", "namespace": NAMESPACE, "annotations": dict(local)}
    spec = {"clusterQueue": "team"}
    cluster.api.put("localqueues.kueue.x-k8s.io", {"metadata": metadata, "spec": spec})


def in_queue(pod: Object) -> Object:
    """Return a pod of that queue."""
    labels = {**pod["metadata"].get("labels", {}), "kueue.x-k8s.io/queue-name": "door"}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}

"""What priority classes and queues state of delays and notices, and which statement counts.

1. How long work waits before it preempts: its class of priorities decides, else its ClusterQueue,
   else the section of the plane.
2. How long the notice of a workload may be: the least of what its class and its queues allow.

A pod's queue is that of the label `kueue.x-k8s.io/queue-name`, else of the label with which Kueue
marks pods of queued jobs; its ClusterQueue is that of its LocalQueue. Queues are read in v1beta2,
where that is served; nothing is decided before they are. Source: `docs/preemption-delay.md` and
`docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from reprieve.api import kueue
from reprieve.api.core import ObjectMeta
from reprieve.api.scheduling import PriorityClass
from reprieve.engine.notice.granting import MOST
from reprieve.intake.preemption_delay import stated_delay
from reprieve.kube.objects import version_number
from reprieve.kube.resource import Resource
from reprieve.planes.common.mirrors.watching import Watch, Watcher
from reprieve.settings.notice import notice_max

__all__ = [
    "ClassLimits",
    "QueueLimits",
    "decided_delay",
    "least_notice",
    "on_other_delays",
    "queue_of",
]

_PRIORITIES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
_LOCAL: Final = Resource(kueue.GROUP, "v1beta2", "localqueues", "LocalQueue")
_CLUSTER: Final = Resource(
    kueue.GROUP, "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False
)
_LABELS: Final = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/local-queue-name")


def decided_delay(of_class: int | None, of_queue: int | None, otherwise: int) -> int:
    """Return how long work waits before it preempts; None where nothing is stated."""
    said = of_queue if of_class is None else of_class
    return otherwise if said is None else said


def least_notice(*allowed: int | None) -> int:
    """Return the longest notice of work; None where nothing is stated."""
    return min((each for each in allowed if each is not None), default=MOST)


def queue_of(labels: Mapping[str, str]) -> str:
    """Return the name of a pod's LocalQueue, empty where it has none."""
    return next((labels[key] for key in _LABELS if labels.get(key)), "")


@dataclass(frozen=True, slots=True)
class _Stated:
    """What one object states: nanoseconds. `queue`: the ClusterQueue of a LocalQueue."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    delay: int | None
    notice: int
    queue: str = ""


def _stated(metadata: ObjectMeta, queue: str = "") -> _Stated:
    annotations = metadata.annotations
    return _Stated(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
        stated_delay(annotations),
        notice_max(annotations),
        queue,
    )


def on_other_delays(watches: Iterable[Watch[Any, Any]], changed: Callable[[], None]) -> None:
    """Call `changed` when a class or queue states another delay, or a queue has another owner."""
    for watch in watches:
        watch.cache.subscribe(partial(_compare, changed))


def _compare(changed: Callable[[], None], old: _Stated | None, new: _Stated | None) -> None:
    before, after = (
        (None, "") if each is None else (each.delay, each.queue) for each in (old, new)
    )
    if before != after:
        changed()


class ClassLimits:
    """What PriorityClasses state; `watches` are to be started by the plane."""

    def __init__(self, watcher: Watcher) -> None:
        self._classes = watcher.watch(_PRIORITIES, PriorityClass, lambda obj: _stated(obj.metadata))

    def __iter__(self) -> Iterator[Watch[Any, Any]]:
        yield self._classes

    def of(self, name: str) -> tuple[int | None, int]:
        """Return the delay that a class states, None where it has none, and the notice allowed."""
        found = self._classes.cache.named("", name) if name else None
        return (None, MOST) if found is None else (found.delay, found.notice)


class QueueLimits:
    """What LocalQueues and ClusterQueues state, where Kueue's API is served."""

    def __init__(self, watcher: Watcher) -> None:
        self._local = watcher.watch(
            _LOCAL,
            kueue.LocalQueue,
            lambda obj: _stated(obj.metadata, obj.spec.cluster_queue),
            required=False,
        )
        self._cluster = watcher.watch(
            _CLUSTER, kueue.ClusterQueue, lambda obj: _stated(obj.metadata), required=False
        )

    def __iter__(self) -> Iterator[Watch[Any, Any]]:
        return iter((self._local, self._cluster))

    def of(self, namespace: str, name: str) -> tuple[int | None, int]:
        """Return the delay that the queue of a pod states, None where it has none, and the notice.

        `name` of its LocalQueue, which states nothing of delays: its ClusterQueue does.
        """
        local = self._local.cache.named(namespace, name) if name else None
        if local is None:
            return None, MOST
        cluster = self._cluster.cache.named("", local.queue)
        if cluster is None:
            return None, local.notice
        return cluster.delay, least_notice(local.notice, cluster.notice)

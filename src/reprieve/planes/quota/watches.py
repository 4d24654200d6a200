"""The kinds that the quota plane watches, each with its cache.

Kinds of jobs that are not served count as empty. Source: specification of the quota plane,
sections 1 and 10; the design's "How data flows".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api import kueue
from reprieve.api.core import MetaWithFinalizers, Namespace, ObjectMeta, Pod
from reprieve.api.devices import ResourceClaimTemplate
from reprieve.api.scheduling import PriorityClass
from reprieve.execution.writes.jobs import resource_of
from reprieve.intake.quota_limits import LimitRange
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import prebuilt_of
from reprieve.kube.objects import identity_of
from reprieve.kube.resource import DEVICE_TEMPLATES, NAMESPACES, OwnResource, Resource
from reprieve.planes.common.foreign_decider import StatusAuthors
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.mirrors.troubles import Troubles
from reprieve.planes.common.mirrors.watching import Watch, Watcher, start
from reprieve.planes.quota.pod_reconcilers.pod_records import is_queued, name_alone, pod_indexes
from reprieve.planes.quota.shared_parts import SharedParts

__all__ = [
    "CHECKS",
    "CLUSTER_QUEUES",
    "COHORTS",
    "FLAVORS",
    "LOCAL_QUEUES",
    "PREBUILT",
    "WORKLOADS",
    "Held",
    "HeldWatch",
    "RuntimeClass",
    "Watches",
]


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(kueue.GROUP, "v1beta2", plural, kind, namespaced)


WORKLOADS: Final = OwnResource(_kueue("workloads", "Workload", namespaced=True))
CLUSTER_QUEUES: Final = _kueue("clusterqueues", "ClusterQueue")
LOCAL_QUEUES: Final = _kueue("localqueues", "LocalQueue", namespaced=True)
COHORTS: Final = _kueue("cohorts", "Cohort")
FLAVORS: Final = _kueue("resourceflavors", "ResourceFlavor")
#: The index of jobs by the Workload that they name.
PREBUILT: Final = "prebuilt"
#: Below it no pod has its priority.
LOWEST: Final = -(2**31)
TOPOLOGIES: Final = _kueue("topologies", "Topology")
_CLASSES: Final = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")
CHECKS: Final = _kueue("admissionchecks", "AdmissionCheck")
_PRIORITIES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
_LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
_RUNTIME_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)

W = TypeVar("W")


class Overhead(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod uses beside its containers."""

    pod_fixed: kueue.Amounts | None = None


class RuntimeClass(msgspec.Struct, frozen=True, rename="camel"):
    """A way to run pods, for its overhead."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: Overhead | None = None


class _WrittenMeta(MetaWithFinalizers, frozen=True, rename="camel"):
    managed_fields: list[dict[str, Any]] | None = None


class _WrittenClusterQueue(kueue.ClusterQueue, frozen=True, rename="camel"):
    """A ClusterQueue whose authors are read too."""

    metadata: _WrittenMeta = _WrittenMeta()


@dataclass(frozen=True, slots=True)
class Held(Generic[W]):
    """One object as the API server has it."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    object: W

    @classmethod
    def of(cls, obj: W) -> Held[W]:
        """Return the record of an object; managed fields are of no use and are released."""
        if isinstance(obj, dict):
            obj.get("metadata", {}).pop("managedFields", None)
        uid, namespace, name, version = identity_of(obj)
        return cls(uid, namespace, name, version, obj)


HeldWatch: TypeAlias = Watch[W, Held[W]]


class Watches:
    """All watches of one plane."""

    def __init__(
        self,
        mirror: Mirror,
        clock: Clock,
        kinds: Sequence[JobKind],
        *,
        report: Callable[[Exception], None],
        restarted: Callable[[str, str], None],
    ) -> None:
        self._clock = clock
        self._troubles = Troubles(clock)
        watcher = Watcher(mirror, report, restarted)

        def watch(
            resource: Resource,
            wire: type[W],
            *,
            required: bool = True,
            convert: Callable[[W], Held[W]] = Held.of,
        ) -> HeldWatch[W]:
            return watcher.watch(resource, wire, convert, required=required)

        parts = SharedParts()
        self.workloads = watch(
            WORKLOADS, kueue.Workload, convert=lambda obj: Held.of(parts.workload(obj))
        )
        self.cluster_queue_authors = StatusAuthors(clock)
        self.cluster_queues: Watch[_WrittenClusterQueue, Held[kueue.ClusterQueue]] = watcher.watch(
            CLUSTER_QUEUES, _WrittenClusterQueue, self._queue_of, None, required=True
        )
        self.local_queues = watch(LOCAL_QUEUES, kueue.LocalQueue)
        self.cohorts = watch(COHORTS, kueue.Cohort)
        self.flavors = watch(FLAVORS, kueue.ResourceFlavor)
        self.topologies = watch(TOPOLOGIES, kueue.Topology, required=False)
        self.classes = watch(_CLASSES, kueue.WorkloadPriorityClass)
        self.checks = watch(CHECKS, kueue.AdmissionCheck)
        self.namespaces = watch(NAMESPACES, Namespace)
        self.priorities = watch(_PRIORITIES, PriorityClass)
        self.limit_ranges = watch(_LIMIT_RANGES, LimitRange)
        self.claim_templates = watch(DEVICE_TEMPLATES, ResourceClaimTemplate, required=False)
        self.runtime_classes = watch(_RUNTIME_CLASSES, RuntimeClass, required=False)
        self.jobs: dict[str, HeldWatch[dict[str, Any]]] = {
            kind.key: _pods(watcher, kind, kinds)
            if kind.gate
            else watcher.watch(
                resource_of(kind), dict[str, Any], Held.of, {PREBUILT: _prebuilt}, required=False
            )
            for kind in kinds
        }
        self.runtimes: dict[str, HeldWatch[dict[str, Any]]] = {
            name: watch(
                Resource(*_group_version(version), plural, name, namespaced),
                dict[str, Any],
                required=False,
            )
            for kind in kinds
            if kind.runtime is not None
            for name, version, plural, namespaced in kind.runtime.kinds
        }

    def _queue_of(self, written: _WrittenClusterQueue) -> Held[kueue.ClusterQueue]:
        """Return the queue without its authors, which are recorded."""
        self.cluster_queue_authors.observe(written.metadata.managed_fields)
        return Held.of(msgspec.convert(written, kueue.ClusterQueue, from_attributes=True))

    def __iter__(self) -> Iterator[HeldWatch[Any]]:
        every: tuple[HeldWatch[Any], ...] = (
            self.workloads,
            self.cluster_queues,
            self.local_queues,
            self.cohorts,
            self.flavors,
            self.topologies,
            self.classes,
            self.checks,
            self.namespaces,
            self.priorities,
            self.limit_ranges,
            self.claim_templates,
            self.runtime_classes,
            *self.jobs.values(),
            *self.runtimes.values(),
        )
        yield from every

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start all reflectors."""
        start(self, group)

    def preempts_below(self, name: str) -> int:
        """Return below which priority pods of a PriorityClass preempt; no name is the default one.

        Below no priority at all where the class states Never.
        """
        if name:
            held = self.priorities.cache.named("", name)
            found = None if held is None else held.object
        else:
            classes = (each.object for each in self.priorities.cache)
            found = next((each for each in classes if each.global_default), None)
        if found is None:
            return 0
        return LOWEST if found.preemption_policy == "Never" else found.value

    async def synced(self) -> None:
        """Wait for the first list of every kind that is served."""
        for watch in self:
            while not self._is_synced(watch):
                await self._clock.sleep(SECOND // 20)

    @property
    def ready(self) -> bool:
        """Whether every kind that is served was listed."""
        return all(self._is_synced(watch) for watch in self)

    def troubles(self) -> list[str]:
        """Return one line for each kind that cannot be read, but for those that are absent."""
        return self._troubles.lines(watch.reflector for watch in self if not watch.absent)

    @staticmethod
    def _is_synced(watch: HeldWatch[Any]) -> bool:
        return watch.absent or watch.reflector.synced.is_set()


def _prebuilt(job: Held[dict[str, Any]]) -> Iterable[str]:
    """Return the key of the Workload that a job names."""
    name = prebuilt_of(job.object)
    return (f"{job.namespace}/{name}",) if name else ()


def _pod_record(pod: Pod | dict[str, Any]) -> Held[dict[str, Any]]:
    if isinstance(pod, dict):
        return Held.of(pod)
    uid, namespace, name, version = identity_of(pod)
    kept = name_alone(namespace, name, uid)
    return Held(uid, kept["metadata"]["namespace"], name, version, kept)


def _pods(watcher: Watcher, kind: JobKind, kinds: Sequence[JobKind]) -> HeldWatch[dict[str, Any]]:
    """Return the watch of pods, of which those that are queued come whole."""
    found: Watch[Pod, Held[dict[str, Any]]] = watcher.watch(
        resource_of(kind),
        Pod,
        _pod_record,
        pod_indexes(kinds),
        required=False,
        whole=is_queued,
    )
    return cast("HeldWatch[dict[str, Any]]", found)


def _group_version(text: str) -> tuple[str, str]:
    group, _, version = text.rpartition("/")
    return group, version

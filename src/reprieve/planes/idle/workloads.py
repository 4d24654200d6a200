"""What this process knows of each GpuWorkload: the API's object and what is not written in it.

Invariants: `object` is the newest version seen, from the watch or from the answer to a write of
ours, by resourceVersion. `status` is that object's status plus what only this process knows (when
each sample was last seen) plus the last poll, which is merged in again after every newer version,
so that no decision is made on a value that a later poll has replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubeworld.units.instants import Nanos
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.model import Phase, Policy, Status
from reprieve.engine.idle.samples import ImpossibleReading, Reading, merge
from reprieve.engine.idle.vendors import HAMI
from reprieve.intake.gpuworkloads import ref_of, remembered, root_of, status_from_api
from reprieve.intake.readings import impossible_by_namespace, readings_by_namespace
from reprieve.kube.objects import version_number
from reprieve.planes.common.foreign_decider import UNWRITTEN, StatusWrites, status_writes
from reprieve.planes.idle.idle_time import IdleTime
from reprieve.planes.idle.measures.scraper import PodKey, Poll
from reprieve.planes.idle.records import WatchedGpuWorkload, WorkloadRecord
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.references import Reference

__all__ = ["KnownPoll", "TrackedWorkload", "TrackedWorkloads", "key_of"]


def key_of(namespace: str, name: str) -> GpuWorkloadKey:
    """Return `namespace/name`."""
    return GpuWorkloadKey(f"{namespace}/{name}")


@dataclass(frozen=True, slots=True)
class KnownPoll:
    """A poll, arranged for merging.

    `sharing`: as in `Poll`. `by_share`: pods of which an exporter states what their shares use.
    """

    at: Nanos
    readings: Mapping[str, Mapping[str, Sequence[Reading]]]
    impossible: Mapping[str, Sequence[ImpossibleReading]]
    unreachable: frozenset[PodKey]
    failing: bool
    sharing: Mapping[PodKey, Mapping[str, frozenset[PodKey]]] = field(default_factory=dict)
    by_share: frozenset[PodKey] = frozenset()

    @classmethod
    def of(cls, poll: Poll) -> KnownPoll:
        """Return the poll by namespace and pod."""
        samples = [sample for found in poll.samples.values() for sample in found]
        invalid = [sample for found in poll.invalid.values() for sample in found]
        return cls(
            poll.at,
            readings_by_namespace(samples),
            impossible_by_namespace(invalid),
            poll.unreachable,
            poll.failing,
            poll.sharing,
            frozenset(pod for pod, found in poll.samples.items() if found[0].vendor == HAMI.name),
        )


@dataclass(slots=True)
class TrackedWorkload:
    """One GpuWorkload; `released` is when its last pod was deleted, as far as seen."""

    object: GpuWorkload
    status: Status
    released: Nanos | None = None
    had_pods: bool = False
    writes: StatusWrites = UNWRITTEN
    ref: Reference = field(init=False)
    root: Reference = field(init=False)

    def __post_init__(self) -> None:
        self.ref = ref_of(self.object)
        self.root = root_of(self.object)

    @property
    def key(self) -> GpuWorkloadKey:
        return key_of(self.ref.namespace, self.ref.name)

    @property
    def version(self) -> int:
        return version_number(self.object.metadata.resource_version)

    @property
    def written(self) -> Status:
        """The status as the API server holds it."""
        return status_from_api(self.object.status)

    @property
    def over(self) -> bool:
        """Whether it is in a terminal phase."""
        return self.status.phase in (Phase.PREEMPTED, Phase.DELETED)


class TrackedWorkloads:
    """All GpuWorkloads by key and by root."""

    def __init__(self, policy: Policy, idle_time: IdleTime | None = None) -> None:
        self._policy = policy
        self._idle_time = idle_time
        self._held: dict[GpuWorkloadKey, TrackedWorkload] = {}
        # All and only held workloads, by root uid; more than one only when made by hand.
        self._by_root: dict[str, dict[GpuWorkloadKey, TrackedWorkload]] = {}
        self._poll: KnownPoll | None = None

    def __iter__(self) -> Iterator[TrackedWorkload]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    @property
    def poll(self) -> KnownPoll | None:
        """The last poll."""
        return self._poll

    def get(self, key: GpuWorkloadKey) -> TrackedWorkload | None:
        """Return the workload under a key."""
        return self._held.get(key)

    def of_root(self, uid: str) -> list[TrackedWorkload]:
        """Return the workloads whose root has this uid."""
        return list(self._by_root.get(uid, {}).values())

    def observe(self, workload: GpuWorkload) -> TrackedWorkload:
        """Hold this version unless a newer one of the same object is held."""
        key = key_of(workload.metadata.namespace, workload.metadata.name)
        held = self._held.get(key)
        if held is not None and held.ref.uid == workload.metadata.uid:
            if version_number(workload.metadata.resource_version) <= held.version:
                return held
            held.status = remembered(status_from_api(workload.status), held.status)
            if held.object.spec.workload_ref != workload.spec.workload_ref:
                self._forget_root(held)
            held.object = workload
            held.root = root_of(workload)
        else:
            if held is not None:
                self._forget_root(held)
            held = TrackedWorkload(workload, status_from_api(workload.status))
            self._held[key] = held
        self._by_root.setdefault(held.root.uid, {})[key] = held
        self._merge(held)
        return held

    def observe_record(self, record: WorkloadRecord) -> TrackedWorkload:
        """Hold what the watch shows."""
        watched: WatchedGpuWorkload = record.object
        held = self.observe(watched)
        held.writes = status_writes(watched.metadata.managed_fields)
        return held

    def remove(self, record: WorkloadRecord) -> None:
        """Release a GpuWorkload that was deleted."""
        key = key_of(record.namespace, record.name)
        held = self._held.get(key)
        if held is not None and held.ref.uid == record.uid:
            self._forget_root(held)
            del self._held[key]
            if self._idle_time is not None:
                self._idle_time.forget(key)

    def remember(self, held: TrackedWorkload, status: Status) -> None:
        """Keep a status that was decided, whether or not it is worth a write."""
        held.status = status

    def settle(self, held: TrackedWorkload) -> None:
        """Have it be idle for no longer than this process saw."""
        if self._idle_time is not None:
            since = self._idle_time.since(held.key, held.status.idle_since)
            if since != held.status.idle_since:
                held.status = replace(held.status, idle_since=since)

    def release(self, held: TrackedWorkload) -> None:
        """Release a decision that could not be written: it is made, and reported, again."""
        known = held.status
        held.status = replace(
            held.written,
            tracked_pods=known.tracked_pods,
            last_metrics_update=known.last_metrics_update,
        )

    def apply(self, poll: KnownPoll) -> list[GpuWorkloadKey]:
        """Apply a poll; return the keys of the workloads that it may concern."""
        self._poll = poll
        if self._idle_time is not None:
            self._idle_time.polled()
        concerned = []
        for key, held in self._held.items():
            if not held.over:
                self._merge(held)
                concerned.append(key)
        return concerned

    def _merge(self, held: TrackedWorkload) -> None:
        poll = self._poll
        if poll is None or held.over:
            return
        namespace = held.ref.namespace
        held.status = merge(
            held.status,
            poll.readings.get(namespace, {}),
            poll.at,
            self._policy,
            poll.impossible.get(namespace, ()),
        ).status

    def _forget_root(self, held: TrackedWorkload) -> None:
        siblings = self._by_root.get(held.root.uid, {})
        siblings.pop(held.key, None)
        if not siblings:
            self._by_root.pop(held.root.uid, None)

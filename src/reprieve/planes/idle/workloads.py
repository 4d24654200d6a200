"""What this process knows of each GpuWorkload: the API's object and what is not written in it.

Invariants: `object` is the newest version seen, from the watch or from the answer to a write of
ours, by resourceVersion. `status` is that object's status plus what only this process knows (when
each sample was last seen) plus the last poll, which is merged in again after every newer version,
so that no decision is made on a value that a later poll has replaced.

A user who deletes the GpuWorkload of work that is opted in changes nothing about that work. It is
kept without its object, `absent`, until there is one of the same root again, which continues from
its status: otherwise its idle time would begin anew, and work whose GpuWorkload is deleted often
enough would never be evicted. For the same reason a phase that this process decided stands when
another client writes one of living work; a mark, an end, and after a restart all that is written
are believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from kubeworld.units.instants import Nanos
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.model import Phase, Policy, Status
from reprieve.engine.idle.samples import ImpossibleReading, Reading, merge
from reprieve.engine.idle.transitions import LIVING
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

__all__ = ["KnownPoll", "Named", "TrackedWorkload", "TrackedWorkloads", "key_of"]


_FORMER: Final = 64


def key_of(namespace: str, name: str) -> GpuWorkloadKey:
    """Return `namespace/name`."""
    return GpuWorkloadKey(f"{namespace}/{name}")


class Named(Protocol):
    """What names a GpuWorkload."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


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
    """One GpuWorkload; `released` is when its last pod was deleted, as far as seen.

    Attributes:
        absent: whether `object` was deleted by a user, though its root is opted in.
        carried: the status of a deleted one of the same root, until this one has its own.
        decided: what this process decided last; None while it writes a mark, and in a dry run.
        former: uids of deleted ones of the same root, newest last.
        made_again: how often this process created it anew, `made_at` when at last: monotonic.
    """

    object: GpuWorkload
    status: Status
    released: Nanos | None = None
    had_pods: bool = False
    writes: StatusWrites = UNWRITTEN
    absent: bool = False
    carried: Status | None = None
    decided: Status | None = None
    former: tuple[str, ...] = ()
    made_again: int = 0
    made_at: int = 0
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
    def base(self) -> Status:
        """What is written, or what stands for it: what was decided, or carried over."""
        if self.carried and not self.object.status.phase:
            return self.carried
        return self.as_decided(self.written)

    def as_decided(self, written: Status) -> Status:
        """Return a status that the API server holds with the phase that was decided."""
        decided = self.decided
        if decided is None or decided.phase not in LIVING or written.phase not in LIVING:
            return written
        return replace(
            written,
            phase=decided.phase,
            idle_since=decided.idle_since,
            finished_at=decided.finished_at,
            preempted_at=decided.preempted_at,
            preempted_for=decided.preempted_for,
            preemption_reason=decided.preemption_reason,
        )

    def stands_for(self, uid: str) -> bool:
        """Whether it is the GpuWorkload with this uid, or that of the same work after it."""
        return uid == self.ref.uid or uid in self.former

    @property
    def over(self) -> bool:
        """Whether it is in a terminal phase."""
        return self.status.phase in (Phase.PREEMPTED, Phase.DELETED)


class TrackedWorkloads:
    """All GpuWorkloads by key and by root.

    `opted_in`: whether a root is there and wants to have one, as far as is known.
    """

    def __init__(
        self,
        policy: Policy,
        idle_time: IdleTime | None = None,
        opted_in: Callable[[Reference], bool] = lambda root: False,
    ) -> None:
        self._opted_in = opted_in
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

    def standing_for(self, subject: Named, root: str = "") -> TrackedWorkload | None:
        """Return the GpuWorkload that is named, or that of the same work after it.

        `root`: the uid of its root where it is known.
        """
        held = self._held.get(key_of(subject.namespace, subject.name))
        if held is not None and (held.stands_for(subject.uid) or held.root.uid == root):
            return held
        others = self.of_root(root) if root else self._held.values()
        return next((each for each in others if root or subject.uid in each.former), None)

    def observe(self, workload: GpuWorkload) -> TrackedWorkload:
        """Hold this version unless a newer one of the same object is held."""
        key = key_of(workload.metadata.namespace, workload.metadata.name)
        held = self._held.get(key)
        if held is not None and held.ref.uid == workload.metadata.uid:
            newer = version_number(workload.metadata.resource_version) > held.version
            if held.absent or not newer:
                return held
            if held.object.spec.workload_ref != workload.spec.workload_ref:
                self._forget_root(held)
            held.object = workload
            held.root = root_of(workload)
            held.status = remembered(held.base, held.status)
        else:
            if held is not None:
                self._forget_root(held)
            held = self._after(held, TrackedWorkload(workload, status_from_api(workload.status)))
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
        """Release a GpuWorkload that was deleted, unless its root is to have one."""
        held = self._held.get(key_of(record.namespace, record.name))
        if held is not None and held.ref.uid == record.uid and self.deleted(held) is None:
            self.drop(held)

    def deleted(self, held: TrackedWorkload) -> TrackedWorkload | None:
        """Return what stays of a GpuWorkload that was deleted, None where nothing does."""
        others = any(each is not held for each in self.of_root(held.root.uid))
        if held.over or others or not self._opted_in(held.root):
            return None
        held.absent = True
        return held

    def drop(self, held: TrackedWorkload) -> None:
        """Release a GpuWorkload."""
        self._forget_root(held)
        self._held.pop(held.key, None)
        if self._idle_time is not None:
            self._idle_time.forget(held.key)

    def remember(self, held: TrackedWorkload, status: Status) -> Status | None:
        """Keep a status that was decided, whether or not it is worth a write.

        Return what was decided before.
        """
        before, held.decided, held.status = held.decided, status, status
        return before

    def settle(self, held: TrackedWorkload) -> None:
        """Have it be idle for no longer than this process saw."""
        if self._idle_time is not None:
            since = self._idle_time.since(held.key, held.status.idle_since)
            if since != held.status.idle_since:
                held.status = replace(held.status, idle_since=since)

    def release(self, held: TrackedWorkload, before: Status | None) -> None:
        """Release a decision that could not be written: it is made, and reported, again.

        `before`: what was decided before it.
        """
        known = held.status
        held.decided = before
        held.status = replace(
            held.base,
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

    def _after(self, same: TrackedWorkload | None, new: TrackedWorkload) -> TrackedWorkload:
        """Return a new one, which continues from another one of its root, a deleted one first.

        `same`: what was held under its name.
        """
        others = [each for each in self.of_root(new.root.uid) if not each.over]
        if same is not None and same.root.uid == new.root.uid and not same.over:
            others.append(same)
        if not others:
            return new
        before = max(others, key=lambda each: (each.absent, each is same))
        new.former = (*before.former, before.ref.uid)[-_FORMER:]
        new.released, new.had_pods = before.released, before.had_pods
        new.made_again, new.made_at = before.made_again, before.made_at
        if not new.object.status.phase:
            new.status = new.carried = before.status
        elif before.absent:
            new.decided = before.decided
            new.status = new.base
        if before.absent and before is not same:
            self.drop(before)
        return new

    def _forget_root(self, held: TrackedWorkload) -> None:
        siblings = self._by_root.get(held.root.uid, {})
        siblings.pop(held.key, None)
        if not siblings:
            self._by_root.pop(held.root.uid, None)

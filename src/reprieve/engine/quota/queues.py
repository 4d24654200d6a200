"""The pending workloads of every ClusterQueue, and what happens to a head that was not admitted.

Order inside a ClusterQueue, first difference decides:

1. the sticky workload: of a BestEffortFIFO queue, the one whose preemptions are in flight
2. with usage-based admission fair sharing, the lower usage of the LocalQueue
3. higher effective priority
4. older timestamp (`timing`)
5. uid, then namespace/name

A head that was not admitted goes back into the queue at once, or is set aside as inadmissible:

* StrictFIFO: back at once, but for a namespace that does not match
* BestEffortFIFO: back at once if it failed after nomination, if its preemptions are pending or
  failed, if flavors are left to try, or if what was set aside was flushed since this head was taken

What is set aside comes back by `flush`. Nothing is queued before its backoff ends, while it is not
requeued, not active, gated, or while its LocalQueue is stopped.

Source: specification of the quota plane, sections 4, 8.4 and 9.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reprieve.engine.quota.assignment import Bookmark
from reprieve.engine.quota.model import Configuration, QueueingStrategy, StopPolicy, Workload
from reprieve.engine.quota.state import effective_priority, inactive_queues
from reprieve.engine.quota.timing import queue_timestamp
from reprieve.units.instants import Nanos

__all__ = ["LastScan", "Queues", "RequeueReason", "shape"]


class RequeueReason(StrEnum):
    """Why a head was not admitted."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    PREEMPTION_GATED = "PreemptionGated"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"


AT_ONCE = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
ALIKE = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


@dataclass(frozen=True, slots=True)
class LastScan:
    """Where the scan of flavors stopped, and when: it is good for one generation of the queue."""

    bookmark: Bookmark
    pending: bool
    generation: int
    cycle: int
    shape: object


Key = tuple[int, int, str, str]


@dataclass(slots=True)
class _Pending:
    rows: list[Key] = field(default_factory=list)
    inadmissible: dict[str, Workload] = field(default_factory=dict)
    sticky: str = ""
    popped: int = 0
    flushed: int = -1


def shape(workload: Workload, priority: int) -> object:
    """Return what two workloads have in common when they fit or do not fit alike."""
    return (
        priority,
        tuple(
            (
                each.count,
                each.min_count,
                tuple(sorted(each.requests.items())),
                tuple(sorted(each.node_selector.items())),
                each.affinity,
                each.tolerations,
                each.group,
            )
            for each in workload.pod_sets
        ),
        tuple(sorted(workload.reclaimable.items())),
    )


class Queues:
    """Pending workloads by ClusterQueue; belongs to whoever feeds it events."""

    def __init__(self, configuration: Configuration) -> None:
        self._workloads: dict[str, Workload] = {}
        self._home: dict[str, str] = {}
        self._scans: dict[str, LastScan] = {}
        self._queues: dict[str, _Pending] = {}
        self._waiting: dict[str, Workload] = {}
        self._preemptors: set[str] = set()
        self.local_queue_usage: dict[str, float] = {}
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Take a new configuration; everything set aside is tried again."""
        known = {**self._workloads, **self._waiting}
        scans = self._scans
        self.configuration = configuration
        self.inactive = inactive_queues(configuration)
        self._queues = {name: _Pending() for name in sorted(configuration.cluster_queues)}
        self._workloads, self._home, self._waiting = {}, {}, {}
        for workload in known.values():
            self.push(workload)
        self._scans = {key: scan for key, scan in scans.items() if key in known}

    def push(self, workload: Workload, now: Nanos | None = None) -> None:
        """Queue a workload, in place of what was known of it.

        What was set aside stays so unless its spec or its conditions changed.
        """
        key = workload.key
        before = self._workloads.get(key)
        if before == workload and now is None:
            return
        aside = before is not None and key in self._queues[self._home[key]].inadmissible
        same = before is not None and _same(before, workload)
        scan = self._scans.get(key)
        self.delete(key)
        name = self._cluster_queue(workload)
        if name is None or not _may_queue(workload, now):
            self._waiting[key] = workload
            return
        self._workloads[key] = workload
        self._home[key] = name
        if same and scan is not None:
            self._scans[key] = scan
        queue = self._queues[name]
        if aside and same:
            queue.inadmissible[key] = workload
        else:
            insort(queue.rows, self._key(workload))

    def delete(self, key: str) -> None:
        """Forget a workload; one that is not known changes nothing."""
        self._waiting.pop(key, None)
        self._scans.pop(key, None)
        workload = self._workloads.pop(key, None)
        if workload is None:
            return
        queue = self._queues[self._home.pop(key)]
        self._preemptors.discard(key)
        if queue.sticky == key:
            queue.sticky = ""
        if queue.inadmissible.pop(key, None) is None:
            row = self._key(workload)
            position = bisect_left(queue.rows, row)
            if position < len(queue.rows) and queue.rows[position] == row:
                del queue.rows[position]

    def heads(self, now: Nanos) -> list[tuple[str, Workload]]:
        """Take one head of each active ClusterQueue, by the queues' names."""
        self._due(now)
        taken = []
        for name, queue in self._queues.items():
            if name in self.inactive or not queue.rows:
                continue
            row = self._first(name, queue)
            queue.rows.remove(row) if row is not queue.rows[0] else queue.rows.pop(0)
            queue.popped += 1
            taken.append((name, self._workloads[row[3]]))
        return taken

    def requeue(
        self, workload: Workload, reason: RequeueReason, scan: LastScan | None = None
    ) -> bool:
        """Give back a head that was not admitted; return whether it left the queue.

        `scan` is where its search of flavors stopped.
        """
        key = workload.key
        name = self._home.get(key)
        if name is None or key not in self._workloads:
            return True
        self._scans.pop(key, None)
        if scan is not None:
            self._scans[key] = scan
        queue = self._queues[name]
        best_effort = (
            self.configuration.cluster_queues[name].strategy is QueueingStrategy.BEST_EFFORT_FIFO
        )
        self._preemptors.discard(key)
        if reason is RequeueReason.PENDING_PREEMPTION:
            self._preemptors.add(key)
        if reason is RequeueReason.PENDING_PREEMPTION and best_effort:
            queue.sticky = key
        elif queue.sticky == key:
            queue.sticky = ""
        if not _may_queue(workload, None):
            self.push(workload)
            return True
        at_once = reason is not RequeueReason.NAMESPACE_MISMATCH
        if best_effort:
            at_once = (
                reason in AT_ONCE
                or (scan is not None and scan.pending)
                or queue.flushed >= queue.popped
            )
        if at_once:
            insort(queue.rows, self._key(workload))
            return False
        queue.inadmissible[key] = workload
        hashing = self.configuration.settings.gates.scheduling_equivalence_hashing
        if hashing and best_effort and reason in ALIKE:
            self._set_aside_alike(queue, workload)
        return True

    def admitted(self, key: str) -> None:
        """Forget a head that got its quota."""
        self.delete(key)

    def flush(self, cluster_queues: Iterable[str]) -> None:
        """Queue again what was set aside in these ClusterQueues."""
        for name in cluster_queues:
            queue = self._queues.get(name)
            if queue is None:
                continue
            queue.flushed = queue.popped
            aside, queue.inadmissible = queue.inadmissible, {}
            for workload in aside.values():
                insort(queue.rows, self._key(workload))

    def last_scan(self, key: str) -> LastScan | None:
        """Return where the search of flavors for a workload stopped."""
        return self._scans.get(key)

    def awaits_preemption(self, key: str) -> bool:
        """Tell whether a workload waits for its own victims."""
        return key in self._preemptors

    def active(self) -> dict[str, list[str]]:
        """Return the keys in each queue, in order; queues without any are left out."""
        return {
            name: [row[3] for row in queue.rows]
            for name, queue in self._queues.items()
            if queue.rows
        }

    def inadmissible(self) -> dict[str, list[str]]:
        """Return the keys set aside, by ClusterQueue."""
        return {
            name: sorted(queue.inadmissible)
            for name, queue in self._queues.items()
            if queue.inadmissible
        }

    def waiting(self) -> Mapping[str, Workload]:
        """Return what may not be queued now, by key."""
        return self._waiting

    def pending(self) -> Iterator[Workload]:
        """Yield every pending workload."""
        yield from self._workloads.values()
        yield from self._waiting.values()

    def _due(self, now: Nanos) -> None:
        due = [
            w for w in self._waiting.values() if w.requeue_at is not None and w.requeue_at <= now
        ]
        for workload in due:
            self.push(workload, now)

    def _first(self, name: str, queue: _Pending) -> Key:
        if queue.sticky:
            for row in queue.rows:
                if row[3] == queue.sticky:
                    return row
        settings = self.configuration.settings
        if self.configuration.cluster_queues[name].usage_based and settings.admission_fair_sharing:
            usage = self.local_queue_usage
            return min(
                queue.rows, key=lambda row: (usage.get(self._workloads[row[3]].queue, 0.0), row)
            )
        return queue.rows[0]

    def _set_aside_alike(self, queue: _Pending, workload: Workload) -> None:
        settings = self.configuration.settings
        same = shape(workload, effective_priority(workload, settings))
        start = bisect_left(queue.rows, (self._key(workload)[0],))
        alike = []
        for row in queue.rows[start:]:
            if row[0] != self._key(workload)[0]:
                break
            other = self._workloads[row[3]]
            if shape(other, effective_priority(other, settings)) == same:
                alike.append(row)
        for row in alike:
            queue.rows.remove(row)
            queue.inadmissible[row[3]] = self._workloads[row[3]]

    def _key(self, workload: Workload) -> Key:
        settings = self.configuration.settings
        return (
            -effective_priority(workload, settings),
            int(queue_timestamp(workload, settings)),
            workload.uid,
            workload.key,
        )

    def _cluster_queue(self, workload: Workload) -> str | None:
        local = self.configuration.local_queues.get(workload.queue)
        if local is None or local.stop_policy is not StopPolicy.NONE:
            return None
        return local.cluster_queue if local.cluster_queue in self._queues else None


def _may_queue(workload: Workload, now: Nanos | None) -> bool:
    backing_off = workload.requeue_at is not None and (now is None or workload.requeue_at > now)
    return (
        workload.active
        and workload.requeued
        and not backing_off
        and not workload.finished
        and not workload.admission_gated
        and workload.admission is None
    )


def _same(before: Workload, after: Workload) -> bool:
    return (
        before.pod_sets == after.pod_sets
        and before.reclaimable == after.reclaimable
        and before.priority == after.priority
        and before.boost == after.boost
        and before.queue == after.queue
        and before.evicted == after.evicted
        and before.requeue_at == after.requeue_at
        and before.requeued == after.requeued
        and before.checks == after.checks
    )

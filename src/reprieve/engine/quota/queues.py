"""The pending workloads of every ClusterQueue, and what happens to a head that was not admitted.

Order inside a ClusterQueue, first difference decides:

1. with usage-based admission fair sharing, the lower usage of the LocalQueue
2. the sticky workload: of a BestEffortFIFO queue, the one whose preemptions are in flight
3. higher effective priority
4. older timestamp (`timing`)
5. uid, then namespace/name

A head that was not admitted goes back into the queue at once, or is set aside as inadmissible:

* StrictFIFO: back at once, but for a namespace that does not match
* BestEffortFIFO: back at once if it failed after nomination, if its preemptions are pending or
  failed, if flavors are left to try, or if what was set aside was flushed since this head was taken

With a head that does not fit or finds no candidates, a BestEffortFIFO queue sets aside everything
of the same shape, what comes later included. What is set aside comes back by `flush`, but not
before its backoff ends or while it is not requeued. Not queued at all is what is not active or
gated, and what has no ClusterQueue or a stopped LocalQueue.

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
    preemptor: str = ""
    alike: set[object] = field(default_factory=set)
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
        self._backing: dict[str, Workload] = {}
        self._taken: set[str] = set()
        # Shapes that were asked for, each with the version of the workload that it is of.
        self._shapes: dict[str, tuple[Workload, object]] = {}
        self._now = Nanos(0)
        self.local_queue_usage: dict[str, float] = {}
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Take a new configuration; everything set aside is tried again."""
        known = {**self._workloads, **self._waiting}
        scans = self._scans
        self.configuration = configuration
        self.inactive = inactive_queues(configuration)
        before = self._queues
        self._queues = {
            name: _Pending(preemptor=before[name].preemptor if name in before else "")
            for name in sorted(configuration.cluster_queues)
        }
        self._workloads, self._home, self._waiting, self._backing = {}, {}, {}, {}
        self._taken, self._shapes = set(), {}
        for workload in known.values():
            self.push(workload)
        self._scans = {key: scan for key, scan in scans.items() if key in known}

    def push(self, workload: Workload) -> None:
        """Queue a workload, in place of what was known of it.

        What was set aside stays so unless what decides about it changed.
        """
        key = workload.key
        if key in self._taken and _may_queue(workload):
            # It is being decided about; `requeue` puts it where it belongs.
            self._workloads[key] = workload
            return
        before, scan = self._workloads.get(key), self._scans.get(key)
        same = before is not None and _same(before, workload)
        aside = before is not None and key in self._queues[self._home[key]].inadmissible
        queued = before is not None and not aside
        preempts = self.awaits_preemption(key)
        self.delete(key)
        name = self._cluster_queue(workload)
        if name is None or not _may_queue(workload):
            self._waiting[key] = workload
            return
        self._workloads[key] = workload
        self._home[key] = name
        queue = self._queues[name]
        if same and scan is not None:
            self._scans[key] = scan
        if preempts:
            queue.preemptor = key
        if not queued and self._backs_off(workload):
            self._backing[key] = workload
            queue.inadmissible[key] = workload
        elif (aside and same) or (not queued and self._is_alike(queue, workload)):
            queue.inadmissible[key] = workload
        else:
            insort(queue.rows, self._key(workload))

    def delete(self, key: str) -> None:
        """Forget a workload; one that is not known changes nothing."""
        self._waiting.pop(key, None)
        self._backing.pop(key, None)
        self._scans.pop(key, None)
        self._shapes.pop(key, None)
        self._taken.discard(key)
        workload = self._workloads.pop(key, None)
        if workload is None:
            return
        queue = self._queues[self._home.pop(key)]
        if queue.preemptor == key:
            queue.preemptor = ""
        if queue.inadmissible.pop(key, None) is None:
            row = self._key(workload)
            position = bisect_left(queue.rows, row)
            if position < len(queue.rows) and queue.rows[position] == row:
                del queue.rows[position]

    def heads(self, now: Nanos) -> list[tuple[str, Workload]]:
        """Take one head of each active ClusterQueue, by the queues' names."""
        self._now = now
        self._due(now)
        taken = []
        for name, queue in self._queues.items():
            if name in self.inactive or not queue.rows:
                continue
            row = self._first(name, queue)
            queue.rows.remove(row) if row is not queue.rows[0] else queue.rows.pop(0)
            queue.popped += 1
            taken.append((name, self._workloads[row[3]]))
            self._taken.add(row[3])
        return taken

    def requeue(self, key: str, reason: RequeueReason, scan: LastScan | None = None) -> bool:
        """Give back a head that was not admitted; return whether it left the queue.

        `scan` is where its search of flavors stopped.
        """
        name = self._home.get(key)
        if name is None or key not in self._taken:
            return True
        self._taken.discard(key)
        workload = self._workloads[key]
        if self._cluster_queue(workload) != name:
            self.delete(key)
            self.push(workload)
            return True
        self._scans.pop(key, None)
        if scan is not None:
            self._scans[key] = scan
        queue = self._queues[name]
        best_effort = self._best_effort(name)
        if reason in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION):
            queue.preemptor = key
        elif queue.preemptor == key:
            queue.preemptor = ""
        if self._backs_off(workload):
            self._backing[key] = workload
            queue.inadmissible[key] = workload
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

    def preemption_failed(self, key: str) -> None:
        """Let a head that waited for its victims be one of many again: none is on its way."""
        if self.awaits_preemption(key):
            self._queues[self._home[key]].preemptor = ""

    def flush(self, cluster_queues: Iterable[str]) -> None:
        """Queue again what was set aside in these ClusterQueues."""
        for name in cluster_queues:
            queue = self._queues.get(name)
            if queue is None:
                continue
            queue.flushed = queue.popped
            queue.alike.clear()
            aside, queue.inadmissible = queue.inadmissible, {}
            for key, workload in aside.items():
                if key in self._backing:
                    queue.inadmissible[key] = workload
                else:
                    insort(queue.rows, self._key(workload))

    def last_scan(self, key: str) -> LastScan | None:
        """Return where the search of flavors for a workload stopped."""
        return self._scans.get(key)

    def awaits_preemption(self, key: str) -> bool:
        """Tell whether a workload waits for its own victims."""
        name = self._home.get(key)
        return name is not None and self._queues[name].preemptor == key

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

    def _backs_off(self, workload: Workload) -> bool:
        until = workload.requeue_at
        return not workload.requeued or (until is not None and until > self._now)

    def _due(self, now: Nanos) -> None:
        """Queue what has waited for its backoff."""
        for key, workload in list(self._backing.items()):
            if workload.requeued and (workload.requeue_at is None or workload.requeue_at <= now):
                del self._backing[key]
                queue = self._queues[self._home[key]]
                del queue.inadmissible[key]
                insort(queue.rows, self._key(workload))

    def _first(self, name: str, queue: _Pending) -> Key:
        settings = self.configuration.settings
        sticky = queue.preemptor if self._best_effort(name) else ""
        if self.configuration.cluster_queues[name].usage_based and settings.admission_fair_sharing:
            usage, known = self.local_queue_usage, self._workloads
            return min(
                queue.rows,
                key=lambda row: (usage.get(known[row[3]].queue, 0.0), row[3] != sticky, row),
            )
        if sticky:
            row = self._key(self._workloads[sticky])
            position = bisect_left(queue.rows, row)
            if position < len(queue.rows) and queue.rows[position] == row:
                return row
        return queue.rows[0]

    def _best_effort(self, name: str) -> bool:
        strategy = self.configuration.cluster_queues[name].strategy
        return strategy is QueueingStrategy.BEST_EFFORT_FIFO

    def _is_alike(self, queue: _Pending, workload: Workload) -> bool:
        return bool(queue.alike) and self._shape(workload) in queue.alike

    def _shape(self, workload: Workload) -> object:
        known = self._shapes.get(workload.key)
        if known is None or known[0] is not workload:
            priority = effective_priority(workload, self.configuration.settings)
            known = self._shapes[workload.key] = (workload, shape(workload, priority))
        return known[1]

    def _set_aside_alike(self, queue: _Pending, workload: Workload) -> None:
        same = self._shape(workload)
        queue.alike.add(same)
        # Of the same shape is of the same priority, and so in one piece of the list.
        priority = self._key(workload)[0]
        start = bisect_left(queue.rows, (priority,))
        end = bisect_left(queue.rows, (priority + 1,))
        kept = []
        for row in queue.rows[start:end]:
            other = self._workloads[row[3]]
            if self._shape(other) == same:
                queue.inadmissible[row[3]] = other
            else:
                kept.append(row)
        queue.rows[start:end] = kept

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


def _may_queue(workload: Workload) -> bool:
    return (
        workload.active
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
        and before.closed_gates == after.closed_gates
    )

"""The pending workloads of every ClusterQueue, in their order.

Order inside a ClusterQueue, first difference decides:

1. with usage-based admission fair sharing, the lower usage of the LocalQueue
2. the sticky workload: of a BestEffortFIFO queue, the one whose preemptions are in flight
3. its place by priority, age and uid (`queueing`)

A head that was not admitted returns to the queue at once, or is set aside as inadmissible
(`heads`), in a BestEffortFIFO queue perhaps with everything of the same shape, what comes later
included. What is set aside comes back by `flush`, but not before its backoff ends or while it is
not requeued. A head about which deciding failed by a fault of ours is set aside for a while
(`faults`), unless it changes; so is a ClusterQueue whose head cannot be popped, and a workload that
was to preempt others when that could not be recorded. What may not be queued at all (`queueing`)
waits beside.

Source: specification of the quota plane, sections 4, 8.4 and 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.heads import ALIKE, LastScan, RequeueReason, goes_back
from reprieve.engine.quota.holdings.inactive import inactive_queues
from reprieve.engine.quota.holdings.usage_based import Consumptions
from reprieve.engine.quota.model import Configuration, Workload
from reprieve.engine.quota.waiting.faults import Faults
from reprieve.engine.quota.waiting.pending import Pending, Row
from reprieve.engine.quota.waiting.places import Places
from reprieve.engine.quota.waiting.plans import Plans
from reprieve.engine.quota.waiting.queueing import (
    cluster_queue_of,
    decides_alike,
    is_best_effort,
    may_queue,
)

__all__ = ["Queues"]

#: So many more shapes than twice the workloads are known at most.


class Queues:
    """Pending workloads by ClusterQueue; belongs to what feeds it events."""

    def __init__(self, configuration: Configuration) -> None:
        self._workloads: dict[str, Workload] = {}
        self._home: dict[str, str] = {}
        self._scans: dict[str, LastScan] = {}
        self._queues: dict[str, Pending] = {}
        self._waiting: dict[str, Workload] = {}
        self._backing: dict[str, Workload] = {}
        self._used: set[str] = set()
        self._best_effort: frozenset[str] = frozenset()
        # Since when a workload has waited for saves; until it gets its quota or is deleted.
        self._save_waits: dict[str, Nanos] = {}
        # The places that a workload's victims were chosen for, by pod set, as long.
        self.plans = Plans()
        self._doors: Counter[str] = Counter()
        # Workloads that could not be decided about, and ClusterQueues that gave no head.
        self._faults = Faults()
        self._queue_faults = Faults()
        #: Workloads whose preemptions could not be recorded.
        self.unrecorded = Faults()
        #: ClusterQueues in whose tree quota is held that is not counted: no head is popped.
        self.uncounted: frozenset[str] = frozenset()
        #: ClusterQueues whose head could not be popped this time, and why.
        self.failures: dict[str, Exception] = {}
        #: With fair sharing, ClusterQueues with admissions since set-aside work was last requeued
        #: for them; they outlast a run of cycles that ends early.
        self.grown: set[str] = set()
        self._now = Nanos(0)
        self.local_queue_usage: dict[str, float] = {}
        # Charged with each reservation, where admission fair sharing is on.
        self.consumptions: Consumptions | None = None
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Apply a new configuration; everything set aside is tried again."""
        known = {**self._workloads, **self._waiting}
        scans = self._scans
        self.configuration = configuration
        self.inactive = inactive_queues(configuration)
        self._best_effort = frozenset(
            name for name in configuration.cluster_queues if is_best_effort(configuration, name)
        )
        before = self._queues
        self._queues = {
            name: Pending(preemptor=before[name].preemptor if name in before else "")
            for name in sorted(configuration.cluster_queues)
        }
        self._workloads, self._home, self._waiting, self._backing = {}, {}, {}, {}
        self._used, self._places = set(), Places(configuration.settings)
        self._doors = Counter()
        for workload in known.values():
            self.push(workload)
        self._scans = {key: scan for key, scan in scans.items() if key in known}
        self._save_waits = {key: at for key, at in self._save_waits.items() if key in known}
        self.plans.keep(known)

    def push(self, workload: Workload) -> None:
        """Queue a workload, in place of what was known of it.

        What was set aside stays so unless what decides about it changed.
        """
        key = workload.key
        if key in self._used and may_queue(workload):
            # It is being decided about; `requeue` files it where it belongs.
            self._count(self._workloads[key], -1)
            self._count(workload, 1)
            self._workloads[key] = workload
            return
        if self.consumptions is not None:
            self.consumptions.refund(key)
        before, scan = self._workloads.get(key), self._scans.get(key)
        same = before is not None and decides_alike(before, workload)
        aside = before is not None and self._is_aside(before)
        queued = before is not None and not aside
        preempts = self.awaits_preemption(key)
        if before is not None and not same:
            self._forget_faults(key)
            self.plans.forget(key)
        self._remove(key)
        self._count(workload, 1)
        name = cluster_queue_of(workload, self.configuration)
        if name is None or not may_queue(workload):
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
            self._back_off(queue, workload)
        elif (aside and same) or (not queued and queue.is_hopeless(self._places.shape(workload))):
            queue.set_aside(*self._places.of(workload))
        else:
            queue.add(*self._places.of(workload))

    def delete(self, key: str) -> None:
        """Forget a workload; one that is not known changes nothing."""
        self._forget_faults(key)
        self._save_waits.pop(key, None)
        self.plans.forget(key)
        self._remove(key)

    def _forget_faults(self, key: str) -> None:
        self._faults.forget(key)
        self.unrecorded.forget(key)

    def _remove(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._count(waiting, -1)
        self._scans.pop(key, None)
        workload = self._workloads.pop(key, None)
        if workload is not None:
            self._count(workload, -1)
            queue = self._queues[self._home.pop(key)]
            if queue.preemptor == key:
                queue.preemptor = ""
            if key in self._backing:
                del self._backing[key]
                queue.backing.discard(key)
            elif key not in self._used:
                queue.remove(*self._places.of(workload))
        self._places.forget(key)
        self._used.discard(key)

    def heads(self, now: Nanos) -> list[tuple[str, Workload]]:
        """Pop one head of each active ClusterQueue, by the queues' names."""
        self._now = now
        self.failures = {}
        self._due()
        used = []
        for name, queue in self._asked():
            if self._queue_faults.waits(name, now):
                continue
            try:
                row = self._first(name, queue)
                if row is None:
                    continue
                workload = self._workloads[row[3]]
                queue.remove(row, self._places.shape(workload))
            except Exception as failure:
                self.failures[name] = failure
                self._queue_faults.add(name, now)
                continue
            self._queue_faults.forget(name)
            queue.popped += 1
            used.append((name, workload))
            self._used.add(row[3])
        return used

    def next_heads(self, now: Nanos) -> list[tuple[str, Workload]]:
        """Return what `heads` would pop; none where it may find faults, or whose backoff lasts.

        What is returned is not popped: `set_aside_next` states what becomes of it.
        """
        self._now = now
        if self._faults or self._queue_faults or self.unrecorded:
            return []
        self._due()
        found = []
        for name, queue in self._asked():
            row = self._first(name, queue)
            if row is not None:
                workload = self._workloads[row[3]]
                if self._backs_off(workload):
                    return []
                found.append((name, workload))
        return found

    def set_aside_next(self, name: str, workload: Workload, scan: LastScan) -> None:
        """Set aside what `next_heads` returned of a BestEffortFIFO queue, with its shape.

        As `heads` and `requeue` do together with a head that finds no candidates.
        """
        queue, key = self._queues[name], workload.key
        queue.popped += 1
        self._scans[key] = scan
        if queue.preemptor == key:
            queue.preemptor = ""
        queue.set_aside_alike(self._places.shape(workload))

    def fail(self, workload: Workload) -> Nanos:
        """Set a head aside after a fault in deciding about it; return until when."""
        key = workload.key
        until = self._faults.add(key, self._now)
        self._used.discard(key)
        known = self._workloads.get(key, workload)
        self._remove(key)
        self.push(known)
        return until

    def fail_to_record(self, key: str, now: Nanos) -> Nanos | None:
        """Set aside whose preemptions could not be recorded; return until when, if it is there."""
        known = self._workloads.get(key)
        if known is None:
            return None
        until = self.unrecorded.add(key, now)
        self._remove(key)
        self.push(known)
        return until

    def give_back(self) -> None:
        """Queue again every head that was popped and not decided about."""
        for key in list(self._used):
            self.requeue(key, RequeueReason.FAILED_AFTER_NOMINATION)

    def requeue(
        self, key: str, reason: RequeueReason, scan: LastScan | None = None, *, anew: bool = False
    ) -> bool:
        """Give back a head that was not admitted; return whether it left the queue.

        `scan` is where its search of flavors stopped. `anew`: the search began behind the first
        flavor, so that it is made once more from there before the head is set aside.
        """
        name = self._home.get(key)
        if name is None or key not in self._used:
            return True
        self._used.discard(key)
        self._faults.forget(key)
        workload = self._workloads[key]
        if cluster_queue_of(workload, self.configuration) != name:
            self.delete(key)
            self.push(workload)
            return True
        self._scans.pop(key, None)
        if scan is not None:
            self._scans[key] = scan
        queue = self._queues[name]
        best_effort = name in self._best_effort
        if reason in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION):
            queue.preemptor = key
        elif queue.preemptor == key:
            queue.preemptor = ""
        if self._backs_off(workload):
            self._back_off(queue, workload)
            return True
        flushed = queue.flushed >= queue.popped
        if anew or goes_back(reason, scan, best_effort=best_effort, flushed=flushed):
            queue.add(*self._places.of(workload))
            return False
        queue.set_aside(*self._places.of(workload))
        hashing = self.configuration.settings.gates.scheduling_equivalence_hashing
        if hashing and best_effort and reason in ALIKE:
            queue.set_aside_alike(self._places.shape(workload))
        return True

    def set_aside(self, key: str) -> bool:
        """Set aside what is queued, where its queue is a BestEffortFIFO one; return whether it was.

        As `requeue` does with a head whose scan of flavors is finished.
        """
        name = self._home.get(key, "")
        if name not in self._best_effort or not self.is_queued(key):
            return False
        queue, (row, shape) = self._queues[name], self._places.of(self._workloads[key])
        queue.remove(row, shape)
        queue.set_aside(row, shape)
        if self.configuration.settings.gates.scheduling_equivalence_hashing:
            queue.set_aside_alike(shape)
        return True

    def admitted(self, key: str) -> None:
        """Forget a head that got its quota."""
        if self.consumptions is not None:
            self.consumptions.charge(self._workloads[key], self.configuration)
        self.delete(key)

    def expect_preemption(self, key: str) -> None:
        """Have a pending workload wait for its victims, which were chosen before."""
        name = self._home.get(key)
        if name is not None:
            self._queues[name].preemptor = key

    def preemption_failed(self, key: str) -> None:
        """Have a head that waited for its victims be one of many again: none is on its way."""
        if self.awaits_preemption(key):
            self._queues[self._home[key]].preemptor = ""

    def flush(self, cluster_queues: Iterable[str]) -> None:
        """Queue again what was set aside in these ClusterQueues."""
        for name in cluster_queues:
            queue = self._queues.get(name)
            if queue is not None:
                queue.flush()

    def last_scan(self, key: str) -> LastScan | None:
        """Return where the search of flavors for a workload stopped."""
        return self._scans.get(key)

    def awaits_preemption(self, key: str) -> bool:
        """Return whether a workload waits for its own victims."""
        name = self._home.get(key)
        return name is not None and self._queues[name].preemptor == key

    def note_save_wait(self, key: str, since: Nanos) -> None:
        """Record that a workload waits for saves of its victims; the first time counts."""
        self._save_waits.setdefault(key, since)

    def waits_for_saves_since(self, key: str) -> Nanos | None:
        """Return when a pending workload waited for a save for the first time, None for never."""
        return self._save_waits.get(key)

    def head(self, cluster_queue: str) -> Workload | None:
        """Return which workload is next in a ClusterQueue, None if none is queued there."""
        queue = self._queues.get(cluster_queue)
        row = None if queue is None else self._first(cluster_queue, queue)
        return None if row is None else self._workloads[row[3]]

    def home(self, key: str) -> str | None:
        """Return the ClusterQueue that a pending workload waits in, None where it waits in none."""
        return self._home.get(key)

    def first_of(self, cluster_queue: str, most: int, before: str = "") -> list[Workload]:
        """Return the first ones of a ClusterQueue, queued or set aside, in order.

        `before`: a pending workload; those that come after it are left out.
        """
        queue = self._queues.get(cluster_queue)
        if queue is None:
            return []
        rows = (*queue.queued(), *queue.aside())
        limit = self._workloads.get(before)
        if limit is not None:
            last = self._places.row(limit)
            rows = tuple(row for row in rows if row < last)
        return [self._workloads[row[3]] for row in nsmallest(most, rows)]

    def is_queued(self, key: str) -> bool:
        """Return whether a workload is queued, and neither set aside nor kept by a pause."""
        workload, name = self._workloads.get(key), self._home.get(key)
        if workload is None or name is None:
            return False
        return self._queues[name].is_queued(*self._places.of(workload))

    def set_aside_until(self, key: str, now: Nanos) -> Nanos | None:
        """Return until when a fault keeps a workload from being decided about, None for none."""
        ends = (self._faults.until(key, now), self.unrecorded.until(key, now))
        return max((end for end in ends if end is not None), default=None)

    def active(self) -> dict[str, list[str]]:
        """Return the keys in each queue, in order; queues without any are left out."""
        found = {name: sorted(queue.queued()) for name, queue in self._queues.items()}
        return {name: [row[3] for row in rows] for name, rows in found.items() if rows}

    def inadmissible(self) -> dict[str, list[str]]:
        """Return the keys set aside, by ClusterQueue."""
        found = {
            name: sorted([row[3] for row in queue.aside()] + list(queue.backing))
            for name, queue in self._queues.items()
        }
        return {name: keys for name, keys in found.items() if keys}

    def workload(self, key: str) -> Workload | None:
        """Return a workload that is queued, set aside or being decided about."""
        return self._workloads.get(key)

    def shape_of(self, workload: Workload) -> object:
        """Return the shape of a workload, known or not."""
        return self._places.shape_of(workload)

    def anybody(self) -> bool:
        """Return whether any workload is queued."""
        return any(queue.first() is not None for queue in self._queues.values())

    def counts(self, cluster_queue: str) -> tuple[int, int]:
        """Return how many are queued in a ClusterQueue, and how many are set aside."""
        queue = self._queues.get(cluster_queue)
        return (0, 0) if queue is None else queue.counts()

    def shapes(self, cluster_queue: str) -> tuple[int, int]:
        """Return of how many shapes these are."""
        queue = self._queues.get(cluster_queue)
        return (0, 0) if queue is None else queue.shapes()

    def members(self, cluster_queue: str) -> tuple[list[Workload], list[Workload]]:
        """Return what is queued in a ClusterQueue, and what is set aside, in no order."""
        queue, known = self._queues[cluster_queue], self._workloads
        aside = [known[row[3]] for row in queue.aside()] + [known[key] for key in queue.backing]
        return [known[row[3]] for row in queue.queued()], aside

    def doors(self) -> dict[str, int]:
        """Return how many are pending in each LocalQueue with pending workloads."""
        return {name: number for name, number in self._doors.items() if number}

    def waiting(self) -> Mapping[str, Workload]:
        """Return what may not be queued now, by key."""
        return self._waiting

    def pending(self) -> Iterator[Workload]:
        """Yield every pending workload."""
        yield from self._workloads.values()
        yield from self._waiting.values()

    def _asked(self) -> Iterator[tuple[str, Pending]]:
        """Yield the queues that may have a head, by their names."""
        for name, queue in self._queues.items():
            if not (queue.is_empty or name in self.inactive or name in self.uncounted):
                yield name, queue

    def _backs_off(self, workload: Workload) -> bool:
        until = workload.requeue_at
        if not workload.requeued or (until is not None and until > self._now):
            return True
        if not (self._faults or self.unrecorded):
            return False
        key, now = workload.key, self._now
        return self._faults.waits(key, now) or self.unrecorded.waits(key, now)

    def _due(self) -> None:
        """Queue what has waited for its backoff."""
        for key, workload in list(self._backing.items()):
            if not self._backs_off(workload):
                del self._backing[key]
                queue = self._queues[self._home[key]]
                queue.backing.discard(key)
                queue.add(*self._places.of(workload))

    def _back_off(self, queue: Pending, workload: Workload) -> None:
        self._backing[workload.key] = workload
        queue.backing.add(workload.key)

    def _is_aside(self, workload: Workload) -> bool:
        queue = self._queues[self._home[workload.key]]
        backing = workload.key in self._backing
        return backing or queue.is_aside(*self._places.of(workload))

    def _count(self, workload: Workload, sign: int) -> None:
        if not workload.finished:
            self._doors[workload.queue] += sign

    def _first(self, name: str, queue: Pending) -> Row | None:
        settings = self.configuration.settings
        # With profile `best` also of a StrictFIFO one, while places are freed for it.
        planned = settings.best and queue.preemptor in self.plans
        sticky = queue.preemptor if name in self._best_effort or planned else ""
        if settings.admission_fair_sharing and self.configuration.cluster_queues[name].usage_based:
            usage, known = self.local_queue_usage, self._workloads
            return min(
                queue.queued(),
                key=lambda row: (usage.get(known[row[3]].queue, 0.0), row[3] != sticky, row),
                default=None,
            )
        found = self._workloads.get(sticky) if sticky else None
        if found is not None:
            row = self._places.row(found)
            if queue.is_queued(row, self._places.shape(found)):
                return row
        return queue.first()

"""Deciding by a policy of one's own, within what every decision has to keep to.

1. A head that fits beside all jobs that hold devices, and beside the capacity that is kept for
   others, is admitted.
2. For one that does not, the policy's candidates are chosen in its order until it fits. If it never
   does, no job is preempted.
3. Those chosen are reprieved, from the last but one to the first, where it fits without them: what
   is left is irreducible. This is the engine's reprieve
   (`engine.quota.targets.classical.fill_back`).
4. The capacity is kept for the preemptor until its victims have left; it is admitted then.

The policy is called again after every change, and an instant ends when it changes nothing. No job
is displaced for a job that was preempted in the same instant, so that instants end. Capacity is
counted by quota as in the engine: devices of the cohort, borrowed without limit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Admission, AdmittedPodSet, Reason, Workload
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.targets.classical import fill_back, fits, subtract
from reprieve.simulation.own import (
    Candidate,
    Candidates,
    Head,
    OwnFault,
    OwnPolicy,
    load_own,
    raised,
)
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.quota_cluster import (
    DEVICE,
    FLAVOR,
    configuration,
    key_of,
    workload,
)
from reprieve.simulation.trace import Job

__all__ = ["OwnDecider", "Standing"]

_COLUMN: Final = 0  # there is one flavor and one resource
_WHY: Final = "by order of the policy"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replay knows of a job: how often it was preempted, and what that would undo now."""

    displaced: int
    lost: int


@dataclass(slots=True)
class _Waiting:
    job: Job
    workload: Workload
    since: int


class OwnDecider:
    """A decider that runs a policy."""

    def __init__(
        self,
        policy: PolicySpec,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        standing: Callable[[str, int], Standing],
    ) -> None:
        count, self._node_devices = nodes
        self._spec = policy
        name, beside = policy.own or ("", Path())
        try:
            self._policy: OwnPolicy = load_own(name, beside, f"policies.{policy.name}.own")()
        except (Exception, SystemExit) as error:
            raise OwnFault(f"policy {policy.name} cannot be made: {raised(error)}") from error
        self._holdings = Holdings(configuration(policy, tenants, count * self._node_devices))
        self._standing = standing
        #: Jobs that wait, by tenant, priority and width, in the order of arrivals.
        self._waiting: dict[tuple[str, int, int], list[tuple[str, _Waiting]]] = {}
        self._claims: dict[str, _Waiting] = {}
        self._started: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        self._changed = False
        self._at = Nanos(-1)
        self._displaced: set[str] = set()  # in this instant, in which others may be queried again

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job."""
        row = _Waiting(job, workload(job, number, self._spec, self._node_devices), now)
        self._jobs[key_of(job)] = job
        rows = self._waiting.setdefault(_shape(job), [])
        insort(rows, (row.workload.uid, row), key=lambda each: each[0])
        self._changed = True

    def left(self, job: Job) -> None:
        """Release what a job held."""
        self._holdings.release(key_of(job))
        self._started.pop(key_of(job), None)
        self._changed = True

    def retry(self, tenant: str) -> None:
        """Do nothing: no job is spared for a time."""

    def borrows(self, entry: Entry) -> bool:
        """Return whether its tenant uses more than its own by now."""
        queue = self._holdings.tree.queues[entry.cluster_queue]
        own = self._holdings.tree.subtree[_COLUMN][queue]
        return self._holdings.usage[_COLUMN][queue] > own

    def has_heads(self) -> bool:
        """Return whether anything changed since the last decision."""
        return self._changed and bool(self._waiting or self._claims)

    def decide(self, now: Nanos) -> Iterator[CycleResult]:
        """Run until nothing changes."""
        if now != self._at:
            self._at = now
            self._displaced.clear()
        while True:
            self._changed = False
            result = CycleResult()
            for key, row in list(self._claims.items()):
                if self._fits(row, self._holdings.snapshot()):
                    del self._claims[key]
                    result.entries.append(self._admitted(row, now))
            entry = None if result.entries else self._next(now)
            if entry is not None:
                result.entries.append(entry)
                self._displaced |= {target.holder.key for target in entry.issued}
            if not result.entries:
                return
            yield result

    def _next(self, now: Nanos) -> Entry | None:
        """Return the first thing that the policy's order leads to, None if that is nothing."""
        rows: dict[str, _Waiting] = {}
        heads = []
        for waiting in self._waiting.values():
            row = waiting[0][1]
            rows[key_of(row.job)] = row
            heads.append(self._head(row, now))
        for head in self._asked("admit", heads, heads):
            row = rows[f"{head.tenant}/{head.id}"]
            if self._fits(row, self._holdings.snapshot()) and self._fits(row, self._later()):
                self._remove(row)
                return self._admitted(row, now)
            if key_of(row.job) not in self._displaced:
                entry = self._preempting(head, row, now)
                if entry is not None:
                    return entry
        return None

    def _head(self, row: _Waiting, now: Nanos) -> Head:
        job, key = row.job, key_of(row.job)
        tree = self._holdings.tree
        queue = tree.queues[job.tenant]
        own, used = tree.subtree[_COLUMN][queue], self._holdings.usage[_COLUMN][queue]
        return Head(
            job.id,
            job.tenant,
            job.priority or 0,
            job.devices,
            row.since / SECOND,
            self._standing(key, now).displaced,
            used + job.devices <= own,
        )

    def _preempting(self, head: Head, row: _Waiting, now: Nanos) -> Entry | None:
        """Return what the policy displaces for a head; None where that is nothing, or no help."""
        snapshot, tree = self._later(), self._holdings.tree
        if self._fits(row, snapshot):
            return None  # it will, when those have left who are preempted already
        shown: dict[str, Holder] = {}
        running = []
        for key, started in self._started.items():
            holder = self._holdings.holders[key]
            if holder.evicted:
                continue
            job, standing = self._jobs[key], self._standing(key, now)
            shown[key] = holder
            over = snapshot.usage[_COLUMN][holder.queue] > tree.subtree[_COLUMN][holder.queue]
            running.append(
                Candidate(
                    job.id,
                    job.tenant,
                    job.priority or 0,
                    job.devices,
                    started / SECOND,
                    standing.displaced,
                    standing.lost / SECOND,
                    over,
                )
            )
        candidates = Candidates(head, now / SECOND, tuple(running))
        usage = {_COLUMN: snapshot.usage[_COLUMN]}
        path = tree.path[tree.queues[row.job.tenant]]
        amounts = ((_COLUMN, row.job.devices),)
        targets: list[Target] = []
        for candidate in self._asked("order", candidates, running):
            holder = shown[f"{candidate.tenant}/{candidate.id}"]
            subtract(tree, usage, holder)
            same = holder.queue == path[0]
            reason = Reason.IN_CLUSTER_QUEUE if same else Reason.IN_COHORT_RECLAMATION
            targets.append(Target(holder, reason))
            if fits(tree, usage, path, amounts, True):
                fill_back(tree, usage, path, amounts, True, targets)
                return self._issued(row, tuple(targets), now)
        return None

    def _issued(self, row: _Waiting, targets: tuple[Target, ...], now: Nanos) -> Entry:
        self._remove(row)
        self._claims[key_of(row.job)] = row
        for target in targets:
            self._holdings.expect_eviction(target.holder.key, target.reason, now)
        return Entry(
            row.workload,
            row.job.tenant,
            targets=targets,
            issued=targets,
            outcome=Outcome.PREEMPTING,
            message=_WHY,
        )

    def _admitted(self, row: _Waiting, now: Nanos) -> Entry:
        key, devices = key_of(row.job), row.job.devices
        held = AdmittedPodSet("devices", devices, {DEVICE: FLAVOR}, {DEVICE: devices})
        admission = Admission(row.job.tenant, (held,))
        self._holdings.hold(replace(row.workload, admission=admission, reserved_at=now))
        self._started[key] = now
        return Entry(row.workload, row.job.tenant, outcome=Outcome.ADMITTED, admission=admission)

    def _fits(self, row: _Waiting, snapshot: Snapshot) -> bool:
        tree = snapshot.tree
        path = tree.path[tree.queues[row.job.tenant]]
        usage = {_COLUMN: snapshot.usage[_COLUMN]}
        return fits(tree, usage, path, ((_COLUMN, row.job.devices),), True)

    def _later(self) -> Snapshot:
        """Return what will be held when victims have left, and preemptors have come."""
        snapshot = self._holdings.snapshot()
        if not self._claims:
            return snapshot
        for row in self._claims.values():
            queue = snapshot.tree.queues[row.job.tenant]
            snapshot.add_usage(queue, [(_COLUMN, row.job.devices)])
        for holder in self._holdings.holders.values():
            if holder.evicted:
                snapshot.remove_usage(holder.queue, holder.held)
        return snapshot

    def _remove(self, row: _Waiting) -> None:
        rows = self._waiting[_shape(row.job)]
        del rows[0]
        if not rows:
            del self._waiting[_shape(row.job)]

    def _asked(self, method: str, given: object, known: Sequence[object]) -> list[Any]:
        """Return the policy's answer, which names nothing that it was not shown."""
        try:
            said = getattr(self._policy, method)(given)
            if said is None:
                raise OwnFault(
                    f"policy {self._spec.name}: {method} returned None; accepted: a list of what "
                    f"it was shown"
                )
            answer = list(islice(said, len(known) + 1)) if isinstance(said, Iterable) else None
        except OwnFault:
            raise
        except (Exception, SystemExit) as error:  # a policy ends its own runs alone
            raise OwnFault(f"policy {self._spec.name}: {method} raised {raised(error)}") from error
        accepted = "accepted: a list of what it was shown, each once"
        if answer is None or len(answer) > len(known):
            what = repr(said) if answer is None else "more than there is"
            raise OwnFault(f"policy {self._spec.name}: {method} returned {what}; {accepted}")
        left = set(known)
        for each in answer:
            if not isinstance(each, Head | Candidate) or each not in left:
                raise OwnFault(
                    f"policy {self._spec.name}: {method} returned {each!r}, which it was not "
                    f"shown, or twice"
                )
            left.discard(each)
        return answer


def _shape(job: Job) -> tuple[str, int, int]:
    return (job.tenant, job.priority or 0, job.devices)

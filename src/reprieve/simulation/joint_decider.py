"""Deciding by both engines, as with the quota and the scheduling plane in one operator.

1. The quota engine gives quota until it has nothing more to give. Who gets it has its pods made,
   who has to give it back has them deleted: those that run hold nodes and quota until they have
   left, those that wait for nodes are gone at once.
2. Then the scheduling engine places who has quota. Who gets no nodes waits for them and holds its
   quota meanwhile, so that others do not get it, unless it is said how long that may take
   (`waitForPodsReady`): then it gives its quota back and is queued again after a while.
3. Who makes way on nodes keeps its quota, as a Workload does whose pods the scheduler preempts: its
   job makes them again once they have left, and they wait for nodes like new ones. If the quota
   engine takes the quota, too, before they have left, it is queued for quota when they have.

Source: specification of the quota plane, sections 1.6 and 9; `docs/quota.md`, "What happens to a
job".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.model import Eviction
from reprieve.simulation.deciding import EngineDecider, Placements
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.quota_cluster import key_of
from reprieve.simulation.scheduling_decider import SchedulingDecider
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Saved
from reprieve.units.instants import Nanos

__all__ = ["JointDecider"]

_NOT_READY: Final = "PodsReadyTimeout"


class JointDecider:
    """The quota engine, and the scheduling engine for who has quota.

    `placing` has those that are on nodes or wait for them.
    """

    def __init__(
        self,
        policy: PolicySpec,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        saved: Callable[[str, Nanos], Saved],
    ) -> None:
        """`nodes`: how many, and the devices of each; `saved` tells what a job saved by then."""
        self._quota = EngineDecider(policy, tenants, nodes, saved, runs_at_once=False)
        self.placing = SchedulingDecider(policy, nodes, saved)
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._displaced: set[str] = set()  # on nodes, with quota that they keep
        self._for_quota: dict[str, None] = {}  # who waits for it
        self._preempting: set[str] = set()  # who is to get it when others have left, or saved
        self._unready: dict[str, Eviction] = {}  # who gave its quota back, and when

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job: for nodes if it has quota, else for that."""
        key = key_of(job)
        self._jobs[key] = job, number
        if self._quota.holder(key) is None:
            self._for_quota[key] = None
            self._quota.waits(job, number, now, self._unready.pop(key, None))
        else:
            self.placing.waits(job, number, now)

    def left(self, job: Job) -> None:
        """Take a job off its nodes; its quota is free unless it keeps it for other nodes."""
        key = key_of(job)
        if self.placing.is_placed(key):
            self.placing.left(job)
        holder = self._quota.holder(key)
        keeps = key in self._displaced and holder is not None and not holder.evicted
        self._displaced.discard(key)
        if not keeps:
            self._quota.left(job)

    def lacking(self) -> Iterator[tuple[Job, int]]:
        """Yield who waits for quota, and preempts nobody for it."""
        for key in self._for_quota:
            if key not in self._preempting:
                yield self._jobs[key]

    def has_quota(self, job: Job) -> bool:
        """Tell whether a job holds quota."""
        return self._quota.holder(key_of(job)) is not None

    def gives_up(self, job: Job, now: Nanos) -> None:
        """Take the quota of a job that got no nodes in time, and delete its pods."""
        self.placing.stopped(job)
        self._quota.left(job)
        self._unready[key_of(job)] = Eviction(_NOT_READY, now)

    def evicted(self, job: Job) -> None:
        """Take note that a job is told to go and gives its quota back when it has left."""
        self._quota.stopped(key_of(job))
        self.placing.stopped(job)

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs for quota again."""
        self._quota.retry(tenant)

    def borrows(self, entry: Entry) -> bool:
        """Tell what the quota engine says of it."""
        return self._quota.borrows(entry)

    def has_heads(self) -> bool:
        """Tell whether anybody is to be tried, for quota or for nodes."""
        return self._quota.has_heads() or self.placing.has_heads()

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements]:
        """Give quota until that changes nothing, then place who has it.

        And once more where others were not admitted as long as these had no nodes.
        """
        again = True
        while again:
            again = False
            if self._quota.has_heads():
                for result in self._quota.decide(now):
                    yield result
                    self._make_pods(result, now)
            for found in self.placing.decide(now):
                yield found
                for key, _ in found.started:
                    again |= self._quota.started(key, now)
                for _, victims, _ in found.preempted:
                    for key, _ in victims:
                        self._displaced.add(key)
                        self._quota.stopped(key)

    def _make_pods(self, result: CycleResult, now: Nanos) -> None:
        """Make the pods of who got quota, and delete those of who is to give it back."""
        for entry in result.entries:
            key = entry.workload.key
            self._preempting.discard(key)
            if entry.outcome in (Outcome.PREEMPTING, Outcome.DEFERRED):
                self._preempting.add(key)
            if entry.outcome is Outcome.ADMITTED:
                del self._for_quota[key]
                self.placing.waits(*self._jobs[entry.workload.key], now)
            for target in entry.issued:
                self.placing.stopped(self._jobs[target.holder.key][0])

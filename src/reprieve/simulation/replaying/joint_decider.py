"""Deciding by both engines, as with the quota and the scheduling plane in one operator.

1. The quota engine gives quota until it has nothing more to give. Who gets it has its pods made,
   who has to give it back has them deleted: those that run hold nodes and quota until they have
   left, those that wait for nodes are deleted at once.
2. Then the scheduling engine places who has quota. Who gets no nodes waits for them and holds its
   quota meanwhile, so that others do not get it, unless a limit to that time is stated
   (`waitForPodsReady`): then it gives its quota back and is queued again after a while.
3. No quota is preempted for a job that no node would accept, even without all that it may preempt
   on nodes, and all idle work (`engine.quota.proofs.node_proof`).
4. A job that is preempted on nodes keeps its quota, as a Workload does whose pods the scheduler
   preempts: it makes them again once they have left, and they wait for nodes like new ones. If the
   quota engine reclaims the quota, too, before they have left, it is queued for quota when they
   have.

Beside the idle plane (`idle_decider`) no work is preempted before that has answered, and which idle
work is to be evicted for quota is worked out here.

Source: specification of the quota plane, sections 1.6 and 9; `docs/quota.md`, "What happens to a
job"; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.made_places import ByRules
from reprieve.engine.quota.model import Eviction, ResourceFlavor, Workload
from reprieve.engine.quota.proofs.node_proof import NodeProof
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.engine.quota.release import IdleUnit, Promise, Release
from reprieve.engine.topology.places import NodeUse
from reprieve.simulation.domains import NO_DOMAINS, Domains
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.deciding import EngineDecider, Placements
from reprieve.simulation.replaying.harm import governor_of
from reprieve.simulation.replaying.joint_answers import Answers
from reprieve.simulation.replaying.node_cluster import class_of
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.scheduling_decider import SchedulingDecider
from reprieve.simulation.replaying.work import Saved
from reprieve.simulation.trace import Job
from reprieve.units.ids import Uid

__all__ = ["JointDecider"]

_NOT_READY: Final = "PodsReadyTimeout"
_LOWEST: Final = 1 << 62
_LOOKED_FOR: Final = "Idle workloads are considered first"


class _Check:
    """Checks before a job preempts by quota: idle work first, then nodes. For one run.

    `refused`: whose queues are to be tried again when nodes come free.
    """

    def __init__(self, prove: Callable[[], NodeProof], answers: Answers | None) -> None:
        self._prove = prove
        self._answers = answers
        self._proof: NodeProof | None = None
        self._promised: list[Entry] = []
        self.refused: set[str] = set()

    def delays(self, entry: Entry) -> str:
        """Return why an entry does not preempt yet; empty if it may."""
        waits = self._answers is not None and self._answers.delays(entry.workload.key)
        return _LOOKED_FOR if waits else ""

    def refusal(
        self, entry: Entry, holders: Iterable[Holder], flavors: Mapping[str, ResourceFlavor]
    ) -> str:
        """Return why an entry's targets are not preempted; empty if nodes fit its pods."""
        if self._proof is None:
            self._proof = self._prove()
            for each in self._promised:
                self._proof.claim(each, flavors)
        why = self._proof.refusal(entry, holders, flavors)
        if why:
            self.refused.add(entry.cluster_queue)
        return why

    def flavor_for(
        self,
        entry: Entry,
        others: Iterable[tuple[str, Assignment]],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> tuple[str, Assignment] | None:
        """There is one flavor."""
        return None

    def room_made(
        self,
        entry: Entry,
        snapshot: Snapshot,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        by_rules: ByRules | None,
    ) -> tuple[NodeUse, ...]:
        """Jobs with places wait until nodes fit them."""
        return ()

    def claim(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Keep capacity for an entry that needs no eviction."""
        if self._proof is not None:
            self._proof.claim(entry, flavors)
        else:
            self._promised.append(entry)


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
        domains: Domains = NO_DOMAINS,
    ) -> None:
        """`nodes`: how many, and the devices of each; `saved` returns what a job saved by then."""
        governor = governor_of(policy)
        self._quota = EngineDecider(policy, tenants, nodes, saved, False, governor)
        self.placing = SchedulingDecider(policy, nodes, saved, governor, domains)
        self._scheduler, self._preempts = policy.placing.profiles[0].scheduler_name, policy.preempts
        self._unproven: set[str] = set()  # tenants who were refused for want of nodes
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._displaced: set[str] = set()  # on nodes, with quota that they keep
        self._for_quota: dict[str, None] = {}  # who waits for it
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
        """Remove a job from its nodes; its quota is free unless it keeps it for other nodes."""
        key = key_of(job)
        if self.placing.is_placed(key):
            self.placing.left(job)
            for tenant in sorted(self._unproven):
                self._quota.retry(tenant)
            self._unproven.clear()
        holder = self._quota.holder(key)
        keeps = key in self._displaced and holder is not None and not holder.evicted
        self._displaced.discard(key)
        if not keeps:
            self._quota.left(job)

    def queued(self) -> Iterator[tuple[Job, int]]:
        """Yield who waits for quota."""
        for key in self._for_quota:
            yield self._jobs[key]

    def has_quota(self, job: Job) -> bool:
        """Return whether a job holds quota."""
        return self._quota.holder(key_of(job)) is not None

    def gives_up(self, job: Job, now: Nanos) -> None:
        """Withdraw the quota of a job that got no nodes in time, and delete its pods."""
        self.placing.stopped(job)
        self._quota.left(job)
        self._unready[key_of(job)] = Eviction(_NOT_READY, now)

    def evicted(self, job: Job) -> None:
        """Record that a job is preempted and releases its quota when it has left."""
        self._quota.stopped(key_of(job))
        self.placing.stopped(job)

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs for quota again; where it is empty, all for nodes."""
        if tenant:
            self._quota.retry(tenant)
        else:
            self.placing.retry(tenant)

    def borrows(self, entry: Entry) -> bool:
        """Return what the quota engine states of it."""
        return self._quota.borrows(entry)

    def has_heads(self) -> bool:
        """Return whether any job is to be tried, for quota or for nodes."""
        return self._quota.has_heads() or self.placing.has_heads()

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements]:
        """Give quota until that changes nothing, then place who has it.

        And once more where others were not admitted as long as these had no nodes.
        """
        again = True
        while again:
            again = False
            if self._quota.has_heads():
                check = _Check(self._proof, self.placing.answers)
                for result in self._quota.decide(now, check):
                    yield result
                    self._make_pods(result, now)
                self._unproven |= check.refused
            for found in self.placing.decide(now):
                yield found
                for key, _ in found.started:
                    again |= self._quota.started(key, now)
                for _, victims, _ in found.preempted:
                    for key, _ in victims:
                        self._displaced.add(key)
                        self._quota.stopped(key)

    def activate(self, jobs: Collection[str]) -> None:
        """Try these jobs again, for quota or for nodes."""
        for tenant in sorted({self._jobs[key][0].tenant for key in jobs if key in self._for_quota}):
            self._quota.retry(tenant)
        self.placing.activate(jobs)

    def holds_quota(self, key: str) -> bool:
        """Whether a job holds quota, by its key."""
        return self._quota.holder(key) is not None

    def waits_for_quota(self, key: str) -> bool:
        """Whether a job waits for quota, also where it has chosen its victims."""
        return key in self._for_quota

    def release(
        self, key: str, units: Sequence[IdleUnit], promised: Sequence[Promise], now: Nanos
    ) -> Release:
        """Return which of these units of idle work to evict for a job that waits for quota."""
        idle = [uid for unit in units for uid in unit.pods]
        proof = self._node_proof(now, reclaimable=idle)
        check = _Check(self._proof, None)
        return self._quota.release(key, units, promised, proof, check, now)

    def _proof(self) -> NodeProof:
        """Return the proof that nodes fit a job, without all that may be evicted for it there."""
        idle = self.placing.answers.reclaimable if self.placing.answers is not None else ()
        return self._node_proof(self._quota.at, reclaimable=idle, scheduler_preempts=True)

    def _node_proof(
        self, now: Nanos, *, reclaimable: Collection[Uid], scheduler_preempts: bool = False
    ) -> NodeProof:
        return NodeProof(
            self.placing.snapshot(),
            self.placing.pods_by_job(),
            self._templates,
            now,
            scheduler_preempts=scheduler_preempts,
            reclaimable=reclaimable,
        )

    def _templates(self, workload: Workload) -> Mapping[str, Template]:
        below = workload.priority if self._preempts else -_LOWEST
        return {
            each.name: Template(
                class_of(each.requests, self._scheduler, self._preempts), preempts_below=below
            )
            for each in workload.pod_sets
        }

    def _make_pods(self, result: CycleResult, now: Nanos) -> None:
        """Make the pods of who got quota, and delete those of who is to give it back."""
        for entry in result.entries:
            key = entry.workload.key
            if entry.outcome is Outcome.ADMITTED:
                del self._for_quota[key]
                if self.placing.answers is not None:
                    self.placing.answers.reopen(key)
                self.placing.waits(*self._jobs[entry.workload.key], now)
            for target in entry.issued:
                self.placing.stopped(self._jobs[target.holder.key][0])

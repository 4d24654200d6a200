"""Deciding by the idle engine, for whom the other planes find no devices.

1. Nodes are given first, and quota before them where it is needed (`scheduling_decider`,
   `joint_decider`); with `planes: [idle]` nobody is preempted for nodes.
2. Then the idle engine evaluates: who still waits for nodes, and has none nominated, is a demand,
   and so is who waits for quota and preempts nobody for it; who has been idle for its grace period
   may make way, for a demand or, by policy `Always`, for nobody. Phases come of the engine's own
   table (`idle_rows.stepped`), plans of its evaluation.
3. Every plan passes the check that the plane asks before it carries one out.
4. Room that comes free is kept for nobody, as on a cluster: the scheduling engine gives it to who
   comes first there.

Nothing is evaluated while nobody has been idle for so long, since no plan comes of that, and a
demand that wants more than is free, on its way and idle is not put before the engine.

Source: specification of the idle plane, sections 11 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.check import check
from reprieve.engine.cluster.rows import PodRow as ClusterPod
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import marked
from reprieve.engine.idle.model import IdleSnapshot, Phase, PodRow, Status, Workload
from reprieve.engine.plan import Plan
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.simulation.deciding import Placements, Reclaim, Reclaims
from reprieve.simulation.idle_rows import (
    BUSY,
    free_rows,
    idle_pods,
    idle_workload,
    polled,
    stepped,
)
from reprieve.simulation.joint_decider import JointDecider
from reprieve.simulation.policy import QUOTA, PolicySpec
from reprieve.simulation.quota_cluster import key_of
from reprieve.simulation.scheduling_decider import SchedulingDecider
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Saved
from reprieve.units.errors import ReprieveError
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.instants import Nanos
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import with_reasons

__all__ = ["IdleDecider", "IdleFault"]

_PART: Final = (Phase.IDLE, Phase.PREEMPTING)


class IdleFault(ReprieveError):
    """What the engine decided does not pass its check."""


@dataclass(slots=True)
class _Held:
    """A job on nodes: what its devices show, and its status."""

    job: Job
    number: int
    percent: float
    status: Status


class IdleDecider:
    """The idle engine beside those that give nodes.

    `placing` has those that are on nodes or wait for them, `joint` those with quota, None without.
    """

    def __init__(
        self,
        policy: PolicySpec,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        saved: Callable[[str, Nanos], Saved],
        percent: float,
    ) -> None:
        """`percent` is what the devices of an idle job show; the rest as of the others."""
        self.joint = JointDecider(policy, tenants, nodes, saved) if QUOTA in policy.planes else None
        self.placing = self.joint.placing if self.joint else SchedulingDecider(policy, nodes, saved)
        self._name, self._nodes, self._percent = policy.name, nodes, percent
        self._settings, self._policy = policy.idle.settings, policy.idle.policy
        self._held: dict[str, _Held] = {}
        self._idle: set[str] = set()  # in the phase Idle
        self._claims: dict[Uid, GpuWorkloadKey | None] = {}
        self._claimed: dict[str, Uid] = {}
        self._demands: dict[str, tuple[list[ClusterPod], Workload]] = {}
        self._changed = False
        self._revision = 0

    @property
    def _inner(self) -> JointDecider | SchedulingDecider:
        return self.joint or self.placing

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job."""
        self._inner.waits(job, number, now)

    def left(self, job: Job) -> None:
        """Take note that a job holds its devices no more."""
        key = key_of(job)
        self._held.pop(key, None)
        self._idle.discard(key)
        claim = self._claimed.pop(key, None)
        if claim is not None:
            del self._claims[claim]
        self._inner.left(job)

    def shows(self, job: Job, idle: bool, now: Nanos) -> Nanos | None:
        """Take note that a job uses its devices no more, or again; return when its grace is over.

        None where it does not count as idle.
        """
        key = key_of(job)
        held = self._held[key]
        if key in self._claimed:
            return None
        held.percent = self._percent if idle else BUSY
        pods = idle_pods(job, self.placing.pods_of(key), self._nodes[1])
        held.status = self._looked_at(held, pods, now)
        self._changed = True
        self._idle.discard(key)
        since = held.status.idle_since
        if held.status.phase is not Phase.IDLE or since is None:
            return None
        self._idle.add(key)
        return Nanos(since + self._settings.grace_period)

    def look(self) -> None:
        """Evaluate again: a grace period is over."""
        self._changed = True

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs for quota again."""
        self._inner.retry(tenant)

    def borrows(self, entry: Entry) -> bool:
        """Tell what the quota engine says of it."""
        return self._inner.borrows(entry)

    def has_heads(self) -> bool:
        """Tell whether there is anything to decide."""
        return self._changed or self._inner.has_heads()

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements | Reclaims]:
        """Give nodes until that changes nothing, then see whether idle work is to make way."""
        self._changed = False
        if self._inner.has_heads():
            for found in self._inner.decide(now):
                yield found
                if isinstance(found, Placements):
                    self._note(found, now)
        if any(self._is_due(key, now) for key in self._idle):
            plans = self._evaluated(now)
            if plans:
                yield Reclaims(plans)

    def _note(self, found: Placements, now: Nanos) -> None:
        """Take note of who runs."""
        started = {key for key, _ in found.started}
        for job, number, pods in self.placing.placed() if started else ():
            if key_of(job) in started:
                held = _Held(job, number, BUSY, Status())
                held.status = self._looked_at(held, idle_pods(job, pods, self._nodes[1]), now)
                self._held[key_of(job)] = held
                self._demands.pop(key_of(job), None)

    def _looked_at(self, held: _Held, pods: tuple[PodRow, ...], now: Nanos) -> Status:
        status = polled(held.status, pods, held.percent, now, self._policy)
        row = idle_workload(held.job, held.number, self._settings, status, pods)
        return stepped(row, self._policy, now)

    def _is_due(self, key: str, now: Nanos) -> bool:
        since = self._held[key].status.idle_since
        return since is not None and now - since >= self._settings.grace_period

    def _evaluated(self, now: Nanos) -> tuple[Reclaim, ...]:
        snapshot = self._snapshot(now)
        found = evaluate(snapshot, self._policy, now)
        plans = []
        for plan, seen in before_each(found.plans, snapshot, found.reservations):
            wrong = check(plan, seen, self._policy, now)
            if wrong:
                raise IdleFault(f"policy {self._name}: {'; '.join(map(str, wrong))}")
            plans.append(self._committed(with_reasons(plan, seen.workloads, now)))
        return tuple(plans)

    def _committed(self, plan: Plan) -> Reclaim:
        """Mark the victims, and tell them to go."""
        demand = "" if plan.preemptor is None else _key(plan.preemptor)
        victims = []
        for victim in plan.victims:
            key = _key(victim.root)
            held = self._held[key]
            held.status = marked(held.status, demand.partition("/")[2], victim.reason)
            self._idle.discard(key)
            self._claims[victim.root.uid] = GpuWorkloadKey(demand) if demand else None
            self._claimed[key] = victim.root.uid
            if self.joint is not None:
                self.joint.evicted(held.job)
            else:
                self.placing.stopped(held.job)
            victims.append((key, victim.rule, victim.reason))
        return Reclaim(demand, tuple(victims), plan.proof)

    def _snapshot(self, now: Nanos) -> IdleSnapshot:
        self._revision += 1
        pods = {
            key_of(job): idle_pods(job, rows, self._nodes[1])
            for job, _, rows in self.placing.placed()
        }
        rows, most = [], self._nodes[0] * self._nodes[1]
        for key, held in self._held.items():
            if held.status.phase in _PART:
                if held.status.phase is Phase.IDLE:
                    held.status = self._looked_at(held, pods[key], now)
                rows.append(
                    idle_workload(held.job, held.number, self._settings, held.status, pods[key])
                )
            else:
                most -= held.job.devices  # what neither is free, nor idle, nor on its way
        demands = list(self._demand_rows(most, now))
        return IdleSnapshot(
            self._revision,
            (*rows, *demands),
            free_rows(self._nodes, (each for of in pods.values() for each in of)),
            dict(self._claims),
            served=frozenset(each for each in self._claims.values() if each in self._held),
        )

    def _demand_rows(self, most: int, now: Nanos) -> Iterator[Workload]:
        """Yield who waits for nodes, unless it is in vain for want of devices."""
        for job, number, pods in self.placing.waiting():
            if job.devices > most:
                continue
            known = self._demands.get(key_of(job))
            if known is None or known[0] is not pods:
                waiting = idle_pods(job, pods, self._nodes[1])
                row = idle_workload(job, number, self._settings, Status(), waiting)
                status = stepped(row, self._policy, now)
                row = idle_workload(job, number, self._settings, status, waiting)
                known = self._demands[key_of(job)] = pods, row
            if known[1].status.phase is Phase.PENDING_GPU:
                yield known[1]
        for job, number in self.joint.lacking() if self.joint is not None else ():
            if job.devices <= most:
                row = idle_workload(job, number, self._settings, Status(Phase.PENDING_OTHER), ())
                status = stepped(row, self._policy, now, quota_short=True)
                yield idle_workload(job, number, self._settings, status, ())


def _key(of: Reference) -> str:
    return f"{of.namespace}/{of.name}"

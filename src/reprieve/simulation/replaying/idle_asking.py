"""What the idle plane of a replay queries the others for: which idle work is evicted for whom.

As in an operator with several planes: the quota engine names what holds the quota that a job lacks
(`engine.quota.release`), the scheduling engine what is evicted beside victims by priority
(`engine.scheduling.mixtures`). Both are queried about jobs in their order, a bounded number of them
at one instant. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.asking import (
    MOST_MIXTURES,
    MOST_RELEASES,
    IdleWork,
    costly_demands,
    demands_of_quota,
    short_demands,
)
from reprieve.engine.idle.claims import demand_order
from reprieve.engine.idle.model import IdleSnapshot, Mixed, Released, Workload
from reprieve.engine.idle.outcome import RULE_BESIDE_PRIORITY, Evaluation
from reprieve.engine.mixed import IdlePods
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota.release import IdleUnit, Promise
from reprieve.simulation.replaying.joint_decider import JointDecider
from reprieve.simulation.replaying.scheduling_decider import SchedulingDecider
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Unit", "idle_units", "is_mixed", "mixtures", "releases"]


@dataclass(frozen=True, slots=True)
class Unit:
    """An idle job; `quota`: it holds some."""

    row: Workload
    quota: bool

    @property
    def root(self) -> Uid:
        """Return by what it is evicted."""
        return self.row.root.uid

    @property
    def pods(self) -> tuple[Uid, ...]:
        """Return its pods that stay so far."""
        return tuple(pod.uid for pod in self.row.pods if pod.live)

    def released(self) -> IdleUnit:
        """Return it in the form of the quota engine."""
        held = (str(self.row.key),) if self.quota else ()
        return IdleUnit(self.root, held, self.pods, sum(self.row.gpus.values()))


def idle_units(work: IdleWork, joint: JointDecider | None) -> list[Unit]:
    """Return the idle jobs that are candidates, oldest idle first."""
    return [Unit(row, joint is not None and joint.holds_quota(row.key)) for row in work.rows]


def releases(
    snapshot: IdleSnapshot,
    work: IdleWork,
    units: Sequence[Unit],
    joint: JointDecider,
    now: Nanos,
) -> dict[GpuWorkloadKey, Released]:
    """Return for jobs that wait for quota the idle work to evict."""
    promised = _promised(snapshot, joint)
    left = {unit.root: unit for unit in units}
    found: dict[GpuWorkloadKey, Released] = {}
    for demand in demands_of_quota(snapshot)[:MOST_RELEASES] if units else ():
        debt = snapshot.debts.get(demand.key)
        free = [
            each
            for each in left.values()
            if work.is_free(demand, each.root) and (debt is None or debt.allows(each.row))
        ]
        answer = joint.release(demand.key, [each.released() for each in free], promised, now)
        going = [left[Uid(name)] for name in answer.units]
        devices = sum(sum(each.row.gpus.values()) for each in going)
        if not going or (debt is not None and devices > debt.devices):
            continue
        for each in going:
            del left[each.root]
        roots = tuple(each.root for each in going)
        found[demand.key] = Released(roots, answer.placed, answer.mixed)
        promised.append(_promise(demand.key, going))
    return found


def mixtures(
    snapshot: IdleSnapshot,
    evaluation: Evaluation,
    work: IdleWork,
    units: Sequence[Unit],
    placing: SchedulingDecider,
    now: Nanos,
) -> dict[GpuWorkloadKey, Mixed]:
    """Return for jobs that wait for nodes the idle work evicted beside work of lower priority."""
    costly = {each.demand.key: each for each in costly_demands(snapshot, evaluation)}
    asked = [*short_demands(snapshot, evaluation), *(each.demand for each in costly.values())]
    demands = [each for each in asked if each.pods]
    left = {unit.root: unit for unit in units}
    found: dict[GpuWorkloadKey, Mixed] = {}
    for demand in demands[:MOST_MIXTURES]:
        own = costly.get(demand.key)
        victims = () if own is None else own.victims
        idle = [IdlePods(e.root.uid, tuple(pod.uid for pod in e.pods)) for e in victims]
        idle += [
            IdlePods(unit.root, unit.pods)
            for unit in left.values()
            if work.is_free(demand, unit.root)
        ]
        most = 0 if own is None else own.most
        answer = placing.mixture(demand.key, idle, now, most) if idle else None
        if answer is None:
            continue
        roots = tuple(Uid(name) for name in answer.idle)
        found[demand.key] = Mixed(roots, answer.placement)
        for root in roots:
            left.pop(root, None)
    return found


def _promised(snapshot: IdleSnapshot, joint: JointDecider) -> list[Promise]:
    """Return the jobs for whose quota idle work is evicted already."""
    rows = {each.key: each for each in snapshot.workloads}
    going: dict[GpuWorkloadKey, list[Unit]] = {}
    for each in snapshot.workloads:
        whom = snapshot.claims.get(each.root.uid)
        if whom and snapshot.owned.get(whom) is Plane.QUOTA and whom in rows:
            going.setdefault(whom, []).append(Unit(each, joint.holds_quota(each.key)))
    demands = sorted((rows[whom] for whom in going), key=demand_order)
    return [_promise(demand.key, going[demand.key]) for demand in demands]


def _promise(key: GpuWorkloadKey, going: Sequence[Unit]) -> Promise:
    units = [each.released() for each in going]
    return Promise(
        key,
        tuple(each for unit in units for each in unit.workloads),
        tuple(each for unit in units for each in unit.pods),
    )


def is_mixed(plan: Plan) -> bool:
    """Return whether work of lower priority is evicted beside the victims of a plan."""
    return any(victim.rule == RULE_BESIDE_PRIORITY for victim in plan.victims)

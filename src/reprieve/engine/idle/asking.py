"""Which demands, and which idle work, the idle plane queries the other planes about.

After an evaluation the quota plane is queried which idle work holds the quota that its demands
lack, and the scheduling plane which is evicted beside work of lower priority. An operator and a
replay query them by the same rules. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reprieve.engine.idle.claims import demand_order
from reprieve.engine.idle.model import IdleSnapshot, Phase, Workload
from reprieve.engine.idle.outcome import Evaluation, Reason
from reprieve.engine.idle.placement import pending_pods
from reprieve.engine.plan import Plane
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = [
    "MOST_MIXTURES",
    "MOST_RELEASES",
    "Costly",
    "IdleWork",
    "costly_demands",
    "demands_of_quota",
    "idle_work",
    "short_demands",
    "waits_for_quota",
]

#: How many demands are queried in one evaluation: for quota, and beside priority.
MOST_RELEASES: Final = 20
MOST_MIXTURES: Final = 10
_SPARE: Final = (Reason.NO_DEMAND, Reason.REPRIEVED)
_TOO_LITTLE: Final = (Reason.SHORT, Reason.NO_PLACEMENT)


def waits_for_quota(snapshot: IdleSnapshot, demand: GpuWorkloadKey) -> bool:
    """Whether only idle work is evicted for a demand that holds the quota which it lacks."""
    return snapshot.owned.get(demand) in (Plane.QUOTA, Plane.IDLE)


def demands_of_quota(snapshot: IdleSnapshot) -> list[Workload]:
    """Return the demands that wait for quota and have no victims yet, in their order.

    A displaced one is among them only while it has a debt to collect.
    """
    served = set(filter(None, snapshot.claims.values()))
    owned = [
        each
        for each in snapshot.workloads
        if waits_for_quota(snapshot, each.key)
        and (each.key not in snapshot.displaced or each.key in snapshot.debts)
        and each.key not in served
    ]
    return sorted(owned, key=demand_order)


def short_demands(snapshot: IdleSnapshot, evaluation: Evaluation) -> list[Workload]:
    """Return the demands for which all idle work is too little, in their order."""
    short = {each.subject for each in evaluation.declined if each.reason in _TOO_LITTLE}
    demands = [
        each
        for each in snapshot.workloads
        if each.ref in short and each.key not in snapshot.displaced
    ]
    return sorted(demands, key=demand_order)


@dataclass(frozen=True, slots=True)
class Costly:
    """A demand for which idle work is evicted that holds far more than the demand lacks.

    `most`: so many devices or more together with work of lower priority are no better.
    """

    demand: Workload
    victims: tuple[Workload, ...]
    most: int


def costly_demands(snapshot: IdleSnapshot, evaluation: Evaluation) -> list[Costly]:
    """Return the demands whose plan evicts more than one and a half times what they lack."""
    rows = {each.root.uid: each for each in snapshot.workloads}
    demands = {each.ref: each for each in snapshot.workloads}
    found = []
    for plan in evaluation.plans:
        demand = None if plan.preemptor is None else demands.get(plan.preemptor)
        if demand is None or demand.key in snapshot.owned or not plan.placement:
            continue
        if demand.key in snapshot.mixed or demand.key in snapshot.displaced:
            continue
        victims = tuple(rows[each.root.uid] for each in plan.victims if each.root.uid in rows)
        devices = sum(sum(each.gpus.values()) for each in victims)
        if 2 * devices > 3 * _lacking(snapshot, demand):
            found.append(Costly(demand, victims, -(-2 * devices // 3)))
    return sorted(found, key=lambda each: demand_order(each.demand))


def _lacking(snapshot: IdleSnapshot, demand: Workload) -> int:
    """Return how many devices at least have to be freed for a demand, whichever work holds them.

    Each node lacks for one more of the smallest pods what it has free beside whole ones. All that
    the demand requests counts where that is not known: for several kinds of devices, or where there
    is capacity for all of its pods, which it must not use then.
    """
    pods = [pod.gpus for pod in pending_pods(demand)]
    asked = sum(sum(gpus.values()) for gpus in pods)
    names = {name for gpus in pods for name, amount in gpus.items() if amount}
    size = min((sum(gpus.values()) for gpus in pods), default=0)
    if len(names) != 1 or size <= 0:
        return asked
    (name,) = names
    free = [max(0, node.free.get(name, 0)) for node in snapshot.nodes]
    more = len(pods) - sum(each // size for each in free)
    if more <= 0:
        return asked
    lacking = sorted(size - each % size for each in free)[:more]
    return sum(lacking) + size * (more - len(lacking))


@dataclass(frozen=True, slots=True)
class IdleWork:
    """The idle work that is a candidate for some demand.

    `rows`: that which no demand needs, or only one that is served later than another; oldest idle
    first. `turns`: the order of the demand that needs it, by root.
    """

    rows: tuple[Workload, ...]
    turns: Mapping[Uid, tuple[int, int, GpuWorkloadKey]]

    def is_free(self, demand: Workload, root: Uid) -> bool:
        """Whether no demand needs the work of a root that is served before this one."""
        turn = self.turns.get(root)
        return turn is None or turn > demand_order(demand)


def idle_work(snapshot: IdleSnapshot, evaluation: Evaluation) -> IdleWork:
    """Return the idle work that no demand needs, or one that is not the first of all."""
    spare = {each.subject for each in evaluation.declined if each.reason in _SPARE}
    demands = {each.ref: demand_order(each) for each in snapshot.workloads}
    turns = {
        each.root.uid: demands[plan.preemptor]
        for plan in evaluation.plans
        if plan.preemptor in demands
        for each in plan.victims
    }
    idle = [
        each
        for each in snapshot.workloads
        if each.status.phase is Phase.IDLE and (each.ref in spare or each.root.uid in turns)
    ]
    idle.sort(key=lambda each: (each.status.idle_since or 0, each.key))
    return IdleWork(tuple(idle), turns)

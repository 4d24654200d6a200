"""Which idle work is evicted beside work of lower priority: queried of the scheduling plane.

An evaluation states which demands all idle work is too little for, and for which far too much would
be evicted. The scheduling plane is queried for each such demand whose pods it schedules, in their
order, a few at a time in turn; what it names is evaluated again as part of the snapshot, checked,
recorded and carried out as any other plan, and the scheduling plane evicts the rest. Source: the
design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.asking import (
    MOST_MIXTURES,
    Costly,
    IdleWork,
    costly_demands,
    short_demands,
)
from reprieve.engine.idle.model import IdleSnapshot, Mixed, Workload
from reprieve.engine.idle.outcome import RULE_BESIDE_PRIORITY, Evaluation
from reprieve.engine.idle.placement import pending_pods
from reprieve.engine.mixed import IdlePods
from reprieve.engine.plan import Plan
from reprieve.engine.quota.release import IdleUnit
from reprieve.planes.common.joint import Joint
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Mixtures", "is_mixed"]

Units = Mapping[str, tuple[IdleUnit, Sequence[Workload]]]


def is_mixed(plan: Plan) -> bool:
    """Whether work of lower priority is evicted beside the victims of a plan."""
    return any(victim.rule == RULE_BESIDE_PRIORITY for victim in plan.victims)


class Mixtures:
    """Queries the scheduling plane. `asks`: whether it is the one to query about a demand."""

    def __init__(self, joint: Joint, asks: Callable[[Workload], bool]) -> None:
        self._joint = joint
        self._asks = asks
        self._last: GpuWorkloadKey | None = None  # the demand that it was queried about last

    async def named(
        self,
        snapshot: IdleSnapshot,
        evaluation: Evaluation,
        work: IdleWork,
        units: Units,
        chosen: Collection[Uid],
        now: Nanos,
    ) -> dict[GpuWorkloadKey, Mixed]:
        """Return the idle victims of demands; `units`: what may be, `chosen`: roots that are."""
        scheduling = self._joint.scheduling
        if scheduling is None or not snapshot.nodes:
            return {}
        found: dict[GpuWorkloadKey, Mixed] = {}
        gone = set(chosen)
        costly = {each.demand.key: each for each in costly_demands(snapshot, evaluation)}
        for demand in self._in_turn(snapshot, evaluation, costly):
            own = costly.get(demand.key)
            free = {
                name: members
                for name, members in _candidates(demand, work, units, own)
                if not any(
                    each.root.uid in gone or snapshot.held_until(demand.key, each.root.uid, now)
                    for each in members
                )
            }
            idle = [idle_pods(name, members) for name, members in free.items()]
            most = 0 if own is None else own.most
            answer = await scheduling.mixture(_waiting(demand), idle, most) if idle else None
            if answer is not None:
                roots = [each.root.uid for name in answer.idle for each in free[name]]
                found[demand.key] = Mixed(tuple(roots), answer.placement)
                gone.update(roots)
        return found

    async def refusal(self, demand: Workload, victims: Sequence[Workload]) -> str:
        """Return why the victims of a plan are not evicted; empty if they still have to be."""
        scheduling = self._joint.scheduling
        members: dict[str, list[Workload]] = {}
        for each in victims:
            members.setdefault(each.unit or f"/{each.root.uid}", []).append(each)
        idle = [idle_pods(name, several) for name, several in members.items()]
        answer = None if scheduling is None else await scheduling.mixture(_waiting(demand), idle)
        if answer is None or set(answer.idle) != members.keys():
            return "with work of lower priority they do not suffice any more, or not all are needed"
        return ""

    def _in_turn(
        self,
        snapshot: IdleSnapshot,
        evaluation: Evaluation,
        costly: Mapping[GpuWorkloadKey, Costly],
    ) -> list[Workload]:
        """Return the demands to query about now: those after the last one first."""
        asked = [*short_demands(snapshot, evaluation), *(each.demand for each in costly.values())]
        demands = [each for each in asked if self._asks(each)]
        last = next((n for n, each in enumerate(demands) if each.key == self._last), -1)
        if len(demands) > MOST_MIXTURES:
            demands = [*demands[last + 1 :], *demands[: last + 1]][:MOST_MIXTURES]
        self._last = demands[-1].key if demands else None
        return demands


def _candidates(
    demand: Workload, work: IdleWork, units: Units, own: Costly | None
) -> Iterator[tuple[str, Sequence[Workload]]]:
    """Yield the units that may be evicted: those of a costly plan, then those that are free."""
    members: dict[str, list[Workload]] = {}
    for each in () if own is None else own.victims:
        members.setdefault(each.unit or f"/{each.root.uid}", []).append(each)
    yield from members.items()
    for name, (_, several) in units.items():
        if name not in members and all(work.is_free(demand, e.root.uid) for e in several):
            yield name, several


def idle_pods(name: str, members: Sequence[Workload]) -> IdlePods:
    """Return a unit with the pods of its members."""
    return IdlePods(name, tuple(pod.uid for each in members for pod in each.pods if pod.live))


def _waiting(demand: Workload) -> list[Uid]:
    return [pod.uid for pod in pending_pods(demand)]

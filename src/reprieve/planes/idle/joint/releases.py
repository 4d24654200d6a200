"""Which idle work holds the quota that a demand lacks: queried where the queues are known.

That is our own quota plane, or where another Kueue decides what this plane reads of its queues.

An evaluation states which demands the quota plane owns, and which idle work no demand needs. The
quota plane is queried for each such demand in their order, first for those for which idle work is
already being evicted; what it names is evaluated again as part of the snapshot, checked, recorded
and carried out as any other plan. If several roots share a Workload, it is not known that all of
them are evicted: it counts as held. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.api.core import KueueWorkload
from reprieve.engine.idle.asking import (
    MOST_RELEASES,
    IdleWork,
    demands_of_quota,
    idle_work,
    waits_for_quota,
)
from reprieve.engine.idle.claims import demand_order
from reprieve.engine.idle.model import IdleSnapshot, Released, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.plan import Plane
from reprieve.engine.quota.release import IdleUnit, Promise
from reprieve.planes.common.joint import Joint
from reprieve.planes.idle.context import log
from reprieve.planes.idle.joint.foreign_queues import ForeignQueues
from reprieve.planes.idle.ownership import Ownership
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Releases"]

_REMEMBERED: Final = 1_000


class Releases:
    """Queries the quota plane. `kueue_of`: which Kueue Workloads a pod or root has, by uid."""

    def __init__(
        self,
        joint: Joint,
        ownership: Ownership,
        kueue_of: Callable[[str], Sequence[KueueWorkload]],
        foreign: ForeignQueues | None = None,
    ) -> None:
        self._joint = joint
        self._foreign = foreign
        self._ownership = ownership
        self._kueue_of = kueue_of
        self._reported: OrderedDict[GpuWorkloadKey, str] = OrderedDict()
        # Demands that have to be queried again before anything is stated of them.
        self.unanswered: frozenset[GpuWorkloadKey] = frozenset()

    async def named(
        self, snapshot: IdleSnapshot, evaluation: Evaluation, now: Nanos
    ) -> dict[GpuWorkloadKey, Released]:
        """Return for demands that wait for quota the roots to evict."""
        self.unanswered = frozenset()
        quota = self._joint.quota if self._joint.quota_decides else self._foreign
        owner = Plane.QUOTA if self._joint.quota_decides else Plane.IDLE
        owned = [e for e in demands_of_quota(snapshot) if snapshot.owned[e.key] is owner]
        if quota is None or not owned:
            return {}
        work = idle_work(snapshot, evaluation)
        units = self.units(work)
        promised = self._promised(snapshot)
        waits: set[GpuWorkloadKey] = (
            {each.key for each in owned[MOST_RELEASES:]} if units else set()
        )
        found: dict[GpuWorkloadKey, Released] = {}
        for demand in owned[:MOST_RELEASES] if units else ():
            key = self._workload_of(demand)
            debt = snapshot.debts.get(demand.key)
            free = [
                unit
                for unit, members in units.values()
                if not any(
                    not work.is_free(demand, e.root.uid)
                    or snapshot.held_until(demand.key, e.root.uid, now)
                    for e in members
                )
                and (debt is None or all(map(debt.allows, members)))
            ]
            if not key or not free:
                continue
            answer = await quota.release(key, free, promised)
            if answer.waits:
                waits.add(demand.key)
            half = "" if answer.half is None else f"{answer.half}: "
            self._log_answer(demand, half + answer.why)
            devices = sum(units[name][0].devices for name in answer.units)
            if not answer.units or (debt is not None and devices > debt.devices):
                continue
            going = [units.pop(name) for name in answer.units]
            found[demand.key] = Released(
                tuple(each.root.uid for _, members in going for each in members),
                answer.placed,
                answer.mixed,
            )
            promised.append(_promise(key, [unit for unit, _ in going]))
        self.unanswered = frozenset(waits)
        return found

    def units(self, work: IdleWork) -> dict[str, tuple[IdleUnit, list[Workload]]]:
        """Return the idle work that is a candidate, by unit, oldest idle first."""
        members: dict[str, list[Workload]] = {}
        for each in work.rows:
            members.setdefault(each.unit or f"/{each.root.uid}", []).append(each)
        return {name: (self._unit(name, several), several) for name, several in members.items()}

    def _unit(self, name: str, members: Sequence[Workload]) -> IdleUnit:
        return IdleUnit(
            name,
            tuple(dict.fromkeys(key for each in members for key in self._held_by(each))),
            tuple(pod.uid for each in members for pod in each.pods if pod.live),
            sum(sum(each.gpus.values()) for each in members),
        )

    def _held_by(self, workload: Workload) -> Iterable[str]:
        """Yield the Workloads whose quota is free once a root is deleted."""
        pods = self._ownership.pods_of(workload.root)
        for found in self._all_of(workload.root.uid, (pod.uid for pod in pods)):
            owners = [owner.uid for owner in found.metadata.owner_references or ()]
            if len(owners) <= 1:
                yield _name(found)

    def _all_of(self, root: Uid, pods: Iterable[str]) -> list[KueueWorkload]:
        found = [*self._kueue_of(root), *(each for uid in pods for each in self._kueue_of(uid))]
        return list({_name(each): each for each in found}.values())

    def _workload_of(self, demand: Workload) -> str:
        """Return the Workload that a demand waits with; empty unless there is exactly one."""
        waiting = self.keys_of(demand)
        return waiting[0] if len(waiting) == 1 else ""

    def keys_of(self, demand: Workload) -> list[str]:
        """Return the Workloads that a demand waits with."""
        found = self._all_of(demand.root.uid, (pod.uid for pod in demand.pods))
        return [_name(each) for each in found if not _holds_quota(each)]

    def _promised(self, snapshot: IdleSnapshot) -> list[Promise]:
        """Return the demands for whose quota open plans evict, oldest first."""
        going: dict[GpuWorkloadKey, list[Workload]] = {}
        rows = {each.key: each for each in snapshot.workloads}
        for each in snapshot.workloads:
            whom = snapshot.claims.get(each.root.uid)
            if whom and waits_for_quota(snapshot, whom) and whom in rows:
                going.setdefault(whom, []).append(each)
        found = []
        for demand in sorted((rows[whom] for whom in going), key=demand_order):
            key = self._workload_of(demand)
            if key:
                found.append(_promise(key, [self._unit("", going[demand.key])]))
        return found

    def _log_answer(self, demand: Workload, why: str) -> None:
        """Log why nothing is evicted, once for each answer."""
        if self._reported.get(demand.key, "") != why:
            log.log(
                logging.INFO if why else logging.DEBUG,
                "%s waits for quota, and no idle work is evicted for it: %s",
                demand.key,
                why,
            )
        self._reported[demand.key] = why
        self._reported.move_to_end(demand.key)
        while len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)


def _promise(key: str, units: Sequence[IdleUnit]) -> Promise:
    return Promise(
        key,
        tuple(each for unit in units for each in unit.workloads),
        tuple(each for unit in units for each in unit.pods),
    )


def _name(workload: KueueWorkload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"


def _holds_quota(workload: KueueWorkload) -> bool:
    said: Mapping[str, str] = {e.type: e.status for e in workload.status.conditions or ()}
    return said.get("QuotaReserved") == "True" or said.get("Finished") == "True"

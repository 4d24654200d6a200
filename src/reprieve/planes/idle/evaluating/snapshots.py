"""Snapshots: everything that one evaluation looks at, copied into immutable rows.

A GpuWorkload in a phase that takes no part is left out unless a claim lies on its root, which is
most of a busy cluster. Nodes are there only for the placement proof (fit Node), while somebody
waits. Source: the design's "How data flows"; specification of the idle plane, section 14.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.api.core import KueueWorkload, Node
from reprieve.api.reprieve import Preemption
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.idle.claims import reserved
from reprieve.engine.idle.gangs import SHARED_CLAIM, gang_of, joined, tied, waits_since
from reprieve.engine.idle.model import Debt, IdleSnapshot, NodeRow, Phase, PodRow, Workload
from reprieve.engine.idle.resources import add
from reprieve.engine.plan import Plane
from reprieve.intake.pods import node_row
from reprieve.planes.idle.claimed import BY_CLAIM
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.evaluating.debts import debt_of
from reprieve.planes.idle.evaluating.node_use import NodeUse
from reprieve.planes.idle.evaluating.spacing import next_plan, plans_of_demands
from reprieve.planes.idle.joint.joint_side import JointSide, displaced_lately, lineages_of
from reprieve.planes.idle.joint.owned_elsewhere import demand_names, owners_by_name
from reprieve.planes.idle.ownership import BY_GROUP, Ownership
from reprieve.planes.idle.reconcile import row_of
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.watches import Watches
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Placement", "Snapshots"]

Placement = tuple[GpuWorkloadKey, tuple[tuple[Uid, str], ...]]

_NO_PART: Final = (Phase.NEW, Phase.PENDING_OTHER, Phase.ACTIVE, Phase.DELETED)


class Snapshots:
    """Makes snapshots of what the watches show.

    `kueue_of` states which Kueue Workloads a pod or root has, by uid; `holds` whom the governor of
    disruptions holds from whom; `records` all Preemptions of the operator's namespace.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        watches: Watches,
        kueue_of: Callable[[str], Sequence[KueueWorkload]],
        holds: Callable[[Sequence[Workload]], Mapping[str, Mapping[Uid, Hold]]] = lambda rows: {},
        side: JointSide | None = None,
        records: Callable[[], Iterable[Preemption]] = tuple,
    ) -> None:
        self._side = side
        self._records = records
        self._holds = holds
        self._context = context
        self._workloads = workloads
        self._ownership = ownership
        self._watches = watches
        self._kueue_of = kueue_of
        self._revision = 0
        self._use = None if watches.nodes is None else NodeUse(watches.pods.cache)

    def snapshot(
        self, claims: Mapping[Uid, GpuWorkloadKey | None], placements: Iterable[Placement]
    ) -> IdleSnapshot:
        """Return a snapshot under these claims; `placements`: nodes that open intents keep."""
        self._revision += 1
        nodes = self._nodes()
        found = []
        owned: dict[GpuWorkloadKey, Plane] = {}
        debts: dict[GpuWorkloadKey, Debt | None] = {}
        others = owners_by_name(self._records())
        for held in self._workloads:
            if held.status.phase in _NO_PART and held.root.uid not in claims:
                continue
            self._workloads.settle(held)
            try:
                row = self._row(held, nodes)
                if held.status.phase is Phase.PENDING_GPU:
                    row = self._judge(held, row, owned, debts, others)
                found.append(row)
            except Exception:
                if held.root.uid in claims or held.key in claims.values():
                    # What is freed for it, or from it, would be freed again.
                    raise
                log.exception("%s is excluded from the evaluation", held.key)
        found = [self._with_gang(row, nodes) for row in found]
        found, busy_units = self._whole_units(found)
        gangs = {gang_of(row) for row in found if row.status.phase is Phase.PENDING_GPU}
        rows, speakers = joined(found, {gang: self._members(gang) for gang in gangs - {""}})
        rows = tuple(map(self._delayed, rows)) if self._watches.limits is not None else rows
        rows = self._spaced(rows)
        owed = [debt for debt in debts.values() if debt is not None]
        if any(each.above is not None or each.of_quota is not None for each in owed):
            rows = tuple(map(self._with_priority, rows))
        pods_of = {row.key: row.pods for row in rows}
        claims = {
            root: whom if whom is None else speakers.get(whom, whom)
            for root, whom in claims.items()
        }
        reservations = tuple(
            reservation
            for whom, placement in placements
            for demand in (speakers.get(whom, whom),)
            for reservation in reserved(demand, placement, pods_of.get(demand, ()))
        )
        demanded = any(row.status.phase is Phase.PENDING_GPU for row in rows)
        return IdleSnapshot(
            self._revision,
            rows,
            tuple(self._node_rows()) if demanded else (),
            claims,
            reservations,
            frozenset(self._served(found)),
            self._holds(rows),
            owned,
            frozenset(debts),
            busy_units,
            debts={key: debt for key, debt in debts.items() if debt is not None},
        )

    def _delayed(self, row: Workload) -> Workload:
        """Return a demand with the instant from which on others are evicted for it.

        Emergency priorities do not wait.
        """
        waiting = [pod for pod in row.pods if pod.node is None and pod.live]
        if row.status.phase is not Phase.PENDING_GPU or not waiting:
            return row
        records = self._records_of(waiting)
        if self._is_urgent(records):
            return row
        limits, otherwise = self._watches.limits, self._context.start.delay
        if limits is None or otherwise is None:
            return row
        delay = limits.delay(records, otherwise)
        until = Nanos(waits_since(waiting, row.created) + delay)
        return replace(row, preempts_from=until) if delay else row

    def _spaced(self, rows: Sequence[Workload]) -> tuple[Workload, ...]:
        """Return the rows, those that several plans did not serve with the next plan's instant."""
        uids = {
            row.key: (row.ref.uid, *(Uid(uid) for uid in held.former))
            for row in rows
            if row.status.phase is Phase.PENDING_GPU
            if (held := self._workloads.get(row.key)) is not None
        }
        wanted = frozenset(itertools.chain.from_iterable(uids.values()))
        plans = plans_of_demands(self._records(), wanted) if wanted else {}
        if not plans:
            return tuple(rows)
        made = {key: [at for uid in of for at in plans.get(uid, ())] for key, of in uids.items()}
        return tuple(self._later(row, made[row.key]) if made.get(row.key) else row for row in rows)

    def _later(self, row: Workload, plans: Sequence[Nanos]) -> Workload:
        """Return a demand with the instant of its next plan, given its former ones.

        Capacity is reserved for pods that are ours to place, and emergency priorities do not wait.
        """
        waiting = [pod for pod in row.pods if pod.node is None and pod.live]
        ours = self._side is not None and self._side.is_placed_by_us(row)
        if ours or not waiting or self._is_urgent(self._records_of(waiting)):
            return row
        due = next_plan(plans, waits_since(waiting, row.created))
        return replace(row, preempts_from=due, spaced=True) if due > row.preempts_from else row

    def _records_of(self, pods: Iterable[PodRow]) -> list[PodRecord]:
        found = (self._watches.pods.cache.get(pod.uid) for pod in pods)
        return [record for record in found if record is not None]

    def _is_urgent(self, pods: Iterable[PodRecord]) -> bool:
        """Return whether any of the pods has an emergency priority."""
        urgent = self._context.governor.policy.emergency_priority
        return urgent is not None and any(pod.priority >= urgent for pod in pods)

    def _with_priority(self, row: Workload) -> Workload:
        """Return idle work with the highest priority of its pods, and of its Kueue Workloads."""
        if row.status.phase is not Phase.IDLE:
            return row
        pods = self._ownership.pods_of(row.root)
        uids = (row.root.uid, *(pod.uid for pod in pods))
        queued = (each.spec.priority or 0 for uid in uids for each in self._kueue_of(uid))
        own = max((pod.priority for pod in pods), default=0)
        return replace(row, precedence=own, queued=max(queued, default=None))

    def _with_gang(self, row: Workload, nodes: list[Node] | None) -> Workload:
        """Return a pending member of a gang of ours with those members that no node was tried for.

        A scheduler states what is short of the first member that found no node, and of no other.
        """
        if self._side is None or row.status.phase is not Phase.PENDING_GPU or not gang_of(row):
            return row
        seen = {pod.uid for pod in row.pods}
        added = []
        for uid in self._side.waiting_with([pod.uid for pod in row.pods if pod.node is None]):
            root = None if uid in seen else self._ownership.root_of(uid)
            for held in () if root is None else self._workloads.of_root(root.ref.uid):
                if held.status.phase is Phase.PENDING_OTHER:
                    added.append(self._row(held, nodes))
        if not added:
            return row
        pods = {pod.uid: pod for each in (row, *added) for pod in each.pods}
        return replace(
            row,
            gpus=add(*(each.gpus for each in (row, *added))),
            pods=tuple(sorted(pods.values(), key=lambda pod: (pod.name, pod.uid))),
        )

    def _whole_units(self, rows: list[Workload]) -> tuple[list[Workload], frozenset[str]]:
        """Return the rows with the unit that each is evicted with, and the units that are not idle.

        A gang that is evicted as a whole is one, and so are all who share claims of devices.
        """
        bound: dict[Uid, list[str]] = {}
        for row in rows:
            if row.status.phase is Phase.IDLE:
                bound[row.root.uid] = [*self._gang_of(row), *self._claims_of(row)]
        units = tied(bound)
        if not units:
            return rows, frozenset()
        busy = {
            units[uid]
            for uid, ties in bound.items()
            if not all(self._all_idle(self._pods_tied_by(tie)) for tie in ties)
        }
        named = [
            replace(row, unit=units.get(row.root.uid, "")) if row.root.uid in bound else row
            for row in rows
        ]
        return named, frozenset(busy)

    def _gang_of(self, row: Workload) -> list[str]:
        gang = gang_of(row)
        return [gang] if gang and self._side is not None and self._side.goes_whole(gang) else []

    def _claims_of(self, row: Workload) -> list[str]:
        pods = self._ownership.pods_of(row.root)
        return sorted({f"{SHARED_CLAIM}{claim}" for pod in pods for claim in pod.shared})

    def _pods_tied_by(self, tie: str) -> list[PodRecord]:
        claim = tie.removeprefix(SHARED_CLAIM)
        return self._watches.pods.cache.by(BY_GROUP if claim == tie else BY_CLAIM, claim)

    def _all_idle(self, pods: Sequence[PodRecord]) -> bool:
        """Whether all of these pods that hold a node are of an idle GpuWorkload."""
        for pod in pods:
            if pod.occupies and not pod.row.terminating:
                roots = self._ownership.owners_of(pod)
                held = [each for uid in roots for each in self._workloads.of_root(uid)]
                if not any(each.status.phase is Phase.IDLE for each in held):
                    return False
        return True

    def _judge(
        self,
        held: TrackedWorkload,
        row: Workload,
        owned: dict[GpuWorkloadKey, Plane],
        debts: dict[GpuWorkloadKey, Debt | None],
        others: Mapping[str, Plane],
    ) -> Workload:
        """Note whether another plane evicts for a demand, and its debt if it was displaced.

        Return its row with the precedence that it has where another plane gives it its capacity.

        `others`: which other planes serve demands with an open record, by names of the demands.
        """
        if self._side is None:
            return row
        pods = self._ownership.pods_of(held.root)
        kueue = [*self._kueue_of(held.root.uid), *(e for p in pods for e in self._kueue_of(p.uid))]
        if others:
            known_by = (others.get(name) for name in demand_names(held, pods, kueue))
            serves = next(filter(None, known_by), None)
            if serves is not None:
                owned[held.key] = serves
                return row
        owner = self._side.owner(held, pods, kueue)
        if owner is Plane.QUOTA or (owner is Plane.IDLE and self._side.lacks_foreign_quota(kueue)):
            owned[held.key] = owner
        now, lineages = self._context.clock.wall(), lineages_of(held.root, pods)
        if owner is not Plane.IDLE and displaced_lately(self._context.governor, lineages, now):
            names = held.object.spec.gpu_resources
            debts[held.key] = debt_of(self._records(), lineages, names, now)
        if owner is Plane.IDLE:
            return row
        of_pods = [pod.priority for pod in pods if pod.row.live]
        of_workloads = [each.spec.priority or 0 for each in kueue]
        return replace(row, precedence=max(of_pods or of_workloads, default=0))

    def _served(self, rows: Sequence[Workload]) -> Iterator[GpuWorkloadKey]:
        """Yield those for whom something was freed, and who have a pod on a node."""
        names = {row.status.preempted_for for row in rows} - {""}
        for held in self._workloads if names else ():
            if held.ref.name in names:
                pods = self._ownership.pods_of(held.root)
                if any(pod.occupies and not pod.row.terminating for pod in pods):
                    yield held.key

    def _members(self, gang: str) -> set[GpuWorkloadKey]:
        """Return the GpuWorkloads that the pods of a gang belong to."""
        pods = self._watches.pods.cache.by(BY_GROUP, gang)
        roots = {uid for pod in pods for uid in self._ownership.owners_of(pod)}
        return {held.key for uid in roots for held in self._workloads.of_root(uid)}

    def _row(self, held: TrackedWorkload, nodes: list[Node] | None) -> Workload:
        regained = self._watches.claimed.regained
        pods = [regained(pod) for pod in self._ownership.pods_of(held.root)]
        of_pods = [each for pod in pods for each in self._kueue_of(pod.uid)]
        of_root = self._kueue_of(held.root.uid)
        return row_of(self._context, held, pods, of_pods, nodes, of_root)

    def _node_rows(self) -> Iterator[NodeRow]:
        if self._watches.nodes is None or self._use is None:
            return
        claimed = self._watches.claimed
        chosen, classes = claimed.allocated(), claimed.extended
        for record in self._watches.nodes.cache:
            offered, used = record.offered, self._use.of(record.name)
            if classes:
                # Devices of classes stand in no node's allocatable: each is free or has its claim.
                free = claimed.free_on(record.name, chosen)
                used = {n: a for n, a in used.items() if n in offered or n not in classes}
                offered = {**free, **offered}
            yield node_row(record.name, offered, used)

    def _nodes(self) -> list[Node] | None:
        if self._watches.nodes is None:
            return None
        return [record.node for record in self._watches.nodes.cache]

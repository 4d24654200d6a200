"""Snapshots: everything that one evaluation looks at, copied into immutable rows.

A GpuWorkload in a phase that takes no part is left out unless a claim lies on its root, which is
most of a busy cluster. Nodes are there only for the placement proof (fit Node), while somebody
waits. Source: the design's "How data flows"; specification of the idle plane, section 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reprieve.api.core import KueueWorkload, Node
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.idle.claims import reserved
from reprieve.engine.idle.gangs import gang_of, joined
from reprieve.engine.idle.model import IdleSnapshot, NodeRow, Phase, Workload
from reprieve.engine.idle.resources import add
from reprieve.engine.plan import Plane
from reprieve.intake.pods import node_row
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.joint_side import JointSide, displaced_lately
from reprieve.planes.idle.node_use import NodeUse
from reprieve.planes.idle.ownership import BY_GROUP, Ownership
from reprieve.planes.idle.reconcile import row_of
from reprieve.planes.idle.watches import Watches
from reprieve.planes.idle.workloads import TrackedWorkload, TrackedWorkloads
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Placement", "Snapshots"]

Placement = tuple[GpuWorkloadKey, tuple[tuple[Uid, str], ...]]

_NO_PART: Final = (Phase.NEW, Phase.PENDING_OTHER, Phase.ACTIVE, Phase.DELETED)


class Snapshots:
    """Takes snapshots of what the watches show.

    `kueue_of` says which Kueue Workloads a pod or root has, by uid; `holds` whom the governor of
    disruptions holds from whom.
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
    ) -> None:
        self._side = side
        self._holds = holds
        self._context = context
        self._workloads = workloads
        self._ownership = ownership
        self._watches = watches
        self._kueue_of = kueue_of
        self._revision = 0
        self._use = None if watches.nodes is None else NodeUse(watches.pods.cache)

    def take(
        self, claims: Mapping[Uid, GpuWorkloadKey | None], placements: Iterable[Placement]
    ) -> IdleSnapshot:
        """Return a snapshot under these claims; `placements`: nodes that open intents keep."""
        self._revision += 1
        nodes = self._nodes()
        found = []
        owned: dict[GpuWorkloadKey, Plane] = {}
        displaced: set[GpuWorkloadKey] = set()
        for held in self._workloads:
            if held.status.phase in _NO_PART and held.root.uid not in claims:
                continue
            self._workloads.settle(held)
            try:
                found.append(self._row(held, nodes))
                if held.status.phase is Phase.PENDING_GPU:
                    self._judge(held, owned, displaced)
            except Exception:
                if held.root.uid in claims or held.key in claims.values():
                    # What is freed for it, or from it, would be freed again.
                    raise
                log.exception("%s is left out of the evaluation", held.key)
        found = [self._with_gang(row, nodes) for row in found]
        found, busy_units = self._whole_gangs(found)
        gangs = {gang_of(row) for row in found if row.status.phase is Phase.PENDING_GPU}
        rows, speakers = joined(found, {gang: self._members(gang) for gang in gangs - {""}})
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
            frozenset(displaced),
            busy_units,
        )

    def _with_gang(self, row: Workload, nodes: list[Node] | None) -> Workload:
        """Return a pending member of a gang of ours with those members that no node was tried for.

        A scheduler says what is short of the first member that found no node, and of no other.
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

    def _whole_gangs(self, rows: list[Workload]) -> tuple[list[Workload], frozenset[str]]:
        """Return the rows with the gang that each goes with, and the gangs that are not idle."""
        side = self._side
        if side is None:
            return rows, frozenset()
        units: dict[str, str] = {}
        busy: set[str] = set()
        for row in rows:
            gang = gang_of(row) if row.status.phase is Phase.IDLE else ""
            if gang and gang not in units:
                units[gang] = gang if side.goes_whole(gang) else ""
                if units[gang] and not self._all_idle(gang):
                    busy.add(gang)
        if not any(units.values()):
            return rows, frozenset()
        named = [
            replace(row, unit=units.get(gang_of(row), ""))
            if row.status.phase is Phase.IDLE
            else row
            for row in rows
        ]
        return named, frozenset(busy)

    def _all_idle(self, gang: str) -> bool:
        """Whether every pod of a gang that holds a node is of an idle GpuWorkload."""
        for pod in self._watches.pods.cache.by(BY_GROUP, gang):
            if pod.occupies and not pod.row.terminating:
                roots = self._ownership.owners_of(pod)
                held = [each for uid in roots for each in self._workloads.of_root(uid)]
                if not any(each.status.phase is Phase.IDLE for each in held):
                    return False
        return True

    def _judge(
        self,
        held: TrackedWorkload,
        owned: dict[GpuWorkloadKey, Plane],
        displaced: set[GpuWorkloadKey],
    ) -> None:
        """Note whether another plane evicts for a demand, and whether it returns from one."""
        if self._side is None:
            return
        pods = self._ownership.pods_of(held.root)
        kueue = [*self._kueue_of(held.root.uid), *(e for p in pods for e in self._kueue_of(p.uid))]
        owner = self._side.owner(held, pods, kueue)
        if owner is Plane.QUOTA:
            owned[held.key] = owner
        elif owner is Plane.SCHEDULING:
            governor, now = self._context.governor, self._context.clock.wall()
            if displaced_lately(governor, held.root, pods, now):
                displaced.add(held.key)

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
        pods = self._ownership.pods_of(held.root)
        of_pods = [each for pod in pods for each in self._kueue_of(pod.uid)]
        of_root = self._kueue_of(held.root.uid)
        return row_of(self._context, held, pods, of_pods, nodes, of_root)

    def _node_rows(self) -> Iterator[NodeRow]:
        if self._watches.nodes is not None and self._use is not None:
            for record in self._watches.nodes.cache:
                yield node_row(record.name, record.offered, self._use.of(record.name))

    def _nodes(self) -> list[Node] | None:
        if self._watches.nodes is None:
            return None
        return [record.node for record in self._watches.nodes.cache]

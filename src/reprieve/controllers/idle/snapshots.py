"""Snapshots: everything that one evaluation looks at, copied into immutable rows.

A GpuWorkload in a phase that takes no part is left out unless a claim lies on its root, which is
most of a busy cluster. Nodes are there only for the placement proof (fit Node). Source: the
design's "How data flows"; specification of the idle plane, section 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reprieve.api.core import KueueWorkload, Node
from reprieve.api.reprieve import Action
from reprieve.controllers.idle.context import IdleContext, log
from reprieve.controllers.idle.ownership import BY_GROUP, BY_NODE, Ownership
from reprieve.controllers.idle.reconcile import row_of
from reprieve.controllers.idle.watches import Watches
from reprieve.controllers.idle.workloads import TrackedWorkload, TrackedWorkloads
from reprieve.controllers.persistent import alone
from reprieve.engine.idle.claims import reserved
from reprieve.engine.idle.gangs import gang_of, joined
from reprieve.engine.idle.model import IdleSnapshot, NodeRow, Phase, Workload
from reprieve.engine.plan import Ref
from reprieve.intake.pods import node_row
from reprieve.units.ids import GpuWorkloadKey, Uid

__all__ = ["Placement", "Snapshots"]

Placement = tuple[GpuWorkloadKey, tuple[tuple[Uid, str], ...]]

_NO_PART: Final = (Phase.NEW, Phase.PENDING_OTHER, Phase.ACTIVE, Phase.DELETED)


class Snapshots:
    """Takes snapshots of what the watches show.

    `action_of` says what a root's owner wants to happen to it, None when nobody can tell;
    `kueue_of` which Kueue Workloads a pod or root has, by uid.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        watches: Watches,
        action_of: Callable[[Ref], Action | None],
        kueue_of: Callable[[str], Sequence[KueueWorkload]],
    ) -> None:
        self._context = context
        self._workloads = workloads
        self._ownership = ownership
        self._watches = watches
        self._action_of = action_of
        self._kueue_of = kueue_of
        self._revision = 0

    def take(
        self, claims: Mapping[Uid, GpuWorkloadKey | None], placements: Iterable[Placement]
    ) -> IdleSnapshot:
        """Return a snapshot under these claims; `placements`: nodes that open intents keep."""
        self._revision += 1
        nodes = self._nodes()
        found = []
        for held in self._workloads:
            if held.status.phase in _NO_PART and held.root.uid not in claims:
                continue
            try:
                found.append(self._row(held, nodes))
            except Exception:
                if held.root.uid in claims or held.key in claims.values():
                    # What is freed for it, or from it, would be freed again.
                    raise
                log.exception("%s is left out of the evaluation", held.key)
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
        node_rows = []
        for node in nodes or ():
            with alone(log, f"node {node.metadata.name}"):
                node_rows.append(self._node_row(node))
        return IdleSnapshot(self._revision, rows, tuple(node_rows), claims, reservations)

    def _members(self, gang: str) -> set[GpuWorkloadKey]:
        """Return the GpuWorkloads that the pods of a gang belong to."""
        pods = self._watches.pods.cache.by(BY_GROUP, gang)
        roots = {uid for pod in pods for uid in self._ownership.owners_of(pod)}
        return {held.key for uid in roots for held in self._workloads.of_root(uid)}

    def _row(self, held: TrackedWorkload, nodes: list[Node] | None) -> Workload:
        pods = self._ownership.pods_of(held.root)
        of_pods = [each for pod in pods for each in self._kueue_of(pod.uid)]
        of_root = self._kueue_of(held.root.uid)
        row = row_of(self._context, held, pods, of_pods, nodes, of_root)
        if row.status.phase is Phase.IDLE and self._action_of(held.root) is None:
            # Nobody knows what its owner wants: a typo must not delete anything.
            row = replace(row, status=replace(row.status, idle_since=None))
        return row

    def _node_row(self, node: Node) -> NodeRow:
        pods = self._watches.pods.cache.by(BY_NODE, node.metadata.name)
        return node_row(node, (pod.row.gpus for pod in pods), self._context.start.vendors)

    def _nodes(self) -> list[Node] | None:
        if self._watches.nodes is None:
            return None
        return [record.node for record in self._watches.nodes.cache]

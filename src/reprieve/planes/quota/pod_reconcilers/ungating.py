"""Puts the pods of admitted workloads where their assignments say: node selector, then no gate.

A pod of a pod set with places is created with the gate `kueue.x-k8s.io/topology`. Once its Workload
is admitted it is given a domain by node selector, and loses the gate in the same write. Pods that
were given a domain are known by the selector that they have. A domain whose node failed gets no
pods; one that waits for a node that is none of its places any more is ended, and made anew.

Source: specification of topology-aware scheduling, section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from kubeworld.units.untrusted import integer_or_none
from reprieve.api.kueue import Workload
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.topology.encoding import TopologyEncodingError, decoded
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.ungating import PlacedPod, Values, places_for
from reprieve.execution.writes.pods import PodWriter
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.jobs.pods import TOPOLOGY_GATE
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.queue_status.meters import count_ungated
from reprieve.planes.quota.state import QuotaState

__all__ = ["TopologyUngater"]

_POD_SET: Final = "kueue.x-k8s.io/podset"
#: Why a pod is ended that waits for a node which it may not have any more, as Kueue words it.
_UNSCHEDULABLE: Final = "UnschedulableOnAssignedNode"
_ENDED: Final = "Pod terminated by Kueue NodeController due to node taint"
#: So many pods are placed at a time.
_AT_ONCE: Final = 16
#: Labels that number the pods of a pod set, those of Jobs, StatefulSets and training jobs.
_INDEXES: Final = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)


class TopologyUngater:
    """Looks at the pods of one Workload at a time."""

    def __init__(self, context: QuotaContext, state: QuotaState, nodes: NodeView) -> None:
        self._context = context
        self._state = state
        self._nodes = nodes
        self._writer = PodWriter(context.full_client, context.fence, context.clock)

    async def reconcile(self, key: str) -> None:
        """Place the gated pods of a Workload.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        workload = self._state.workload(key)
        if workload is None or not is_condition_true(workload, "Admitted"):
            return
        if is_condition_true(workload, "Evicted"):
            return
        placed = _placed(workload)
        if not placed:
            return
        admission = workload.status.admission
        flavors = {
            each.name: set((each.flavors or {}).values())
            for each in (admission.pod_set_assignments if admission is not None else ())
        }
        rows: dict[str, list[PodRow]] = {}
        for uid in self._nodes.pods_of(key):
            row = self._nodes.row(uid)
            name = "" if row is None else dict(row.labels).get(_POD_SET, "")
            if row is not None and name in placed and not row.deleting:
                rows.setdefault(name, []).append(row)
        for name, members in rows.items():
            await self._place(workload, placed[name], members, flavors.get(name, ()))

    def _lost(self, assignment: TopologyAssignment, flavors: Collection[str]) -> set[Values]:
        """Return the domains of an assignment that are no places now."""
        places = self._state.holdings.places
        trees = [] if places is None else [places.trees[f] for f in flavors if f in places.trees]
        return {
            each.values
            for each in assignment.domains
            if trees and all(each.values not in tree.index for tree in trees)
        }

    async def _end(self, key: str, row: PodRow) -> None:
        metadata = {"namespace": row.namespace, "name": row.name, "uid": row.uid}
        if await self._writer.terminate({"metadata": metadata}, _UNSCHEDULABLE, _ENDED):
            log.info("%s: pod %s ended: its node is none of its places any more", key, row.name)

    async def _place(
        self,
        workload: Workload,
        assignment: TopologyAssignment,
        rows: list[PodRow],
        flavors: Collection[str],
    ) -> None:
        key = f"{workload.metadata.namespace}/{workload.metadata.name}"
        rows.sort(key=lambda row: (row.created, row.name))
        by_uid = {str(row.uid): row for row in rows}
        pods = [_pod(row, assignment) for row in rows]
        lost = self._lost(assignment, flavors)
        known = {each.values for each in assignment.domains}
        for pod in pods:
            row = by_uid[pod.key]
            if pod.at is not None and pod.at not in known and not row.node:
                await self._end(key, row)
        found = places_for(assignment, pods)
        due = [(by_uid[uid], values) for uid, values in found.items() if values not in lost]

        async def each(row: PodRow, values: tuple[str, ...]) -> None:
            selector = dict(zip(assignment.levels, values, strict=True))
            metadata = {"namespace": row.namespace, "name": row.name, "uid": row.uid}
            if await self._writer.place({"metadata": metadata}, TOPOLOGY_GATE, selector):
                where = ", ".join(f"{level}={value}" for level, value in selector.items())
                log.info("%s: pod %s placed: %s", key, row.name, where)
                count_ungated(self._context, workload, TOPOLOGY_GATE)

        for begin in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(each(*one) for one in due[begin : begin + _AT_ONCE]))


def _pod(row: PodRow, assignment: TopologyAssignment) -> PlacedPod:
    at = None
    if TOPOLOGY_GATE not in row.gates:
        selector = dict(row.pod_class.node_selector)
        at = tuple(selector.get(level, "") for level in assignment.levels)
    return PlacedPod(str(row.uid), at, _rank(dict(row.labels)))


def _rank(labels: Mapping[str, str]) -> int | None:
    for name in _INDEXES:
        if name in labels:
            return integer_or_none(labels[name])
    return None


def _placed(workload: Workload) -> dict[str, TopologyAssignment]:
    """Return the places of a Workload's pod sets, by name."""
    admission = workload.status.admission
    found = {}
    for each in admission.pod_set_assignments if admission is not None else ():
        if each.topology_assignment is not None:
            try:
                found[each.name] = decoded(each.topology_assignment)
            except TopologyEncodingError as fault:
                log.warning("%s: pod set %s: %s", workload.metadata.name, each.name, fault)
    return found

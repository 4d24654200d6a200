"""Places the pods of admitted workloads where they are assigned: node selector, then no gate.

A pod of a pod set with places is created with the gate `kueue.x-k8s.io/topology`. Once its Workload
is admitted it is given a domain by node selector, and loses the gate in the same write. Pods that
were given a domain are known by the selector that they have, or by what was written and is not seen
yet: Jobs make their pods by and by, so that others come meanwhile. A domain whose node failed gets
no pods; one that waits for a failed node, or for one that is none of its places any more, is ended
and made anew.

Source: specification of topology-aware scheduling, section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from reprieve.api.kueue import Workload
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.topology.encoding import TopologyEncodingError, decoded
from reprieve.engine.topology.model import HOSTNAME, TopologyAssignment
from reprieve.engine.topology.releasing import still_needed
from reprieve.engine.topology.ungating import PlacedPod, Values, places_for
from reprieve.execution.writes.pods import PodWriter
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.jobs.pods import TOPOLOGY_GATE
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.pod_reconcilers.finished_pods import FinishedPods
from reprieve.planes.quota.pod_reconcilers.pod_numbers import PodNumbers, numbers_of
from reprieve.planes.quota.queue_status.meters import count_ungated
from reprieve.planes.quota.state import QuotaState
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["TopologyUngater"]

_POD_SET: Final = "kueue.x-k8s.io/podset"
#: Why a pod is ended that waits for a node which it may not have any more, as Kueue words it.
_UNSCHEDULABLE: Final = "UnschedulableOnAssignedNode"
_ENDED: Final = "Pod terminated by Kueue NodeController due to node taint"
#: So many pods are placed at a time.
_AT_ONCE: Final = 16
_TERMINATED: Final = "PodTerminatedByKueue"


class TopologyUngater:
    """Looks at the pods of one Workload at a time."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        nodes: NodeView,
        failed: Callable[[str], Collection[str]],
        finished: FinishedPods,
    ) -> None:
        """`failed`: by Workload, the nodes of its places that have failed and may not be named.

        `finished`: releases the places of pods that are not needed any more.
        """
        self._context = context
        self._state = state
        self._nodes = nodes
        self._failed = failed
        self._finished = finished
        # By Workload, the domains that were written and are not seen yet, by the uid of the pod.
        self._given: dict[str, dict[str, Values]] = {}
        self._writer = PodWriter(context.full_client, context.fence, context.clock)

    async def reconcile(self, key: str) -> None:
        """Place the gated pods of a Workload.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        workload = self._state.workload(key)
        if (
            workload is None
            or not is_condition_true(workload, "Admitted")
            or is_condition_true(workload, "Evicted")
        ):
            self._given.pop(key, None)
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
        ending: set[str] = set()
        for uid in self._nodes.pods_of(key):
            row = self._nodes.row(uid)
            name = "" if row is None else dict(row.labels).get(_POD_SET, "")
            if row is None or name not in placed:
                continue
            if row.deleting:
                ending.add(name)
            else:
                rows.setdefault(name, []).append(row)
        gated = {str(r.uid) for members in rows.values() for r in members if _is_gated(r)}
        given = {uid: values for uid, values in self._given.get(key, {}).items() if uid in gated}
        self._given[key] = given
        numbered = numbers_of(workload)
        for name, members in rows.items():
            if all(row.node for row in members):
                continue
            lost = self._lost(workload, placed[name], flavors.get(name, ()))
            await self._place(workload, placed[name], members, lost, numbered.get(name))
        await self._release(workload, placed, rows, ending)

    async def _release(
        self,
        workload: Workload,
        placed: Mapping[str, TopologyAssignment],
        rows: Mapping[str, Sequence[PodRow]],
        ending: Collection[str],
    ) -> None:
        """Release the places of finished pods; what pods on their way out use is kept."""
        kept: dict[str, tuple[TopologyAssignment, int]] = {}
        for name, needed in self._finished.needed(workload).items():
            if name not in placed or name in ending:
                continue
            assignment, members = placed[name], rows.get(name, ())
            left = [_pod(row, assignment, None, 0, {}).at for row in members]
            fewer = still_needed(assignment, left, needed)
            if fewer is not None:
                kept[name] = fewer, assignment.pods
        if kept:
            await self._finished.release(workload, kept)

    def _lost(
        self, workload: Workload, assignment: TopologyAssignment, flavors: Collection[str]
    ) -> set[Values]:
        """Return the domains of an assignment that are no places now, or have failed."""
        failed: set[Values] = set()
        if assignment.levels == (HOSTNAME,):
            key = f"{workload.metadata.namespace}/{workload.metadata.name}"
            named = (each["name"] for each in workload.status.unhealthy_nodes or ())
            failed = {(name,) for name in (*named, *self._failed(key))}
        places = self._state.holdings.places
        trees = [] if places is None else [places.trees[f] for f in flavors if f in places.trees]
        return failed | {
            each.values
            for each in assignment.domains
            if trees and all(each.values not in tree.index for tree in trees)
        }

    async def _end(self, key: str, row: PodRow) -> None:
        metadata = {"namespace": row.namespace, "name": row.name, "uid": row.uid}
        if await self._writer.terminate({"metadata": metadata}, _UNSCHEDULABLE, _ENDED):
            log.info(
                "%s: pod %s is terminated: its node failed or is not in its topology assignment",
                key,
                row.name,
            )
            pod = Reference("v1", "Pod", row.namespace, row.name, row.uid)
            self._context.announce(pod, EventText("Normal", _TERMINATED, _ENDED))

    async def _place(
        self,
        workload: Workload,
        assignment: TopologyAssignment,
        rows: list[PodRow],
        lost: Collection[Values],
        numbered: PodNumbers | None,
    ) -> None:
        key = f"{workload.metadata.namespace}/{workload.metadata.name}"
        rows.sort(key=lambda row: (row.created, row.name))
        by_uid = {str(row.uid): row for row in rows}
        given, offset = self._given[key], rows[0].index_offset
        pods = [_pod(row, assignment, numbered, offset, given) for row in rows]
        known = {each.values for each in assignment.domains}.difference(lost)
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
                given[str(row.uid)] = values
                log.info("%s: pod %s is ungated for %s", key, row.name, where)
                count_ungated(self._context, workload, TOPOLOGY_GATE)

        for begin in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(each(*one) for one in due[begin : begin + _AT_ONCE]))


def _is_gated(row: PodRow) -> bool:
    return TOPOLOGY_GATE in row.gates


def _pod(
    row: PodRow,
    assignment: TopologyAssignment,
    numbers: PodNumbers | None,
    offset: int,
    given: Mapping[str, Values],
) -> PlacedPod:
    at = given.get(str(row.uid))
    if not _is_gated(row):
        selector = dict(row.pod_class.node_selector)
        at = tuple(selector.get(level, "") for level in assignment.levels)
    rank = None if numbers is None else numbers.rank(dict(row.labels), offset)
    return PlacedPod(str(row.uid), at, rank)


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

"""What is written for workloads with quota about places: delayed ones, others, or an eviction.

A failed node is named in `status.unhealthyNodes`; the next cycle decides
(`engine.quota.node_failures`). A replacement changes the assignment alone; the pods that are made
anew are released to the new place. Without one the Workload is evicted, so that it is queued as a
whole. A Workload whose assignment was delayed gets it once its checks are ready. What could not be
written is decided again.

Source: specification of topology-aware scheduling, sections 6.6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubeworld.units.instants import Nanos
from reprieve.api.kueue import PodSetAssignment, Workload
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.node_failures import NODE_FAILURES
from reprieve.engine.topology.encoding import encoded
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.kube.errors import ApiError
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.deciding.grounds import GroundView
from reprieve.planes.quota.queue_status.meters import ready_for
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.transitions import evicted, evictions_of
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording.events import EventText

__all__ = ["FailedNodes"]

_EVICTED: Final = f"EvictedDueTo{NODE_FAILURES}"
Change = Callable[[Workload], Workload | None]


class FailedNodes:
    """Writes what was found and decided of failed nodes; `spawn` runs a write beside decisions."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        grounds: GroundView,
        writer: WorkloadStatuses,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._context = context
        self._state = state
        self._grounds = grounds
        self._writer = writer
        self._spawn = spawn
        self._unplaced: dict[str, str] = {}  # what was reported, by the key of the Workload

    def mark(self) -> Nanos | None:
        """Name the nodes that have failed since, and evict whom a second one failed.

        Return when to look again though nothing changes, None where that is not needed.
        """
        for key, marks in list(self._grounds.failing()):
            workload = self._state.workload(key)
            if workload is not None:
                if marks.message:
                    change = self._eviction(marks.message)
                    self._begin(key, workload.metadata.uid, change, marks.message, _EVICTED)
                else:
                    names = ", ".join(marks.nodes) or "none any more"
                    said = f"nodes of its places that failed: {names}"
                    self._begin(key, workload.metadata.uid, _named(marks.nodes), said)
        return self._grounds.next_failure()

    def replaced(self, entry: Entry) -> None:
        """Write the new places of a workload."""
        nodes = ", ".join(entry.workload.unhealthy_nodes)
        self._give(entry, f"its pods of the failed node {nodes} have other nodes")

    def placed(self, entry: Entry) -> None:
        """Write the places that a workload's pods get once its checks are ready."""
        self._give(entry, "all checks are ready, and its pods have topology assignments")

    def report_unplaced(self, entry: Entry) -> None:
        """Emit an event with what a workload with quota lacks; the same once."""
        key, known = entry.workload.key, self._state.holdings.holders
        reported = self._unplaced.get(key)
        self._unplaced = {name: text for name, text in self._unplaced.items() if name in known}
        workload = self._state.workload(key)
        if workload is None or reported == entry.message:
            return
        self._unplaced[key] = entry.message
        log.info("%s: its pods get no topology assignment yet: %s", key, entry.message)
        event = EventText("Warning", "SecondPassFailed", entry.message)
        self._context.announce(reference_of(workload), event)

    def _give(self, entry: Entry, said: str) -> None:
        self._unplaced.pop(entry.workload.key, None)
        admission = entry.admission
        assert admission is not None
        places = {each.name: each.topology for each in admission.pod_sets}
        by_prefix = self._state.configuration.settings.gates.topology.encode_by_prefix

        def given(each: PodSetAssignment) -> PodSetAssignment:
            assigned = places.get(each.name)
            if assigned is None:
                return each
            given = replace(each, topology_assignment=encoded(assigned, by_prefix))
            delayed = each.delayed_topology_request is not None
            return replace(given, delayed_topology_request="Ready") if delayed else given

        def change(current: Workload) -> Workload | None:
            held = current.status.admission
            if held is None or is_condition_true(current, "Evicted"):
                return None
            new = replace(held, pod_set_assignments=[given(e) for e in held.pod_set_assignments])
            status = replace(current.status, admission=new, unhealthy_nodes=None)
            return replace(current, status=status)

        self._begin(entry.workload.key, entry.workload.uid, change, said)

    def evict(self, entry: Entry) -> None:
        """Evict a workload for whose pods there is no other node."""
        workload, change = entry.workload, self._eviction(entry.message)
        self._begin(workload.key, workload.uid, change, entry.message, _EVICTED)

    def _eviction(self, message: str) -> Change:
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or is_condition_true(current, "Evicted"):
                return None
            return evicted(current, NODE_FAILURES, message, now)

        return change

    def _begin(self, key: str, uid: str, change: Change, message: str, event: str = "") -> None:
        self._state.deciding.add(key)
        self._spawn(self._write(key, uid, change, message, event))

    async def _write(
        self,
        key: str,
        uid: str,
        change: Change,
        message: str,
        event: str,
    ) -> None:
        try:
            stored = await self._writer.change(key, uid, change, Priority.EVICT)
            if stored is not None:
                log.info("%s: %s", key, message)
                if event:
                    reported = EventText("Normal", event, message)
                    self._context.announce(reference_of(stored), reported)
                    self._context.quota_metrics.evicted(
                        self._state.place(stored),
                        NODE_FAILURES,
                        first=evictions_of(stored, NODE_FAILURES) == 1,
                        ready_for=ready_for(stored, self._context.clock.wall()),
                    )
        except ApiError as failure:
            log.warning("%s: what was decided about failed nodes was not written: %s", key, failure)
        finally:
            self._state.decided(key)


def _named(nodes: Sequence[str]) -> Change:
    def change(current: Workload) -> Workload | None:
        if current.status.admission is None or is_condition_true(current, "Evicted"):
            return None
        named = [{"name": each} for each in nodes] or None
        return replace(current, status=replace(current.status, unhealthy_nodes=named))

    return change

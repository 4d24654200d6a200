"""What is written for workloads of whose places a node failed: other places, or an eviction.

The cycle has decided (`engine.quota.node_failures`). A replacement changes the assignment alone;
the pods that are made anew are let go to the new place. Without one the Workload is evicted, so
that it is queued as a whole. What could not be written is decided again.

Source: specification of topology-aware scheduling, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from reprieve.api.kueue import PodSetAssignment, Workload
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.node_failures import NODE_FAILURES
from reprieve.engine.topology.encoding import encoded
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.kube.errors import ApiError
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.transitions import evicted
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording.events import EventText

__all__ = ["FailedNodes"]


class FailedNodes:
    """Writes what was decided about failed nodes; `spawn` runs a write beside the decisions."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._context = context
        self._state = state
        self._writer = writer
        self._spawn = spawn

    def replaced(self, entry: Entry) -> None:
        """Write the new places of a workload."""
        admission = entry.admission
        assert admission is not None
        places = {each.name: each.topology for each in admission.pod_sets}

        def given(each: PodSetAssignment) -> PodSetAssignment:
            assigned = places.get(each.name)
            if assigned is None:
                return each
            return replace(each, topology_assignment=encoded(assigned))

        def change(current: Workload) -> Workload | None:
            held = current.status.admission
            if held is None or is_condition_true(current, "Evicted"):
                return None
            new = replace(held, pod_set_assignments=[given(e) for e in held.pod_set_assignments])
            return replace(current, status=replace(current.status, admission=new))

        nodes = ", ".join(entry.workload.unhealthy_nodes)
        self._begin(entry, change, f"its pods of the failed node {nodes} have other nodes")

    def evict(self, entry: Entry) -> None:
        """Evict a workload for whose pods there is no other node."""
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if current.status.admission is None or is_condition_true(current, "Evicted"):
                return None
            return evicted(current, NODE_FAILURES, entry.message, now)

        self._begin(entry, change, entry.message, f"EvictedDueTo{NODE_FAILURES}")

    def _begin(
        self,
        entry: Entry,
        change: Callable[[Workload], Workload | None],
        message: str,
        event: str = "",
    ) -> None:
        self._state.deciding.add(entry.workload.key)
        self._spawn(self._write(entry, change, message, event))

    async def _write(
        self,
        entry: Entry,
        change: Callable[[Workload], Workload | None],
        message: str,
        event: str,
    ) -> None:
        key = entry.workload.key
        try:
            stored = await self._writer.change(key, entry.workload.uid, change, Priority.EVICT)
            if stored is not None:
                log.info("%s: %s", key, message)
                if event:
                    told = EventText("Normal", event, message)
                    self._context.announce(reference_of(stored), told)
        except ApiError as failure:
            log.warning("%s: what was decided about failed nodes was not written: %s", key, failure)
        finally:
            self._state.decided(key)

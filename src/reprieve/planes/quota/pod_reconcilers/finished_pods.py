"""Releases the places of pods that have finished and are not needed any more, with profile `best`.

`status.reclaimablePods` lowers the quota of a workload, and not what it uses of nodes. Once its
other pods are known each to have its domain, its assignment is written without the rest, so that a
new leader, and the component that places a pod made anew, reads the same. A workload whose node
failed is left alone until that is decided.

Source: specification of topology-aware scheduling, section 9 (8).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from reprieve.api.kueue import PodSetAssignment, Workload
from reprieve.engine.topology.encoding import TopologyEncodingError, decoded, encoded
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.planes.quota.context import log
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses

__all__ = ["FinishedPods"]


class FinishedPods:
    """Writes the assignments of Workloads without the places of their finished pods."""

    def __init__(self, state: QuotaState, writer: WorkloadStatuses) -> None:
        self._state = state
        self._writer = writer

    def needed(self, workload: Workload) -> dict[str, int]:
        """Return by pod set how many pods are needed, of those that need fewer than they have.

        There are none where the settings release no places, and while a failed node is replaced.
        """
        settings, admission = self._state.configuration.settings, workload.status.admission
        key = f"{workload.metadata.namespace}/{workload.metadata.name}"
        if not (settings.best and settings.gates.reclaimable_pods) or admission is None:
            return {}
        if workload.status.unhealthy_nodes or key in self._state.deciding:
            return {}
        spares = {each.name: each.count for each in workload.status.reclaimable_pods or ()}
        counts = {each.name: each.count for each in workload.spec.pod_sets}
        counts |= {e.name: e.count for e in admission.pod_set_assignments if e.count is not None}
        return {name: counts[name] - spare for name, spare in spares.items() if name in counts}

    async def release(
        self, workload: Workload, places: Mapping[str, tuple[TopologyAssignment, int]]
    ) -> None:
        """Write the places that pod sets keep, each with how many there were.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        key = f"{workload.metadata.namespace}/{workload.metadata.name}"
        by_prefix = self._state.configuration.settings.gates.topology.encode_by_prefix

        def fewer(each: PodSetAssignment) -> PodSetAssignment:
            kept, before = places.get(each.name, (None, 0))
            if kept is None or each.topology_assignment is None:
                return each
            try:
                if decoded(each.topology_assignment).pods != before:
                    return each
            except TopologyEncodingError:
                return each
            return replace(each, topology_assignment=encoded(kept, by_prefix))

        def change(current: Workload) -> Workload | None:
            held = current.status.admission
            if held is None or is_condition_true(current, "Evicted"):
                return None
            if current.status.unhealthy_nodes:
                return None
            new = replace(held, pod_set_assignments=[*map(fewer, held.pod_set_assignments)])
            return replace(current, status=replace(current.status, admission=new))

        self._state.deciding.add(key)
        try:
            stored = await self._writer.change(key, workload.metadata.uid, change)
        finally:
            self._state.decided(key)
        if stored is not None:
            text = ", ".join(f"{n}: {k.pods} of {before}" for n, (k, before) in places.items())
            log.info("%s: finished pods release their places; pods left of %s", key, text)

"""How long Workloads that are over are kept, and jobs of those that were deactivated for it.

Source: specification of the quota plane, section 1.6; the reference's retention of objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.api.kueue import RESOURCE_IN_USE, Workload
from reprieve.execution.writes.jobs import JobWriter
from reprieve.kube.bodies import Json
from reprieve.kube.errors import NotFound
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext, reference_of
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.planes.quota.workload_status.deadlines import deactivated_until, finished_until
from reprieve.planes.quota.workload_status.steady_deadlines import SteadyDeadlines
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["Retention"]

_KEPT: Final = "Retention"


class Retention:
    """Deletes what was kept long enough; `again` requests another look at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        jobs: JobLookup,
        again: Callable[[str, Nanos], None],
        deadlines: SteadyDeadlines,
    ) -> None:
        self._deadlines = deadlines
        self._context = context
        self._state = state
        self._jobs = jobs
        self._again = again

    def _waits(self, key: str, workload: Workload, until: Nanos) -> bool:
        """Whether something is kept on, and looked at again when it no longer is."""
        uid = workload.metadata.uid
        if self._deadlines.passed(uid, _KEPT, until):
            return False
        self._again(key, self._deadlines.wall(uid, _KEPT, until))
        return True

    async def keep_finished(self, key: str, workload: Workload) -> None:
        """Delete a finished Workload, once it was kept long enough."""
        until = finished_until(workload, self._context.options.after_finished_s)
        if until is None:
            return
        if self._waits(key, workload, until):
            return
        await self.let_go(key, workload)
        namespace, _, name = key.partition("/")
        client = self._context.client.at(Priority.STATUS, self._context.fence.check)
        try:
            await client.delete(WORKLOADS, namespace, name, uid=workload.metadata.uid)
        except NotFound:
            self._state.gone(key)
            return
        text = "Deleted finished workload due to elapsed retention"
        self._context.announce(reference_of(workload), EventText("Normal", "Deleted", text))

    async def keep_deactivated(self, key: str, workload: Workload) -> None:
        """Delete the job of a Workload that was deactivated, once it was kept long enough."""
        until = deactivated_until(workload, self._context.options.after_deactivated_s)
        found = None if until is None else self._jobs.owner_of(workload)
        if until is None or found is None:
            return
        if self._waits(key, workload, until):
            return
        kind, held = found
        jobs = JobWriter(self._context.full_client, self._context.fence)
        if not await jobs.delete(kind, held.namespace, held.name, Uid(held.uid)):
            return
        reference = Reference(kind.api_version, kind.kind, held.namespace, held.name, Uid(held.uid))
        text = "Deleted job: deactivation retention period expired"
        event = EventText("Normal", "Deleted", text)
        self._context.announce(reference, event, f"{kind.framework}-kueue-controller")

    async def let_go(self, key: str, workload: Workload) -> bool:
        """Remove the finalizer of a Workload; return whether finalizers of others remain."""
        others: list[str] = []

        def change(current: Json) -> Json | None:
            finalizers = current["metadata"].get("finalizers") or []
            if current["metadata"]["uid"] != workload.metadata.uid:
                others.clear()
                return None
            others[:] = [each for each in finalizers if each != RESOURCE_IN_USE]
            if RESOURCE_IN_USE not in finalizers:
                return None
            current["metadata"]["finalizers"] = list(others)
            return current

        namespace, _, name = key.partition("/")
        client = self._context.client.at(Priority.STATUS, self._context.fence.check)
        try:
            await client.modify(WORKLOADS, namespace, name, change)
        except NotFound:
            self._state.gone(key)
            return False
        return bool(others)

"""Writes to the status of Workloads: by resourceVersion, and judged again after a conflict.

Evictions of who is changed all the time name the uid alone (`execution.writes.contest`).

Every write is fenced: it is not sent once the lease may be another's. Source: the design's "State
that can be trusted".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reprieve.api.kueue import Workload
from reprieve.execution.writes.contest import Contest
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.errors import Forbidden, Invalid, NotFound
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.planes.quota.workload_status.refusals import Refusals

__all__ = ["WorkloadStatuses"]

#: Returns a Workload with its new status, the same for nothing to write, None for no reason to.
Change = Callable[[Workload], Workload | None]


class WorkloadStatuses:
    """Changes the status of Workloads."""

    def __init__(self, context: QuotaContext, state: QuotaState) -> None:
        self._context = context
        self._state = state

    async def change(
        self,
        key: str,
        uid: str,
        change: Callable[[Workload], Workload | None],
        priority: Priority = Priority.STATUS,
    ) -> Workload | None:
        """Write `change` of the Workload as it is now.

        Args:
            key: `namespace/name`.
            uid: of the Workload that is meant.
            change: returns the Workload with its new status, the same for nothing to write, None
                when there is no reason to write any more.
            priority: place in the order of writes.

        Returns:
            The Workload as it is stored; None where it is deleted, or `change` returned None.

        Raises:
            Deposed: the fence is closed.
            Conflict: at every attempt another client was faster.
            ApiError: the API server refused.
        """
        context, namespace, name = self._context, *key.split("/", 1)
        fence = context.fence
        known, contest = self._state.workload(key), Contest()

        writer = context.full_client.at(priority, fence.check, timeout=fence.request_timeout)

        async def once() -> Workload | None:
            nonlocal known
            current, known = known, None
            if current is None:
                current = await context.client.get(WORKLOADS, namespace, name, Workload)
                self._state.wrote(current)
            if current.metadata.uid != uid:
                return None
            changed = change(current)
            if changed is None:
                return None
            wanted = StatusChange.over(WORKLOADS, current.metadata, current.status, changed.status)
            if wanted is None:
                return current
            if priority is Priority.EVICT and contest.lost:
                wanted = replace(wanted, version="")
            stored = await write_status(writer, wanted, Workload)
            self._state.wrote(stored)
            return stored

        try:
            return await retried(contest.of(once), context.client.transport.pause)
        except NotFound:
            self._state.gone(key)
            return None

    async def show(
        self,
        key: str,
        workload: Workload,
        changes: Sequence[Callable[[Workload], Workload]],
        is_meant: Callable[[Workload], bool],
    ) -> None:
        """Write changes of a status that do not depend on one another, as one where accepted.

        A change that the API server refuses keeps none of the others from being written.

        Args:
            key: `namespace/name`.
            workload: as it is known; nothing is written where no change changes it.
            changes: each returns the Workload with its new status, the same for nothing to write.
            is_meant: whether the Workload as it is by then is still to be changed.

        Raises:
            Deposed: the fence is closed.
            ApiError: the API server refused a change, or is not there.
        """

        def together(some: Sequence[Callable[[Workload], Workload]]) -> Change:
            def change(current: Workload) -> Workload | None:
                if not is_meant(current):
                    return None
                for each in some:
                    current = each(current)
                return current

            return change

        if together(changes)(workload) is workload:
            return
        uid = workload.metadata.uid
        try:
            await self.change(key, uid, together(changes))
        except (Forbidden, Invalid):
            if len(changes) == 1:
                raise
            refusals = Refusals()
            for each in changes:
                await refusals.step(self.change(key, uid, together([each])))
            refusals.raise_first()

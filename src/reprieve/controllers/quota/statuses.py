"""The statuses of ClusterQueues, LocalQueues and cohorts: usage, counts, shares, condition Active.

Queues that changed are gathered and written a little later, so that a burst of admissions costs one
write each; under a load that lasts, writing them takes about a fifth of the time. Source:
specification of the quota plane, sections 1.1, 3.5 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reprieve.api.kueue import (
    ClusterQueue,
    Condition,
    FairSharingStatus,
    FlavorUsage,
    LocalQueue,
    ResourceUsage,
)
from reprieve.controllers.quota.context import QuotaContext, log
from reprieve.controllers.quota.state import QuotaState
from reprieve.controllers.quota.tallies import Tally
from reprieve.controllers.quota.watches import CLUSTER_QUEUES, LOCAL_QUEUES, Watches
from reprieve.controllers.quota.writing import status_patch
from reprieve.engine.quota import model
from reprieve.engine.quota.amounts import text
from reprieve.engine.quota.figures import cluster_queue_share, cohort_share
from reprieve.engine.quota.state import inactive_queues
from reprieve.intake.quota_workloads import condition_of
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.units.durations import MILLISECOND, SECOND
from reprieve.units.instants import format_instant

__all__ = ["Statuses"]

_EVERY: Final = 200 * MILLISECOND
#: How much longer than the last round of writes the pause before the next one is.
_REST: Final = 4
_MOST: Final = 10 * SECOND
_QUEUE_READY: Final = ("True", "Ready", "Can admit new workloads")
_DOOR_READY: Final = ("True", "Ready", "Can submit new workloads to localQueue")


class Statuses:
    """Writes what queues show."""

    def __init__(self, context: QuotaContext, state: QuotaState, watches: Watches) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._shown: set[str] = set()

    async def run(self) -> None:
        """Write until cancelled."""
        state, clock, pause = self._state, self._context.clock, _EVERY
        while True:
            await clock.sleep(pause)
            started, pause = clock.monotonic(), _EVERY
            if not state.tallies.changed or not self._context.fence.open:
                continue
            async with state.engine:
                changed, state.tallies.changed = state.tallies.changed, set()
                writes = self._decided(changed)
            for resource, obj, status in writes:
                await self._write(resource, obj, status)
            pause = max(_EVERY, min(_REST * (clock.monotonic() - started), _MOST))

    def _decided(self, changed: set[str]) -> list[tuple[Resource, Any, Any]]:
        """Return what is to be written, and show the metrics."""
        state = self._state
        inactive = inactive_queues(state.configuration)
        writes: list[tuple[Resource, Any, Any]] = []
        for held in self._watches.cluster_queues.cache:
            row = state.configuration.cluster_queues.get(held.name)
            if row is None or held.name not in changed:
                continue
            counts = state.queues.counts(held.name)
            status = self._cluster_queue(held.object, row, counts, inactive.get(held.name, ""))
            writes.append((CLUSTER_QUEUES, held.object, status))
        for door in self._watches.local_queues.cache:
            key = f"{door.namespace}/{door.name}"
            local = state.configuration.local_queues.get(key)
            if local is not None and (key in changed or local.cluster_queue in changed):
                status = self._local_queue(
                    door.object, local, state.queues.waiting_in(key), inactive
                )
                writes.append((LOCAL_QUEUES, door.object, status))
        names = set(state.configuration.cluster_queues)
        for gone in self._shown - names:
            self._context.quota_metrics.forget(gone)
        self._shown = names
        return writes

    def _cluster_queue(
        self, obj: ClusterQueue, row: model.ClusterQueue, counts: tuple[int, int], why: str
    ) -> Any:
        state, metrics = self._state, self._context.quota_metrics
        tally = state.tallies.of(row.name)
        condition = _QUEUE_READY if not why else ("False", *_refusal(row, why))
        sharing = None
        if state.configuration.settings.fair_sharing is not None:
            found = cluster_queue_share(state.holdings, row.name)
            sharing = FairSharingStatus(found.published)
            metrics.show_share(row.name, row.cohort, found.weighted)
            if row.cohort in state.holdings.tree.cohorts:
                share = cohort_share(state.holdings, row.cohort).weighted
                metrics.show_cohort_share(row.cohort, share)
        metrics.show_queue(
            row.name,
            active=counts[0],
            inadmissible=counts[1],
            reserving=tally.reserving,
            admitted=tally.admitted,
            ready=not why,
        )
        self._show_amounts(row, tally)
        return msgspec.structs.replace(
            obj.status,
            conditions=self._conditions(obj, condition),
            flavors_reservation=_usage(row, tally.reservation, borrowing=True),
            flavors_usage=_usage(row, tally.usage, borrowing=True),
            pending_workloads=sum(counts),
            reserving_workloads=tally.reserving,
            admitted_workloads=tally.admitted,
            fair_sharing=sharing,
        )

    def _local_queue(
        self,
        obj: LocalQueue,
        row: model.LocalQueue,
        waiting: int,
        inactive: Mapping[str, str],
    ) -> Any:
        tally = self._state.tallies.of(row.key)
        queue = self._state.configuration.cluster_queues.get(row.cluster_queue)
        refusal = "Can't submit new workloads to clusterQueue"
        if row.stop_policy is not model.StopPolicy.NONE:
            condition = ("False", "Stopped", "LocalQueue is stopped")
        elif queue is None:
            condition = ("False", "ClusterQueueDoesNotExist", refusal)
        elif row.cluster_queue in inactive:
            condition = ("False", "ClusterQueueIsInactive", refusal)
        else:
            condition = _DOOR_READY
        return msgspec.structs.replace(
            obj.status,
            conditions=self._conditions(obj, condition),
            flavors_reservation=_usage(queue, tally.reservation, borrowing=False),
            flavors_usage=_usage(queue, tally.usage, borrowing=False),
            pending_workloads=waiting,
            reserving_workloads=tally.reserving,
            admitted_workloads=tally.admitted,
        )

    def _conditions(
        self, obj: ClusterQueue | LocalQueue, said: tuple[str, str, str]
    ) -> list[Condition]:
        status, reason, message = said
        kept = [each for each in obj.status.conditions or () if each.type != "Active"]
        before = condition_of(obj.status.conditions, "Active")
        at = format_instant(self._context.clock.wall())
        if before is not None and before.status == status:
            at = before.last_transition_time
        generation = obj.metadata.generation or None
        return [*kept, Condition("Active", status, reason, message, at, generation)]

    def _show_amounts(self, row: model.ClusterQueue, tally: Tally) -> None:
        for group in row.groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    pair = model.FlavorResource(flavor.flavor, resource)
                    unit = 1_000 if resource == "cpu" else 1
                    amounts = {
                        "resource_reservation": tally.reservation[pair],
                        "resource_usage": tally.usage[pair],
                        "nominal_quota": quota.nominal,
                        "borrowing_limit": quota.borrowing_limit,
                        "lending_limit": quota.lending_limit,
                    }
                    for name, amount in amounts.items():
                        shown = math.inf if amount is None else amount / unit
                        self._context.quota_metrics.show_amount(
                            name, row.cohort, row.name, flavor.flavor, resource, shown
                        )

    async def _write(self, resource: Resource, obj: Any, status: Any) -> None:
        patch = status_patch(obj.status, status)
        if not patch or not self._context.writes:
            return
        metadata, fence = obj.metadata, self._context.fence
        writer = self._context.client.at(Priority.STATUS, fence.check)
        body = {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": patch,
        }
        try:
            await writer.patch(
                resource,
                metadata.namespace,
                metadata.name,
                body,
                type(obj),
                subresource="status",
            )
        except NotFound:
            return
        except (Conflict, ApiError) as failure:
            if not isinstance(failure, Conflict):
                log.warning("status of %s: %s", metadata.name, failure)
            key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
            self._state.tallies.changed.add(key)


def _usage(
    row: model.ClusterQueue | None, amounts: Mapping[model.FlavorResource, int], *, borrowing: bool
) -> list[FlavorUsage]:
    if row is None:
        return []

    def used(flavor: str, resource: str, quota: model.Quota) -> ResourceUsage:
        total = amounts[model.FlavorResource(flavor, resource)]
        # Without a cohort nothing can be borrowed, only over-admitted.
        over = max(0, total - quota.nominal) if row is not None and row.cohort else 0
        borrowed = text(resource, over) if borrowing else None
        return ResourceUsage(resource, text(resource, total), borrowed)

    return [
        FlavorUsage(each.flavor, [used(each.flavor, *pair) for pair in each.resources.items()])
        for group in row.groups
        for each in group.flavors
    ]


def _refusal(row: model.ClusterQueue, why: str) -> tuple[str, str]:
    reason = "AdmissionCheckNotFound"
    if row.stop_policy is not model.StopPolicy.NONE:
        reason = "Stopped"
    elif "ResourceFlavor" in why:
        reason = "FlavorNotFound"
    said = why.removeprefix("it refers to ").removeprefix("it ")
    said = f"references {said}" if why.startswith("it refers") else said
    return reason, f"Can't admit new workloads: {said}."

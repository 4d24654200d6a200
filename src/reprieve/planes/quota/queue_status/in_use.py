"""ClusterQueues, ResourceFlavors and AdmissionChecks that are in use stay until they are not.

A finalizer holds them: the webhook puts it on at creation, here it is put on what the webhook
missed. It is taken off an object that is being deleted, a ClusterQueue once no workload holds its
quota, a ResourceFlavor or AdmissionCheck once no ClusterQueue has it.

Source: specification of the quota plane, section 12; the reference's controllers of these kinds.
"""

from __future__ import annotations

from typing import TypeVar

from kubeworld.units.durations import SECOND
from reprieve.api.kueue import (
    RESOURCE_IN_USE,
    AdmissionCheck,
    ClusterQueue,
    ResourceFlavor,
    Workload,
)
from reprieve.execution.writes.finalizers import toggle_finalizer
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.planes.common.persistent import alone
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import CHECKS, CLUSTER_QUEUES, FLAVORS, Held, Watches

__all__ = ["InUse"]

W = TypeVar("W", ClusterQueue, ResourceFlavor, AdmissionCheck)


class InUse:
    """Holds what is in use, and releases what is not."""

    def __init__(self, context: QuotaContext, state: QuotaState, watches: Watches) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Look at all of them once a second, until cancelled."""
        while True:
            for queue in list(self._watches.cluster_queues.cache):
                with alone(log, f"the finalizer of {queue.name}"):
                    if self._is_due(queue) and not (_goes(queue) and self._holders(queue.name)):
                        await self._change(queue, CLUSTER_QUEUES)
            for flavor in list(self._watches.flavors.cache):
                with alone(log, f"the finalizer of {flavor.name}"):
                    if self._is_due(flavor) and not (_goes(flavor) and self._users(flavor.name)):
                        await self._change(flavor, FLAVORS)
            for check in list(self._watches.checks.cache):
                with alone(log, f"the finalizer of {check.name}"):
                    if self._is_due(check) and not (_goes(check) and self._asks(check.name)):
                        await self._change(check, CHECKS)
            await self._context.clock.sleep(SECOND)

    def _is_due(self, held: Held[W]) -> bool:
        finalizers = held.object.metadata.finalizers or ()
        return self._context.writes and _goes(held) == (RESOURCE_IN_USE in finalizers)

    def _users(self, flavor: str) -> bool:
        """Return whether a ClusterQueue has a flavor."""
        return any(_has(queue.object, flavor) for queue in self._watches.cluster_queues.cache)

    def _asks(self, check: str) -> bool:
        """Return whether a ClusterQueue has a check."""
        strategies = (
            queue.object.spec.admission_checks_strategy
            for queue in self._watches.cluster_queues.cache
        )
        return any(
            rule.name == check
            for strategy in strategies
            for rule in (strategy.admission_checks if strategy is not None else ())
        )

    def _holders(self, cluster_queue: str) -> bool:
        """Return whether a workload holds quota of a ClusterQueue, or is about to."""
        tree = self._state.holdings.tree
        return any(
            tree.names[holder.queue] == cluster_queue
            for holder in self._state.holdings.holders.values()
        ) or any(
            workload.status.admission is not None
            and workload.status.admission.cluster_queue == cluster_queue
            and not _finished(workload)
            for workload in self._state.workloads()
        )

    async def _change(self, held: Held[W], resource: Resource) -> None:
        client = self._context.full_client.at(Priority.STATUS, self._context.fence.check)
        try:
            await toggle_finalizer(client, resource, held.name, held.uid, RESOURCE_IN_USE)
        except NotFound:
            return
        except ApiError as failure:
            if self._refused.get(held.uid) != str(failure):
                self._refused[held.uid] = str(failure)
                log.warning("finalizer of %s %s: %s", resource.kind, held.name, failure)


def _goes(held: Held[W]) -> bool:
    return bool(held.object.metadata.deletion_timestamp)


def _has(queue: ClusterQueue, flavor: str) -> bool:
    return any(
        each.name == flavor for group in queue.spec.resource_groups or () for each in group.flavors
    )


def _finished(workload: Workload) -> bool:
    return is_condition_true(workload, "Finished")

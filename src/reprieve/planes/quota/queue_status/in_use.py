"""ClusterQueues, ResourceFlavors, AdmissionChecks and Topologies that are in use are kept.

A finalizer keeps them: the webhook adds it to queues and flavors at creation, and it is added here
to all others. It is removed from an object that is being deleted, from a ClusterQueue once no
workload holds its quota, from a ResourceFlavor or AdmissionCheck once no ClusterQueue has it, and
from a Topology once no ResourceFlavor has it.

Source: specification of the quota plane, section 12; of topology-aware scheduling, section 1.1;
the reference's controllers of these kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kubeworld.units.durations import SECOND
from reprieve.api.kueue import (
    RESOURCE_IN_USE,
    AdmissionCheck,
    ClusterQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from reprieve.execution.writes.finalizers import toggle_finalizer
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.planes.common.mirrors.watching import Watch
from reprieve.planes.common.persistent import alone
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import (
    CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    TOPOLOGIES,
    Held,
    Watches,
)

__all__ = ["InUse"]

W = TypeVar("W", ClusterQueue, ResourceFlavor, AdmissionCheck, Topology)


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
            watches = self._watches
            await self._keep(watches.cluster_queues, CLUSTER_QUEUES, self._holders)
            await self._keep(watches.flavors, FLAVORS, self._users)
            await self._keep(watches.checks, CHECKS, self._asks)
            await self._keep(watches.topologies, TOPOLOGIES, self._built_on)
            await self._context.clock.sleep(SECOND)

    async def _keep(
        self, watch: Watch[Any, Held[W]], resource: Resource, in_use: Callable[[str], bool]
    ) -> None:
        """Add the finalizer to objects that stay, and remove it from those that end unused."""
        for held in list(watch.cache):
            with alone(log, f"the finalizer of {held.name}"):
                if self._is_due(held) and not (_goes(held) and in_use(held.name)):
                    await self._change(held, resource)

    def _is_due(self, held: Held[W]) -> bool:
        finalizers = held.object.metadata.finalizers or ()
        return self._context.writes and _goes(held) == (RESOURCE_IN_USE in finalizers)

    def _users(self, flavor: str) -> bool:
        """Return whether a ClusterQueue has a flavor."""
        return any(_has(queue.object, flavor) for queue in self._watches.cluster_queues.cache)

    def _built_on(self, topology: str) -> bool:
        """Return whether a ResourceFlavor has a topology."""
        return any(
            flavor.object.spec.topology_name == topology for flavor in self._watches.flavors.cache
        )

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

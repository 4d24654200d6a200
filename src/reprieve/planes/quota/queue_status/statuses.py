"""The statuses of ClusterQueues, LocalQueues and Cohorts: usage, counts, shares, condition Active.

Queues that changed are gathered and written a little later, so that a burst of admissions costs one
write each; under a load that lasts, writing them uses about a fifth of the time. A queue that the
API server keeps waiting holds up no other. Source: specification of the quota plane, sections 1.1,
3.5 and 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import format_instant
from reprieve.api.kueue import (
    ClusterQueue,
    Condition,
    FairSharingStatus,
    FlavorUsage,
    LocalQueue,
    ResourceUsage,
)
from reprieve.api.kueue_topology import MULTI_KUEUE, PROVISIONING
from reprieve.engine.plan import Plane
from reprieve.engine.quota import model
from reprieve.engine.quota.holdings.amounts import text
from reprieve.engine.quota.holdings.figures import cluster_queue_share, cohort_share
from reprieve.engine.quota.holdings.inactive import inactive_queues, lost_topology
from reprieve.execution.writes.statuses import StatusChange
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.kube.objects import PartialObject
from reprieve.kube.resource import Resource
from reprieve.kube.writes import Priority
from reprieve.planes.common.persistent import alone
from reprieve.planes.common.status_writer import StatusWriter
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.queue_status.consumption import fair_sharing_status
from reprieve.planes.quota.queue_status.gauges import Gauges
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Watches
from reprieve.wording.kueue_queues import Active, cluster_queue_active, local_queue_active

__all__ = ["Statuses"]

#: Checks that no controller here answers, by the controller of AdmissionChecks.
_UNSUPPORTED: Final = {
    MULTI_KUEUE: "MultiKueue, which is not supported",
    PROVISIONING: "ProvisioningRequests, which are not supported",
}
_EVERY: Final = 200 * MILLISECOND
_GATHERED_EVERY: Final = SECOND
#: How much longer than the last round of writes the pause before the next one is.
_REST: Final = 4
_MOST: Final = 10 * SECOND


class Statuses:
    """Writes what queues show."""

    def __init__(self, context: QuotaContext, state: QuotaState, watches: Watches) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._gauges = Gauges(context, state)
        self._configuration: model.Configuration | None = None
        self._inactive: Mapping[str, str] = {}
        self._checks: Mapping[str, bool] = {}
        self._foreign_checks: dict[str, str] = {}
        self._local: dict[str, list[str]] = {}  # LocalQueues by ClusterQueue
        self._members: dict[str, list[str]] = {}  # ClusterQueues anywhere below a cohort
        # What a ClusterQueue's LocalQueues show of it.
        self._seen: dict[str, tuple[model.ClusterQueue, bool]] = {}
        self._gathered: set[str] = set()
        self._gather_at = 0
        self._writer: StatusWriter[str, StatusChange, PartialObject] = StatusWriter(
            context.full_client.at(Priority.STATUS, context.fence.check),
            context.clock,
            change=lambda key, change: change,
            wire=PartialObject,
            written=lambda key, change, answer: None,
            failed=self._failed,
            fault=context.metrics.status_faults.labels(Plane.QUOTA.value).inc,
            reported=log,
            writes=lambda: context.writes,
        )

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._rounds())

    async def _rounds(self) -> None:
        context, state, clock = self._context, self._state, self._context.clock
        pause = _EVERY
        while True:
            await clock.sleep(pause)
            started, pause = clock.monotonic(), _EVERY
            due = self._gathered and started >= self._gather_at
            if not (state.tallies.changed or due) or not context.fence.open:
                continue
            async with state.engine:
                changed, state.tallies.changed = state.tallies.changed, set()
                try:
                    writes = self._decided(changed)
                except Exception:
                    state.tallies.changed |= changed
                    raise
                self._show_gathered()
            asked = [
                self._writer.ask(f"{each.resource.kind} {_name(each)}", each) for each in writes
            ]
            await self._written(asked)
            pause = max(_EVERY, min(_REST * (clock.monotonic() - started), _MOST))

    async def _written(self, asked: Sequence[asyncio.Event]) -> None:
        """Wait until all is written, or for as long as the longest pause follows.

        An object that the API server keeps waiting is written in its own time then, what is wished
        for it last: others show what they are meanwhile.
        """

        async def all_over() -> None:
            for over in asked:
                await over.wait()

        waits = [asyncio.create_task(all_over())]
        waits.append(asyncio.create_task(self._context.clock.sleep(_MOST // _REST)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _decided(self, changed: set[str]) -> list[StatusChange]:
        """Return what is to be written, and show the metrics."""
        configuration = self._state.configuration
        if configuration is not self._configuration:
            self._configure(configuration)
        doors = {key for key in changed if key in configuration.local_queues}
        queues = {key for key in changed if key in configuration.cluster_queues}
        queues |= {
            name
            for key in doors
            if (name := configuration.local_queues[key].cluster_queue)
            in configuration.cluster_queues
        }
        writes: list[StatusChange] = []
        for name in sorted(queues):
            row = configuration.cluster_queues[name]
            held = self._watches.cluster_queues.cache.named("", name)
            if held is not None:
                with alone(log, f"the status of {name}"):
                    status = self._cluster_queue(held.object, row)
                    writes += _over(CLUSTER_QUEUES, held.object, status)
            seen = (row, name not in self._inactive)
            if self._seen.get(name) != seen:
                self._seen[name] = seen
                doors.update(self._local.get(name, ()))
        for key in sorted(doors):
            namespace, _, name = key.partition("/")
            door = self._watches.local_queues.cache.named(namespace, name)
            if door is not None:
                with alone(log, f"the status of {key}"):
                    status = self._local_queue(door.object, configuration.local_queues[key])
                    writes += _over(LOCAL_QUEUES, door.object, status)
        writes += self._cohorts({name for name in self._members if queues & {*self._members[name]}})
        self._gathered |= queues
        return writes

    def _configure(self, configuration: model.Configuration) -> None:
        """Adopt a changed configuration, and release what is not there any more."""
        before, self._configuration = self._configuration, configuration
        self._inactive = inactive_queues(configuration)
        self._checks = {
            held.name: is_true(condition_of(held.object.status.conditions, "Active"))
            for held in self._watches.checks.cache
        }
        # One of ProvisioningRequests may have a controller of the cluster's own, which answers it.
        self._foreign_checks = {
            held.name: _UNSUPPORTED[controller]
            for held in self._watches.checks.cache
            if (controller := held.object.spec.controller_name) in _UNSUPPORTED
            and (controller == MULTI_KUEUE or not self._checks[held.name])
        }
        self._local, tree = {}, self._state.holdings.tree
        for key, local in configuration.local_queues.items():
            self._local.setdefault(local.cluster_queue, []).append(key)
        members: dict[str, list[str]] = {name: [] for name in tree.cohorts}
        for name, node in tree.queues.items():
            for above in tree.path[node][1:]:
                members[tree.names[above]].append(name)
        gone, self._members = self._members.keys() - members.keys(), members
        metrics = self._context.quota_metrics
        for cohort in gone:
            metrics.forget_cohort(cohort)
        if before is None:
            return
        for queue in before.cluster_queues.keys() - configuration.cluster_queues.keys():
            self._seen.pop(queue, None)
            # Who can be borrowed from no more is seen in what their doors and cohorts show.
            self._state.tallies.changed.update(self._local.get(queue, ()))
            metrics.forget_queue(queue)
        for key in before.local_queues.keys() - configuration.local_queues.keys():
            namespace, _, name = key.partition("/")
            metrics.forget_local_queue(namespace, name)

    def _show_gathered(self) -> None:
        now = self._context.clock.monotonic()
        if not self._gathered or now < self._gather_at:
            return
        names, self._gathered = self._gathered, set()
        self._gather_at = now + _GATHERED_EVERY
        self._gauges.show_waiting(
            {name: self._local.get(name, ()) for name in names}, self._inactive
        )
        self._gauges.show_cohorts(
            {cohort: below for cohort, below in self._members.items() if names & {*below}}
        )

    def _cluster_queue(self, obj: ClusterQueue, row: model.ClusterQueue) -> Any:
        state, name = self._state, row.name
        tally = state.tallies.of(name)
        doors = self._local.get(name, ())
        joined = state.tallies.sum_of(doors)
        tree = state.holdings.tree
        in_cycle = not tree.path[tree.queues[name]]
        active = cluster_queue_active(
            row,
            state.configuration.flavors,
            self._checks,
            in_cycle=in_cycle,
            unsupported=self._foreign_checks,
            lost_topology=lost_topology(row, state.configuration),
        )
        sharing = None
        if state.configuration.settings.fair_sharing is not None:
            sharing = FairSharingStatus(cluster_queue_share(state.holdings, name).published)
        why = "" if active[0] == "True" else active[1]
        self._gauges.show_queue(row, tally, joined, why)
        return msgspec.structs.replace(
            obj.status,
            conditions=self._conditions(obj, active),
            flavors_reservation=_usage(row, tally.reservation, borrowing=True),
            flavors_usage=_usage(row, tally.usage, borrowing=True),
            pending_workloads=joined.pending,
            reserving_workloads=tally.reserving,
            admitted_workloads=tally.admitted,
            fair_sharing=sharing,
        )

    def _local_queue(self, obj: LocalQueue, row: model.LocalQueue) -> Any:
        tally = self._state.tallies.of(row.key)
        queue = self._state.configuration.cluster_queues.get(row.cluster_queue)
        tree = self._state.holdings.tree
        active = local_queue_active(
            row, known=queue is not None, active=row.cluster_queue not in tree.inactive
        )
        sharing, used = fair_sharing_status(self._state.consumptions, obj)
        self._gauges.show_local_queue(row, tally, active[0], used)
        return msgspec.structs.replace(
            obj.status,
            conditions=self._conditions(obj, active),
            flavors_reservation=_usage(queue, tally.reservation, borrowing=False),
            flavors_usage=_usage(queue, tally.usage, borrowing=False),
            pending_workloads=tally.pending,
            reserving_workloads=tally.reserving,
            admitted_workloads=tally.admitted,
            fair_sharing=sharing,
        )

    def _cohorts(self, names: Collection[str]) -> list[StatusChange]:
        state = self._state
        writes: list[StatusChange] = []
        shared = state.configuration.settings.fair_sharing is not None
        for name in sorted(names):
            held = self._watches.cohorts.cache.named("", name)
            if held is None or not state.holdings.tree.path[state.holdings.tree.cohorts[name]]:
                continue
            share = cohort_share(state.holdings, name).published if shared else None
            status = msgspec.structs.replace(
                held.object.status,
                fair_sharing=None if share is None else FairSharingStatus(share),
            )
            writes += _over(COHORTS, held.object, status)
        return writes

    def _conditions(self, obj: ClusterQueue | LocalQueue, said: Active) -> list[Condition]:
        status, reason, message = said
        kept = [each for each in obj.status.conditions or () if each.type != "Active"]
        before = condition_of(obj.status.conditions, "Active")
        at = format_instant(self._context.clock.wall())
        if before is not None and before.status == status:
            at = before.last_transition_time
        generation = obj.metadata.generation or None
        return [*kept, Condition("Active", status, reason, message, at, generation)]

    def _failed(self, key: str, change: StatusChange) -> None:
        """Work it out again in the next round."""
        key = _name(change)
        if change.resource is COHORTS:
            self._state.tallies.changed.update(self._members.get(key, ()))
        else:
            self._state.tallies.changed.add(key)


def _over(resource: Resource, obj: Any, status: Any) -> list[StatusChange]:
    change = StatusChange.over(resource, obj.metadata, obj.status, status)
    return [change] if change is not None else []


def _name(change: StatusChange) -> str:
    return f"{change.namespace}/{change.name}" if change.namespace else change.name


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

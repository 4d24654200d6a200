"""The gauges of queues and cohorts, from what the engine and the tallies hold.

Those of a queue that changed are shown with its status; those that have to look at everything that
waits, or at a whole cohort, follow a little later, once for many changes. What has quotas in its
labels exists only where the configuration requests it. Source: specification of the quota plane,
sections 1.6, 3.5 and 9.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from reprieve.engine.quota import model
from reprieve.engine.quota.assigning.requests import pod_set_requests
from reprieve.engine.quota.holdings.figures import cluster_queue_share, cohort_share
from reprieve.engine.quota.model import FlavorResource
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.queue_status.tallies import Tally
from reprieve.planes.quota.state import QuotaState
from reprieve.telemetry.quota import Series

__all__ = ["Gauges"]

_STATUSES = ("active", "pending", "terminating")
_WORDS = ("True", "False", "Unknown")


class Gauges:
    """Shows what is, by queue and cohort."""

    def __init__(self, context: QuotaContext, state: QuotaState) -> None:
        self._metrics = context.quota_metrics
        self._amounts = context.options.queue_metrics
        self._state = state

    def show_queue(self, row: model.ClusterQueue, tally: Tally, joined: Tally, why: str) -> None:
        """Show a ClusterQueue: its own tally, and the sum over its LocalQueues."""
        name, tree = row.name, self._state.holdings.tree
        node = tree.queues[name]
        root = tree.names[tree.root(node)] if row.cohort and tree.path[node] else ""
        status = "active" if not why else "terminating" if row.terminating else "pending"
        values: dict[Series, float] = {
            ("reserving_active_workloads", (name,)): tally.reserving,
            ("admitted_active_workloads", (name,)): tally.admitted,
            ("finished_workloads", (name,)): joined.finished,
            ("cluster_queue_info", (name, row.cohort, root)): 1,
        }
        for each in _STATUSES:
            values["cluster_queue_status", (name, each)] = each == status
        for reasons, count in joined.unadmitted.items():
            values["unadmitted_workloads", (name, *reasons)] = count
        if self._amounts:
            values.update(self._quotas(row, tally))
            if self._state.configuration.settings.fair_sharing is not None:
                share = cluster_queue_share(self._state.holdings, name).weighted
                values["cluster_queue_weighted_share", (name, row.cohort)] = _finite(share)
        self._metrics.show("queue", name, values)

    def show_local_queue(
        self, row: model.LocalQueue, tally: Tally, active: str, used: float | None
    ) -> None:
        """Show a LocalQueue; `active` is the status of its condition, `used` its consumption."""
        namespace, _, name = row.key.partition("/")
        local = (name, namespace)
        values: dict[Series, float] = {
            ("local_queue_reserving_active_workloads", local): tally.reserving,
            ("local_queue_admitted_active_workloads", local): tally.admitted,
            ("local_queue_finished_workloads", local): tally.finished,
        }
        for word in _WORDS:
            values["local_queue_status", (*local, word)] = word == active
        for reasons, count in tally.unadmitted.items():
            labels = (*local, row.cluster_queue, *reasons)
            values["local_queue_unadmitted_workloads", labels] = count
        if used is not None:
            series = ("local_queue_admission_fair_sharing_usage", (*local, row.cluster_queue))
            values[series] = used
        queue = self._state.configuration.cluster_queues.get(row.cluster_queue)
        for pair, _ in _quotas_of(queue):
            for what, amounts in (("reservation", tally.reservation), ("usage", tally.usage)):
                values[f"local_queue_resource_{what}", (*local, *pair)] = _base(
                    pair.resource, amounts[pair]
                )
        self._metrics.show("queue", row.key, values)

    def show_waiting(self, names: Mapping[str, Collection[str]], inactive: Collection[str]) -> None:
        """Show what waits.

        Args:
            names: the ClusterQueues to show, with their LocalQueues.
            inactive: ClusterQueues that cannot admit; what waits there is set aside.
        """
        queues = self._state.queues
        hashing = self._state.configuration.settings.gates.scheduling_equivalence_hashing
        for name, doors in names.items():
            row = self._state.configuration.cluster_queues.get(name)
            if row is None:
                continue
            numbers = {
                "pending_workloads": queues.counts(name),
                **({"pending_scheduling_hashes": queues.shapes(name)} if hashing else {}),
            }
            values: dict[Series, float] = {}
            for what, (active, aside) in numbers.items():
                off = name in inactive
                values[what, (name, "active")] = 0 if off else active
                values[what, (name, "inadmissible")] = aside + active if off else aside
            if self._amounts:
                values.update(self._asked(row, [w for each in queues.members(name) for w in each]))
            self._metrics.show("waiting", name, values)
            self._show_doors(name, doors, off=name in inactive)

    def show_cohorts(self, members: Mapping[str, Collection[str]]) -> None:
        """Show cohorts; `members` are the ClusterQueues anywhere below, by cohort."""
        holdings, configuration = self._state.holdings, self._state.configuration
        tree = holdings.tree
        for name, below in members.items():
            node = tree.cohorts.get(name)
            if node is None or not tree.path[node]:
                continue
            tallies = [self._state.tallies.of(each) for each in below]
            values: dict[Series, float] = {
                ("cohort_subtree_admitted_active_workloads", (name,)): sum(
                    each.admitted for each in tallies
                ),
            }
            held: Counter[FlavorResource] = Counter()
            for tally in tallies:
                held.update(tally.reservation)
            for column in tree.defined[node]:
                pair = tree.flavor_resources[column]
                quota = tree.subtree[column][node]
                if quota > 0:
                    values["cohort_subtree_quota", (name, *pair)] = _base(pair.resource, quota)
            for pair, amount in held.items():
                if amount > 0:
                    series = ("cohort_subtree_resource_reservations", (name, *pair))
                    values[series] = _base(pair.resource, amount)
            cohort = configuration.cohorts.get(name)
            if cohort is not None:
                root = tree.names[tree.root(node)]
                values["cohort_info", (name, cohort.parent, root)] = 1
                if self._amounts and configuration.settings.fair_sharing is not None:
                    share = cohort_share(holdings, name).weighted
                    values["cohort_weighted_share", (name,)] = _finite(share)
            self._metrics.show("cohort", name, values)

    def _quotas(self, row: model.ClusterQueue, tally: Tally) -> Mapping[Series, float]:
        values: dict[Series, float] = {}
        for pair, quota in _quotas_of(row):
            amounts = {
                "resource_reservation": tally.reservation[pair],
                "resource_usage": tally.usage[pair],
                "nominal_quota": quota.nominal,
                "borrowing_limit": quota.borrowing_limit,
                "lending_limit": quota.lending_limit,
            }
            for what, amount in amounts.items():
                labels = (row.cohort, row.name, *pair)
                shown = math.inf if amount is None else _base(pair.resource, amount)
                values[f"cluster_queue_{what}", labels] = shown
        return values

    def _asked(
        self, row: model.ClusterQueue, workloads: Iterable[model.Workload]
    ) -> Mapping[Series, float]:
        settings = self._state.configuration.settings
        asked = Counter({pair.resource: 0 for pair, _ in _quotas_of(row)})
        for workload in workloads:
            for request in pod_set_requests(workload, settings):
                asked.update(request.amounts)
        return {
            ("cluster_queue_resource_pending", (row.name, resource)): _base(resource, amount)
            for resource, amount in asked.items()
        }

    def _show_doors(self, queue: str, doors: Collection[str], *, off: bool) -> None:
        """Show what waits by LocalQueue; the only one of a ClusterQueue has all of it."""
        queues = self._state.queues
        if len(doors) == 1:
            counted = [Counter(dict.fromkeys(doors, n)) for n in queues.counts(queue)]
        else:
            counted = [Counter(each.queue for each in found) for found in queues.members(queue)]
        for key in doors:
            namespace, _, name = key.partition("/")
            active, aside = (found[key] for found in counted)
            if off:
                active, aside = 0, active + aside
            labels = (name, namespace)
            values: dict[Series, float] = {
                ("local_queue_pending_workloads", (*labels, "active")): active,
                ("local_queue_pending_workloads", (*labels, "inadmissible")): aside,
            }
            self._metrics.show("waiting", key, values)


def _quotas_of(row: model.ClusterQueue | None) -> list[tuple[FlavorResource, model.Quota]]:
    return [
        (FlavorResource(flavor.flavor, resource), quota)
        for group in (row.groups if row is not None else ())
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    ]


def _base(resource: str, amount: int) -> float:
    return amount / 1_000 if resource == "cpu" else amount


def _finite(share: float) -> float:
    return math.nan if math.isinf(share) else share

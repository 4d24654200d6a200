"""The configuration as the watches show it, in the engine's rows, without what cannot be used.

An object that a webhook would have refused is left out, and an event on it states so, once for each
thing that is wrong with it. Source: specification of the quota plane, section 1; the design's "Bad
input".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from reprieve.api import kueue
from reprieve.api.kueue_topology import MULTI_KUEUE, PROVISIONING
from reprieve.engine.quota.holdings.inactive import inactive_queues
from reprieve.engine.quota.model import Configuration
from reprieve.intake.quota import (
    Unusable,
    cluster_queue_row,
    cohort_row,
    local_queue_row,
    resource_flavor_row,
    topology_row,
)
from reprieve.intake.quota_workloads import (
    condition_of,
    is_true,
)
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.watches import Held, Watches
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["ConfigurationReader", "rules_of", "stated_by"]

W = TypeVar("W")
R = TypeVar("R")


class ConfigurationReader:
    """Reads the configuration, and remembers what was reported of which object."""

    def __init__(self, context: QuotaContext, watches: Watches) -> None:
        self._context = context
        self._watches = watches
        self._unusable: dict[str, str] = {}  # by uid

    def read(self) -> Configuration:
        """Return the configuration as the watches show it now."""
        watches, options = self._watches, self._context.options
        active = frozenset(
            held.name
            for held in watches.checks.cache
            if is_true(condition_of(held.object.status.conditions, "Active"))
            and held.object.spec.controller_name != MULTI_KUEUE
        )
        provisioning = frozenset(
            held.name
            for held in watches.checks.cache
            if held.object.spec.controller_name == PROVISIONING
        )

        def usable(rows: Iterable[Held[W]], convert: Callable[[W], R]) -> list[R]:
            found = []
            for held in sorted(rows, key=lambda each: (each.namespace, each.name)):
                try:
                    found.append(convert(held.object))
                except Unusable as error:
                    if self._unusable.get(held.uid) != str(error):
                        self._unusable[held.uid] = str(error)
                        self._report_unusable(held, str(error))
                except Exception as fault:
                    log.exception("%s cannot be used", held.name)
                    self._report_unusable(held, f"a fault of the operator: {fault!r}")
            return found

        return Configuration(
            cluster_queues={
                row.name: row
                for row in usable(
                    watches.cluster_queues.cache,
                    lambda obj: cluster_queue_row(obj, active, provisioning),
                )
            },
            cohorts={row.name: row for row in usable(watches.cohorts.cache, cohort_row)},
            flavors={row.name: row for row in usable(watches.flavors.cache, resource_flavor_row)},
            local_queues={
                row.key: row for row in usable(watches.local_queues.cache, local_queue_row)
            },
            namespaces={
                held.name: held.object.metadata.labels or {} for held in watches.namespaces.cache
            },
            settings=options.settings,
            topologies={row.name: row for row in usable(watches.topologies.cache, topology_row)},
        )

    def _report_unusable(self, held: Held[Any], problem: str) -> None:
        """Report what is wrong with an object that a webhook would have refused."""
        log.warning("%s cannot be used: %s", held.name, problem)
        kind = type(held.object).__name__
        about = Reference(kueue.API_VERSION, kind, held.namespace, held.name, Uid(held.uid))
        text = f"It cannot be used: {problem}"
        self._context.announce(about, EventText("Warning", "Misconfigured", text))


def rules_of(configuration: Configuration) -> list[object]:
    """Return what a Workload is looked at for when a queue changes."""
    return [
        [
            (name, queue.stop_policy, queue.checks, queue.checks_on_flavors)
            for name, queue in configuration.cluster_queues.items()
        ],
        [(key, queue.stop_policy) for key, queue in configuration.local_queues.items()],
        inactive_queues(configuration),
    ]


def stated_by(obj: object) -> object:
    """Return what decisions depend on: statuses of queues do not, those of checks do."""
    spec, metadata = getattr(obj, "spec", None), getattr(obj, "metadata", None)
    status = getattr(obj, "status", None) if isinstance(obj, kueue.AdmissionCheck) else None
    labels = getattr(metadata, "labels", None)
    generation = getattr(metadata, "generation", 0)
    return (spec, labels, generation, status, getattr(metadata, "deletion_timestamp", None))

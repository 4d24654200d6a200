"""Demands that an open record of another plane serves, whichever process wrote it.

The idle plane watches all records of the operator's namespace. A demand is known by its lineage,
its objects and its pods, as a record names them. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reprieve.api.core import KueueWorkload
from reprieve.api.reprieve import Preemption
from reprieve.engine.plan import Plane
from reprieve.execution.records.demands import names_of
from reprieve.planes.idle.evaluating.lineages import participant_of_root
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import TrackedWorkload

__all__ = ["demand_names", "owners_by_name"]


def owners_by_name(records: Iterable[Preemption]) -> dict[str, Plane]:
    """Return the planes other than idle whose open records serve demands, by the demands' names."""
    return {
        name: Plane(record.spec.plane)
        for record in records
        if record.spec.plane != Plane.IDLE and record.status.phase.open and not record.spec.dry_run
        for name in names_of(record.spec)
    }


def demand_names(
    held: TrackedWorkload, pods: Iterable[PodRecord], kueue: Iterable[KueueWorkload]
) -> Iterator[str]:
    """Yield by what the demand of a GpuWorkload is known."""
    yield participant_of_root(held.root).lineage
    for pod in pods:
        yield pod.uid
        if pod.row.group:
            yield f"group/{pod.namespace}/{pod.row.group}"
    for workload in kueue:
        yield workload.metadata.uid

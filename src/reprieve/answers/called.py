"""Who is meant by a Workload or a GpuWorkload: people know the job that it stands for.

A record names the object that bears the mark. Where that object still exists, and the caller may
read it, it states its owner; else the record's own name for it is used.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.answers.kinds import WORKLOADS
from reprieve.answers.sources import Json, Reading
from reprieve.answers.unit import uid_of
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.kube.resource import GPU_WORKLOADS

__all__ = ["owners_of_marked"]


async def owners_of_marked(reading: Reading, known: Iterable[Preemption]) -> dict[str, str]:
    """Return `Kind namespace/name` of the owners, by the uid of the object in the records."""
    found: dict[str, str] = {}
    spaces = {
        (each.kind, each.namespace)
        for record in known
        for each in _refs(record)
        if each.kind in ("Workload", "GpuWorkload")
    }
    for kind, namespace in sorted(spaces):
        resources = WORKLOADS if kind == "Workload" else (GPU_WORKLOADS,)
        for each in await reading.listed(resources, namespace, quietly=True):
            owner = _owner(each)
            if owner:
                found[uid_of(each)] = f"{owner['kind']} {namespace}/{owner['name']}"
    return found


def _refs(record: Preemption) -> Iterable[ObjectRef]:
    if record.spec.preemptor is not None:
        yield record.spec.preemptor
    for victim in record.spec.victims:
        yield victim.subject


def _owner(obj: Json) -> Json | None:
    named: Json | None = obj["spec"].get("workloadRef")
    if named is not None:
        return named
    owners: list[Json] = obj["metadata"].get("ownerReferences") or []
    controllers = [each for each in owners if each.get("controller")]
    return controllers[0] if controllers else None

"""What people call an object that a record names: the job behind a Workload, the unit of a pod.

Where the object is deleted, what was seen before states it, else its name, if that is proven: names
of Workloads and GpuWorkloads are made of kind, name and uid of their job, and the uid stands in the
lineage.
"""

from __future__ import annotations

from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.engine.idle.discovery import gpu_workload_name
from reprieve.jobs.naming import workload_name
from reprieve.jobs.table import BUILT_IN
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.pods import PodRecord
from reprieve.web.mirror.queues import WorkloadRecord
from reprieve.web.mirror.reported import IdleRecord, unit_of
from reprieve.web.mirror.units import unit_id
from reprieve.web.records.masking import Masking, home_of
from reprieve.web.tables import Viewer

__all__ = ["called", "masking_of"]

_OWNER = "owner/"


def called(mirror: Mirror, ref: ObjectRef, lineage: str = "") -> str:
    """Return the unit of an object that is or was seen, else what its name proves, else its id."""
    found: WorkloadRecord | IdleRecord | PodRecord | None
    match ref.kind:
        case "Workload":
            found = mirror.workloads.named(ref.namespace, ref.name)
        case "GpuWorkload":
            found = mirror.idle.named(ref.namespace, ref.name)
        case "Pod":
            found = mirror.pods.named(ref.namespace, ref.name)
        case _:
            return unit_of(ref)
    if found is not None and found.uid == ref.uid:
        return found.unit
    return mirror.former.get(ref.uid) or _proven(ref, lineage) or unit_of(ref)


def masking_of(mirror: Mirror, viewer: Viewer, record: Preemption, home: str = "") -> Masking:
    """Return how a record is shown to a viewer; `home`: as of `Masking`."""

    def name(ref: ObjectRef, lineage: str) -> str:
        return called(mirror, ref, lineage)

    return Masking(viewer, home or home_of(record, viewer), mirror.key, name)


def _proven(ref: ObjectRef, lineage: str) -> str:
    """Return the job's unit where its uid makes exactly this name, else nothing."""
    if not lineage.startswith(_OWNER):
        return ""
    uid = lineage.removeprefix(_OWNER)
    for row in BUILT_IN:
        lead = f"{row.kind.lower()}-"
        if not ref.name.startswith(lead):
            continue
        name = ref.name.removeprefix(lead).rpartition("-")[0]
        made = (
            gpu_workload_name(row.kind, name, uid)
            if ref.kind == "GpuWorkload"
            else workload_name(row.kind, row.group, name, uid)
        )
        if made == ref.name:
            return unit_id(row.kind, ref.namespace, name)
    return ""

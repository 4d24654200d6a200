"""What people call an object that a record names: the job behind a Workload, the unit of a pod."""

from __future__ import annotations

from reprieve.api.reprieve import ObjectRef
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.pods import PodRecord
from reprieve.web.mirror.queues import WorkloadRecord
from reprieve.web.mirror.told import IdleRecord, unit_of

__all__ = ["called"]


def called(mirror: Mirror, ref: ObjectRef) -> str:
    """Return the unit of an object that is still there, else its own id."""
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
    return unit_of(ref) if found is None or found.uid != ref.uid else found.unit

"""A GpuWorkload into what decisions may know of it: the pods of work whose devices are idle.

One in another phase has no such pods, and one that was never measured was measured long ago.
Source: the idle plane's own statuses; promise "Silence is not idleness" of the design.
"""

from __future__ import annotations

from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.cluster.rows import Entry, IdleRow, Kind
from reprieve.engine.idle.model import Phase
from reprieve.intake.cluster.metadata import seconds_of, uid_of, version_of

__all__ = ["idle_entry"]


def idle_entry(found: GpuWorkload) -> Entry:
    """Return the entry of a GpuWorkload."""
    metadata, status = found.metadata, found.status
    pods = status.tracked_pods or () if status.phase == Phase.IDLE else ()
    row = IdleRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        pods=tuple(sorted(pod.pod_name for pod in pods)),
        measured=seconds_of(status.last_metrics_update) or 0,
    )
    return Entry(Kind.IDLE, row.uid, row.namespace, row.name, row.version, row)

"""Which differences between two versions of an object matter to the pods that wait.

Most versions differ in nothing but a status or a heartbeat. Those that do matter are passed to the
queue as events, each with both versions, from which its hints derive which pods to try again.
Source: specification of the scheduling plane, section 22.
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.cluster.rows import Entry, GroupRow, NodeRow, PodRow
from reprieve.engine.scheduling.queueing.events import Event, Happening

__all__ = ["decisive", "min_runtime", "node_events", "pod_events", "protected"]


def node_events(old: NodeRow | None, row: NodeRow) -> list[Event]:
    """Return what happened to a node."""
    if old is None:
        return [Event(Happening.NODE_ADDED, node=row)]
    changes = []
    if dict(old.labels) != dict(row.labels):
        changes.append(Happening.NODE_LABELS)
    if (old.taints, old.unschedulable) != (row.taints, row.unschedulable):
        changes.append(Happening.NODE_TAINTS)
    if dict(old.allocatable) != dict(row.allocatable):
        changes.append(Happening.NODE_ALLOCATABLE)
    return [Event(what, node=row, node_before=old) for what in changes]


def pod_events(old: PodRow, row: PodRow) -> list[Event]:
    """Return what happened to a pod that is on its node in both versions."""
    changes = []
    if old.labels != row.labels:
        changes.append(Happening.POD_LABELS)
    if old.pod_class is not row.pod_class and old.pod_class.requests != row.pod_class.requests:
        changes.append(Happening.POD_SCALED_DOWN)
    return [Event(what, pod=row, pod_before=old) for what in changes]


def decisive(row: GroupRow) -> GroupRow:
    """Return the group without what changes with every write of a status."""
    return replace(row, version=0, scheduled=False, checkpoint=0, notice=0, save_cost=0)


def protected(row: PodRow | GroupRow) -> tuple[str, int | None]:
    """Return what keeps others from using its capacity, however far it is."""
    return row.protection, row.min_runtime


def min_runtime(row: PodRow | GroupRow | Entry) -> int | None:
    """Return the minimum runtime that an object declares, None for one that declares none."""
    said: int | None = row.row.min_runtime if isinstance(row, Entry) else row.min_runtime
    return said

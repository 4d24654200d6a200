"""Rows as objects in events."""

from __future__ import annotations

from reprieve.engine.cluster.rows import Entry, GroupRow, Kind, PodRow
from reprieve.planes.scheduling.served import COMPOSITE_GROUPS
from reprieve.units.references import Reference

__all__ = ["entry_reference", "group_reference", "pod_reference", "reference_of"]


def pod_reference(row: PodRow) -> Reference:
    """Return the pod, at the version that was decided about."""
    return Reference("v1", "Pod", row.namespace, row.name, row.uid, str(row.version))


def group_reference(row: GroupRow, api_version: str) -> Reference:
    """Return the group; a pod group under `api_version`, the version that is served."""
    version = COMPOSITE_GROUPS.api_version if row.composite else api_version
    return Reference(version, row.kind, row.namespace, row.name, row.uid, str(row.version))


def entry_reference(row: Entry) -> Reference:
    """Return a Namespace or PriorityClass."""
    version = "scheduling.k8s.io/v1" if row.kind is Kind.PRIORITY_CLASS else "v1"
    return Reference(version, row.kind, "", row.name, row.uid, str(row.version))


def reference_of(row: PodRow | GroupRow, group_version: str) -> Reference:
    """Return the pod or group; a pod group under `group_version`, the version that is served."""
    return pod_reference(row) if isinstance(row, PodRow) else group_reference(row, group_version)

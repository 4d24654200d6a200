"""Objects of all kinds but pods, nodes and groups, as they were seen last.

Decisions read them as rows of the engine's `Cluster`; kept here by kind and name is what is queried
about single ones: whether a pod's ResourceClaims are there, what a class is worth, which labels a
namespace has, what a volume was before it was reserved. Source: specification of the scheduling
plane, section 2.
"""

from __future__ import annotations

from typing import TypeAlias

from reprieve.engine.cluster.claimed import devices_held
from reprieve.engine.cluster.devices import ResourceClaimRow
from reprieve.engine.cluster.rows import BudgetRow, Entry, Kind, Labels, PodRow, SelectorRow
from reprieve.units.ids import Uid

__all__ = ["ObjectRow", "Objects"]

ObjectRow: TypeAlias = Entry | BudgetRow | SelectorRow
_Key: TypeAlias = tuple[str, str]  # namespace, name


class Objects:
    """The objects by kind, namespace and name."""

    def __init__(self) -> None:
        self._held: dict[Kind, dict[_Key, ObjectRow]] = {}

    def observe(self, row: ObjectRow) -> ObjectRow | None:
        """Hold this version; return the one before."""
        held = self._held.setdefault(_kind(row), {})
        former = held.get((row.namespace, row.name))
        held[row.namespace, row.name] = row
        return former

    def remove(self, kind: Kind, gone: ObjectRow) -> None:
        """Release an object, but not of another one that has got its name."""
        held = self._held.get(kind, {})
        known = held.get((gone.namespace, gone.name))
        if known is not None and known.uid == gone.uid:
            del held[gone.namespace, gone.name]

    def of_kind(self, kind: Kind) -> dict[Uid, ObjectRow]:
        """Return all objects of a kind."""
        return {row.uid: row for row in self._held.get(kind, {}).values()}

    def entry(self, kind: Kind, key: _Key) -> Entry | None:
        """Return an object by namespace and name, None for one that is not there."""
        found = self._held.get(kind, {}).get(key)
        return found if isinstance(found, Entry) else None

    def priority_class(self, name: str) -> int | None:
        """Return the value of a PriorityClass, None for one that is not there."""
        found = self.entry(Kind.PRIORITY_CLASS, ("", name))
        return None if found is None else found.row.value

    def namespace_labels(self, namespace: str) -> Labels:
        """Return the labels of a namespace, sorted; none for one that is not there."""
        found = self.entry(Kind.NAMESPACE, ("", namespace))
        return () if found is None else tuple(sorted(found.row.labels.items()))

    def missing_claim(self, pod: PodRow) -> str:
        """Return which ResourceClaim of a pod is not there to be used, empty where all are."""
        for entry, name in pod.claims:
            if name is None:
                continue
            row = self._claim(pod.namespace, name)
            if not name or row is None:
                return f'resourceclaim "{name or entry}" not found'
            if row.deleting:
                return f'resourceclaim "{name}" is being deleted'
        return ""

    def devices_of(self, pod: PodRow) -> int:
        """Return how many devices a pod holds by claims."""
        rows = (self._claim(pod.namespace, name) for _, name in pod.claims if name)
        return devices_held(row for row in rows if row is not None).get(pod.uid, 0)

    def _claim(self, namespace: str, name: str) -> ResourceClaimRow | None:
        found = self.entry(Kind.RESOURCE_CLAIM, (namespace, name))
        return found.row if found is not None and isinstance(found.row, ResourceClaimRow) else None


def _kind(row: ObjectRow) -> Kind:
    if isinstance(row, Entry):
        return row.kind
    return Kind(row.kind) if isinstance(row, SelectorRow) else Kind.BUDGET

"""VolumeRestrictions: disks that one pod has to itself, and claims that one pod has to itself.

An in-line disk clashes with the same disk of another pod on the node, unless both only read; a
claim of access mode ReadWriteOncePod clashes with any other pod of the cluster that uses it, and
then no node is left. Both follow the pods of the simulation. Source: specification 21.5 and 21.8.
"""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.arrays import I32, U8
from reprieve.engine.cluster.rows import Kind, PodClass
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.storage import READ_WRITE_ONCE_POD, ClaimRow, claim_name
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.presence import name_of, namespace_of, placed_at
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["VolumeRestrictions", "compile_volume_restrictions"]


class VolumeRestrictions:
    """Counters of the pods that clash with one pending pod."""

    name = FilterName.VOLUME_RESTRICTIONS

    def __init__(
        self, view: View, classes: frozenset[int], namespace: str, claims: frozenset[str]
    ) -> None:
        """Count the view's pods.

        `classes` have a disk that clashes; `claims` of the namespace belong to one pod alone.
        """
        self._snapshot = view.snapshot
        self._classes = classes
        self._namespace = namespace
        self._claims = claims
        self._on_node: I32 = np.zeros(len(view.snapshot.nodes), np.int32)  # clashing pods
        self._users = 0  # pods that use one of the claims, anywhere
        self._may_use = frozenset(
            number
            for number, entry in enumerate(view.snapshot.classes)
            if entry is not None and claims and _may_use(entry, claims)
        )
        self._count(view)

    def _count(self, view: View) -> None:
        snapshot = view.snapshot
        if self._classes:
            there = view.present & np.isin(snapshot.pod_class, list(self._classes))
            np.add.at(self._on_node, snapshot.pod_node[there], 1)
        if self._may_use:
            there = view.present & np.isin(snapshot.pod_class, list(self._may_use))
            for slot in np.flatnonzero(there).tolist():
                self._users += self._uses(placed_at(snapshot, slot))
        for pod in view.simulated:
            self.add(pod)

    def _uses(self, pod: Placed) -> bool:
        if pod.pod_class not in self._may_use:
            return False
        if namespace_of(self._snapshot, pod) != self._namespace:
            return False
        entry = self._snapshot.classes[pod.pod_class]
        assert entry is not None
        own = name_of(self._snapshot, pod)
        return any(claim_name(use, own) in self._claims for use in entry.volumes)

    def codes(self) -> U8:
        rest = Rejection.READ_WRITE_ONCE_POD if self._users else 0
        return np.where(self._on_node > 0, np.uint8(Rejection.DISK), np.uint8(rest))

    def code_at(self, node: int) -> int:
        if self._on_node[node] > 0:
            return Rejection.DISK
        return Rejection.READ_WRITE_ONCE_POD if self._users else 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        code = self.code_at(node)
        return (Reason(Rejection(code)),) if code else ()

    def add(self, pod: Placed) -> Reach:
        return self._change(pod, 1)

    def remove(self, pod: Placed) -> Reach:
        return self._change(pod, -1)

    def _change(self, pod: Placed, sign: int) -> Reach:
        reach = Reach.NOTHING
        if pod.pod_class in self._classes:
            self._on_node[pod.node] += sign
            reach = Reach.NODE
        if self._uses(pod):
            self._users += sign
            reach = Reach.DOMAINS
        return reach


def _may_use(entry: PodClass, claims: frozenset[str]) -> bool:
    return any(
        any(c.endswith(f"-{use.claim}") for c in claims) if use.ephemeral else use.claim in claims
        for use in entry.volumes
    )


def compile_volume_restrictions(view: View, pending: Pending) -> VolumeRestrictions | None:
    """Return the filter of a pod with exclusive disks or ReadWriteOncePod claims."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    claims = frozenset(_exclusive_claims(view.snapshot, entry, pending))
    if not entry.disks and not claims:
        return None
    wanted: dict[tuple[str, tuple[str, ...]], bool] = {}
    for disk in entry.disks:  # one may be mounted twice, and shared once only
        key = (disk.kind, disk.identity)
        wanted[key] = wanted.get(key, True) and disk.shared
    classes = frozenset(
        number
        for number, other in enumerate(view.snapshot.classes)
        if other is not None
        and any(
            not (disk.shared and wanted[disk.kind, disk.identity])
            for disk in other.disks
            if (disk.kind, disk.identity) in wanted
        )
    )
    return VolumeRestrictions(view, classes, pending.row.namespace, claims)


def _exclusive_claims(snapshot: Snapshot, entry: PodClass, pending: Pending) -> list[str]:
    rows = snapshot.tables.get(Kind.CLAIM, {})
    found = []
    for use in entry.volumes:
        name = claim_name(use, pending.row.name)
        row: ClaimRow | None = rows.get((pending.row.namespace, name))
        if row is not None and READ_WRITE_ONCE_POD in row.access_modes:
            found.append(name)
    return found

"""NodeVolumeLimits: how many volumes of a CSI driver a node can attach.

The distinct volumes of a node are those of its pods and of its VolumeAttachments. Pods follow the
simulation; an attachment stays counted when its last pod is removed, unless `simulate_claims` is
set and no pod uses the volume any more. Source: specification 21.5 and 21.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.storage import (
    AttachmentRow,
    ClaimRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageClassRow,
    VolumeId,
    VolumeRow,
    claim_name,
    disk_volume,
)
from reprieve.engine.placement.filtering import Placed, Reach, View
from reprieve.engine.placement.filters.presence import (
    Presence,
    name_of,
    namespace_of,
    placed_at,
)
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["AttachedVolumes", "NodeVolumeLimits", "compile_volume_limits"]

_UNLIMITED: Final = np.iinfo(np.int64).max

Tables = Mapping[Kind, Mapping[tuple[str, str], Any]]


def volume_of(tables: Tables, claim: ClaimRow) -> VolumeId | None:
    """Return the volume of a claim: the bound one, or the one that its class will make."""
    if claim.volume:
        volume: VolumeRow | None = tables.get(Kind.VOLUME, {}).get(("", claim.volume))
        if volume is not None:
            return (volume.driver, volume.handle) if volume.driver else None
    row: StorageClassRow | None = tables.get(Kind.STORAGE_CLASS, {}).get(("", claim.storage_class))
    if row is None or not row.provisioner:
        return None
    return row.provisioner, f"claim {claim.namespace}/{claim.name}"


class AttachedVolumes:
    """The volumes on each node, shared by the filters of all pods."""

    def __init__(self, snapshot: Snapshot, simulate: bool) -> None:
        """Count the volumes of the snapshot; `simulate`: attachments end with their last user."""
        self._snapshot = snapshot
        self._simulate = simulate
        self._presence = Presence(snapshot)
        self._classes = frozenset(
            number
            for number, entry in enumerate(snapshot.classes)
            if entry is not None and (entry.volumes or entry.disks)
        )
        self._nodes: dict[VolumeId, dict[int, int]] = {}  # pods that use it, per node
        self._users: dict[VolumeId, int] = {}  # pods that use it, anywhere
        self._attached: dict[VolumeId, set[int]] = {}
        self._leaving: frozenset[VolumeId] = frozenset()  # attachments that end with their users
        self._used: dict[str, I64] = {}  # distinct volumes of a driver, (nodes,)
        self._limits: dict[str, I64] = {}
        self._known: dict[tuple[int, str], tuple[VolumeId, ...]] = {}
        self._read_attachments()
        there = (snapshot.pod_node >= 0) & np.isin(snapshot.pod_class, list(self._classes))
        for slot in np.flatnonzero(there).tolist():
            self._change(placed_at(snapshot, slot), 1)
        if simulate:
            self._leaving = frozenset(self._users)

    def follow(self, view: View) -> None:
        """Catch up with the pods of a view."""
        for pod, came in list(self._presence.changes(view)):
            if came:
                self.add(pod)
            else:
                self.remove(pod)

    def reach(self, pod: Placed) -> Reach:
        """Return what a pod that was added or removed has changed."""
        if pod.pod_class not in self._classes:
            return Reach.NOTHING
        return Reach.DOMAINS if self._simulate else Reach.NODE

    def add(self, pod: Placed) -> None:
        """A pod came; known ones change nothing."""
        if self._presence.came(pod) and pod.pod_class in self._classes:
            self._change(pod, 1)

    def remove(self, pod: Placed) -> None:
        """A pod was removed; known ones change nothing."""
        if self._presence.went(pod) and pod.pod_class in self._classes:
            self._change(pod, -1)

    def used(self, driver: str) -> I64:
        """Return the distinct volumes of a driver on each node: (nodes,), not to be changed."""
        found = self._used.get(driver)
        if found is None:
            found = self._used[driver] = np.zeros(len(self._snapshot.nodes), np.int64)
        return found

    def limits(self, driver: str) -> I64:
        """Return how many volumes of a driver each node fits: (nodes,); -1 has no such driver."""
        found = self._limits.get(driver)
        if found is None:
            found = np.full(len(self._snapshot.nodes), -1, np.int64)
            row: CsiNodeRow
            for (_, name), row in self._snapshot.tables.get(Kind.CSI_NODE, {}).items():
                node = self._snapshot.node_index.get(name)
                for installed, limit in row.drivers:
                    if installed == driver and node is not None:
                        found[node] = _UNLIMITED if limit is None else limit
            self._limits[driver] = found
        return found

    def nodes_with(self, volume: VolumeId) -> list[int]:
        """Return the nodes where a volume is counted already."""
        here = set(self._nodes.get(volume, ()))
        if self._attachment_counts(volume):
            here |= self._attached.get(volume, set())
        return sorted(here)

    def volumes(self, pod_class: int, namespace: str, name: str) -> tuple[VolumeId, ...]:
        """Return the distinct CSI volumes of a pod, sorted."""
        entry = self._snapshot.classes[pod_class]
        assert entry is not None
        own = any(use.ephemeral for use in entry.volumes)
        key = (pod_class, f"{namespace}/{name}" if own else namespace)
        known = self._known.get(key)
        if known is None:
            tables = self._snapshot.tables
            claims = tables.get(Kind.CLAIM, {})
            found = {disk_volume(disk) for disk in entry.disks}
            for use in entry.volumes:
                row: ClaimRow | None = claims.get((namespace, claim_name(use, name)))
                found.add(None if row is None else volume_of(tables, row))
            known = self._known[key] = tuple(sorted(v for v in found if v is not None))
        return known

    def _read_attachments(self) -> None:
        volumes = self._snapshot.tables.get(Kind.VOLUME, {})
        row: AttachmentRow
        for row in self._snapshot.tables.get(Kind.ATTACHMENT, {}).values():
            node = self._snapshot.node_index.get(row.node)
            volume = volumes.get(("", row.volume))
            found = row.inline
            if volume is not None and volume.driver:
                found = (row.attacher, volume.handle)
            if node is not None and found is not None:
                nodes = self._attached.setdefault(found, set())
                if node not in nodes:
                    nodes.add(node)
                    self.used(found[0])[node] += 1

    def _attachment_counts(self, volume: VolumeId) -> bool:
        return volume not in self._leaving or bool(self._users.get(volume))

    def _change(self, pod: Placed, sign: int) -> None:
        name = name_of(self._snapshot, pod)
        namespace = namespace_of(self._snapshot, pod)
        for volume in self.volumes(pod.pod_class, namespace, name):
            used = self.used(volume[0])
            used[pod.node] -= self.counts(volume, pod.node)
            others = self._attached.get(volume, set()) if volume in self._leaving else set()
            others = others - {pod.node}
            for node in others:
                used[node] -= self.counts(volume, node)
            nodes = self._nodes.setdefault(volume, {})
            nodes[pod.node] = nodes.get(pod.node, 0) + sign
            if not nodes[pod.node]:
                del nodes[pod.node]
            self._users[volume] = self._users.get(volume, 0) + sign
            used[pod.node] += self.counts(volume, pod.node)
            for node in others:
                used[node] += self.counts(volume, node)

    def counts(self, volume: VolumeId, node: int) -> bool:
        """Return whether a volume is among those of a node."""
        if node in self._nodes.get(volume, ()):
            return True
        return node in self._attached.get(volume, ()) and self._attachment_counts(volume)


class NodeVolumeLimits:
    """The limits for one pending pod."""

    name = FilterName.NODE_VOLUME_LIMITS

    def __init__(
        self, attached: AttachedVolumes, wanted: Iterable[VolumeId], required: frozenset[str]
    ) -> None:
        """`wanted`: volumes of the pod; `required`: drivers that its node must have."""
        self._attached = attached
        self._wanted: dict[str, list[VolumeId]] = {}
        for volume in wanted:
            self._wanted.setdefault(volume[0], []).append(volume)
        self._required = sorted(required & self._wanted.keys())

    def codes(self) -> U8:
        attached = self._attached
        codes: U8 | None = None
        for driver, volumes in self._wanted.items():
            limits, used = attached.limits(driver), attached.used(driver)
            new = np.full(len(limits), len(volumes), np.int64)
            for volume in volumes:
                new[attached.nodes_with(volume)] -= 1
            over = (limits >= 0) & (new > 0) & (used + new > limits)
            if codes is None:
                codes = np.zeros(len(limits), np.uint8)
            codes[over] = Rejection.VOLUME_LIMIT
        assert codes is not None
        for driver in self._required:
            codes[attached.limits(driver) < 0] = Rejection.DRIVER_MISSING
        return codes

    def code_at(self, node: int) -> int:
        attached = self._attached
        if any(attached.limits(driver)[node] < 0 for driver in self._required):
            return Rejection.DRIVER_MISSING
        for driver, volumes in self._wanted.items():
            limit = int(attached.limits(driver)[node])
            new = sum(not attached.counts(volume, node) for volume in volumes)
            if limit >= 0 and new and int(attached.used(driver)[node]) + new > limit:
                return Rejection.VOLUME_LIMIT
        return 0

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        for driver in self._required:
            if self._attached.limits(driver)[node] < 0:
                return (Reason(Rejection.DRIVER_MISSING, driver),)
        code = self.code_at(node)
        return (Reason(Rejection(code)),) if code else ()

    def add(self, pod: Placed) -> Reach:
        self._attached.add(pod)
        return self._attached.reach(pod)

    def remove(self, pod: Placed) -> Reach:
        self._attached.remove(pod)
        return self._attached.reach(pod)


def compile_volume_limits(view: View, pending: Pending) -> NodeVolumeLimits | None:
    """Return the filter of a pod with volumes of CSI drivers, when a node limits or needs one."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    if not entry.volumes and not entry.disks:
        return None
    attached = view.shared.get(FilterName.NODE_VOLUME_LIMITS)
    if not isinstance(attached, AttachedVolumes):
        attached = AttachedVolumes(view.snapshot, view.policy.simulate_claims)
        view.shared[FilterName.NODE_VOLUME_LIMITS] = attached
    attached.follow(view)
    wanted = attached.volumes(pending.pod_class, pending.row.namespace, pending.row.name)
    drivers: Mapping[tuple[str, str], CsiDriverRow] = view.snapshot.tables.get(Kind.CSI_DRIVER, {})
    required = frozenset(row.name for row in drivers.values() if row.required)
    return NodeVolumeLimits(attached, wanted, required) if wanted else None

"""Which pods are there, for state that the filters of one plugin share.

Several compiled filters are notified of the same pod that was added or removed; a change counts
once, and what a view changed while no filter observed it is applied when the next filter is
compiled. Source: the contract of `filtering`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.snapshot import Flag, Snapshot
from reprieve.engine.placement.filtering import Placed, View
from reprieve.units.ids import Uid

__all__ = ["Presence", "name_of", "namespace_of", "uid_of"]


def uid_of(snapshot: Snapshot, pod: Placed) -> Uid:
    """Return the uid of a pod of the snapshot or of a simulated one."""
    if pod.slot >= 0:
        return snapshot.pod_uids[pod.slot]
    assert pod.pending is not None
    return pod.pending.row.uid


def name_of(snapshot: Snapshot, pod: Placed) -> str:
    """Return the name of a pod of the snapshot or of a simulated one."""
    if pod.slot >= 0:
        return snapshot.pod_keys[pod.slot].partition("/")[2]
    assert pod.pending is not None
    return pod.pending.row.name


def namespace_of(snapshot: Snapshot, pod: Placed) -> str:
    """Return the namespace of a pod."""
    labels = snapshot.labels[pod.labels]
    assert labels is not None
    return labels.namespace


class Presence:
    """The pods that a plugin's shared state knows to be there."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin with every pod of the snapshot that counts somewhere."""
        self._snapshot = snapshot
        self._slots: Mask = snapshot.pod_node >= 0
        self._simulated: dict[Uid, Placed] = {}

    def came(self, pod: Placed) -> bool:
        """Note that a pod came; False when that was known."""
        if pod.slot >= 0:
            known = bool(self._slots[pod.slot])
            self._slots[pod.slot] = True
            return not known
        known = uid_of(self._snapshot, pod) in self._simulated
        self._simulated[uid_of(self._snapshot, pod)] = pod
        return not known

    def went(self, pod: Placed) -> bool:
        """Record that a pod was removed; False when that was known."""
        if pod.slot >= 0:
            known = bool(self._slots[pod.slot])
            self._slots[pod.slot] = False
            return known
        return self._simulated.pop(uid_of(self._snapshot, pod), None) is not None

    def changes(self, view: View) -> Iterator[tuple[Placed, bool]]:
        """Yield each pod that was added (True) or removed (False) since, as the view has it."""
        for slot in np.flatnonzero(self._slots != view.present).tolist():
            yield placed_at(self._snapshot, slot), bool(view.present[slot])
        there = {uid_of(self._snapshot, pod): pod for pod in view.simulated}
        for uid, pod in list(self._simulated.items()):
            if there.get(uid) != pod:
                yield pod, False
        for uid, pod in there.items():
            if self._simulated.get(uid) != pod:
                yield pod, True


def placed_at(snapshot: Snapshot, slot: int) -> Placed:
    """Return a pod of the snapshot as filters see it."""
    return Placed(
        int(snapshot.pod_class[slot]),
        int(snapshot.pod_labels[slot]),
        int(snapshot.pod_node[slot]),
        bool(snapshot.pod_flags[slot] & Flag.DELETING),
        slot,
    )

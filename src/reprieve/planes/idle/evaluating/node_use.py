"""What the pods on each node request together, kept up to date with every change of a pod.

Summing over all pods for each pending demand would hold the event loop up in a large cluster. A pod
that is being deleted still counts, a finished one does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.api.core import Pod
from reprieve.kube.cache import Cache
from reprieve.planes.idle.records import PodRecord

__all__ = ["NodeUse"]


class NodeUse:
    """Sums by node, in base units; all and only nodes with pods on them have one."""

    def __init__(self, pods: Cache[Pod, PodRecord]) -> None:
        self._used: dict[str, dict[str, int]] = {}
        pods.subscribe(self._changed)

    def of(self, node: str) -> Mapping[str, int]:
        """Return what is in use on a node."""
        return self._used.get(node, {})

    def _changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        if old is not None and old.occupies:
            self._count(old, -1)
        if new is not None and new.occupies:
            self._count(new, 1)

    def _count(self, pod: PodRecord, sign: int) -> None:
        node = pod.row.node or ""
        used = self._used.setdefault(node, {})
        for name, amount in pod.row.amounts.items():
            left = used.get(name, 0) + sign * amount
            if left:
                used[name] = left
            else:
                del used[name]
        if not used:
            del self._used[node]

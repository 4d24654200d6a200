"""Placed pods by what harm budgets select by, as they are created, changed and deleted."""

from __future__ import annotations

from collections.abc import Callable

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.harm_budgets.kinds import NEVER, UNBOUNDED, Kinds
from reprieve.engine.lost_work import devices_of
from reprieve.units.ids import Uid

__all__ = ["PlacedKinds"]


class PlacedKinds(Kinds):
    """Placed pods. `priority` of a pod is that of its group, which is read again when it changes.

    A pod that holds claims may lose any amount: it does not state how many devices these have.
    """

    def __init__(self, priority: Callable[[PodRow], int | None]) -> None:
        super().__init__()
        self._priority = priority
        self._groups: dict[str, set[Uid]] = {}  # of those with a group, by its key
        self._group_of: dict[Uid, str] = {}
        self._changed_groups: set[str] = set()

    def see(self, row: PodRow) -> None:
        """Apply a placed pod as it is now."""
        key = f"{row.namespace}/{row.group}" if row.group else ""
        if self._group_of.get(row.uid, "") != key:
            self._leave(row.uid)
            self._group_of[row.uid] = key
            self._groups.setdefault(key, set()).add(row.uid)
        since = NEVER if row.start is None else row.start
        devices = UNBOUNDED if row.claims else devices_of(row.pod_class.requests)
        self.apply(row.uid, row.namespace, self._priority(row), since, devices)

    def forget(self, uid: Uid) -> None:
        """Release a pod that has no node any more."""
        self._leave(uid)
        self.remove(uid)

    def _leave(self, uid: Uid) -> None:
        key = self._group_of.pop(uid, "")
        if key:
            self._groups[key].discard(uid)
            if not self._groups[key]:
                del self._groups[key]

    def group_changed(self, key: str) -> None:
        """A group was created, changed or deleted."""
        if key in self._groups:
            self._changed_groups.add(key)

    def settle(self, pod: Callable[[Uid], PodRow | None]) -> None:
        """Read again the priority of pods whose group has changed."""
        for key in self._changed_groups:
            for uid in sorted(self._groups.get(key, ())):
                row = pod(uid)
                if row is not None:
                    self.see(row)
        self._changed_groups.clear()

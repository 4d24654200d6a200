"""What pods, groups, namespaces and classes have just declared about being preempted.

A declaration is noted when the version before did not make it, and kept until its effect is
reported (`protections`): the class that counts for a victim, which pods of a group are evicted only
with others, a minimum runtime. Source: KEP-5710, "Future extensions".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.engine.cluster.rows import Entry, GroupRow, PodRow
from reprieve.planes.scheduling.differences import min_runtime
from reprieve.units.ids import Uid

__all__ = ["Declared"]


@dataclass(slots=True)
class Declared:
    """Objects that have declared something, as of the version that did.

    Attributes:
        protection: pods and groups that name a class to count for them as victims.
        disruption: those that state which pods of a group are evicted only with others.
        runtime: those, and namespaces and classes, that state a minimum runtime.
        notice: pods and groups whose wish for notice cannot be read.
    """

    protection: dict[Uid, PodRow | GroupRow] = field(default_factory=dict)
    disruption: dict[Uid, PodRow | GroupRow] = field(default_factory=dict)
    runtime: dict[Uid, PodRow | GroupRow | Entry] = field(default_factory=dict)
    notice: dict[Uid, PodRow | GroupRow] = field(default_factory=dict)

    def by_pod(self, old: PodRow | None, row: PodRow) -> None:
        """Note what a version of a pod is the first to declare."""
        if row.protection and (old is None or old.protection != row.protection):
            self.protection[row.uid] = row
        if row.disruption and (old is None or old.disruption != row.disruption):
            self.disruption[row.uid] = row
        if row.min_runtime is not None:
            self.by_runtime(old, row)
        self._by_notice(old, row)

    def _by_notice(self, old: PodRow | GroupRow | None, row: PodRow | GroupRow) -> None:
        if row.notice < 0 and (old is None or old.notice != row.notice):
            self.notice[row.uid] = row

    def by_group(self, old: GroupRow | None, row: GroupRow) -> None:
        """Note what a version of a group is the first to declare."""
        if row.floor and (old is None or old.floor != row.floor):
            self.disruption[row.uid] = row
        if old is None:
            self.again(row)
        self.by_runtime(old, row)
        self._by_notice(old, row)

    def by_runtime(
        self, old: PodRow | GroupRow | Entry | None, row: PodRow | GroupRow | Entry
    ) -> None:
        """Note a minimum runtime that a version is the first to declare."""
        said = min_runtime(row)
        if said is not None and (old is None or min_runtime(old) != said):
            self.runtime[row.uid] = row

    def again(self, row: PodRow | GroupRow) -> None:
        """Note a named class anew, since what decides about its effect has changed."""
        if row.protection:
            self.protection[row.uid] = row

"""What is to be looked at again in the idle plane, by who looks at it.

A change of one object makes others due: whatever concerns a root concerns every GpuWorkload of it.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.references import Reference

__all__ = ["Due"]

_OVERTAKEN: Final = SECOND // 5


class Due:
    """The keys that are due.

    Attributes:
        pods: uids of GPU pods whose root is to be found.
        queued: uids of Kueue Workloads whose root is to be found.
        roots: uids of roots whose GpuWorkload is to be brought in line with them.
        workloads: GpuWorkloads that are to be reconciled through their phases.
    """

    def __init__(self, workloads: TrackedWorkloads, clock: Clock) -> None:
        self._tracked = workloads
        self._clock = clock
        self.pods: DirtyKeys[str] = DirtyKeys(clock)
        self.queued: DirtyKeys[str] = DirtyKeys(clock)
        self.roots: DirtyKeys[str] = DirtyKeys(clock)
        self.workloads: DirtyKeys[GpuWorkloadKey] = DirtyKeys(clock)

    def root(self, root: Reference) -> None:
        """Look at a root that changed, and at its GpuWorkloads."""
        self.roots.add(root.uid)
        self.workloads_of(root.uid)

    def workloads_of(self, root: str) -> None:
        """Look at the GpuWorkloads of a root, by its uid."""
        for held in self._tracked.of_root(root):
            self.workloads.add(held.key)

    def lineage(self, lineage: str) -> None:
        """Look at the GpuWorkloads of a lineage: what its root has made, or a pod."""
        self.workloads_of(lineage.rpartition("/")[2])

    def every_workload(self) -> None:
        """Look at all GpuWorkloads."""
        for held in self._tracked:
            self.workloads.add(held.key)

    def root_soon(self, uid: str) -> None:
        """Follow a root again once the newer version of its GpuWorkload will have been seen."""
        self.roots.add_at(uid, Nanos(self._clock.wall() + _OVERTAKEN))

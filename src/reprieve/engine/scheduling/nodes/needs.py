"""What the members of a gang request, by class of equal ones, and what is free of it on nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.profile import OF_THE_NODE_ALONE
from reprieve.engine.placement.simulation import Simulation

__all__ = ["MANY", "Needs", "room_of"]

MANY: Final = 1 << 30  # of a node that nothing limits


class Needs:
    """What members request: classes of equal ones, and the resources that are checked.

    `classes`: by class one of its members; `of`: the class of each member; `amounts`: (classes,
    columns) of the snapshot's `columns`. `plain`: nothing but resources depends on which pods are
    there.
    """

    def __init__(
        self,
        simulation: Simulation,
        members: Sequence[Pending],
        apart: Callable[[Pending], object] = lambda pending: None,
    ) -> None:
        """Sort the members into classes; `apart`: what else equal ones have in common."""
        number: dict[tuple[int, int, object], int] = {}
        self.classes: list[Pending] = []
        self.of: list[int] = []
        for pending in members:
            key = (pending.pod_class, pending.labels, apart(pending))
            if key not in number:
                number[key] = len(self.classes)
                self.classes.append(pending)
            self.of.append(number[key])
        checked: list[set[int]] = []
        self.plain = True
        for pending in self.classes:
            own: set[int] = set()
            for each in simulation.filters(pending):
                if isinstance(each, ResourcesFilter):
                    own |= {0, *each.columns}
                elif each.name not in OF_THE_NODE_ALONE:
                    self.plain = False
            checked.append(own)
        self.columns = np.array(sorted(set().union(*checked)), np.int64)
        self.amounts = np.zeros((len(self.classes), len(self.columns)), np.int64)
        for row, (pending, own) in enumerate(zip(self.classes, checked, strict=True)):
            asked = simulation.requests_of(pending.pod_class)[self.columns]
            self.amounts[row] = np.where(np.isin(self.columns, list(own)), asked, 0)
        self.counts = tuple(np.bincount(self.of, minlength=len(self.classes)).tolist())


def room_of(simulation: Simulation, needs: Needs, used: I64 | None = None) -> I64:
    """Return what is free of the resources that members request: (nodes, columns).

    Beside who is nominated there; `used`: (nodes, resources), the simulation's where None.
    """
    snapshot = simulation.snapshot
    occupied = simulation.used if used is None else used
    free: I64 = (snapshot.allocatable - occupied)[:, needs.columns]
    for node, pods in simulation.nominated.items():
        for pod in pods:
            free[node] -= simulation.requests_of(pod.pod_class)[needs.columns]
    return free

"""What the cluster holds: rows, the numbers given to what they name, and the columns.

Every name of a node that a node or a pod mentions has a number, so that a pod counts on its node
before the node is known; likewise for groups. Classes, labels, groups and node names are numbered
as long as somebody uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.columns import ClassColumns, Numbers, PodColumns, grown
from reprieve.engine.cluster.overlay import Overlay
from reprieve.engine.cluster.rows import (
    CPU,
    MEMORY,
    PODS,
    STORAGE,
    GroupRow,
    Kind,
    PodClass,
    PodRow,
)
from reprieve.engine.cluster.snapshot import I64, Pending, PodLabels
from reprieve.units.ids import Uid

__all__ = ["NOWHERE", "Held", "HeldPod", "State"]

NOWHERE: Final = 0  # the node number of free slots
_FIRST: Final = (PODS, CPU, MEMORY, STORAGE)


@dataclass(slots=True)
class HeldPod:
    """A pod and its numbers; a finished pod has none of them."""

    row: PodRow
    key: str  # namespace/name
    node: int = NOWHERE
    slot: int = -1  # negative unless bound
    pod_class: int = 0
    labels: int = 0
    group: int = -1
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A row of any kind but pods, and what orders its events."""

    uid: Uid
    version: int
    row: Any


@dataclass(slots=True)
class State:
    """Rows and columns; `changed` names what the next snapshot has to make anew."""

    overlay: Overlay = field(default_factory=Overlay)
    pods: dict[Uid, HeldPod] = field(default_factory=dict)
    pod_names: dict[str, Uid] = field(default_factory=dict)
    pending: dict[Uid, Pending] = field(default_factory=dict)
    nominated: set[Uid] = field(default_factory=set)  # pending pods that name a node
    tables: dict[Kind, dict[tuple[str, str], Held]] = field(
        default_factory=lambda: {kind: {} for kind in Kind}
    )
    changed: set[str] = field(default_factory=lambda: {"nodes", "pending", "groups", *Kind})

    resources: dict[str, int] = field(
        default_factory=lambda: {name: column for column, name in enumerate(_FIRST)}
    )
    classes: Numbers[PodClass] = field(default_factory=lambda: Numbers(1))
    labels: Numbers[PodLabels] = field(default_factory=lambda: Numbers(1))
    groups: Numbers[str] = field(default_factory=Numbers)  # namespace/name
    group_rows: list[GroupRow | None] = field(default_factory=list)  # by number, as far as known
    nodes: Numbers[str] = field(default_factory=lambda: Numbers(NOWHERE + 1))
    class_columns: ClassColumns = field(default_factory=lambda: ClassColumns(len(_FIRST)))
    placed: PodColumns = field(default_factory=lambda: PodColumns(len(_FIRST)))
    assumed: PodColumns = field(default_factory=lambda: PodColumns(len(_FIRST)))
    allocatable: I64 = field(  # by node number
        default_factory=lambda: np.zeros((64, len(_FIRST)), np.int64)
    )

    def take_node(self, name: str) -> int:
        """Return the number of a node, known or not, with one user more."""
        number = self.nodes.take(name)
        if number >= len(self.allocatable):
            self.allocatable = grown(self.allocatable, number + 1)
        self.placed.cover_nodes(number + 1)
        self.assumed.cover_nodes(number + 1)
        return number

    def take_class(self, entry: PodClass) -> int:
        """Return the number of a class, with one user more."""
        number = self.classes.take(entry)
        if self.classes.users(number) == 1:
            self.widen(name for name, _ in entry.requests)
            self.class_columns.fill(number, entry, self.resources)
        return number

    def widen(self, names: Iterable[str]) -> None:
        """Give each new resource name a column."""
        new = sorted({name for name in names if name not in self.resources})
        if not new:
            return
        for name in new:
            self.resources[name] = len(self.resources)
        width = len(self.resources)
        self.allocatable = _wider(self.allocatable, width)
        self.class_columns.requests = _wider(self.class_columns.requests, width)
        self.placed.used = _wider(self.placed.used, width)
        self.assumed.used = _wider(self.assumed.used, width)


def _wider(amounts: I64, width: int) -> I64:
    wider = np.zeros((len(amounts), width), np.int64)
    wider[:, : amounts.shape[1]] = amounts
    return wider

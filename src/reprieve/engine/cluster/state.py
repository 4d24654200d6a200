"""What the cluster holds: rows, the numbers given to what they name, and the columns.

Every name of a node that a node or a pod mentions has a number, so that a pod counts on its node
before the node is known; likewise for groups. Classes, labels, groups and node names are numbered
as long as they are in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
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
    PodLabels,
    PodRow,
)
from reprieve.engine.cluster.snapshot import Pending
from reprieve.units.ids import Uid

__all__ = ["NOWHERE", "Held", "HeldPod", "State"]

NOWHERE: Final = 0  # the node number of free slots
_FIRST: Final = (PODS, CPU, MEMORY, STORAGE)
#: Resources that only pods name which have a column: a tenant invents as many as he likes, and each
#: costs a number for every node and every pod. A pod that requests one without fits nowhere.
_MOST_UNOFFERED: Final = 32


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
    # Of tables that a snapshot has: what changed since, in the order of the table; True: it was
    # added or removed meanwhile.
    touched: dict[Kind, dict[tuple[str, str], bool]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=lambda: {"nodes", "pending", "groups", *Kind})

    resources: dict[str, int] = field(
        default_factory=lambda: {name: column for column, name in enumerate(_FIRST)}
    )
    unoffered: int = 0  # columns that were made for what only pods name
    classes: Numbers[PodClass] = field(default_factory=lambda: Numbers(1, kept=True))
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

    def acquire_node(self, name: str) -> int:
        """Return the number of a node, known or not, with one user more."""
        number = self.nodes.acquire(name)
        if number >= len(self.allocatable):
            self.allocatable = grown(self.allocatable, number + 1)
            for pods in (self.placed, self.assumed):
                pods.cover_nodes(len(self.allocatable))
        return number

    def acquire_class(self, entry: PodClass) -> int:
        """Return the number of a class, with one user more."""
        number = self.classes.acquire(entry)
        if self.classes.users(number) == 1:
            self._mention(name for name, _ in entry.requests)
            self.class_columns.fill(number, entry, self.resources)
        return number

    def has_placed(self, group: str) -> bool:
        """Return whether pods of the group of a key have nodes."""
        number = self.groups.numbers.get(group)
        if number is None:
            return False
        return any(
            bool((columns.group[: columns.size] == number).any())
            for columns in (self.placed, self.assumed)
        )

    def widen(self, names: Iterable[str]) -> None:
        """Give each new resource name that nodes offer, or device classes stand for, a column."""
        new = self._new(names)
        self._add(new)
        if new and self.unoffered >= _MOST_UNOFFERED:
            # Pods may have named it for a while.
            self._count(new)

    def _mention(self, names: Iterable[str]) -> None:
        """Give new resource names that pods request a column, as long as there are few."""
        if self.unoffered < _MOST_UNOFFERED:
            new = self._new(names)[: _MOST_UNOFFERED - self.unoffered]
            self.unoffered += len(new)
            self._add(new)

    def _new(self, names: Iterable[str]) -> list[str]:
        return sorted({name for name in names if name not in self.resources})

    def _add(self, names: list[str]) -> None:
        if not names:
            return
        for name in names:
            self.resources[name] = len(self.resources)
        width = len(self.resources)
        self.allocatable = _wider(self.allocatable, width)
        self.class_columns.requests = _wider(self.class_columns.requests, width)
        self.placed.used = _wider(self.placed.used, width)
        self.assumed.used = _wider(self.assumed.used, width)

    def _count(self, names: list[str]) -> None:
        """Fill new columns with what the pods request."""
        columns = {name: self.resources[name] for name in names}
        for pods in (self.placed, self.assumed):
            pods.count(self.class_columns)
        huge = {
            number
            for number, entry in enumerate(self.classes.values)
            if entry is not None and self.class_columns.fill_in(number, entry, columns)
        }
        for pods in (self.placed, self.assumed):
            pods.count_in(list(columns.values()), huge, self.class_columns)


def _wider(amounts: I64, width: int) -> I64:
    wider = np.zeros((len(amounts), width), np.int64)
    wider[:, : amounts.shape[1]] = amounts
    return wider

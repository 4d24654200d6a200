"""One consistent state of the cluster: read-only columns and tables that decisions are made from.

Nodes are sorted by name, so that a tie between nodes selects the first by name. Pods are in slots:
a slot whose `pod_node` is negative is free, or its node is unknown, and it counts nowhere. What we
did and have not seen yet (assumed pods) is in slots of its own, flagged `ASSUMED`. Finished pods
are not here. Free capacity may be negative. Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, U8
from reprieve.engine.cluster.derived import Derived
from reprieve.engine.cluster.facts import LabelFacts, NodeFacts
from reprieve.engine.cluster.rows import (
    BudgetRow,
    GroupRow,
    Kind,
    NamespaceRow,
    NodeRow,
    PodClass,
    PodLabels,
    PodRow,
)
from reprieve.engine.cluster.trees import GroupTrees
from reprieve.engine.value import value
from reprieve.units.ids import Uid

__all__ = [
    "NO_START",
    "Flag",
    "Nomination",
    "Pending",
    "Snapshot",
]

NO_START: Final = np.iinfo(np.int64).max  # a pod without start time counts as started now


class Flag(IntFlag):
    """State of a placed pod."""

    DELETING = 1
    PREEMPTED = 2  # deleting, and the scheduler's own DisruptionTarget states why (7.2)
    ASSUMED = 4  # bound by us, not seen yet
    WITH_GROUP = 8  # evicted only with all pods of its group (`PodRow.disruption`)


@value
class Pending:
    """A pod that is to be placed, with the numbers of its class and labels."""

    row: PodRow
    pod_class: int
    labels: int


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pending pod with a node that is being kept for it."""

    uid: Uid
    namespace: str
    name: str
    node: int  # index
    priority: int  # the group's, for a member of one
    group: int  # index of the group key, -1 for a plain pod
    pod_class: int
    labels: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one revision; no array can be written to.

    `group_rows[g]` is None while the object of that key is missing; composite groups are among
    them. `tables` holds the rows of each `Kind` by (namespace, name), the namespace empty for
    cluster-wide kinds.
    """

    revision: int
    resources: tuple[str, ...]  # names of the columns; pods, cpu, memory, ephemeral-storage first

    nodes: tuple[NodeRow, ...]  # by name
    node_index: Mapping[str, int]
    allocatable: I64  # (nodes, resources)
    used: I64  # (nodes, resources), with assumed and deleting pods
    scored: I64  # (nodes, 2): cpu and memory in use as scores count them (17.2)

    pod_uids: Sequence[Uid]  # (slots,), empty text where free
    pod_keys: Sequence[str]  # (slots,) namespace/name
    pod_node: I32  # (slots,) index of the node, negative where the slot counts nowhere
    pod_priority: I64  # (slots,) the pods' own
    pod_group: I32  # (slots,) index into group_keys, -1 for plain pods
    pod_class: I32  # (slots,) index into classes
    pod_labels: I32  # (slots,) index into labels
    pod_requests: I64  # (slots, resources)
    pod_start: I64  # (slots,) Unix seconds, NO_START where unknown
    pod_checkpoint: I64  # (slots,) Unix seconds of the pod's last one, 0 where none was stated
    pod_flags: U8  # (slots,) Flag
    protections: Mapping[int, str]  # PriorityClass for the pod as a victim, by slot
    min_runtimes: Mapping[int, int]  # as pods state them, in seconds, by slot

    classes: tuple[PodClass | None, ...]  # None where the number is free
    labels: tuple[PodLabels | None, ...]
    group_keys: tuple[str, ...]  # namespace/name
    group_rows: tuple[GroupRow | None, ...]
    group_index: Mapping[str, int]
    trees: GroupTrees  # of `group_rows`
    pending: Mapping[Uid, Pending]  # pods without node that have not finished
    nominations: tuple[Nomination, ...]  # by namespace and name
    budgets: tuple[BudgetRow, ...]  # by namespace and name
    tables: Mapping[Kind, Mapping[tuple[str, str], Any]]
    node_facts: NodeFacts  # of `nodes`
    label_facts: LabelFacts  # of `labels`
    derived: Derived  # from `tables`

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace, none for one that is not there."""
        row: NamespaceRow | None = self.tables.get(Kind.NAMESPACE, {}).get(("", name))
        return {} if row is None else row.labels

    def effective_priority(self, groups: bool) -> I64:
        """Return the priority that victim decisions use, (slots,) (specification 4.3).

        `groups`: gate GenericWorkload. A pod of a known group has the group's.
        """
        if not groups or not self.group_rows:
            return self.pod_priority
        # Group -1 reads the last entry, that of no group.
        trees, own = self.trees, self.pod_group
        return np.where(trees.known[own], trees.own_priority[own], self.pod_priority)

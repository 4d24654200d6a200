"""What may help waiting pods: one event, and rejections of another name than a filter's.

Source: specification 21.4 and 22, table "Who is moved"; whom an event concerns: `queue_hints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.cluster.rows import Kind, NodeRow, PodRow

__all__ = ["DEFAULT_PREEMPTION", "GANG", "GATES", "Event", "Happening"]

GANG: Final = "GangScheduling"
GATES: Final = "SchedulingGates"
DEFAULT_PREEMPTION: Final = "DefaultPreemption"


class Happening(StrEnum):
    """What happened; the values are the `event` labels of the queue's metrics."""

    POD_DELETED = "AssignedPodDelete"
    POD_ADDED = "AssignedPodAdd"
    POD_LABELS = "AssignedPodUpdatePodLabel"
    POD_SCALED_DOWN = "AssignedPodUpdatePodScaleDown"
    PENDING_ADDED = "UnscheduledPodAdd"
    OWN_LABELS = "UnscheduledPodUpdatePodLabel"
    OWN_TOLERATIONS = "UnscheduledPodUpdatePodTolerations"
    OWN_GATES = "UnscheduledPodUpdatePodSchedulingGatesEliminated"
    OWN_REQUESTS = "UnscheduledPodUpdatePodScaleDown"
    OWN_CLAIM = "UnscheduledPodUpdatePodGeneratedResourceClaim"
    NODE_ADDED = "NodeAdd"
    NODE_LABELS = "NodeUpdateNodeLabel"
    NODE_TAINTS = "NodeUpdateNodeTaint"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_DELETED = "NodeDelete"
    GROUP_ADDED = "PodGroupAdd"
    GROUP_LOWERED = "PodGroupUpdate"
    OBJECT = "ObjectUpdate"
    CHANGED = "ClusterChanged"  # something that a decision reads, whatever it is; calls no hint


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `pod` and `node` are as they are now, or were last; `*_before` as they were.

    `group`: its key; `tree`: the pod groups of its tree, where it is in one. `kind`, `namespace`,
    `name`: the object of `OBJECT`. `freed`: a ResourceClaim that no work uses any more. `at_most`:
    only pods up to this priority are tested.
    """

    what: Happening
    pod: PodRow | None = None
    pod_before: PodRow | None = None
    node: NodeRow | None = None
    node_before: NodeRow | None = None
    group: str = ""
    tree: frozenset[str] = frozenset()
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""
    freed: bool = False
    at_most: int | None = None

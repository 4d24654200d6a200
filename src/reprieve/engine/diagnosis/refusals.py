"""What nodes have that keeps a pod away, or lack: a kind, the nodes, and the figures."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from enum import StrEnum

from reprieve.engine.placement.reasons import Reason

__all__ = ["BY_PODS", "GLOBAL", "NodeRefusal", "Refused", "marked_imposed"]


class Refused(StrEnum):
    """What keeps a pod from nodes."""

    CLAIM = "claim"
    RESOURCE = "resource"
    LABEL = "label"
    AFFINITY = "affinity"
    NODE_NAME = "node name"
    SIZE = "size"
    TAINT = "taint"
    NOT_READY = "not ready"
    CORDONED = "cordoned"
    PORT = "port"
    VOLUME = "volume"
    SPREAD_LABEL = "label of its topology spread"
    AFFINITY_LABEL = "label of its pod affinity"
    NO_PARTNER = "no pod to be near"
    TOGETHER = "together"
    OTHER = "other"


#: What depends on which pods are where, and on labels by which they are counted.
BY_PODS = frozenset(
    {Refused.SPREAD_LABEL, Refused.AFFINITY_LABEL, Refused.NO_PARTNER, Refused.TOGETHER}
)
#: What holds for a whole cluster where every node is refused by it.
GLOBAL = (Refused.CLAIM, Refused.RESOURCE, Refused.LABEL, Refused.AFFINITY, Refused.SIZE)


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Nodes that refuse a pod, and by what.

    Attributes:
        kind: what keeps it away.
        nodes: how many nodes it concerns, of `total`.
        total: all nodes.
        names: the first of them, by name.
        subject: the taint, label, claim, resource, port, volume with its terms, or rule.
        there: what nodes have instead: values of the label, other devices.
        asks: what the pod requests of a resource, in base units.
        most: what the largest of these nodes has of it, in base units.
        largest: the name of that node.
        room: how many of these nodes have capacity for the pod as they are.
        reason: the scheduler's own reason, where nothing better is known.
        imposed: whether another controller than its user's set what refuses it.
    """

    kind: Refused
    nodes: int
    total: int
    names: tuple[str, ...] = ()
    subject: str = ""
    there: tuple[str, ...] = ()
    asks: int = 0
    most: int = 0
    largest: str = ""
    room: int = 0
    reason: Reason | None = None
    imposed: bool = False

    @property
    def everywhere(self) -> bool:
        """Whether all nodes refuse the pod by it."""
        return self.nodes == self.total


def marked_imposed(
    refusals: tuple[NodeRefusal, ...], imposed: Container[str]
) -> tuple[NodeRefusal, ...]:
    """Return the refusals, with those marked that are by a label of these keys."""
    return tuple(
        replace(each, imposed=True)
        if each.kind is Refused.LABEL and each.subject.partition("=")[0] in imposed
        else each
        for each in refusals
    )

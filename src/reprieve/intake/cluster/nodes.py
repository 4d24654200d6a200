"""A node into its row."""

from __future__ import annotations

from typing import Final

from kubeworld.units.instants import instant_or_none
from kubeworld.units.quantities import InvalidQuantity
from reprieve.api.scheduling import NodeObject
from reprieve.engine.cluster.rows import NodeRow, Taint
from reprieve.intake.cluster.metadata import uid_of, version_of
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.intake.cluster.sharing import SharedNodes

__all__ = ["node_row"]

#: Taints of nodes that are not ready.
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def node_row(node: NodeObject, shared: SharedNodes | None = None) -> NodeRow:
    """Return the row of a node; an amount that cannot be read counts as not offered.

    `shared`: what nodes have in common, kept once.
    """
    shared = shared or SharedNodes()
    status = node.status
    allocatable: dict[str, int] = {}
    for name, quantity in (status.allocatable or {}).items():
        try:
            allocatable[name] = amount_in_base_units(name, quantity)
        except InvalidQuantity:
            continue
    ready, since = _readiness(node)
    return NodeRow(
        uid=uid_of(node.metadata),
        name=node.metadata.name,
        version=version_of(node.metadata),
        allocatable=shared.amounts(allocatable),
        labels=shared.labels(node.metadata.labels or {}),
        taints=tuple(
            Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()
        ),
        unschedulable=node.spec.unschedulable,
        images=shared.images(status.images or ()),
        features=frozenset(status.declared_features or ()),
        ready=ready,
        unready_since=since,
    )


def _readiness(node: NodeObject) -> tuple[bool, int | None]:
    """Return whether a node is ready, and since when it is not, None where that is not known.

    Nodes without reported conditions, as those that were written by hand, are judged by their
    taints.
    """
    conditions = node.status.conditions
    if not conditions:
        ready = all(taint.key not in _NOT_READY for taint in node.spec.taints or ())
        return ready, None if ready else 0
    for each in conditions:
        if each.type == "Ready":
            if each.status == "True":
                return True, None
            return False, instant_or_none(each.last_transition_time) or 0
    return False, None

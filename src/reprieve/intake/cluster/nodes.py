"""A node into its row."""

from __future__ import annotations

from kubeworld.units.quantities import InvalidQuantity
from reprieve.api.scheduling import NodeObject
from reprieve.engine.cluster.rows import NodeRow, Taint
from reprieve.intake.cluster.metadata import uid_of, version_of
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.intake.cluster.sharing import SharedNodes

__all__ = ["node_row"]


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
    )

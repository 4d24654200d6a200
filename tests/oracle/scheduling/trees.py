"""Whole trees of composite groups, placed by brute force (sections 5.5 and 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.oracle.scheduling import objects, placement, units
from tests.oracle.scheduling.objects import Cluster, Object, key_of
from tests.oracle.scheduling.placement import UNSCHEDULABLE, Attempt


def status_key(group: Object, cluster: Cluster) -> str:
    return (
        f"compositepodgroup:{key_of(group)}" if units.composite(group, cluster) else key_of(group)
    )


def in_order(root: Object, members: list[Object], cluster: Cluster) -> list[Object]:
    """The waiting pods of the tree, group after group."""
    return [
        member
        for leaf in units.leaves_of(root, cluster)
        for member in members
        if units.group_of(member, cluster) is leaf
    ]


def quorum(group: Object, members: list[Object], cluster: Cluster) -> bool:
    """Whether enough pods are known of enough groups."""
    if units.composite(group, cluster):
        children = units.children_of(group, cluster)
        known = sum(quorum(child, members, cluster) for child in children)
    else:
        known = len(units.members_placed(group, cluster)) + len(in_order(group, members, cluster))
    return known >= placement.min_count(group)


def place_tree(
    root: Object,
    members: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
    inside: list[Object] | None = None,
) -> Attempt:
    """The placement of the whole tree, with the status of each of its groups."""
    found = _place(root, members, cluster, cluster.nodes if inside is None else inside, imposed)
    if found.code == "Success" and not found.placed:
        found = replace(found, code="Unschedulable", text=UNSCHEDULABLE)
    tried = {**found.statuses, status_key(root, cluster): "" if _fits(found) else found.text}
    return replace(found, statuses=_inherited(root, tried, "", cluster))


def _fits(found: Attempt) -> bool:
    return found.code == "Success"


def _place(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    inside: list[Object],
    imposed: Mapping[str, str] | None,
) -> Attempt:
    own = in_order(group, members, cluster)
    run = _children if units.composite(group, cluster) else _leaf
    return placement.over_placements(
        group, cluster, inside, imposed, lambda nodes, where: run(group, own, cluster, nodes, where)
    )


def _leaf(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    nodes: list[Object],
    imposed: Mapping[str, str] | None,
) -> Attempt:
    return placement.place_members(group, members, cluster, nodes, imposed, part=True)


def _children(
    group: Object,
    members: list[Object],
    cluster: Cluster,
    nodes: list[Object],
    imposed: Mapping[str, str] | None,
) -> Attempt:
    needed, children = placement.min_count(group), units.children_of(group, cluster)
    scheduled, remaining = 0, len(children)
    placed: list[tuple[Object, str]] = []
    failures: dict[str, str] = {}
    skipped: dict[str, set[str]] = {}
    statuses: dict[str, str] = {}
    for child in [None, *children]:
        if child is not None:
            found = _place(child, members, cluster, nodes, imposed)
            if found.code == "Error":
                text = f"composite pod group evaluation failed due to child error: {found.text}"
                return Attempt("Error", text)
            remaining -= 1
            failures |= found.failures
            skipped |= found.skipped
            statuses |= found.statuses
            statuses[status_key(child, cluster)] = "" if _fits(found) else found.text
            if _fits(found):
                scheduled += 1
                placed += found.placed
                cluster = cluster.adding(objects.assumed(pod, node) for pod, node in found.placed)
        if scheduled + remaining < needed:
            text = (
                f"minCount ({needed}) cannot be satisfied: "
                f"{scheduled} scheduled, {remaining} remaining"
            )
            return Attempt("Unschedulable", text, tuple(placed), failures, skipped, statuses)
    return Attempt("Success", "", tuple(placed), failures, skipped, statuses)


def _inherited(
    group: Object, tried: Mapping[str, str], above: str, cluster: Cluster
) -> dict[str, str]:
    """A group that was not tried, or fits in one that does not, has the status of that one."""
    key = status_key(group, cluster)
    own = tried.get(key, "") or above
    found = {key: own}
    if units.composite(group, cluster):
        for child in units.children_of(group, cluster):
            found |= _inherited(child, tried, own, cluster)
    return found

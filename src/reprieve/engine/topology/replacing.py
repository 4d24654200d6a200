"""Where the pods of a failed node go, while those of the other nodes stay.

The failed node's domain is taken out of the assignment and its pods are placed like others, inside
the domain that the request binds them to; the workload's own usage, that of the failed node
included, still counts. Nobody is preempted for it.

Source: specification of topology-aware scheduling, section 7.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.topology.assign import Placing, merged, place, without
from reprieve.engine.topology.counts import Slicing
from reprieve.engine.topology.model import Outcome, PodsWanted, TopologyAssignment
from reprieve.engine.topology.requests import Meant, TopologyRequestError, meaning
from reprieve.engine.topology.tree import Marks, Tree, Usage

__all__ = ["replace_node"]


def replace_node(
    on: Placing,
    wanted: Sequence[PodsWanted],
    admitted: Mapping[str, TopologyAssignment | None],
    node: str,
    owned_by_pod: bool = False,
) -> dict[str, Outcome]:
    """Return what each pod set with pods on a failed node gets instead.

    Args:
        on: what is placed on; its usage has that of the workload.
        wanted: its pod sets.
        admitted: what each of them has.
        node: the host name of the failed node.
        owned_by_pod: whether one plain pod is all that the workload is; it cannot be made anew.
    """
    assumed = Usage(on.tree)
    found: dict[str, Outcome] = {}
    for each in wanted:
        present = admitted.get(each.name)
        if present is None or all(domain.values != (node,) for domain in present.domains):
            continue
        if owned_by_pod and on.gates.skip_pod_owned:
            found[each.name] = Outcome(present)
            continue
        outcome = _replaced(on, each, present, (node,), assumed)
        found[each.name] = outcome
        if outcome.assignment is None:
            break
        new = without(outcome.assignment, (node,))
        assumed.add(_added(present, new), each.requests)
    return found


def _replaced(
    on: Placing,
    wanted: PodsWanted,
    present: TopologyAssignment,
    failed: tuple[str, ...],
    assumed: Usage,
) -> Outcome:
    tree = on.tree
    rest = without(present, failed)
    for domain in rest.domains:
        if domain.values not in tree.index:
            return Outcome(
                None,
                "Cannot replace the node, because the existing topologyAssignment is invalid, as "
                f"it contains the stale domain {','.join(domain.values)}",
            )
    missing = sum(each.count for each in present.domains if each.values == failed)
    try:
        meant = meaning(wanted, tree.levels)
    except TopologyRequestError as fault:
        return Outcome(None, str(fault))
    bound = _bound(tree, meant, rest, missing)
    inside = None if bound is None else _leaves_of(tree, bound)
    if inside is not None:
        meant = _finer(meant, missing, len(tree.levels) - 1)
    outcome = place(on, replace(wanted, count=missing), None, assumed, inside, meant)[wanted.name]
    if outcome.assignment is None:
        return outcome
    return Outcome(merged(tree, rest, outcome.assignment))


@dataclass(frozen=True, slots=True)
class _Bound:
    """A domain that the replacement may not leave."""

    level: int
    domain: int


def _bound(tree: Tree, meant: Meant, rest: TopologyAssignment, missing: int) -> _Bound | None:
    """Return the domain that has to have the missing pods, None where any may."""
    if not rest.domains:
        return None
    leaves = [(tree.index[each.values], each.count) for each in rest.domains]
    slicing = meant.slicing
    if missing % slicing.size:
        level, size = slicing.level, slicing.size
        for inner_level, inner_size in _layers(slicing):
            if missing % inner_size:
                level, size = inner_level, inner_size
        there: dict[int, int] = {}
        for leaf, count in leaves:
            domain = tree.ancestor(leaf, level)
            there[domain] = there.get(domain, 0) + count
        for domain, count in there.items():
            if (count + missing) % size == 0:
                return _Bound(level, domain)
    if meant.required:
        return _Bound(meant.level, tree.ancestor(leaves[0][0], meant.level))
    return None


def _layers(slicing: Slicing) -> list[tuple[int, int]]:
    """Return the inner layers as (lowest level, size), from the coarsest to the finest."""
    lowest: dict[int, int] = {}
    for level in sorted(slicing.inner):
        lowest[slicing.inner[level]] = level
    return sorted(((level, size) for size, level in lowest.items()))


def _finer(meant: Meant, missing: int, lowest: int) -> Meant:
    """Return the request with the slices of the innermost layer that divides the missing pods."""
    slicing = meant.slicing
    if missing % slicing.size == 0:
        return meant
    level, size = lowest, 1
    for inner_level, inner_size in _layers(slicing):
        if missing % inner_size == 0:
            level, size = inner_level, inner_size
    return replace(meant, slicing=Slicing(level, size, {}), layers=())


def _leaves_of(tree: Tree, bound: _Bound) -> Marks:
    begin, end = bound.domain, bound.domain + 1
    for level in range(bound.level, len(tree.levels) - 1):
        begin, end = int(tree.starts[level][begin]), int(tree.starts[level][end])
    found = np.zeros(len(tree.paths), dtype=np.bool_)
    found[begin:end] = True
    return found


def _added(present: TopologyAssignment, new: TopologyAssignment) -> TopologyAssignment:
    """Return what is new of an assignment."""
    had = {each.values: each.count for each in present.domains}
    more = [
        replace(each, count=each.count - had.get(each.values, 0))
        for each in new.domains
        if each.count > had.get(each.values, 0)
    ]
    return TopologyAssignment(new.levels, tuple(more))

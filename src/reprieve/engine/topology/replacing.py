"""Where the pods of a failed node are placed, while those of the other nodes stay.

The failed node's domain is removed from the assignment and its pods are placed like others, inside
the domain that the request binds them to; the workload's own usage, that of the failed node
included, still counts. No work is preempted for it. A failed node that has a taint which its pods
tolerate for some seconds only could be chosen again, and gets none.

Several failed nodes are replaced at once: first every slice that lost pods is filled up in its own
domain, from the finest layer to the coarsest, and then the slices that are lost as a whole are
placed like new ones.

Source: specification of topology-aware scheduling, sections 7.2 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.topology.assign import Placing, merged, place, without
from reprieve.engine.topology.counts import Slicing
from reprieve.engine.topology.leaves import first_untolerated
from reprieve.engine.topology.model import Outcome, PodsWanted, TopologyAssignment
from reprieve.engine.topology.requests import Meant, TopologyRequestError, meaning
from reprieve.engine.topology.tree import Marks, Tree, Usage

__all__ = ["replace_node", "replace_nodes"]


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


def replace_nodes(
    on: Placing,
    wanted: Sequence[PodsWanted],
    admitted: Mapping[str, TopologyAssignment | None],
    nodes: Sequence[str],
) -> dict[str, Outcome]:
    """Return what each pod set with pods on failed nodes gets instead, all of them replaced.

    The arguments are those of `replace_node`.
    """
    assumed = Usage(on.tree)
    failed: set[tuple[str, ...]] = {(node,) for node in nodes}
    found: dict[str, Outcome] = {}
    for each in wanted:
        present = admitted.get(each.name)
        if present is None or all(domain.values not in failed for domain in present.domains):
            continue
        outcome = _all_replaced(on, each, present, failed, assumed)
        found[each.name] = outcome
        if outcome.assignment is None:
            break
        assumed.add(_added(present, outcome.assignment), each.requests)
    return found


def _all_replaced(
    on: Placing,
    wanted: PodsWanted,
    present: TopologyAssignment,
    failed: set[tuple[str, ...]],
    assumed: Usage,
) -> Outcome:
    tree, rest = on.tree, present
    for values in failed:
        rest = without(rest, values)
    stale = _stale(tree, rest)
    if stale is not None:
        return stale
    missing = present.pods - rest.pods
    try:
        meant = meaning(wanted, tree.levels)
    except TopologyRequestError as fault:
        return Outcome(None, str(fault))
    within = None
    if meant.required and rest.domains:
        first = tree.index[rest.domains[0].values]
        within = _leaves_of(tree, _Bound(meant.level, tree.ancestor(first, meant.level)))
    usable = _but(tree, failed)
    theirs = assumed.copy()
    layers = [(meant.slicing.level, meant.slicing.size), *_layers(meant.slicing)]
    for position in reversed(range(len(layers))):
        finer = _filling(meant, layers, position, len(tree.levels) - 1)
        for domain, lacking in _incomplete(tree, rest, *layers[position]):
            inside = usable & _leaves_of(tree, _Bound(layers[position][0], domain))
            asked = replace(wanted, count=min(lacking, missing))
            more = place(on, asked, None, theirs, inside, finer)[wanted.name]
            if more.assignment is None:
                return more
            rest, missing = merged(tree, rest, more.assignment), missing - asked.count
            theirs.add(more.assignment, wanted.requests)
    if missing:
        inside = usable if within is None else usable & within
        asked = replace(wanted, count=missing)
        last = _finer(meant, missing, len(tree.levels) - 1)
        more = place(on, asked, None, theirs, inside, last)[wanted.name]
        if more.assignment is None:
            return more
        rest = merged(tree, rest, more.assignment)
    if rest.pods != present.pods:
        return Outcome(None, "the slices of the failed nodes cannot be made whole")
    return Outcome(rest)


def _filling(meant: Meant, layers: Sequence[tuple[int, int]], position: int, lowest: int) -> Meant:
    """Return the request for what a domain of one layer lacks: in one, in slices of the finer."""
    finer = layers[position + 1 :]
    slicing = Slicing(lowest, 1, {})
    if finer:
        inner = {at: size for at, size in meant.slicing.inner.items() if at > finer[0][0]}
        slicing = Slicing(*finer[0], inner)
    return Meant(layers[position][0], True, False, False, slicing)


def _incomplete(
    tree: Tree, rest: TopologyAssignment, level: int, size: int
) -> list[tuple[int, int]]:
    """Return the domains of a level with a part of a slice, and how many pods it lacks."""
    there: dict[int, int] = {}
    for each in rest.domains:
        domain = tree.ancestor(tree.index[each.values], level)
        there[domain] = there.get(domain, 0) + each.count
    return [(domain, -count % size) for domain, count in sorted(there.items()) if count % size]


def _but(tree: Tree, failed: set[tuple[str, ...]]) -> Marks:
    """Return all leaves but those of the failed nodes, which may still be ready."""
    found = np.ones(len(tree.paths), dtype=np.bool_)
    for values in failed:
        leaf = tree.index.get(values)
        if leaf is not None:
            found[leaf] = False
    return found


def _stale(tree: Tree, rest: TopologyAssignment) -> Outcome | None:
    """Return the refusal where a domain that stays is none of the tree any more."""
    for domain in rest.domains:
        if domain.values not in tree.index:
            return Outcome(
                None,
                "Cannot replace the node, because the existing topologyAssignment is invalid, as "
                f"it contains the stale domain {','.join(domain.values)}",
            )
    return None


def _replaced(
    on: Placing,
    wanted: PodsWanted,
    present: TopologyAssignment,
    failed: tuple[str, ...],
    assumed: Usage,
) -> Outcome:
    tree = on.tree
    rest = without(present, failed)
    stale = _stale(tree, rest)
    if stale is not None:
        return stale
    missing = sum(each.count for each in present.domains if each.values == failed)
    try:
        meant = meaning(wanted, tree.levels)
    except TopologyRequestError as fault:
        return Outcome(None, str(fault))
    bound = _bound(tree, meant, rest, missing)
    inside = None if bound is None else _leaves_of(tree, bound)
    bound_by_size = inside is not None
    if _tolerated_for_a_while(on, wanted, failed):
        others = _but(tree, {failed})
        inside = others if inside is None else inside & others
    if bound_by_size or missing % meant.slicing.size:
        # A leader is one pod whatever the size of a slice is.
        meant = _finer(meant, missing, len(tree.levels) - 1)
    outcome = place(on, replace(wanted, count=missing), None, assumed, inside, meant)[wanted.name]
    if outcome.assignment is None:
        return outcome
    return Outcome(merged(tree, rest, outcome.assignment))


def _tolerated_for_a_while(on: Placing, wanted: PodsWanted, failed: tuple[str, ...]) -> bool:
    leaf = on.tree.index.get(failed)
    if leaf is None:
        return False
    lasting = [each for each in (*wanted.tolerations, *on.tolerations) if each.lasting]
    return first_untolerated(on.tree.first[leaf].taints, lasting) is not None


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
    begin, end = tree.span(bound.level, bound.domain)
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

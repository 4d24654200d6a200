"""Which leaves may have pods of a pod set, how many, and what keeps the others out.

With host names as leaves a node counts for the first of these that excludes it: an untolerated
taint, the node selector, the node affinity, a domain that a replacement may not leave, a resource
of which it has not enough for one pod. Other leaves stand for several nodes, and only the last two
are looked at.

Source: specification of topology-aware scheduling, sections 2.5 and 2.6.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from reprieve.engine.quota.assigning.constraints import NodeExpression, Taint, Toleration
from reprieve.engine.selectors import requirement_holds
from reprieve.engine.topology.model import PodsWanted, PreferredTerm
from reprieve.engine.topology.tree import Ints, Marks, Tree, Usage

__all__ = ["Leaves", "Pods", "first_untolerated", "look_at"]

#: No leaf counts for more pods than this.
_MOST_PODS: Final = 2**31 - 1

#: Effects of taints that keep pods away.
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Pods:
    """What is requested: workers that share `shape`'s constraints, and perhaps one leader.

    `worker` and `leader` are requests of one pod with the pod itself.
    """

    shape: PodsWanted
    worker: Mapping[str, int]
    leader: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaves for one request, each (leaves,) int64.

    `pods` fit without the leader, `beside` with it on the same leaf; `leader` is 1 where the leader
    fits. `affinity` is the weight of the preferred terms that hold. `constrained` counts leaves by
    what the nodes' rules keep out, `limits` those that a resource does: only messages need them.
    """

    pods: Ints
    beside: Ints
    leader: Ints
    affinity: Ints
    constrained: Mapping[str, int]
    limits: Callable[[], Mapping[str, int]]

    @property
    def excluded(self) -> Mapping[str, int]:
        """Count the leaves by what keeps them out, in the words of the message."""
        return {**self.constrained, **self.limits()}


def look_at(
    tree: Tree,
    pods: Pods,
    usage: Sequence[Usage],
    flavor_tolerations: Sequence[Toleration] = (),
    inside: Marks | None = None,
    affinity: bool = False,
) -> Leaves:
    """Count the pods that each leaf can have.

    Args:
        tree: the leaves and what is free of them.
        pods: what is requested.
        usage: what others use of it, all of it.
        flavor_tolerations: of the flavor, beside those of the pods.
        inside: the leaves of the domain that a replacement may not leave; None is all.
        affinity: whether preferred terms are weighed.
    """
    excluded: dict[str, int] = {}
    allowed = _allowed(tree, pods, flavor_tolerations, inside, excluded)
    left = _left(tree, {*pods.worker, *(pods.leader or ())}, usage)
    fit = _how_many(pods.worker, left)
    limits = partial(_limits, pods.worker, left, fit, allowed)
    if allowed is not None:
        fit = np.where(allowed, fit, 0)
    none = tree.none
    leader, beside = none, fit
    if pods.leader is not None:
        leader = np.minimum(_how_many(pods.leader, left), 1)
        without = {r: left[r] - leader * pods.leader.get(r, 0) for r in pods.worker}
        beside = _how_many(pods.worker, without)
        if allowed is not None:
            leader, beside = np.where(allowed, leader, 0), np.where(allowed, beside, 0)
    weights = none
    if affinity and tree.by_host:
        for term in pods.shape.preferred:
            holds = _holds(tree, term) if allowed is None else allowed & _holds(tree, term)
            weights = weights + np.where(holds, term.weight, 0)
    return Leaves(fit, beside, leader, weights, excluded, limits)


def _allowed(
    tree: Tree,
    pods: Pods,
    flavor_tolerations: Sequence[Toleration],
    inside: Marks | None,
    excluded: dict[str, int],
) -> Marks | None:
    """Return the leaves that only their capacity keeps pods from, None where those are all."""
    shape = pods.shape
    untainted = all(not taints for taints in tree.taints)
    constrained = tree.by_host and (
        not untainted or shape.node_selector or shape.affinity is not None
    )
    if inside is None and not constrained:
        return None
    allowed = np.ones(len(tree.paths), dtype=np.bool_)
    if tree.by_host:
        _leave_out_tainted(tree, (*shape.tolerations, *flavor_tolerations), allowed, excluded)
        for key, value in shape.node_selector.items():
            _leave_out(
                allowed, tree.having(key, partial(operator.eq, value)), "nodeSelector", excluded
            )
        if shape.affinity is not None:
            _leave_out(allowed, _any_term(tree, shape.affinity), "affinity", excluded)
    if inside is not None:
        _leave_out(allowed, inside, "topologyDomain", excluded)
    return allowed


def _left(tree: Tree, resources: set[str], usage: Sequence[Usage]) -> dict[str, Ints]:
    found = {}
    for resource in resources:
        column = tree.free.get(resource)
        if column is None:
            column = np.zeros(len(tree.paths), dtype=np.int64)
        for each in usage:
            used = each.of.get(resource)
            if used is not None:
                column = column - used
        found[resource] = column
    return found


def _how_many(request: Mapping[str, int], left: Mapping[str, Ints]) -> Ints:
    """Return how many such pods fit each leaf."""
    fit: Ints | None = None
    for name, amount in request.items():
        if amount > 0:
            counts = left[name] // amount if amount > 1 else left[name]
            fit = counts if fit is None else np.minimum(fit, counts)
    assert fit is not None, "a pod requests itself at least"
    return np.minimum(np.maximum(fit, 0), _MOST_PODS)


def _limits(
    request: Mapping[str, int], left: Mapping[str, Ints], fit: Ints, allowed: Marks | None
) -> dict[str, int]:
    """Count the leaves that no pod fits by the first of the sorted resources of the least count."""
    out = (fit == 0 if allowed is None else allowed & (fit == 0)).nonzero()[0]
    if not len(out):
        return {}
    names = [name for name in sorted(request) if request[name] > 0]
    which = np.zeros(len(out), dtype=np.int64)
    if len(names) > 1:
        counts = np.stack([left[name][out] // request[name] for name in names])
        which = np.maximum(counts, 0).argmin(axis=0)
    counted = enumerate(np.bincount(which, minlength=len(names)).tolist())
    return {f'resource "{names[position]}"': times for position, times in counted if times}


def _leave_out(allowed: Marks, holds: Marks, word: str, excluded: dict[str, int]) -> None:
    out = int(np.count_nonzero(allowed & ~holds))
    if out:
        excluded[word] = excluded.get(word, 0) + out
        allowed &= holds


def _leave_out_tainted(
    tree: Tree, tolerations: Sequence[Toleration], allowed: Marks, excluded: dict[str, int]
) -> None:
    for taints, leaves in tree.taints.items():
        taint = first_untolerated(taints, tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            word = f'taint "{taint.key}{value}:{taint.effect}"'
            excluded[word] = excluded.get(word, 0) + len(leaves)
            allowed[leaves] = False


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps pods away, None where they tolerate all that do."""
    for taint in taints:
        if taint.effect in _KEEPS_AWAY and not any(e.tolerates(taint) for e in tolerations):
            return taint
    return None


def _any_term(tree: Tree, terms: Sequence[Sequence[NodeExpression]]) -> Marks:
    found = np.zeros(len(tree.paths), dtype=np.bool_)
    for term in terms:
        if term:
            found |= _all_of(tree, term)
    return found


def _holds(tree: Tree, term: PreferredTerm) -> Marks:
    if not term.expressions:
        return np.zeros(len(tree.paths), dtype=np.bool_)
    return _all_of(tree, term.expressions)


def _all_of(tree: Tree, expressions: Sequence[NodeExpression]) -> Marks:
    found = np.ones(len(tree.paths), dtype=np.bool_)
    for each in expressions:
        found &= tree.having(each.key, partial(requirement_holds, each.operator, each.values))
    return found

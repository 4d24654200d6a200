"""NodeResourcesFit and NodeResourcesBalancedAllocation (specification 17.2).

For NodeResourcesFit a container without a request counts 100m cpu and 200 MiB of memory (the view's
column `scored` and the class's `scored_cpu`, `scored_memory`); all other amounts are the true
requests. A resource that a node does not offer is left out there, and an extended one that the pod
does not request is left out everywhere. NodeResourcesBalancedAllocation computes in 64-bit floats,
in the order of the resources, as the real plugin does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import CPU, MEMORY, STORAGE, PodClass
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Score, View
from reprieve.engine.placement.profile import ScoreName, ScoringStrategy, ScoringType
from reprieve.engine.placement.scores.kinds import NodeScore
from reprieve.engine.placement.scores.shape import shape_scores

__all__ = [
    "ResourceColumn",
    "compile_balanced_allocation",
    "compile_fit",
    "most_allocated",
    "resource_columns",
    "scored_requests",
]

_NATIVE: Final = (CPU, MEMORY, STORAGE)
_SCORED: Final = {CPU: 0, MEMORY: 1}

Amounts: TypeAlias = Iterable[tuple[int, int, int]]  # allocatable, requested, weight


@dataclass(frozen=True, slots=True)
class ResourceColumn:
    """One resource on all nodes; `used` is the view's own column and follows it."""

    allocatable: I64
    used: I64
    own: int
    weight: int

    def at(self, node: int) -> tuple[int, int, int]:
        used = self.used.item(node)
        return self.allocatable.item(node), used + self.own, self.weight


def compile_fit(view: View, pending: Pending) -> Score:
    """Return NodeResourcesFit's score under the profile's scoring strategy."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    own = scored_requests(entry)
    strategy = view.profile.strategy
    columns = resource_columns(view, own, strategy.resources, scored=True)
    all_nodes, one_node = _strategy(strategy)
    return NodeScore(
        ScoreName.NODE_RESOURCES_FIT,
        lambda: all_nodes(columns, len(view.snapshot.nodes)),
        lambda node: one_node(column.at(node) for column in columns),
    )


def compile_balanced_allocation(view: View, pending: Pending) -> Score | None:
    """Return NodeResourcesBalancedAllocation's score; None for a pod that requests none of them."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    own = dict(entry.requests)
    resources = tuple((name, 1) for name in view.profile.balanced_resources)
    if not any(own.get(name) for name, _ in resources):
        return None
    columns = resource_columns(view, own, resources, scored=False)

    def everywhere() -> I64:
        count = len(view.snapshot.nodes)
        gain = _balance(columns, count, with_own=True) - _balance(columns, count, with_own=False)
        return 50 + (50 + gain) // 2

    def at(node: int) -> int:
        amounts = [column.at(node) for column in columns]
        before = [(a, q - column.own) for (a, q, _), column in zip(amounts, columns, strict=True)]
        gain = _balance_at((a, q) for a, q, _ in amounts) - _balance_at(before)
        return 50 + (50 + gain) // 2

    return NodeScore(ScoreName.BALANCED_ALLOCATION, everywhere, at)


def scored_requests(entry: PodClass) -> dict[str, int]:
    """Return what a pod to be placed requests as NodeResourcesFit counts it."""
    cpu, memory = entry.scored_incoming or (entry.scored_cpu, entry.scored_memory)
    return {**dict(entry.requests), CPU: cpu, MEMORY: memory}


def most_allocated(amounts: Amounts) -> int:
    """Return `min(q, a) * 100 / a`, the weighted mean over resources that are offered."""
    score = weights = 0
    for allocatable, requested, weight in amounts:
        if allocatable > 0:
            score += weight * (min(requested, allocatable) * 100 // allocatable)
            weights += weight
    return score // weights if weights else 0


def resource_columns(
    view: View, own: dict[str, int], resources: tuple[tuple[str, int], ...], *, scored: bool
) -> tuple[ResourceColumn, ...]:
    """Return the resources that count, with what the pod (or pods) adds and each one's weight.

    `scored`: cpu and memory in use as NodeResourcesFit counts them.
    """
    columns = []
    names = view.snapshot.resources
    for name, weight in resources:
        amount = own.get(name, 0)
        if name not in names or (name not in _NATIVE and not amount):
            continue
        at = names.index(name)
        used = view.scored[:, _SCORED[name]] if scored and name in _SCORED else view.used[:, at]
        columns.append(ResourceColumn(view.snapshot.allocatable[:, at], used, amount, weight))
    return tuple(columns)


Everywhere: TypeAlias = Callable[[tuple[ResourceColumn, ...], int], I64]


def _strategy(strategy: ScoringStrategy) -> tuple[Everywhere, Callable[[Amounts], int]]:
    if strategy.type is ScoringType.LEAST_ALLOCATED:
        return _least_everywhere, _least_allocated
    if strategy.type is ScoringType.MOST_ALLOCATED:
        return _most_everywhere, most_allocated
    scores = shape_scores(strategy.shape)
    listed: list[int] = scores.tolist()
    return (
        lambda columns, count: _ratio_everywhere(columns, count, scores),
        lambda amounts: _ratio(amounts, listed),
    )


def _least_allocated(amounts: Amounts) -> int:
    score = weights = 0
    for allocatable, requested, weight in amounts:
        if allocatable > 0:
            score += weight * (max(allocatable - requested, 0) * 100 // allocatable)
            weights += weight
    return score // weights if weights else 0


def _least_everywhere(columns: tuple[ResourceColumn, ...], count: int) -> I64:
    return _mean(
        columns,
        count,
        lambda c: np.maximum(c.allocatable - c.used - c.own, 0) * 100 // _divisor(c.allocatable),
    )


def _most_everywhere(columns: tuple[ResourceColumn, ...], count: int) -> I64:
    return _mean(
        columns,
        count,
        lambda c: np.minimum(c.used + c.own, c.allocatable) * 100 // _divisor(c.allocatable),
    )


def _mean(
    columns: tuple[ResourceColumn, ...], count: int, score: Callable[[ResourceColumn], I64]
) -> I64:
    total = np.zeros(count, np.int64)
    weights = np.zeros(count, np.int64)
    for column in columns:
        offered = column.allocatable > 0
        total += np.where(offered, column.weight * score(column), 0)
        weights += column.weight * offered
    return total // _divisor(weights)


def _ratio(amounts: Amounts, scores: list[int]) -> int:
    total = weights = 0
    for allocatable, requested, weight in amounts:
        if allocatable > 0:
            score = scores[min(requested * 100 // allocatable, 100)]
            if score > 0:
                total += weight * score
                weights += weight
    return (2 * total + weights) // (2 * weights) if weights else 0


def _ratio_everywhere(columns: tuple[ResourceColumn, ...], count: int, scores: I64) -> I64:
    total = np.zeros(count, np.int64)
    weights = np.zeros(count, np.int64)
    for column in columns:
        utilization = (column.used + column.own) * 100 // _divisor(column.allocatable)
        score = np.where(column.allocatable > 0, scores[np.minimum(utilization, 100)], 0)
        total += column.weight * score
        weights += column.weight * (score > 0)
    return (2 * total + weights) // _divisor(2 * weights)


def _divisor(amounts: I64) -> I64:
    return np.maximum(amounts, 1)


def _balance(columns: tuple[ResourceColumn, ...], count: int, *, with_own: bool) -> I64:
    """Return floor((1 - std) * 100) over the used fractions of each node: (nodes,)."""
    fractions: list[NDArray[np.float64]] = []
    present = np.zeros(count, np.int64)
    total = np.zeros(count, np.float64)
    high = np.zeros(count, np.float64)
    low = np.ones(count, np.float64)
    for column in columns:
        used = column.used + column.own if with_own else column.used
        offered = column.allocatable > 0
        fraction = np.minimum(used / _divisor(column.allocatable), 1.0)
        fractions.append(np.where(offered, fraction, np.nan))
        present += offered
        total += np.where(offered, fraction, 0.0)
        high = np.where(offered, np.maximum(high, fraction), high)
        low = np.where(offered, np.minimum(low, fraction), low)
    deviation = np.where(present == 2, (high - low) / 2, 0.0)
    if len(columns) > 2:
        mean = total / _divisor(present)
        squares = np.zeros(count, np.float64)
        for fraction in fractions:
            difference = fraction - mean
            squares += np.where(np.isnan(fraction), 0.0, difference * difference)
        deviation = np.where(present > 2, np.sqrt(squares / _divisor(present)), deviation)
    return ((1 - deviation) * 100).astype(np.int64)


def _balance_at(amounts: Iterable[tuple[int, int]]) -> int:
    fractions = [min(float(q) / float(a), 1.0) for a, q in amounts if a > 0]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    elif len(fractions) > 2:
        total = squares = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100)

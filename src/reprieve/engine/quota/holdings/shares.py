"""Dominant resource share: how much a node borrows of what its parent's tree can lend.

    borrowed[resource] = sum over flavors of max(0, usage - subtreeQuota)
    ratio = max over resources of borrowed * 1000.0 / lendable         (float64, in this order)
    share = 0 if ratio is 0, infinite if the weight is 0, else ratio / weight

Quantities are exact, shares are float64 with these operations in this order, because equal shares
by exact arithmetic are not always equal to the reference, and decisions follow from it. A root has
share 0. Two shares compare by `key`: of two that borrow with weight 0 by the ratio, one such is
larger than any other, all others by the weighted share.

Source: specification of the quota plane, section 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.untrusted import Form, Unreadable, shown
from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.holdings.tree import Column, Columns, Tree, remove

__all__ = ["Share", "ShareKey", "Shares", "fair_weight", "share"]

ShareKey = tuple[int, float]

_DECIMAL: Final = Form(
    r"(?P<number>[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++))"
    r"(?:[eE](?P<exponent>[+-]?+[0-9]{1,3}+)|(?P<suffix>[numkMGTPE]))?+"
)
_SCALES: Final = dict(zip(("n", "u", "m", "", *"kMGTPE"), range(-9, 19, 3), strict=True))


@dataclass(frozen=True, slots=True)
class Share:
    """One node's share: `ratio` without the weight, `resource` the dominant one, else empty."""

    borrowing: bool = False
    ratio: float = 0.0
    resource: str = ""
    weight: float = 1.0

    @property
    def weighted(self) -> float:
        """Return the precise weighted share, infinite for weight 0."""
        if self.ratio == 0:
            return 0.0
        return self.ratio / self.weight if self.weight else math.inf

    @property
    def published(self) -> int:
        """Return what the status shows: the ceiling, at most the largest int64."""
        weighted = self.weighted
        return UNLIMITED if weighted >= UNLIMITED else math.ceil(weighted)

    @property
    def key(self) -> ShareKey:
        """Return what shares are compared by."""
        if self.ratio and not self.weight:
            return (1, self.ratio)
        return (0, self.weighted)


def share(tree: Tree, usage: Columns, node: int, extra: Mapping[int, int] | None = None) -> Share:
    """Return the share of `node` as if it used `extra` more, by flavor-resource."""
    parent = tree.parent[node]
    weight = tree.weight[node]
    if parent < 0:
        return Share(weight=weight)
    borrowed: dict[str, int] = {}
    for column in tree.defined[node]:
        amount = usage[column][node] - tree.subtree[column][node]
        if extra:
            amount += extra.get(column, 0)
        if amount > 0:
            resource = tree.flavor_resources[column].resource
            borrowed[resource] = borrowed.get(resource, 0) + amount
    if not borrowed:
        return Share(weight=weight)
    lendable = tree.lendable[parent]
    best, dominant = 0.0, ""
    for resource in sorted(borrowed):
        capacity = lendable.get(resource, 0)
        if capacity > 0:
            ratio = borrowed[resource] * 1000.0 / capacity
            if ratio > best:
                best, dominant = ratio, resource
    return Share(True, best, dominant, weight)


class Shares:
    """Shares over columns that change, each computed once until a node on its path changes."""

    def __init__(self, tree: Tree, usage: Sequence[Column]) -> None:
        self._tree = tree
        self._usage = usage
        self._known: dict[int, tuple[bool, ShareKey]] = {}

    def of(self, node: int) -> tuple[bool, ShareKey]:
        """Return whether `node` borrows, and what its share compares by."""
        known = self._known.get(node)
        if known is None:
            found = share(self._tree, self._usage, node)
            known = self._known[node] = (found.borrowing, found.key)
        return known

    def changed(self, path: Sequence[int]) -> None:
        """Forget the nodes of a path whose usage changed."""
        for node in path:
            self._known.pop(node, None)

    def without(self, node: int, path: Sequence[int], held: Sequence[tuple[int, int]]) -> ShareKey:
        """Return the share of `node` if `held` were not used at `path[0]`, below it."""
        tree, saved = self._tree, []
        for column, amount in held:
            row = self._usage[column]
            saved.append((row, [row[each] for each in path]))
            remove(tree.local[column], row, path, amount)
        key = share(tree, self._usage, node).key
        for row, amounts in saved:
            for each, amount in zip(path, amounts, strict=True):
                row[each] = amount
        return key


def fair_weight(text: str) -> float:
    """Return the weight that a decimal quantity means, by the reference's float64 operations.

    It multiplies the digits by a power of ten: `0.3` is 3 * 0.1, which is not the float64 of 0.3.

    Raises:
        Unreadable: a binary suffix, or no quantity.
    """
    form = _DECIMAL.fullmatch(text)
    if form is None:
        raise Unreadable(f"{shown(text)} is not a decimal quantity")
    digits, _, fraction = form["number"].partition(".")
    scale = int(form["exponent"]) if form["exponent"] else _SCALES[form["suffix"] or ""]
    value = float(int(f"{digits}{fraction}"))
    exponent = scale - len(fraction)
    return value * float(f"1e{exponent}") if exponent else value

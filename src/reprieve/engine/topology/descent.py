"""From the domains that were chosen down to the leaves: how many pods each gets.

Down to the level of the slices the children of all chosen domains are used together; below it each
domain's own children share what it was given.

Source: specification of topology-aware scheduling, section 4.5 (phase 2b).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from reprieve.engine.topology.counts import Counts, Slicing
from reprieve.engine.topology.orders import (
    Columns,
    Rules,
    best_of,
    chosen_in_turn,
    leader_first,
    plain_order,
)
from reprieve.engine.topology.search import by_slices
from reprieve.engine.topology.tree import Ints, Tree

__all__ = ["Share", "descend", "distribute"]

#: Nothing is divided by slices of one pod.
_SINGLE: Final = 1
_FEW: Final = 64


class Share(NamedTuple):
    """What a domain was given."""

    domain: int
    pods: int
    leaders: int


def distribute(
    columns: Columns, entries: Ints, count: int, leaders: int, size: int, rules: Rules
) -> list[Share]:
    """Share `count` pods and `leaders` among the entries, in their order, units of `size` pods."""
    rest, left = count // size, leaders
    if not left and len(entries) == 1:
        (domain,) = entries.tolist()
        units = min(rest, int(columns.units[domain]))
        return [Share(domain, units * size, 0)] if units else []
    entries = leader_first(columns, entries, rest, leaders)
    found: list[Share] = []
    position = 0
    for position, entry in enumerate(entries.tolist()):
        chosen = entry
        if left:
            units, leader = int(columns.units_beside[chosen]), int(columns.leader[chosen])
            if not rules.least_free and units >= rest and leader >= left:
                chosen = best_of(columns, entries[position:], rest, left, rules)
                units, leader = int(columns.units_beside[chosen]), int(columns.leader[chosen])
            if units >= rest and leader >= left:
                found.append(Share(chosen, rest * size, left))
                return found
            units, leader = min(units, rest), min(leader, left)
            found.append(Share(chosen, units * size, leader))
            rest, left = rest - units, left - leader
            continue
        break
    else:
        return found
    used, last = chosen_in_turn(columns, entries[position:], rest, rules)
    units_of = columns.units[used].tolist()
    if last >= 0:
        units_of[-1] = last
    found += [
        Share(domain, units * size, 0)
        for domain, units in zip(used.tolist(), units_of, strict=True)
        if units
    ]
    return found


def descend(
    tree: Tree,
    counts: Sequence[Counts],
    level: int,
    domains: Ints,
    count: int,
    leaders: int,
    slicing: Slicing,
    rules: Rules,
) -> list[Share]:
    """Return the shares of the leaves, from domains of `level` that fit `count` pods together."""
    shares = distribute(by_slices(counts[level]), domains, count, leaders, slicing.size, rules)
    while level < min(slicing.level, len(tree.levels) - 1):
        together = np.concatenate(
            [np.arange(*_range(tree, level, share.domain)) for share in shares]
            or [np.zeros(0, dtype=np.int64)]
        )
        level += 1
        columns = by_slices(counts[level])
        order = plain_order(columns, np.sort(together), rules)
        shares = distribute(columns, order, count, leaders, slicing.size, rules)
    return divide(tree, counts, level, shares, slicing, rules)


def divide(
    tree: Tree,
    counts: Sequence[Counts],
    level: int,
    shares: list[Share],
    slicing: Slicing,
    rules: Rules,
) -> list[Share]:
    """Return the shares of the leaves, each domain's among its own children."""
    while level < len(tree.levels) - 1:
        below, size = counts[level + 1], slicing.inner.get(level + 1, _SINGLE)
        if level < slicing.level:
            size = slicing.size
        compared, columns = by_slices(below), _in_units(below, size)
        lower: list[Share] = []
        for share in shares:
            begin, end = _range(tree, level, share.domain)
            if end - begin <= _FEW and not share.leaders and not rules.affinity:
                lower += _among_few(compared, columns, begin, end, share.pods // size, size, rules)
                continue
            children = np.arange(begin, end)
            order = plain_order(compared, children, rules)
            lower += distribute(columns, order, share.pods, share.leaders, size, rules)
        shares, level = lower, level + 1
    return shares


def _among_few(
    compared: Columns, columns: Columns, begin: int, end: int, need: int, size: int, rules: Rules
) -> list[Share]:
    """Return what `distribute` returns for few neighbours without a leader.

    Arrays cost more than they save there.
    """
    units = columns.units[begin:end].tolist()
    order = _ordered(compared, begin, end, rules)
    found: list[Share] = []
    for position, at in enumerate(order):
        if units[at] < need:
            if units[at]:
                found.append(Share(begin + at, units[at] * size, 0))
                need -= units[at]
            continue
        if not rules.least_free:
            at = min((e for e in order[position:] if units[e] >= need), key=units.__getitem__)
        if need:
            found.append(Share(begin + at, need * size, 0))
        break
    return found


def _ordered(compared: Columns, begin: int, end: int, rules: Rules) -> list[int]:
    """Return neighbours in the order of `plain_order`, by their distance from the first."""
    keys = compared.units[begin:end]
    first = keys.tolist() if rules.least_free else (-keys).tolist()
    if compared.pods is compared.units:
        return sorted(range(end - begin), key=first.__getitem__)
    pods = compared.pods[begin:end].tolist()
    rows = sorted(zip(first, pods, range(end - begin), strict=True))
    return [at for _, _, at in rows]


def _range(tree: Tree, level: int, domain: int) -> tuple[int, int]:
    starts = tree.starts[level]
    return int(starts[domain]), int(starts[domain + 1])


def _in_units(counts: Counts, size: int) -> Columns:
    """Return what is compared below the level of the slices: finer slices, or pods."""
    units, beside = counts.pods, counts.pods_beside
    if size > 1:
        units, beside = units // size, beside // size
    return Columns(units, beside, counts.pods, counts.pods_beside, counts.leader, counts.affinity)

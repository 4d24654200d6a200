"""Balanced placement: as many slices in the least used domain as possible, none nearly empty.

Sets of siblings compete: the one that can give each of its domains the most slices wins, among
equals the one with fewer domains. Where that finds nothing the ordinary search continues.

Source: specification of topology-aware scheduling, section 4.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.topology.counts import Counts, Slicing, above
from reprieve.engine.topology.descent import Share
from reprieve.engine.topology.orders import Rules, plain_order, with_leader_order
from reprieve.engine.topology.search import by_slices
from reprieve.engine.topology.tree import Ints, Tree

__all__ = ["Balanced", "balance"]

#: Domains are compared by capacity alone, the largest first.
_LARGEST_FIRST: Final = Rules()


@dataclass(frozen=True, slots=True)
class Balanced:
    """Shares of domains of `level`, on the counts that they were found with."""

    level: int
    shares: tuple[Share, ...]
    counts: list[Counts]


@dataclass(frozen=True, slots=True)
class _Greedy:
    """How many domains are used from the largest on, and the last with and without a leader."""

    domains: int
    last_leader: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class _Best:
    threshold: int
    domains: int
    members: Ints
    counts: list[Counts]


def balance(
    tree: Tree, counts: Sequence[Counts], level: int, need: int, leaders: int, slicing: Slicing
) -> Balanced | None:
    """Return shares for `need` slices, and for `leaders`, of siblings at `level`, None if none do.

    Domains are those of `level`, or of the next one where slices are finer than `level`.
    """
    best: _Best | None = None
    for members in _sibling_sets(tree, level):
        found = _threshold_of(tree, counts, level, members, need, leaders, slicing, best)
        if found is not None:
            better = best is None or found.threshold > best.threshold
            if better or (best is not None and found.domains < best.domains):
                best = found
    if best is None or best.threshold <= 0:
        return None
    members, pruned = best.members, best.counts
    if level < slicing.level:
        order = _by_entropy(tree, pruned, level, members)
        picked = _pick(pruned[level], members, order, need, leaders, slicing.size)
        if picked is None:
            return None
        level += 1
        members = np.sort(_children(tree, level - 1, picked))
    picked = _pick(pruned[level], members, members.tolist(), need, leaders, slicing.size)
    if picked is None:
        return None
    shares = _shared_out(pruned[level], picked, need, leaders, best.threshold, slicing.size)
    return None if shares is None else Balanced(level, tuple(shares), pruned)


def _sibling_sets(tree: Tree, level: int) -> list[Ints]:
    if level == 0:
        return [np.arange(tree.sizes[0])]
    return [np.arange(*_span(tree, level - 1, each)) for each in range(tree.sizes[level - 1])]


def _threshold_of(
    tree: Tree,
    counts: Sequence[Counts],
    level: int,
    members: Ints,
    need: int,
    leaders: int,
    slicing: Slicing,
    best: _Best | None,
) -> _Best | None:
    """Return what one set of siblings can do, None if it does not do or is worse than the best."""
    low_level, low = level, members
    if level < slicing.level:
        low_level, low = level + 1, _children(tree, level, members.tolist())
    greedy = _choose_greedily(counts[low_level], low, need, leaders)
    if greedy is None:
        return None
    columns = counts[low_level]
    bounds = [need // greedy.domains]
    if greedy.last_leader is not None:
        bounds.append(int(columns.slices_beside[greedy.last_leader]))
    if greedy.last is not None:
        bounds.append(int(columns.slices[greedy.last]))
    threshold = min(bounds)
    second = threshold
    if leaders and greedy.last is not None:
        second = min(threshold, int(columns.slices_beside[greedy.last]))
    floor = best.threshold if best is not None else 0
    for tried in dict.fromkeys((threshold, second)):
        if tried < floor or tried <= 0:
            continue
        pruned = _pruned(tree, counts, level, members, tried, leaders, slicing)
        again = _choose_greedily(pruned[level], members, need, leaders)
        if again is not None:
            return _Best(tried, again.domains, members, pruned)
    return None


def _choose_greedily(counts: Counts, members: Ints, need: int, leaders: int) -> _Greedy | None:
    columns = by_slices(counts)
    rest, left, chosen = need, leaders, 0
    last_leader: int | None = None
    last: int | None = None
    order = with_leader_order(columns, members, _LARGEST_FIRST).tolist() if leaders else []
    used: set[int] = set()
    for entry in order:
        if left <= 0 or columns.leader[entry] <= 0:
            break
        left -= int(columns.leader[entry])
        rest -= int(columns.units_beside[entry])
        last_leader = entry
        used.add(entry)
        chosen += 1
    if left > 0:
        return None
    for entry in plain_order(columns, members, _LARGEST_FIRST).tolist():
        if rest <= 0 or columns.units[entry] <= 0:
            break
        if entry not in used:
            rest -= int(columns.units[entry])
            last = entry
            chosen += 1
    return None if rest > 0 else _Greedy(chosen, last_leader, last)


def _pruned(
    tree: Tree,
    counts: Sequence[Counts],
    level: int,
    members: Ints,
    threshold: int,
    leaders: int,
    slicing: Slicing,
) -> list[Counts]:
    """Return the counts without domains of the set that have fewer slices than the threshold."""
    found = [each.copy() for each in counts]
    if level < len(counts) - 1:
        children = _children(tree, level, members.tolist())
        _clear(tree, found, level + 1, children, threshold, leaders)
        _recount(tree, found, level, slicing, leaders, {})
    _clear(tree, found, level, members, threshold, leaders)
    return found


def _clear(
    tree: Tree, counts: list[Counts], level: int, domains: Ints, threshold: int, leaders: int
) -> None:
    at = counts[level]
    for entry in domains.tolist():
        if at.slices[entry] < threshold:
            _wipe(tree, counts, level, entry, whole=True)
        elif leaders and at.slices_beside[entry] < threshold:
            _wipe(tree, counts, level, entry, whole=False)


def _wipe(tree: Tree, counts: list[Counts], level: int, domain: int, whole: bool) -> None:
    """Use all that a domain can have, or only its leader, of it and of what is below it."""
    begin, end = domain, domain + 1
    for at in range(level, len(counts)):
        each = counts[at]
        each.leader[begin:end] = 0
        each.pods_beside[begin:end] = 0
        each.slices_beside[begin:end] = 0
        if whole:
            each.pods[begin:end] = 0
            each.slices[begin:end] = 0
        if at + 1 < len(counts):
            begin, end = int(tree.starts[at][begin]), int(tree.starts[at][end])


def _recount(
    tree: Tree,
    counts: list[Counts],
    level: int,
    slicing: Slicing,
    leaders: int,
    inner: Mapping[int, int],
) -> None:
    """Count levels from the leaves up to `level` anew."""
    for at in range(len(counts) - 2, level - 1, -1):
        counts[at] = above(tree, at, counts[at + 1], slicing, leaders, inner)


def _by_entropy(tree: Tree, counts: list[Counts], level: int, members: Ints) -> list[int]:
    at, below = counts[level], counts[level + 1]

    def key(entry: int) -> tuple[int, int, float, int]:
        begin, end = _span(tree, level, entry)
        spread = _entropy(below.pods[begin:end].tolist())
        return (-int(at.leader[entry]), -int(at.slices_beside[entry]), -spread, entry)

    return sorted(members.tolist(), key=key)


def _entropy(parts: Sequence[int]) -> float:
    total = sum(parts)
    if total == 0:
        return 0.0
    return -sum(each / total * math.log2(each / total) for each in parts if each)


def _pick(
    counts: Counts, members: Ints, order: Sequence[int], need: int, leaders: int, size: int
) -> list[int] | None:
    """Return as few domains as hold all slices, with the least free capacity left over.

    Among equals the domains that come first in `order`.
    """
    greedy = _choose_greedily(counts, members, need, leaders)
    if greedy is None:
        return None
    most = greedy.domains
    ways: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(most + 1)]
    ways[0][leaders, need * size] = ()
    for entry in order:
        pods, beside = int(counts.pods[entry]), int(counts.pods_beside[entry])
        leader = int(counts.leader[entry])
        for used in range(most, 0, -1):
            for (left, rest), way in ways[used - 1].items():
                if left > 0 and leader > 0:
                    ways[used].setdefault((left - min(left, leader), rest - beside), (*way, entry))
                ways[used].setdefault((left, rest - pods), (*way, entry))
    ends = [rest for left, rest in ways[most] if left == 0 and rest <= 0]
    return None if not ends else list(ways[most][0, max(ends)])


def _shared_out(
    counts: Counts, picked: Sequence[int], need: int, leaders: int, each: int, size: int
) -> list[Share] | None:
    """Give each domain `each` slices, and the rest to the largest that can have more."""
    extra = need - each * len(picked)
    if extra < 0:
        return None
    left = leaders
    shares: list[Share] = []
    columns = by_slices(counts)
    for entry in with_leader_order(columns, np.sort(np.array(picked)), _LARGEST_FIRST).tolist():
        leader = 0
        room = int(counts.slices[entry])
        if left and counts.leader[entry] > 0:
            leader, room = left, int(counts.slices_beside[entry])
            left = 0
        if room < each:
            return None
        more = min(room - each, extra)
        extra -= more
        shares.append(Share(entry, (each + more) * size, leader))
    return None if left or extra else shares


def _children(tree: Tree, level: int, domains: Sequence[int]) -> Ints:
    spans = [np.arange(*_span(tree, level, each)) for each in domains]
    return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)


def _span(tree: Tree, level: int, domain: int) -> tuple[int, int]:
    starts = tree.starts[level]
    return int(starts[domain]), int(starts[domain + 1])

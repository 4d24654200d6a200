"""Balanced placement step by step, with copies of whole trees and a search over all states.

Written from the specification alone; imports nothing of the engine.

Source: specification of topology-aware scheduling, section 4.6.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from tests.oracle.topology.counting import Rules, Share, in_leader_order, in_order, recount
from tests.oracle.topology.domains import Domain
from tests.oracle.topology.requests import Ask

__all__ = ["balanced"]

LARGEST = Rules(least_free=False, affinity=False)


def balanced(root: Domain, asked: Ask, need: int, leaders: int) -> tuple[int, list[Share]] | None:
    """Return a level and shares of its domains, None where nothing is balanced."""
    best: tuple[int, int, list[Domain]] | None = None
    parents = (
        [root] if asked.level == 0 else sorted(root.below(asked.level - 1), key=lambda d: d.path)
    )
    for parent in parents:
        found = _of_siblings(parent, asked, need, leaders, best[0] if best else 0)
        if found is None:
            continue
        threshold, number, _ = found
        if best is None or threshold > best[0] or (threshold == best[0] and number < best[1]):
            best = found
    if best is None or best[0] <= 0:
        return None
    threshold, _, members = best
    level = asked.level
    if level < asked.slice_level:
        chosen = pick(_by_entropy(members), need, leaders, asked.size)
        if chosen is None:
            return None
        members = [c for d in chosen for c in d.children]
        level += 1
    members = sorted(members, key=lambda d: d.path)
    chosen = pick(members, need, leaders, asked.size)
    if chosen is None:
        return None
    shares = _even(chosen, need, leaders, threshold, asked.size)
    return None if shares is None else (level, shares)


def _of_siblings(
    parent: Domain, asked: Ask, need: int, leaders: int, floor: int
) -> tuple[int, int, list[Domain]] | None:
    members = parent.children
    low = [c for d in members for c in d.children] if asked.level < asked.slice_level else members
    first = greedy(low, need, leaders)
    if first is None:
        return None
    number, last_leader, last = first
    threshold = need // number if number else 0
    if last_leader is not None:
        threshold = min(threshold, last_leader.slices_beside)
    if last is not None:
        threshold = min(threshold, last.slices)
    second = threshold
    if leaders and last is not None:
        second = min(threshold, last.slices_beside)
    for tried in (threshold, second):
        if tried < floor or tried <= 0:
            continue
        pruned = _pruned(copy.deepcopy(parent), asked, tried, leaders)
        again = greedy(pruned, need, leaders)
        if again is not None:
            return tried, again[0], pruned
    return None


def greedy(
    domains: Sequence[Domain], need: int, leaders: int
) -> tuple[int, Domain | None, Domain | None] | None:
    """Return how many of the largest hold all, the last with a leader and the last without."""
    rest, left = need, leaders
    led: list[Domain] = []
    for d in in_leader_order(domains, LARGEST) if leaders else []:
        if left <= 0 or d.leader <= 0:
            break
        left, rest = left - d.leader, rest - d.slices_beside
        led.append(d)
    if left > 0:
        return None
    plain: list[Domain] = []
    for d in in_order(domains, LARGEST):
        if rest <= 0 or d.slices <= 0:
            break
        if all(d is not each for each in led):
            rest -= d.slices
            plain.append(d)
    if rest > 0:
        return None
    return len(led) + len(plain), led[-1] if led else None, plain[-1] if plain else None


def _pruned(parent: Domain, asked: Ask, threshold: int, leaders: int) -> list[Domain]:
    plainly = replace(asked, inner={})
    for d in parent.children:
        for c in d.children:
            _prune(c, threshold, leaders)
        _count_again(d, plainly, leaders > 0)
        _prune(d, threshold, leaders)
    return parent.children


def _count_again(at: Domain, asked: Ask, led: bool) -> None:
    if at.leaf is None:
        for child in at.children:
            _count_again(child, asked, led)
        recount(at, asked, led)


def _prune(at: Domain, threshold: int, leaders: int) -> None:
    if at.slices < threshold:
        _clear(at, whole=True)
    elif leaders and at.slices_beside < threshold:
        _clear(at, whole=False)


def _clear(at: Domain, whole: bool) -> None:
    at.leader = at.pods_beside = at.slices_beside = 0
    if whole:
        at.pods = at.slices = 0
    for child in at.children:
        _clear(child, whole)


def _by_entropy(members: Sequence[Domain]) -> list[Domain]:
    def entropy(d: Domain) -> float:
        total = sum(c.pods for c in d.children)
        parts = [c.pods / total for c in d.children if c.pods] if total else []
        return -sum(part * math.log2(part) for part in parts)

    return sorted(members, key=lambda d: (-d.leader, -d.slices_beside, -entropy(d), d.path))


def pick(order: Sequence[Domain], need: int, leaders: int, size: int) -> list[Domain] | None:
    """Return as many domains as the largest would be, with the fewest pods of room left over."""
    first = greedy(order, need, leaders)
    if first is None:
        return None
    ways: dict[tuple[int, int, int], list[Domain]] = {(0, leaders, need * size): []}
    for d in order:
        grown = dict(ways)
        # More domains first: a domain is used once, and the first way of a state stays.
        for (used, left, rest), way in sorted(ways.items(), key=lambda each: -each[0][0]):
            if left > 0 and d.leader > 0:
                led = (used + 1, left - min(left, d.leader), rest - d.pods_beside)
                grown.setdefault(led, [*way, d])
            grown.setdefault((used + 1, left, rest - d.pods), [*way, d])
        ways = grown
    ends = [
        (rest, way)
        for (used, left, rest), way in ways.items()
        if used == first[0] and left == 0 and rest <= 0
    ]
    return max(ends, key=lambda each: each[0])[1] if ends else None


def _even(
    chosen: Sequence[Domain], need: int, leaders: int, threshold: int, size: int
) -> list[Share] | None:
    extra, left = need - threshold * len(chosen), leaders
    shares = []
    for d in in_leader_order(chosen, LARGEST):
        led = left if d.leader > 0 else 0
        left -= led
        room = d.slices_beside if led else d.slices
        more = min(room - threshold, extra)
        if more < 0:
            return None
        extra -= more
        shares.append(Share(d, (threshold + more) * size, led))
    return None if extra or left else shares

"""Assignment step by step: the level, its domains, and down to the leaves.

Plain lists that are sorted anew at each step. Written from the specification alone; imports nothing
of the engine.

Source: specification of topology-aware scheduling, sections 4.4 and 4.5.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.oracle.topology.balanced import balanced
from tests.oracle.topology.counting import (
    Cluster,
    Rules,
    Share,
    best_of,
    count,
    in_leader_order,
    in_order,
    leader_first,
    rules_of,
    units,
)
from tests.oracle.topology.domains import Domain, Json
from tests.oracle.topology.requests import Ask

__all__ = ["placed"]


@dataclass(frozen=True)
class NoRoom:
    """A failed search: the level where it ended and the first number of its message."""

    level: int
    fits: int


# Phase 2a: the level and its domains.


def find(
    on: Cluster, asked: Ask, level: int, need: int, leaders: int, rules: Rules
) -> tuple[int, list[Domain]] | NoRoom:
    """Return the level and the domains that are taken of it."""
    entries = in_leader_order(list(on.root.below(level)), rules)
    if not entries:
        return NoRoom(level, -1)
    top = entries[0]
    if rules.least_free:
        for d in entries:
            if d.leader >= leaders and (d.slices_beside if leaders else d.slices) >= need:
                return level, [d]
    elif top.slices_beside >= need and top.leader >= leaders:
        return level, [best_of(entries, need, leaders, rules)]
    if asked.required:
        if rules.affinity:
            for position, d in enumerate(entries[1:], 1):
                if d.slices_beside >= need and d.leader >= leaders:
                    return level, [best_of(entries[position:], need, leaders, rules)]
        return NoRoom(level, top.slices)
    if asked.preferred and level > 0:
        return find(on, asked, level - 1, need, leaders, rules)
    return _several(entries, level, need, leaders, rules)


def _several(
    entries: list[Domain], level: int, need: int, leaders: int, rules: Rules
) -> tuple[int, list[Domain]] | NoRoom:
    entries = leader_first(entries, need, leaders)
    taken: list[Domain] = []
    rest, left, position = need, leaders, 0
    while left and position < len(entries) and entries[position].leader > 0:
        d = entries[position]
        if not rules.least_free and d.slices_beside >= rest:
            d = best_of(entries[position:], rest, left, rules)
        taken.append(d)
        left, rest, position = left - min(left, d.leader), rest - d.slices_beside, position + 1
    if left:
        return NoRoom(level, leaders - left)
    others = in_order(entries[position:], rules)
    for position, entry in enumerate(others):
        if rest <= 0:
            break
        d = entry
        if not rules.least_free and d.slices >= rest:
            d = best_of(others[position:], rest, 0, rules)
        taken.append(d)
        rest -= d.slices
    return NoRoom(level, need - rest) if rest > 0 else (level, taken)


# Phase 2b: down to the leaves.


def take(
    entries: Sequence[Domain], pods: int, leaders: int, size: int, rules: Rules, by_slices: bool
) -> list[Share]:
    """Return what each entry gets of so many pods and leaders."""
    each = size if by_slices else 1
    need, left = pods // each, leaders
    shares: list[Share] = []
    ordered = leader_first(entries, need, leaders, by_slices)
    for position, entry in enumerate(ordered):
        if need <= 0 and not left:
            break
        d = entry
        if not rules.least_free and units(d, left, by_slices) >= need and d.leader >= left:
            d = best_of(ordered[position:], need, left, rules, by_slices)
        fits = units(d, left, by_slices)
        if fits >= need and d.leader >= left:
            shares.append(Share(d, need * each, left))
            return shares
        given, led = min(fits, need), min(d.leader, left)
        shares.append(Share(d, given * each, led))
        need, left = need - given, left - led
    return shares


def descend(
    on: Cluster,
    asked: Ask,
    level: int,
    shares: list[Share],
    rules: Rules,
    jointly: bool = True,
) -> list[Share]:
    """Return the shares of the leaves."""
    pods, leaders = sum(s.pods for s in shares), sum(s.leaders for s in shares)
    while level < len(on.levels) - 1:
        if level < asked.slice_level and jointly:
            children = in_order([c for s in shares for c in s.domain.children], rules)
            shares = take(children, pods, leaders, asked.size, rules, by_slices=True)
        else:
            shares = [
                below
                for s in shares
                for below in _of_parent(s, asked, level + 1, rules, level < asked.slice_level)
            ]
        level += 1
    return shares


def _of_parent(
    share: Share, asked: Ask, level: int, rules: Rules, above_slices: bool
) -> list[Share]:
    size = asked.size if above_slices else asked.inner.get(level, 1)
    # Finer slices are counted once the order is there, for which they are none.
    ordered = in_order(share.domain.children, rules)
    if size > 1 and not above_slices:
        for c in ordered:
            c.slices, c.slices_beside = c.pods // size, c.pods_beside // size
    by_slices = size > 1 or above_slices
    return take(ordered, share.pods, share.leaders, size, rules, by_slices)


def placed(
    on: Cluster,
    workers: Json,
    leader: Json | None,
    asked: Ask,
    inside: Callable[[Domain], bool] | None = None,
) -> list[Share] | str:
    """Return the shares of the leaves, or the reason why there are none."""
    leaders = 0 if leader is None else 1
    excluded = count(on, workers, leader, asked, inside)
    rules, need = rules_of(on, asked), workers["count"] // asked.size
    if on.gates.get("TASBalancedPlacement") and asked.preferred:
        found = balanced(on.root, asked, need, leaders)
        if found is not None:
            level, shares = found
            rows = descend(on, asked, level, shares, replace(rules, least_free=False), False)
            if sum(s.pods for s in rows) == need * asked.size:
                return rows
        count(on, workers, leader, asked, inside)
    where = find(on, asked, asked.level, need, leaders, rules)
    if isinstance(where, NoRoom):
        return reason(on, workers, asked, need, where, excluded)
    level, domains = where
    shares = take(domains, need * asked.size, leaders, asked.size, rules, by_slices=True)
    return descend(on, asked, level, shares, rules)


def reason(
    on: Cluster, workers: Json, asked: Ask, need: int, end: NoRoom, excluded: Counter[str]
) -> str:
    """Return the message of a failed search."""
    if end.fits < 0:
        return f"no topology domains at level: {on.levels[end.level]}"
    unit = "pod" if asked.size == 1 else "slice"
    text = f'topology "{on.name}"'
    if len(asked.layers) > 1:
        text += " doesn't allow to fit" + _by_layers(on, workers, asked, end.level)
    elif end.fits:
        text += f" allows to fit only {end.fits} out of {need} {unit}(s)"
    else:
        text += f" doesn't allow to fit any of {need} {unit}(s)"
    if not excluded:
        return text
    total = sum(1 for _ in on.root.leaves())
    listed = ", ".join(sorted(f"{what}: {times}" for what, times in excluded.items()))
    return f"{text}. Total nodes: {total}; excluded: {listed}"


def _by_layers(on: Cluster, workers: Json, asked: Ask, level: int) -> str:
    entries = sorted(on.root.below(level), key=operator.attrgetter("path"))
    best = max(entries, key=lambda d: d.slices)
    text = ""
    for at, size in asked.layers:
        fit = sum(d.pods // size for d in best.below(at))
        text += f"; {fit}/{workers['count'] // size} slice(s) fit on level {on.levels[at]}"
    return text

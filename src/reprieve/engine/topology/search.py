"""At which level the pods are placed, and in which of its domains.

A required level has one domain that holds all; a preferred one is left for the next wider level
where no domain does, and at the widest level several are used.

Source: specification of topology-aware scheduling, section 4.4 (phase 2a).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.topology.counts import Counts
from reprieve.engine.topology.orders import (
    Columns,
    Rules,
    best_of,
    chosen_in_turn,
    leader_first,
    plain_order,
    with_leader_order,
)
from reprieve.engine.topology.tree import Ints

__all__ = ["Found", "NoRoom", "by_slices", "find"]


@dataclass(frozen=True, slots=True)
class Found:
    """Domains of `level`, in the order in which they were used."""

    level: int
    domains: Ints


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Why the search ended without a domain: `fits` slices (or leaders) at `level`.

    `empty` states that the level has no domains.
    """

    level: int
    fits: int
    empty: bool = False


def by_slices(counts: Counts) -> Columns:
    """Return what a search over slices compares."""
    return Columns(
        counts.slices,
        counts.slices_beside,
        counts.pods,
        counts.pods_beside,
        counts.leader,
        counts.affinity,
    )


def find(
    counts: Sequence[Counts],
    level: int,
    need: int,
    leaders: int,
    rules: Rules,
    required: bool,
    climbs: bool,
) -> Found | NoRoom:
    """Return the domains for `need` slices and `leaders` (0 or 1).

    Args:
        counts: by level.
        level: where the search begins.
        need: slices.
        leaders: leaders.
        rules: how domains are chosen.
        required: whether one domain of that level has to hold all.
        climbs: whether wider levels are tried.
    """
    columns = by_slices(counts[level])
    if not len(columns.units):
        return NoRoom(level, 0, empty=True)
    if not leaders and not rules.affinity:
        return _find_plain(counts, columns, level, need, rules, required, climbs)
    every = np.arange(len(columns.units))
    if rules.least_free:
        entries = with_leader_order(columns, every, rules)
        suffices = columns.units_beside[entries] >= need
        if leaders:
            suffices &= columns.leader[entries] >= leaders
        first = np.flatnonzero(suffices)
        if len(first):
            return Found(level, entries[first[:1]])
    else:
        entries = with_leader_order(columns, every, rules)
        top = int(entries[0])
        if columns.units_beside[top] >= need and columns.leader[top] >= leaders:
            return Found(level, np.array([best_of(columns, entries, need, leaders, rules)]))
    if required:
        return _a_later_one(columns, entries, level, need, leaders, rules)
    if climbs and level > 0:
        return find(counts, level - 1, need, leaders, rules, required, climbs)
    return _several(columns, entries, level, need, leaders, rules)


def _find_plain(
    counts: Sequence[Counts],
    columns: Columns,
    level: int,
    need: int,
    rules: Rules,
    required: bool,
    climbs: bool,
) -> Found | NoRoom:
    """Return the same without leader and affinity, for which nothing is sorted where one does.

    Of those that suffice the one with the fewest units, then pods, then the first by its values.
    """
    units = columns.units
    most = int(units.max())
    if most >= need:
        least = int(np.where(units >= need, units, most).min())
        same = (units == least).nonzero()[0]
        if len(same) > 1 and columns.pods is not units:
            same = same[columns.pods[same].argmin() :]
        return Found(level, same[:1])
    if required:
        return NoRoom(level, most)
    if climbs and level > 0:
        return find(counts, level - 1, need, 0, rules, required, climbs)
    some = (units > 0).nonzero()[0]
    others, last = chosen_in_turn(columns, plain_order(columns, some, rules), need, rules)
    return Found(level, others) if last >= 0 else NoRoom(level, need + last)


def _a_later_one(
    columns: Columns, entries: Ints, level: int, need: int, leaders: int, rules: Rules
) -> Found | NoRoom:
    """Look behind the first for one domain that fits all, where affinity is before capacity."""
    if rules.affinity:
        suffices = columns.units_beside[entries] >= need
        suffices &= columns.leader[entries] >= leaders
        later = np.flatnonzero(suffices[1:])
        if len(later):
            rest = entries[int(later[0]) + 1 :]
            return Found(level, np.array([best_of(columns, rest, need, leaders, rules)]))
    return NoRoom(level, int(columns.units[entries[0]]))


def _several(
    columns: Columns, entries: Ints, level: int, need: int, leaders: int, rules: Rules
) -> Found | NoRoom:
    used: list[int] = []
    rest, left, position = need, leaders, 0
    entries = leader_first(columns, entries, need, leaders)
    while left and position < len(entries) and columns.leader[entries[position]] > 0:
        chosen = int(entries[position])
        if not rules.least_free and columns.units_beside[chosen] >= rest:
            chosen = best_of(columns, entries[position:], rest, left, rules)
        used.append(chosen)
        left -= min(left, int(columns.leader[chosen]))
        rest -= int(columns.units_beside[chosen])
        position += 1
    if left:
        return NoRoom(level, leaders - left)
    if rest <= 0:
        return Found(level, np.array(used, dtype=np.int64))
    others = plain_order(columns, np.sort(entries[position:]), rules)
    others, last = chosen_in_turn(columns, others[columns.units[others] > 0], rest, rules)
    if last < 0:
        return NoRoom(level, need + last)
    return Found(level, np.append(np.array(used, dtype=np.int64), others))

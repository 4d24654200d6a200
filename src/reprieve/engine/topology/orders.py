"""In which order domains are used, and which of several that suffice is the best fit.

Least free uses the smallest domains first; best fit uses the largest first and, for the last one,
the smallest that suffices. Domains are numbered by their level values, so that a stable sort of
ascending numbers breaks ties by these.

Source: specification of topology-aware scheduling, section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from reprieve.engine.topology.tree import Ints

__all__ = [
    "Columns",
    "Rules",
    "best_of",
    "chosen_in_turn",
    "leader_first",
    "plain_order",
    "with_leader_order",
]


#: More units than any domain has.
_NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rules:
    """How domains are chosen: least free or best fit, and whether affinity is before capacity."""

    least_free: bool = False
    affinity: bool = False


class Columns(NamedTuple):
    """What one search compares, each (domains,) int64: units are slices, or pods."""

    units: Ints
    units_beside: Ints
    pods: Ints
    pods_beside: Ints
    leader: Ints
    affinity: Ints


def plain_order(columns: Columns, domains: Ints, rules: Rules) -> Ints:
    """Return the domains, given in ascending order, in the order of use without a leader."""
    units = columns.units[domains]
    if len(domains) < 2:
        return domains
    key = units if rules.least_free else -units
    if columns.pods is columns.units and not rules.affinity:
        return domains[key.argsort(kind="stable")]
    keys = [columns.pods[domains], key]
    if rules.affinity:
        keys.append(-columns.affinity[domains])
    return domains[np.lexsort(keys)]


def with_leader_order(columns: Columns, domains: Ints, rules: Rules) -> Ints:
    """Return the domains, given in ascending order, as they are looked at for all pods."""
    units = columns.units_beside[domains]
    keys = [columns.pods_beside[domains], units if rules.least_free else -units]
    if rules.affinity:
        keys.append(-columns.affinity[domains])
    keys.append(-columns.leader[domains])
    return domains[np.lexsort(keys)]


def best_of(columns: Columns, entries: Ints, need: int, leaders: int, rules: Rules) -> int:
    """Return the first of the entries with the fewest units that suffice, else the first of all."""
    if rules.affinity:
        weights = columns.affinity[entries]
        other = np.flatnonzero(weights != weights[0])
        if len(other):
            entries = entries[: int(other[0])]
    units = (columns.units_beside if leaders else columns.units)[entries]
    suffices = units >= need
    if leaders:
        suffices &= columns.leader[entries] >= leaders
    at = int(np.where(suffices, units, _NEVER).argmin())
    return int(entries[at if suffices[at] else 0])


def chosen_in_turn(columns: Columns, entries: Ints, need: int, rules: Rules) -> tuple[Ints, int]:
    """Return which entries are used for `need` units, in order, and how many the last one gives.

    Without a leader: each gives all that it has until one has what is left; for that the best fit
    among it and those after it is chosen. Where all together have too little, all are returned, and
    what they lack is the negative of the number.
    """
    units = columns.units[entries]
    left = need - (units.cumsum() - units)
    enough = units >= left
    last = int(enough.argmax()) if len(enough) else 0
    if not len(enough) or not enough[last]:
        return entries, -(need - int(units.sum()))
    rest = int(left[last])
    chosen = int(entries[last])
    if not rules.least_free:
        chosen = best_of(columns, entries[last:], rest, 0, rules)
    if chosen == entries[last]:
        return entries[: last + 1], rest
    return np.append(entries[:last], chosen), rest


def leader_first(columns: Columns, entries: Ints, need: int, leaders: int) -> Ints:
    """Move the first entry to the front that can have the leader and leaves enough for the rest."""
    if not leaders or len(entries) < 2:
        return entries
    units = columns.units[entries]
    loss = units - columns.units_beside[entries]
    fits = (columns.leader[entries] >= leaders) & (int(units.sum()) - loss >= need)
    found = np.flatnonzero(fits)
    if not len(found):
        return entries
    at = int(found[0])
    return np.concatenate((entries[at : at + 1], entries[:at], entries[at + 1 :]))

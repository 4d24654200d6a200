"""Which idle work is evicted for one demand: the preferred set, and the next ones.

1. The oldest idle ones until the demand fits; with fit Node, or `irreducible`, those that are not
   needed are reprieved, youngest idle first.
2. With `fewest` and the profile `best`, a set with fewer devices (`least`).
3. Where that set is not confirmed, since other units would use what it frees, the next ones: each
   set that was tried without one of its victims, the oldest idle one first, then without two, and
   so on. Effort is counted in sets. Their bound on the fewest devices is not known.

Source: specification of the idle plane, sections 14 and 17; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reprieve.engine.idle.least import Least, fewest, least
from reprieve.engine.idle.model import Policy, Workload
from reprieve.engine.idle.outcome import RULE_FEWEST_IDLE, RULE_OLDEST_IDLE
from reprieve.engine.idle.search import Search
from reprieve.units.ids import Uid

__all__ = ["Choice", "choices"]

#: How many sets are searched for one demand.
_SETS: Final = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of units: the victims of a search, and which of those it found first are reprieved.

    `trimmed`: whether `spare` are reprieved; else they are evicted, too. `gap`: as in `Proof`.
    """

    search: Search
    spare: Sequence[Workload]
    rule: str
    trimmed: bool
    gap: int | None


def choices(
    first: Search,
    idle: Sequence[Workload],
    begin: Callable[[], Search],
    policy: Policy,
    *,
    trim: bool,
) -> Iterator[Choice]:
    """Yield sets of units with which a demand fits, each one no set before; none if none does.

    `first`: a search for the demand, with no victims so far; `begin` makes another one. `idle`:
    units that may be evicted, oldest idle first. `trim`: victims that are not needed are reprieved.
    """
    left, excluded = deque([frozenset[Uid]()]), {frozenset[Uid]()}
    yielded = set[frozenset[Uid]]()
    for number in range(_SETS):
        if not left:
            return
        without = left.popleft()
        rest = [unit for unit in idle if unit.root.uid not in without] if without else idle
        found = _choice(begin() if number else first, rest, begin, policy, trim)
        if found is None:
            continue
        victims = [victim.root.uid for victim in found.search.victims]
        if frozenset(victims) not in yielded:
            yielded.add(frozenset(victims))
            yield replace(found, gap=None) if number else found
        more = [without | {victim} for victim in victims]
        left.extend(each for each in more if each not in excluded)
        excluded.update(more)


def _choice(
    search: Search,
    idle: Sequence[Workload],
    begin: Callable[[], Search],
    policy: Policy,
    trim: bool,
) -> Choice | None:
    if not search.collect(idle):
        return None
    spare = search.spare()
    if not trim:
        return Choice(search, spare, RULE_OLDEST_IDLE, False, None)
    search.reprieve(spare)
    fewer = _fewer(search, idle, begin, policy)
    if fewer.other is None:
        return Choice(search, spare, RULE_OLDEST_IDLE, True, fewer.gap)
    return Choice(fewer.other.search, fewer.other.spare, RULE_FEWEST_IDLE, True, fewer.gap)


def _fewer(
    search: Search, idle: Sequence[Workload], begin: Callable[[], Search], policy: Policy
) -> Least:
    """Return a set with fewer devices than a search has found, where the policy requests one."""
    if policy.best:
        return least(search, idle, begin)
    return Least(fewest(search, idle, begin) if policy.fewest else None, None)

"""What is to be covered by evicting units, and what covers it: values of `covering`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Amounts", "Budgets", "Cover", "Evenness", "Instance", "Pattern"]

Amounts: TypeAlias = tuple[int, ...]  # by resource
Pattern: TypeAlias = tuple[int, ...]  # members by class


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many pods may be evicted under each budget; each one beyond that costs `cost`.

    `used`: by node, the pods of each unit there under each budget.
    """

    allowed: tuple[int, ...]
    used: Sequence[Mapping[int, tuple[int, ...]]]
    cost: int


@dataclass(frozen=True, slots=True)
class Evenness:
    """How many pods domains may have: `least` at least, and `most` where a member is placed.

    `domain`: by node, -1 where nothing is counted. `held`: the pods that count by domain, with all
    units there; domains without a node of the instance are among them. `matched`: by node, the pods
    of each unit there that count. Every member counts.
    """

    domain: Sequence[int]
    held: Mapping[int, int]
    matched: Sequence[Mapping[int, int]]
    least: int
    most: int

    @property
    def is_wide(self) -> bool:
        """Return whether a domain has several nodes."""
        counted = [number for number in self.domain if number >= 0]
        return len(counted) > len(set(counted))

    def bounds(self) -> tuple[int, int]:
        """Return how many pods beyond `least` a domain may have on the way: lowest and highest."""
        leaving = dict.fromkeys(self.held, 0)
        for number, units in zip(self.domain, self.matched, strict=True):
            if number >= 0:
                leaving[number] += sum(units.values())
        low = min(self.held[each] - pods for each, pods in leaving.items()) - self.least
        high = max(max(self.most, self.held[each]) + pods for each, pods in leaving.items())
        return min(0, low), high - self.least


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be covered.

    `free`: by node, what is free there. `needs` and `counts`: by class of members, what one
    requests and how many there are. `allowed`: by node, the classes that may be placed there.
    `frees`: by node, what each unit frees there. `cost`: of each unit, at least 0. `budgets`: None
    where none limit anything. `even`: of these at most one is wide, and counted (`wide`).
    """

    free: Sequence[Amounts]
    needs: Sequence[Amounts]
    counts: Pattern
    allowed: Sequence[Sequence[bool]]
    frees: Sequence[Mapping[int, Amounts]]
    cost: Sequence[int]
    budgets: Budgets | None = None
    even: Sequence[Evenness] = ()

    @property
    def wide(self) -> Evenness | None:
        """Return the limit of which a domain has several nodes."""
        return next((each for each in self.even if each.is_wide), None)


@dataclass(frozen=True, slots=True)
class Cover:
    """The units that are evicted, and the members of each class by node.

    `bound`: no choice costs less; it is the optimum's cost where `cost` equals it. It is 0 where
    tables were cut short.
    """

    units: frozenset[int]
    members: tuple[Pattern, ...]
    cost: int
    bound: int

"""Searches the domain that loses victims of a queue's rules and pods in no queue together.

Used where neither the rules of queues nor other planes alone free places for a workload. Each
domain that would have capacity with both evicted is looked at by itself:

1. its victims by the rules, as if all other pods that may be evicted had left it
2. of these other pods those that have to leave the nodes, with exactly these victims evicted
3. the victims again, as if exactly these pods had left

Of all domains the one is chosen where idle work alone is evicted beside the victims, then where
lower priorities are as well, then where the fewest devices are evicted in all. There pods stay,
those with the most devices first, in whose place victims by the rules hold fewer devices.

What is returned are the pods. With them evicted the rules alone decide (`ByRules`), so that a
cycle, its proof and its record all see one decision. Source: specification of topology-aware
scheduling, section 9; the design's "Where the planes meet".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from reprieve.engine.lost_work import is_device
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.made_places import (
    ByRules,
    Leaver,
    MayGo,
    domains_freed,
)
from reprieve.engine.quota.model import Workload
from reprieve.engine.topology.places import NodeUse
from reprieve.units.ids import Uid

__all__ = ["places_of_both"]

_DOMAINS: Final = 8  # that are worked out
_SWAPS: Final = 16  # pods that are tried to be kept


@dataclass(frozen=True, slots=True)
class _Plan:
    leaver: Leaver
    cost: tuple[int, int]


def places_of_both(
    snapshot: Snapshot,
    workload: Workload,
    queue: int,
    may_go: MayGo,
    planned: frozenset[str],
    by_rules: ByRules,
) -> Leaver | None:
    """Return the pods that leave a domain beside victims by the rules; None without a domain.

    `planned`: nodes of places that others were evicted for: no others are made while these can be.
    """
    search = _Search(may_go, by_rules)
    every = may_go.uses
    whole = by_rules(every, False) if every else None
    if whole is None:
        return None
    found = domains_freed(snapshot, workload, queue, whole.assignment, every, whole.candidates)
    best: _Plan | None = None
    for number, within in enumerate(chain((planned,) if planned else (), islice(found, _DOMAINS))):
        plan = search.within(within)
        if plan is not None and (best is None or plan.cost < best.cost):
            best = plan
            if planned and not number:
                break
    return None if best is None else search.with_fewer(best).leaver


@dataclass(frozen=True, slots=True)
class _Search:
    may_go: MayGo
    by_rules: ByRules

    def within(self, nodes: frozenset[str] | None) -> _Plan | None:
        """Return what leaves these nodes, all where None; None where that does not help."""
        for able in (self.may_go.idle, self.may_go.uses):
            uses = tuple(each for each in able if nodes is None or each.node in nodes)
            first = self.by_rules(uses, False) if uses else None
            if first is None:
                continue
            leaver = self.may_go.leaving(first.assignment, nodes, first.targets)
            plan = None if leaver is None else self._proven(leaver)
            if plan is not None:
                return plan
        return None

    def with_fewer(self, plan: _Plan) -> _Plan:
        """Return a plan without pods that may stay where the rules then evict fewer devices."""
        whole = plan.leaver
        rows = sorted(zip(whole.pods, whole.uses, strict=True), key=lambda row: -_held(row[1]))
        for pod, _ in islice(rows, _SWAPS):
            other = self._proven(_without(plan.leaver, pod))
            if other is not None and other.cost < plan.cost:
                plan = other
        return plan

    def _proven(self, leaver: Leaver) -> _Plan | None:
        """Return the plan in which these leave; None where rules or nodes do not allow it."""
        found = self.by_rules(leaver.uses, True) if leaver.uses else None
        if found is None or not self.may_go.fits(found.assignment, leaver, found.targets):
            return None
        going = (each.holder for each in found.targets if not each.holder.evicted)
        return _Plan(leaver, (leaver.by, leaver.devices + sum(each.devices for each in going)))


def _without(leaver: Leaver, pod: Uid) -> Leaver:
    rows = zip(leaver.pods, leaver.uses, strict=True)
    left = [(uid, use) for uid, use in rows if uid != pod]
    devices = sum(_held(use) for _, use in left)
    return Leaver(leaver.by, devices, tuple(use for _, use in left), [uid for uid, _ in left])


def _held(use: NodeUse) -> int:
    """Return how many devices a pod holds."""
    return sum(amount for name, amount in use.requests.items() if is_device(name))

"""Victim units: the smallest things that may be evicted, as columns.

A pod is a unit of its own, unless its group's disruption mode is `all`: then all placed pods of the
group in the whole cluster, assumed ones included, are one unit; in a tree those below the highest
group of that mode. A pod of any other group counts as type group all the same, even when the group
object is missing. Only units of a priority strictly below the preemptor's are potential victims.
Source: specification 4.3, 7.3, 8.4 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.many import many
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import UnitVictim
from reprieve.engine.scheduling.victims.harm import IDLE
from reprieve.engine.scheduling.victims.hierarchy import effective_priority, whole_groups
from reprieve.engine.scheduling.victims.importance import break_ties, importance_order

__all__ = ["Units", "potential_units", "stable_order"]


@dataclass(frozen=True, slots=True)
class Units:
    """Units as columns (units,); single pods first, then whole groups.

    `first`: slot of a pod of the unit.
    `of_slot`: (slots,) the unit of each pod, -1 where the pod is in none.
    """

    snapshot: Snapshot
    first: I64
    priority: I64
    grouped: I64  # 1 for type group, 2 for a composite one
    size: I64
    start: I64
    groups: tuple[int, ...]  # of the units from `singles` on
    group_pods: tuple[I64, ...]  # slots of these
    singles: int
    of_slot: I64
    tie: Callable[[int], str] | None = None  # orders units that are equal otherwise; None: by uid
    lost: I64 | None = None  # device-seconds, `harm.IDLE` for idle units; None: they play no role

    def __len__(self) -> int:
        return len(self.first)

    def pods(self, unit: int) -> I64:
        """Return the slots of a unit's pods."""
        if unit < self.singles:
            return self.first[unit : unit + 1]
        return self.group_pods[unit - self.singles]

    def slots(self) -> I64:
        """Return the slots of all pods of all units."""
        return np.flatnonzero(self.of_slot >= 0)

    def slots_of(self, chosen: Mask) -> I64:
        """Return the slots of all pods of these units, (units,)."""
        # Unit -1 reads the last entry.
        return np.flatnonzero(np.append(chosen, False)[self.of_slot])

    def only(self, chosen: Mask) -> Units:
        """Return these units, (units,), alone."""
        kept = np.flatnonzero(chosen)
        if len(kept) == len(self):
            return self
        number = np.full(len(self) + 1, -1, np.int64)  # unit -1 reads the last entry
        number[kept] = np.arange(len(kept))
        singles = int(np.count_nonzero(chosen[: self.singles]))
        groups = (kept[singles:] - self.singles).tolist()
        return replace(
            self,
            first=self.first[kept],
            priority=self.priority[kept],
            grouped=self.grouped[kept],
            size=self.size[kept],
            start=self.start[kept],
            groups=tuple(self.groups[each] for each in groups),
            group_pods=tuple(self.group_pods[each] for each in groups),
            singles=singles,
            of_slot=number[self.of_slot],
            lost=None if self.lost is None else self.lost[kept],
        )

    def flat(self, units: I64) -> tuple[I64, I64]:
        """Return the slots of all pods of these units in order, and each one's place in `units`."""
        sizes = self.size[units]
        place = np.repeat(np.arange(len(units)), sizes)
        slots = np.repeat(self.first[units], sizes)
        ends = np.cumsum(sizes)
        for index in np.flatnonzero(units >= self.singles).tolist():
            part = self.group_pods[int(units[index]) - self.singles]
            slots[ends[index] - len(part) : ends[index]] = part
        return slots, place

    def ordered(self, units: I64) -> I64:
        """Return these units, most important first."""
        order = importance_order(
            self.priority[units],
            self.grouped[units],
            self.size[units],
            self.start[units],
            lambda index: self.leading_uid(int(units[index])),
            None if self.lost is None else self.lost[units],
        )
        return units[order]

    def leading_uid(self, unit: int) -> str:
        """Return the uid of the unit's first pod: highest own priority, earliest start, uid."""
        if self.tie is not None:
            return self.tie(unit)
        if unit < self.singles:
            return self.snapshot.pod_uids[self.first.item(unit)]
        own, start, uids = (
            self.snapshot.pod_priority,
            self.snapshot.pod_start,
            self.snapshot.pod_uids,
        )
        pods: list[int] = self.pods(unit).tolist()
        return str(uids[min(pods, key=lambda slot: (-own[slot], start[slot], uids[slot]))])

    def victims(self, units: I64, violating: I64) -> tuple[UnitVictim, ...]:
        """Return units as values; `violating`: pods of each that break a budget."""
        snapshot, first = self.snapshot, self.first[units]
        groups = np.where(self.grouped[units] > 0, snapshot.pod_group[first], -1).tolist()
        for place in np.flatnonzero(self.grouped[units] > 1).tolist():
            groups[place] = self.groups[int(units[place]) - self.singles]
        keys = snapshot.group_keys
        whole = units >= self.singles
        pods: list[tuple[int, ...]] = [(slot,) for slot in first.tolist()]
        places = np.flatnonzero(whole)
        for place, those in zip(places.tolist(), self._in_order(units[places]), strict=True):
            pods[place] = those
        return tuple(
            many(
                UnitVictim,
                len(units),
                pods=pods,
                priority=self.priority[units].tolist(),
                group=[keys[group] if group >= 0 else "" for group in groups],
                whole_group=whole.tolist(),
                violating=violating.tolist(),
                lost=repeat(None) if self.lost is None else self.lost[units].tolist(),
            )
        )

    def _in_order(self, groups: I64) -> Iterator[tuple[int, ...]]:
        """Yield the pods of each of these units, by node and key."""
        slots, place = self.flat(groups)
        at = place * len(self.snapshot.nodes) + self.snapshot.pod_node[slots]
        order = np.argsort(at)
        slots, at = slots[order], at[order]
        keys = self.snapshot.pod_keys
        break_ties(slots, at[1:] == at[:-1], lambda slot: keys[slot])
        pods: list[int] = slots.tolist()
        start = 0
        for size in self.size[groups].tolist():
            yield tuple(pods[start : start + size])
            start += size


def potential_units(
    snapshot: Snapshot,
    present: Mask,
    below: int,
    policy: Policy,
    *,
    on: Mask | None = None,
    lost: I64 | None = None,
    more: Collection[int] = (),
) -> Units:
    """Return the units of a priority strictly below `below`.

    `present`: (slots,) pods that are there. `on`: only units that have a pod on one of these nodes,
    (nodes,). `lost`: (slots,) device-seconds that are lost with each pod, where they play a role.
    `more`: groups that are evicted as a whole besides those of mode `all`.
    """
    priority = effective_priority(snapshot, policy)
    units = _units(snapshot, present & (priority < below), priority, policy, on, more)
    return units if lost is None else replace(units, lost=_lost(units, lost))


def _lost(units: Units, of_pods: I64) -> I64:
    """Return what each unit loses; a group is idle when all of its pods are."""
    lost = of_pods[units.first]
    if units.group_pods:
        found = of_pods[np.concatenate(units.group_pods)]
        sizes = units.size[units.singles :]
        heads = np.cumsum(sizes) - sizes
        work = np.add.reduceat(np.clip(found, 0, None), heads)
        lost[units.singles :] = np.where(np.maximum.reduceat(found, heads) == IDLE, IDLE, work)
    return lost


def stable_order(numbers: I64 | I32, below: int) -> I64:
    """Return the stable ascending order of numbers from 0 to `below`; few values sort faster."""
    small = numbers.astype(np.uint16) if below <= 1 << 16 else numbers
    return np.argsort(small, kind="stable").astype(np.int64, copy=False)


def _units(
    snapshot: Snapshot,
    chosen: Mask,
    priority: I64,
    policy: Policy,
    on: Mask | None,
    more: Collection[int] = (),
) -> Units:
    grouped = (snapshot.pod_group >= 0) & policy.gates.generic_workload
    whole = whole_groups(snapshot, policy)
    if more:
        whole = whole.copy()
        whole[list(more)] = list(more)
    # Group -1 reads the last entry, which is -1.
    with_group = whole[snapshot.pod_group.astype(np.intp)]
    in_whole = with_group >= 0
    here = chosen if on is None else chosen & on[snapshot.pod_node]
    singles = np.flatnonzero(here & ~in_whole)
    slots = np.flatnonzero(chosen & in_whole)
    if on is not None:
        there = np.zeros(len(whole), np.bool_)
        there[with_group[here & in_whole]] = True
        slots = slots[there[with_group[slots]]]
    slots = slots[stable_order(with_group[slots], len(whole))]
    owner = with_group[slots]
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    sizes = np.diff(heads, append=len(slots))
    every = np.concatenate((singles, slots[heads]))
    start = snapshot.pod_start[every]
    size = np.ones(len(every), np.int64)
    of_slot = np.full(len(snapshot.pod_node), -1, np.int64)
    of_slot[singles] = np.arange(len(singles))
    if len(heads):
        size[len(singles) :] = sizes
        start[len(singles) :] = np.minimum.reduceat(snapshot.pod_start[slots], heads)
        of_slot[slots] = np.repeat(np.arange(len(singles), len(every)), sizes)
    ends = (heads + sizes).tolist()
    groups = owner[heads].tolist()
    kinds = grouped[every].astype(np.int64)
    rows = map(snapshot.group_rows.__getitem__, groups)
    kinds[len(singles) :] += np.array([r is not None and r.composite for r in rows], np.int64)
    return Units(
        snapshot=snapshot,
        first=every,
        priority=priority[every],
        grouped=kinds,
        size=size,
        start=start,
        groups=tuple(groups),
        group_pods=tuple(slots[a:b] for a, b in zip(heads.tolist(), ends, strict=True)),
        singles=len(singles),
        of_slot=of_slot,
    )

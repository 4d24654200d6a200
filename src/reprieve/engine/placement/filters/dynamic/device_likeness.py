"""Nodes that give the same answer to a list of claims, so that one of them answers for all.

They have the same devices as far as the claims read them (`device_columns`). That is enough where
no selector fails for any device, or costs more than the ordinary: what is known of one device then
changes nothing for another, and it does not matter which node is examined first. Otherwise every
node is examined. Nodes that reach devices of others are examined, too. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.devices import DeviceRequest
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.dynamic.device_allocation import Wanted
from reprieve.engine.placement.filters.dynamic.device_columns import (
    CAPACITY,
    DeviceColumns,
    constrained,
)
from reprieve.engine.placement.filters.dynamic.device_costs import Budget, SelectorError
from reprieve.engine.placement.filters.dynamic.device_expressions import Read
from reprieve.engine.placement.filters.dynamic.device_inventory import (
    ORDINARY_COST,
    Inventory,
)
from reprieve.engine.placement.filters.dynamic.device_selectors import Selector
from reprieve.engine.placement.filters.dynamic.device_use import DeviceUse
from reprieve.engine.placement.filters.dynamic.device_values import facts_of
from reprieve.engine.placement.filters.reach import node_sets_of

__all__ = ["Likeness"]

_NAME: Final = "device columns"
_MOST: Final = 4_096  # kinds of devices that a selector is evaluated for beforehand


class Likeness:
    """Which nodes are alike, in the view of one decision."""

    def __init__(self, view: View, inventory: Inventory) -> None:
        snapshot, published = view.snapshot, inventory.published
        slices = snapshot.tables.get(Kind.RESOURCE_SLICE, {})
        self._inventory = inventory
        self._columns: DeviceColumns = snapshot.derived.of(
            _NAME,
            (slices, snapshot.node_index),
            lambda: DeviceColumns(published, snapshot.node_index),
        )
        self._wide: Mask = np.zeros(len(snapshot.nodes), np.bool_)
        for reach in {reach for _, reach, _ in published.wide}:
            if reach.everywhere:
                self._wide[:] = True
            elif reach.terms is not None:
                self._wide |= node_sets_of(view).mask(reach.terms)
        self._reads: dict[tuple[Wanted, ...], frozenset[Read] | None] = {}
        self._certain: dict[tuple[str, tuple[str, ...]], bool] = {}

    def classes(self, wanted: tuple[Wanted, ...], use: DeviceUse) -> I64 | None:
        """Return a number for each node, the same for those that answer alike: (nodes,).

        -1 for those that are like no other; None where each has to be examined.
        """
        if wanted not in self._reads:
            self._reads[wanted] = self._read_by(wanted)
        reads = self._reads[wanted]
        if reads is None:
            return None
        found = self._columns.classes(reads, use.use_numbers())
        found[self._wide] = -1
        return found

    def _read_by(self, wanted: tuple[Wanted, ...]) -> frozenset[Read] | None:
        """Return what claims read of devices, None where selectors may have no value."""
        reads = {constrained(each.attribute) for claim in wanted for each in claim.constraints}
        for request in _requests(wanted):
            if not self._is_certain(request):
                return None
            for selector in self._selectors(request):
                reads |= selector.reads
            if request.capacity:
                reads.add(CAPACITY)
        return frozenset(reads)

    def _selectors(self, request: DeviceRequest) -> list[Selector]:
        row = self._inventory.classes["", request.device_class]
        return [self._inventory.compiled(text) for text in (*row.selectors, *request.selectors)]

    def _is_certain(self, request: DeviceRequest) -> bool:
        key = (request.device_class, request.selectors)
        if key not in self._certain:
            self._certain[key] = self._never_fails(self._selectors(request))
        return self._certain[key]

    def _never_fails(self, selectors: list[Selector]) -> bool:
        """Return whether all selectors have a value for every device, at the ordinary cost."""
        if not selectors:
            return True
        reads = frozenset().union(*(each.reads for each in selectors))
        kinds = self._columns.kinds(reads)
        _, first = np.unique(kinds, return_index=True)
        numbers = np.union1d(first, np.flatnonzero(kinds < 0)).tolist()
        wide = [each for _, _, devices in self._inventory.published.wide for each in devices]
        if len(numbers) + len(wide) > _MOST:
            return False
        for device in (*(self._columns.devices[number] for number in numbers), *wide):
            budget = Budget(ORDINARY_COST)
            try:
                facts = device.facts or facts_of(device.id[0], device.row)
                for selector in selectors:
                    if not selector(facts, budget):
                        break
            except SelectorError:
                return False
        return True


def _requests(wanted: Iterable[Wanted]) -> Iterator[DeviceRequest]:
    for claim in wanted:
        for request in claim.requests:
            yield from request.alternatives

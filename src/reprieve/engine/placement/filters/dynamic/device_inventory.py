"""The devices that each node reaches, and which of them classes and requests select.

Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.devices import (
    DeviceClassRow,
    DeviceId,
    DeviceRequest,
    Reach,
)
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.dynamic.device_costs import (
    MAX_COST,
    Budget,
    CostExceeded,
    SelectorError,
)
from reprieve.engine.placement.filters.dynamic.device_pools import (
    Pool,
    PoolDevice,
    published_in,
)
from reprieve.engine.placement.filters.dynamic.device_selectors import (
    Evaluate,
    Selector,
    compile_selector,
)
from reprieve.engine.placement.filters.dynamic.device_values import facts_of
from reprieve.engine.placement.filters.reach import NodeSets, node_sets_of

__all__ = [
    "ORDINARY_COST",
    "Inventory",
    "Selected",
    "SelectionFailed",
]

ORDINARY_COST: Final = 200  # of all selectors of a request for one device
_OTHER_MEMBERS: Final = ("attributes", "capacity", "allowMultipleAllocations")  # of a device
_EXTRA_COST: Final = 10 * MAX_COST  # of a request's selectors over all devices, beyond that


class SelectionFailed(Exception):
    """A selector has no value for a device; the text begins with the class when it is the class's.

    `of_claim`: the caller has to prepend the claim.
    """

    def __init__(self, text: str, of_claim: bool) -> None:
        super().__init__(text)
        self.of_claim = of_claim


class Selected:
    """Which devices the selectors of a class and a request select, as far as it was evaluated.

    A selector that was too costly for one device is evaluated for no other, and what all devices
    together may cost beyond the ordinary is bounded, since devices are many, whether the selectors
    have a value for them or not. Selectors that read nothing but the driver are evaluated for one
    device of each, as long as that costs no more than the ordinary.
    """

    def __init__(
        self, tests: Sequence[tuple[int, Evaluate, str | None]], by_driver: bool = False
    ) -> None:
        """`tests`: number of the selector, its function, name of its class if it is a class's.

        `by_driver`: they read nothing of a device but its driver.
        """
        self._tests = tests
        self._by_driver = by_driver
        self._drivers: dict[str, bool] = {}
        self._extra = _EXTRA_COST
        self._too_costly: tuple[str, bool] | None = None
        self.known: dict[DeviceId, bool] = {}
        self._failed: dict[DeviceId, tuple[str, bool]] = {}

    def holds(self, device: PoolDevice) -> bool:
        """Return whether all selectors select a device.

        Raises:
            SelectionFailed: one has no value for it.
        """
        found = self.known.get(device.id)
        if found is not None:
            return found
        failed = self._failed.get(device.id, self._too_costly)
        if failed is not None:
            raise SelectionFailed(*failed)
        driver, extra = device.id[0], self._extra
        if driver in self._drivers:
            found = self.known[device.id] = self._drivers[driver]
            return found
        try:
            found = self.known[device.id] = self._ask(device)
            if self._by_driver and self._extra == extra:
                self._drivers[driver] = found
        except SelectionFailed as error:
            self._failed[device.id] = str(error), error.of_claim
            raise
        return found

    def _ask(self, device: PoolDevice) -> bool:
        left = self._extra + ORDINARY_COST
        for number, evaluate, class_name in self._tests:
            allowed = min(MAX_COST, left)
            budget = Budget(allowed)
            try:
                if device.facts is None:
                    device.facts = facts_of(device.id[0], device.row)
                holds = evaluate(device.facts, budget)
            except SelectorError as error:
                whose = f"class {class_name}: " if class_name is not None else ""
                where = "/".join(device.id)
                text = f"{whose}selector #{number} on device {where}: CEL runtime error: {error}"
                if isinstance(error, CostExceeded):
                    self._too_costly = (text, class_name is None)
                raise SelectionFailed(text, class_name is None) from None
            finally:
                left -= allowed - budget.left
                self._extra = min(self._extra, left)
            if not holds:
                return False
        return True


class Inventory:
    """All pools of a snapshot."""

    def __init__(self, view: View) -> None:
        tables = view.snapshot.tables
        self.classes: Mapping[tuple[str, str], DeviceClassRow] = tables.get(Kind.DEVICE_CLASS, {})
        self._sets: NodeSets = node_sets_of(view)
        self._nodes = view.snapshot.nodes
        self._index = view.snapshot.node_index
        self.published = published_in(view.snapshot)
        self._at: dict[int, list[tuple[Pool, list[PoolDevice]]]] = {}
        self._compiled: dict[str, Selector] = {}
        self._selected: dict[tuple[str, tuple[str, ...]], Selected] = {}

    def at(self, node: int) -> list[tuple[Pool, list[PoolDevice]]]:
        """Return the pools that a node has access to with the devices it reaches, in order."""
        known = self._at.get(node)
        if known is None:
            found: dict[int, list[PoolDevice]] = {}
            parts = self.published.on(self._nodes[node].name)
            if self.published.wide:
                wide = [(n, d) for n, reach, d in self.published.wide if self._reaches(reach, node)]
                parts = sorted([*parts, *wide], key=lambda part: part[0])
            for number, devices in parts:
                found.setdefault(number, []).extend(devices)
            pools = self.published.pools
            known = [(pools[number], devices) for number, devices in found.items()]
            self._at[node] = known
        return known

    def device(self, device: DeviceId) -> PoolDevice | None:
        """Return a published device."""
        return self.published.device(device)

    def nodes_of(self, device: PoolDevice) -> I64 | None:
        """Return the nodes whose answers a device has a part in, None for all.

        Counters are shared in the pool, so what one partition uses others may lack elsewhere; a
        pool with counters that is not on one node counts as everywhere.
        """
        reach = device.reach
        if not reach.node:
            return None
        if device.row.consumes and not device.pool.on_one_node:
            return None
        index = self._index.get(reach.node)
        return np.array([] if index is None else [index], np.int64)

    def selected(self, request: DeviceRequest) -> Selected:
        """Return what class and selectors of a request state about devices."""
        key = (request.device_class, request.selectors)
        found = self._selected.get(key)
        if found is None:
            row = self.classes["", request.device_class]
            tests = [
                *((n, self.compiled(each), row.name) for n, each in enumerate(row.selectors)),
                *((n, self.compiled(each), None) for n, each in enumerate(request.selectors)),
            ]
            texts = (*row.selectors, *request.selectors)
            by_driver = not any(member in text for text in texts for member in _OTHER_MEMBERS)
            found = self._selected[key] = Selected(tests, by_driver)
        return found

    def compiled(self, expression: str) -> Selector:
        """Return the function of an expression.

        Raises:
            UnsupportedSelector: not in the accepted part of CEL.
        """
        known = self._compiled.get(expression)
        if known is None:
            known = self._compiled[expression] = compile_selector(expression)
        return known

    def _reaches(self, reach: Reach, node: int) -> bool:
        return reach.everywhere or (reach.terms is not None and self._sets.holds(reach.terms, node))

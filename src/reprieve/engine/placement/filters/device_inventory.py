"""The devices that each node reaches, which of them are selected, and what of them is taken.

A device is taken by one allocation, or, if it may be allocated several times, by all whose consumed
capacities fit; a partition also takes counters that it shares with others of its pool. Taking and
giving back are exact opposites. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.devices import (
    CapacityPolicy,
    Device,
    DeviceClassRow,
    DeviceId,
    DeviceRequest,
    Reach,
)
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import I64
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.device_costs import (
    MAX_COST,
    Budget,
    CostExceeded,
    SelectorError,
)
from reprieve.engine.placement.filters.device_pools import (
    Pool,
    PoolDevice,
    Published,
    published_in,
)
from reprieve.engine.placement.filters.device_selectors import Evaluate, compile_selector
from reprieve.engine.placement.filters.device_values import facts_of
from reprieve.engine.placement.filters.reach import NodeSets, node_sets_of

__all__ = [
    "DeviceUse",
    "Inventory",
    "Selected",
    "SelectionFailed",
    "consumption",
]

Amounts: TypeAlias = tuple[tuple[str, int], ...]

_ORDINARY_COST: Final = 200  # of all selectors of a request for one device
_OTHER_MEMBERS: Final = ("attributes", "capacity", "allowMultipleAllocations")  # of a device
_EXTRA_COST: Final = 10 * MAX_COST  # of a request's selectors over all devices, beyond that


class SelectionFailed(Exception):
    """A selector has no value for a device; the text begins with the class when it is the class's.

    `of_claim`: the caller has to put the claim in front.
    """

    def __init__(self, text: str, of_claim: bool) -> None:
        super().__init__(text)
        self.of_claim = of_claim


class Selected:
    """Which devices the selectors of a class and a request select, as far as it was asked.

    A selector that was too costly for one device is asked about no other, and what all devices
    together may cost beyond the ordinary is bounded, since devices are many, whether the selectors
    have a value for them or not. Selectors that read nothing but the driver are asked about one
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
        left = self._extra + _ORDINARY_COST
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
        self._compiled: dict[str, Evaluate] = {}
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

        Counters are shared in the pool, so what one partition takes others may miss elsewhere; a
        pool with counters that is not on one node counts as everywhere.
        """
        reach = device.reach
        if not reach.node:
            return None
        if device.row.consumes and not self._one_node(device.pool):
            return None
        index = self._index.get(reach.node)
        return np.array([] if index is None else [index], np.int64)

    def selected(self, request: DeviceRequest) -> Selected:
        """Return what class and selectors of a request say about devices."""
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

    def compiled(self, expression: str) -> Evaluate:
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

    def _one_node(self, pool: Pool) -> bool:
        return len({device.reach for device in pool.devices.values()}) == 1


def consumption(device: Device, asked: Amounts) -> Amounts | None:
    """Return what an allocation consumes of a device that may be allocated several times.

    Amounts are rounded up to what the capacity's policy allows. None: the policy forbids it.
    """
    wanted = dict(asked)
    found = []
    for name, capacity in device.capacity:
        amount = wanted.get(name)
        if capacity.policy is not None:
            rounded = _rounded(capacity.policy, amount)
            if rounded is None:
                return None
            found.append((name, rounded))
        else:
            found.append((name, capacity.value if amount is None else amount))
    return tuple(found)


def _rounded(policy: CapacityPolicy, amount: int | None) -> int | None:
    if amount is None:
        return policy.default
    if policy.values:
        return next((value for value in policy.values if value >= amount), None)
    if policy.minimum is not None:
        over = max(0, amount - policy.minimum)
        step = policy.step or 1
        amount = policy.minimum + -(-over // step) * step
        if policy.maximum is not None and amount > policy.maximum:
            return None
    return amount


class DeviceUse:
    """What is taken of all devices.

    `before`: what was taken already, of the same devices; it is read and never changed.
    """

    def __init__(self, published: Published, before: DeviceUse | None = None) -> None:
        self._published = published
        self._before = before
        # What differs from `before`, as it is now.
        self._holders: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._counters: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        # (driver, pool, counter set): groups of the devices that take from it
        self._together: dict[tuple[str, str, str], list[frozenset[str]]] = {}

    def free(self, device: PoolDevice, asked: Amounts) -> bool:
        """Return whether one more allocation may take a device."""
        holders = self._held(device.id)
        if holders and not device.row.shareable:
            return False
        if not self.sufficient(device, asked):
            return False
        return holders > 0 or not device.row.consumes or self._partition_fits(device)

    def takeable(self, devices: Iterable[PoolDevice], asked: Amounts) -> list[PoolDevice]:
        """Return those of these devices that one more allocation may take, in order."""
        # Every device of a cluster is asked for here, and of most it only matters who holds them.
        held = self._holders
        before = {} if self._before is None else self._before._holders
        found: list[PoolDevice] = []
        for device in devices:
            row = device.row
            if asked or row.shareable or row.consumes:
                if self.free(device, asked):
                    found.append(device)
            elif not held.get(device.id, before.get(device.id, 0)):
                found.append(device)
        return found

    def sufficient(self, device: PoolDevice, asked: Amounts) -> bool:
        """Return whether the capacities of a device leave what is asked for."""
        if not asked and not device.row.shareable:
            return True
        capacities = dict(device.row.capacity)
        if any(name not in capacities for name, _ in asked):
            return False
        if not device.row.shareable:
            return all(amount <= capacities[name].value for name, amount in asked)
        amounts = consumption(device.row, asked)
        if amounts is None:
            return False
        consumed = self._consumed_of(device.id)
        return all(consumed.get(n, 0) + amount <= capacities[n].value for n, amount in amounts)

    def take(self, device: DeviceId, consumed: Amounts) -> None:
        """An allocation takes a device; whether it fits is not asked."""
        self._change(device, consumed, 1)

    def give(self, device: DeviceId, consumed: Amounts) -> None:
        """An allocation gives a device back."""
        self._change(device, consumed, -1)

    def _held(self, device: DeviceId) -> int:
        found = self._holders.get(device)
        if found is None:
            found = 0 if self._before is None else self._before._held(device)
        return found

    def _consumed_of(self, device: DeviceId) -> Mapping[str, int]:
        found = self._consumed.get(device)
        if found is None:
            return {} if self._before is None else self._before._consumed_of(device)
        return found

    def _counters_of(self, pool: tuple[str, str]) -> Mapping[tuple[str, str], int]:
        found = self._counters.get(pool)
        if found is None:
            return {} if self._before is None else self._before._counters_of(pool)
        return found

    def _groups_of(self, place: tuple[str, str, str]) -> Sequence[frozenset[str]]:
        found = self._together.get(place)
        if found is None:
            return () if self._before is None else self._before._groups_of(place)
        return found

    def _change(self, device: DeviceId, consumed: Amounts, sign: int) -> None:
        before = self._held(device)
        if before + sign or self._before is not None:
            self._holders[device] = before + sign
        else:
            del self._holders[device]
        if consumed:
            amounts = self._consumed.get(device)
            if amounts is None:
                amounts = self._consumed[device] = dict(self._consumed_of(device))
            for name, amount in consumed:
                amounts[name] = amounts.get(name, 0) + sign * amount
        if self._published.partitioned and 0 in (before, before + sign):
            self._partition(device, sign)

    def _partition(self, device: DeviceId, sign: int) -> None:
        found = self._published.device(device)
        if found is None or not found.row.consumes:
            return
        taken = self._counters.get(device[:2])
        if taken is None:
            taken = self._counters[device[:2]] = dict(self._counters_of(device[:2]))
        groups = dict(found.row.compatibility)
        for counter_set, counters in found.row.consumes:
            for counter, amount in counters:
                key = (counter_set, counter)
                taken[key] = taken.get(key, 0) + sign * amount
            place = (*device[:2], counter_set)
            together = self._together.get(place)
            if together is None:
                together = self._together[place] = [*self._groups_of(place)]
            own = groups.get(counter_set, frozenset())
            if sign > 0:
                together.append(own)
            else:
                together.remove(own)

    def _partition_fits(self, device: PoolDevice) -> bool:
        driver, pool, _ = device.id
        taken = self._counters_of((driver, pool))
        groups = dict(device.row.compatibility)
        for counter_set, counters in device.row.consumes:
            for counter, amount in counters:
                key = (counter_set, counter)
                if taken.get(key, 0) + amount > device.pool.counters.get(key, 0):
                    return False
            others = self._groups_of((driver, pool, counter_set))
            if not _compatible(groups.get(counter_set, frozenset()), others):
                return False
        return True


def _compatible(own: frozenset[str], others: Sequence[frozenset[str]]) -> bool:
    if not others:
        return True
    if not own:
        return not any(others)
    return bool(own.intersection(*others))

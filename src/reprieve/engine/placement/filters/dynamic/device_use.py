"""What is used of devices.

A device is used by one allocation, or, if it may be allocated several times, by all whose consumed
capacities fit; a partition also consumes counters that it shares with others of its pool.
Allocation and release are exact opposites. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.devices import CapacityPolicy, Device, DeviceId
from reprieve.engine.placement.filters.dynamic.device_pools import PoolDevice, Published

__all__ = ["DeviceUse", "consumption"]

Amounts: TypeAlias = tuple[tuple[str, int], ...]


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
    """What is used of all devices.

    `before`: what was in use already, of the same devices; it is read and never changed.
    """

    def __init__(self, published: Published, before: DeviceUse | None = None) -> None:
        self._published = published
        self._before = before
        # What differs from `before`, as it is now.
        self._holders: dict[DeviceId, int] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._counters: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        # (driver, pool, counter set): groups of the devices that consume from it
        self._together: dict[tuple[str, str, str], list[frozenset[str]]] = {}
        self._used: tuple[I64, dict[Amounts, int]] | None = None

    def use_numbers(self) -> I64:
        """Return a number for what is used of each local device, 0 where that is nothing."""
        return self._numbers()[0]

    def _numbers(self) -> tuple[I64, dict[Amounts, int]]:
        """Return the same, with the numbers of consumed amounts of devices that are in use."""
        if self._used is None:
            if self._before is None:
                found = np.zeros(len(self._published.numbered), np.int64)
                numbers: dict[Amounts, int] = {(): 1}
            else:
                before, known = self._before._numbers()
                found, numbers = before.copy(), known.copy()
            devices, codes = [], []
            for device, holders in self._holders.items():
                known_device = self._published.device(device)
                if known_device is None or known_device.number < 0:
                    continue
                devices.append(known_device.number)
                if not self._consumed and self._before is None:
                    codes.append(1)
                    continue
                amounts = tuple(
                    sorted(each for each in self._consumed_of(device).items() if each[1])
                )
                used = holders > 0 or amounts
                codes.append(numbers.setdefault(amounts, len(numbers) + 1) if used else 0)
            found[devices] = codes
            self._used = found, numbers
        return self._used

    def free(self, device: PoolDevice, asked: Amounts) -> bool:
        """Return whether one more allocation may use a device."""
        holders = self._held(device.id)
        if holders and not device.row.shareable:
            return False
        if not self.sufficient(device, asked):
            return False
        return holders > 0 or not device.row.consumes or self._partition_fits(device)

    def takeable(self, devices: Iterable[PoolDevice], asked: Amounts) -> list[PoolDevice]:
        """Return those of these devices that one more allocation may use, in order."""
        # Every device of a cluster is requested here, and of most it only matters who holds them.
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
        """Return whether the capacities of a device leave what is requested."""
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

    def settled(self) -> DeviceUse:
        """Return what is used now, without a reference to what was used before."""
        before = self._before
        if before is None:
            return self
        found = DeviceUse(self._published)
        found._holders = {**before._holders, **self._holders}
        for device, holders in self._holders.items():
            if not holders:
                del found._holders[device]
        found._consumed = {**before._consumed, **self._consumed}
        found._counters = {**before._counters, **self._counters}
        found._together = {**before._together, **self._together}
        found._used = self._numbers()
        return found

    def use(self, device: DeviceId, consumed: Amounts) -> None:
        """An allocation uses a device; whether it fits is not checked."""
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
        self._used = None
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
        used = self._counters.get(device[:2])
        if used is None:
            used = self._counters[device[:2]] = dict(self._counters_of(device[:2]))
        groups = dict(found.row.compatibility)
        for counter_set, counters in found.row.consumes:
            for counter, amount in counters:
                key = (counter_set, counter)
                used[key] = used.get(key, 0) + sign * amount
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
        used = self._counters_of((driver, pool))
        groups = dict(device.row.compatibility)
        for counter_set, counters in device.row.consumes:
            for counter, amount in counters:
                key = (counter_set, counter)
                if used.get(key, 0) + amount > device.pool.counters.get(key, 0):
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

"""The pools of devices that drivers publish, read once for all decisions on the same slices.

Of a pool only the slices of its highest generation count; a pool that lacks slices or names a
device twice is not used. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.cluster.devices import Device, DeviceId, Reach, ResourceSliceRow
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filters.dynamic.device_values import DeviceFacts

__all__ = ["Pool", "PoolDevice", "Published", "published_in"]

_NAME: Final = "published devices"


@dataclass(slots=True)
class Pool:
    """A pool of a driver at its highest generation."""

    driver: str
    name: str
    usable: bool = True
    counters: dict[tuple[str, str], int] = field(default_factory=dict)  # (set, counter): amount
    devices: dict[str, PoolDevice] = field(default_factory=dict)

    @property
    def on_one_node(self) -> bool:
        """Whether all devices are reached from the same nodes."""
        return len({device.reach for device in self.devices.values()}) == 1


@dataclass(slots=True, eq=False)
class PoolDevice:
    """A device with its pool. `reach`: its own or its slice's. `number`: -1 if that is wide."""

    id: DeviceId
    row: Device
    pool: Pool
    reach: Reach
    facts: DeviceFacts | None = None
    number: int = -1


class Published:
    """All pools, and where their devices are.

    `wide`: devices that more nodes than one may reach, with the number of their pool. `local`: by
    name of the node that alone reaches them, likewise. `numbered`: the latter, by their numbers.
    `partitioned`: whether any device consumes counters.
    """

    def __init__(self, rows: Iterable[ResourceSliceRow]) -> None:
        self.pools: list[Pool] = []  # by driver and name
        self.wide: list[tuple[int, Reach, list[PoolDevice]]] = []
        self.partitioned = False
        self.local: dict[str, list[tuple[int, list[PoolDevice]]]] = {}
        self.numbered: list[PoolDevice] = []
        self._by_name: dict[tuple[str, str], Pool] = {}
        self._read(rows)

    def on(self, node: str) -> list[tuple[int, list[PoolDevice]]]:
        """Return the devices that a node alone reaches, with the number of their pool."""
        return self.local.get(node, [])

    def device(self, device: DeviceId) -> PoolDevice | None:
        """Return a published device."""
        pool = self._by_name.get(device[:2])
        return None if pool is None else pool.devices.get(device[2])

    def _read(self, rows: Iterable[ResourceSliceRow]) -> None:
        newest: dict[tuple[str, str], list[ResourceSliceRow]] = {}
        for row in rows:
            slices = newest.setdefault((row.driver, row.pool), [])
            if slices and slices[0].generation > row.generation:
                continue
            if slices and slices[0].generation < row.generation:
                slices.clear()
            slices.append(row)
        for (driver, name), slices in sorted(newest.items()):
            pool = Pool(driver, name, usable=len(slices) >= max(s.slices for s in slices))
            self._by_name[driver, name] = pool
            self.pools.append(pool)
            for row in sorted(slices, key=lambda s: s.name):
                self._read_slice(pool, row)
        self._number()

    def _number(self) -> None:
        for parts in self.local.values():
            for _, devices in parts:
                self.numbered += devices
        for number, device in enumerate(self.numbered):
            device.number = number

    def _read_slice(self, pool: Pool, row: ResourceSliceRow) -> None:
        for counter_set, counters in row.counters:
            for counter, amount in counters:
                pool.counters[counter_set, counter] = amount
        number = len(self.pools) - 1
        places: dict[Reach, list[PoolDevice]] = {}
        for device in row.devices:
            reach = row.reach or device.reach or Reach()
            found = PoolDevice((pool.driver, pool.name, device.name), device, pool, reach)
            pool.usable &= device.name not in pool.devices
            pool.devices[device.name] = found
            places.setdefault(reach, []).append(found)
            self.partitioned |= bool(device.consumes)
        for reach, devices in places.items():
            if not reach.node:
                self.wide.append((number, reach, devices))
            else:
                self.local.setdefault(reach.node, []).append((number, devices))


def published_in(snapshot: Snapshot) -> Published:
    """Return what is published at the time of a snapshot."""
    rows = snapshot.tables.get(Kind.RESOURCE_SLICE, {})
    return snapshot.derived.of(_NAME, (rows,), lambda: Published(rows.values()))

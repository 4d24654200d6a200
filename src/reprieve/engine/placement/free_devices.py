"""The devices of each node that no claim has, by the resource name of their class.

Only devices that one node alone reaches, that stand for themselves (no partitions that share
counters, no shared devices) and that no taint keeps pods from. Where a selector of a class cannot
be read, or has no value, none of its devices counts as free. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reprieve.engine.cluster.claimed import resource_of
from reprieve.engine.cluster.devices import DeviceClassRow, DeviceId, ResourceSliceRow
from reprieve.engine.placement.filters.dynamic.device_costs import SelectorError
from reprieve.engine.placement.filters.dynamic.device_pools import PoolDevice, Published
from reprieve.engine.placement.filters.dynamic.device_selectors import (
    Selector,
    UnsupportedSelector,
    compile_selector,
)
from reprieve.engine.placement.filters.dynamic.device_values import facts_of

__all__ = ["DevicesOfNodes"]


class DevicesOfNodes:
    """What slices publish on each node, by the resource names of the classes that select it."""

    def __init__(
        self, slices: Iterable[ResourceSliceRow], extended: Mapping[str, DeviceClassRow]
    ) -> None:
        """`extended`: the class of each extended resource, implicit names among them."""
        classes = {row.name: row for row in extended.values()}
        selectors = {name: _compiled(row) for name, row in classes.items()}
        names = {name: resource_of(name, extended) for name in classes}
        published = Published(slices)
        #: All devices that a claim can be given, wherever they are.
        self.given: frozenset[DeviceId] = frozenset(
            device.id for pool in published.pools if pool.usable for device in pool.devices.values()
        )
        # By node: each device with the names under which it can be requested.
        self._devices: dict[str, list[tuple[DeviceId, tuple[str, ...]]]] = {}
        for node, parts in published.local.items():
            for _, devices in parts:
                for device in devices:
                    found = {
                        names[each]
                        for each, wanted in selectors.items()
                        if wanted is not None and _selects(wanted, device)
                    }
                    if found and _stands_for_itself(device):
                        there = self._devices.setdefault(node, [])
                        there.append((device.id, tuple(sorted(found))))

    def free(self, node: str, used: Collection[DeviceId]) -> dict[str, int]:
        """Return how many devices of a node are free under each name; `used`: by claims."""
        found: dict[str, int] = {}
        for device, names in self._devices.get(node, ()):
            for name in () if device in used else names:
                found[name] = found.get(name, 0) + 1
        return found


def _stands_for_itself(device: PoolDevice) -> bool:
    row = device.row
    kept_off = any(taint.effect in ("NoSchedule", "NoExecute") for taint in row.taints)
    return device.pool.usable and not row.consumes and not row.shareable and not kept_off


def _compiled(row: DeviceClassRow) -> list[Selector] | None:
    try:
        return [compile_selector(each) for each in row.selectors]
    except UnsupportedSelector:
        return None


def _selects(selectors: list[Selector], device: PoolDevice) -> bool:
    if device.facts is None:
        device.facts = facts_of(device.id[0], device.row)
    try:
        return all(each(device.facts) for each in selectors)
    except SelectorError:
        return False

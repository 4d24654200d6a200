"""Devices as columns, and which nodes have the same devices as far as a question reads them.

What a node answers follows from its devices in their order: of each what its pool, its driver and
itself state to any question (taints, counters, what is shared), those values that the selectors and
constraints of the question read, and what of it is in use. Nodes that are equal in all of this give
the same answer, in other devices. Names of devices are in no question. Left out are nodes that
reach devices of other nodes, and those with very many. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.devices import Attribute, AttributeType, DeviceCapacity
from reprieve.engine.placement.filters.dynamic.device_expressions import Read
from reprieve.engine.placement.filters.dynamic.device_pools import PoolDevice, Published
from reprieve.engine.placement.filters.dynamic.device_values import SelectorError, semver_of

__all__ = ["CAPACITY", "DeviceColumns", "attribute_of", "constrained"]

CAPACITY: Final[Read] = ("capacity",)
_CONSTRAINED: Final = "constrained"
_MOST: Final = 128  # devices of a node that is compared with others
_TABLE: Final = 1 << 16  # entries that a table may have at least in which numbers are looked up


def constrained(attribute: str) -> Read:
    """Return the read of a constraint by its attribute."""
    return (_CONSTRAINED, attribute)


def attribute_of(device: PoolDevice, name: str) -> Attribute | None:
    """Return the attribute that a constraint names, with the driver's domain or without."""
    attributes = dict(device.row.attributes)
    domain, _, own = name.partition("/")
    found = attributes.get(name)
    return attributes.get(own) if found is None and domain == device.id[0] else found


class DeviceColumns:
    """The devices that one node alone reaches, by number; made of slices and names of nodes."""

    def __init__(self, published: Published, node_index: Mapping[str, int]) -> None:
        self.devices: Sequence[PoolDevice] = published.numbered
        self._apart: Mask = np.zeros(len(node_index), np.bool_)  # nodes that are left out
        self._columns: dict[Read, I64] = {}
        self._kinds: dict[frozenset[Read], I64] = {}
        self._places: list[tuple[I64, I64]] = []  # numbers of the devices at each, their nodes
        self._base = _base_of(published)
        self._lay_out(published, node_index)

    def kinds(self, reads: frozenset[Read]) -> I64:
        """Return a number for each device, the same for those that are equal in these: (devices,).

        -1 for a device that is not compared with any other.
        """
        known = self._kinds.get(reads)
        if known is None:
            known = self._base
            for read in sorted(reads):
                column = self._columns.get(read)
                if column is None:
                    column = self._columns[read] = self._column(read)
                sizes = int(known.max(initial=-1)) + 2, int(column.max(initial=0)) + 1
                known, _ = _dense((known + 1, column), sizes)
            known = self._kinds[reads] = np.where(self._base < 0, -1, known)
        return known

    def classes(self, reads: frozenset[Read], chosen: I64) -> I64:
        """Return a number for each node, the same for those with equal devices: (nodes,).

        `chosen`: (devices,) a number for what is in use of each. -1 for nodes that are left out.
        """
        kinds = self.kinds(reads)
        found = np.zeros(len(self._apart), np.int64)
        odd = np.zeros(len(self._apart), np.bool_)
        first = 1
        width = int(chosen.max(initial=0)) + 1
        for devices, nodes in self._places:
            kind = kinds[devices]
            odd[nodes[kind < 0]] = True
            numbers, count = _dense(
                (found[nodes], kind + 1, chosen[devices]), (first, int(kinds.max()) + 2, width)
            )
            # Those that end here keep a number below.
            found[nodes] = first + numbers
            first += count
        found[self._apart | odd] = -1
        return found

    def _lay_out(self, published: Published, node_index: Mapping[str, int]) -> None:
        local = published.local
        nodes = np.array([node_index.get(name, -1) for name in local], np.int64)
        size = np.array(
            [sum(len(devices) for _, devices in parts) for parts in local.values()], np.int64
        )
        node = np.repeat(nodes, size)
        place = np.arange(len(node)) - np.repeat(np.cumsum(size) - size, size)
        self._apart[nodes[(size > _MOST) & (nodes >= 0)]] = True
        used = np.flatnonzero((node >= 0) & (place < _MOST))
        order = used[np.argsort(place[used], kind="stable")]
        ends = np.cumsum(np.bincount(place[used]))
        self._places = [(each, node[each]) for each in np.split(order, ends[:-1]) if len(each)]

    def _column(self, read: Read) -> I64:
        value_of = _reader(read)
        numbers: dict[Hashable, int] = {}
        return np.array(
            [numbers.setdefault(value_of(each), len(numbers)) for each in self.devices], np.int64
        )


def _base_of(published: Published) -> I64:
    """Return a number for each device by what every question looks at, -1 for an odd one."""
    numbers: dict[Hashable, int] = {}
    found: list[int] = []
    versions: dict[str, bool] = {}
    for parts in published.local.values():
        places = {number: place for place, number in enumerate(dict(parts))}
        for number, devices in parts:
            pool = published.pools[number]
            counters = tuple(sorted(pool.counters.items()))
            of_pool = (pool.driver, places[number], pool.usable, counters)
            plain = numbers.setdefault(of_pool, len(numbers))
            for device in devices:
                row = device.row
                odd = row.attributes and not _well_formed(row.attributes, versions)
                if odd or (row.consumes and not pool.on_one_node):
                    found.append(-1)
                elif row.shareable or row.consumes or row.taints:
                    own = (
                        of_pool,
                        row.shareable and row.capacity,
                        row.consumes,
                        row.consumes and row.compatibility,
                        row.taints,
                    )
                    found.append(numbers.setdefault(own, len(numbers)))
                else:
                    found.append(plain)
    return np.array(found, np.int64)


def _well_formed(attributes: tuple[tuple[str, Attribute], ...], versions: dict[str, bool]) -> bool:
    """Return whether every version is one: else no selector has a value for the device."""
    for _, attribute in attributes:
        if attribute.type is AttributeType.VERSION:
            text = str(attribute.value)
            known = versions.get(text)
            if known is None:
                known = versions[text] = _is_version(text)
            if not known:
                return False
    return True


def _is_version(text: str) -> bool:
    try:
        semver_of(text)
    except SelectorError:
        return False
    return True


def _reader(read: Read) -> Callable[[PoolDevice], Hashable]:
    """Return what looks up the value that a read names; None where a device has none."""
    kind, *rest = read
    if kind == _CONSTRAINED:
        return lambda device: attribute_of(device, rest[0])
    of_kind = _attributes if kind == "attributes" else _capacities
    if not rest:
        return of_kind
    domain, names = rest[0], rest[1:]
    if not names:
        return lambda device: _in_domain(of_kind(device), device.id[0], domain)
    (name,) = names
    whole = f"{domain}/{name}" if "/" not in domain else ""
    short = name if "/" not in name else ""

    def value(device: PoolDevice) -> Hashable:
        own = short if device.id[0] == domain else ""
        found = None
        for key, each in of_kind(device):
            if key in (whole, own):
                found = each
        return found

    return value


def _in_domain(
    values: tuple[tuple[str, Hashable], ...], driver: str, domain: str
) -> frozenset[tuple[str, Hashable]]:
    found: dict[str, Hashable] = {}
    for name, each in values:
        own, slash, last = name.partition("/")
        if domain == (own if slash else driver):
            found[last if slash else own] = each
    return frozenset(found.items())


def _attributes(device: PoolDevice) -> tuple[tuple[str, Attribute], ...]:
    return device.row.attributes


def _capacities(device: PoolDevice) -> tuple[tuple[str, DeviceCapacity], ...]:
    return device.row.capacity


def _dense(values: Sequence[I64], sizes: Sequence[int]) -> tuple[I64, int]:
    """Return a number from 0 for each row of values, and how many there are.

    `sizes`: the values of each column are below.
    """
    code, total = values[0], sizes[0]
    for column, size in zip(values[1:], sizes[1:], strict=True):
        code, total = code * size + column, total * size
    if total > max(_TABLE, 4 * len(code)):
        known, numbers = np.unique(code, return_inverse=True)
        return numbers.astype(np.int64, copy=False), len(known)
    seen = np.zeros(total, np.bool_)
    seen[code] = True
    table = np.cumsum(seen) - 1
    return table[code], int(table[-1]) + 1

"""The search for devices that fulfil all unallocated claims of a pod on one node.

Depth first with backtracking, in the order given: claims, requests, the alternatives of
`firstAvailable`, then devices, by pool (driver, name), slice and place in it; the first full
solution is used, and all claims are fulfilled or none. Inside a request devices are tried in
ascending order only, since their order does not matter. The search ends after a bounded number of
steps. Source: specification 21.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.cluster.devices import (
    MAX_RESULTS,
    AllocatedDevice,
    AllocationMode,
    Constraint,
    DeviceRequest,
    Request,
)
from reprieve.engine.placement.filters.dynamic.device_columns import attribute_of
from reprieve.engine.placement.filters.dynamic.device_inventory import (
    Inventory,
    Selected,
    SelectionFailed,
)
from reprieve.engine.placement.filters.dynamic.device_pools import Pool, PoolDevice
from reprieve.engine.placement.filters.dynamic.device_use import DeviceUse, consumption
from reprieve.engine.placement.filters.taints import KEEPS_AWAY
from reprieve.engine.selectors import covers

__all__ = ["STEPS", "AllocationFailed", "SearchEnded", "Wanted", "allocate"]

STEPS: Final = 50_000  # devices tried per node


class SearchEnded(Exception):
    """The search exceeded its number of steps."""


class AllocationFailed(Exception):
    """An expression has no value for a device; the attempt ends with this error.

    `claim`: the number of the claim whose own expression it is, None for a class's.
    """

    def __init__(self, text: str, claim: int | None) -> None:
        super().__init__(text)
        self.claim = claim


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim to fulfil. `label`: namespace/name in texts; equal claims have equal answers."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()
    label: str = field(default="", compare=False)


def allocate(
    inventory: Inventory, use: DeviceUse, node: int, claims: Sequence[Wanted]
) -> tuple[tuple[AllocatedDevice, ...], ...] | None:
    """Return the devices of each claim, None when they cannot all be fulfilled on the node.

    `use` is as before when this returns or raises.

    Raises:
        AllocationFailed: a selector has no value for a device.
        SearchEnded: no answer within `STEPS`.
    """
    alone = _alone(claims)
    candidates = None if alone is None else _untied(inventory, use, node, alone)
    try:
        if alone is not None and candidates is not None:
            return _first_selected(inventory, candidates, alone)
    except SelectionFailed as failed:
        raise AllocationFailed(str(failed), 0 if failed.of_claim else None) from None
    search = _Search(inventory, use, node, claims)
    try:
        return search.results if search.claim(0) else None
    except SelectionFailed as failed:
        raise AllocationFailed(str(failed), search.at if failed.of_claim else None) from None
    finally:
        search.undo()


def _alone(claims: Sequence[Wanted]) -> DeviceRequest | None:
    """Return what is requested where it is a number of any devices, and nothing else."""
    if len(claims) != 1 or claims[0].constraints or len(claims[0].requests) != 1:
        return None
    (request,) = claims[0].requests
    (wanted, *others) = request.alternatives
    if others or request.first_available or wanted.name != request.name:
        return None
    counted = wanted.mode is AllocationMode.EXACT_COUNT and 0 < wanted.count <= MAX_RESULTS
    return wanted if counted and not wanted.admin and not wanted.capacity else None


def _untied(
    inventory: Inventory, use: DeviceUse, node: int, wanted: DeviceRequest
) -> list[PoolDevice] | None:
    """Return the devices that may be tried, None where one choice could depend on others.

    Neither do they share counters nor have taints, and they are few enough for any search.
    """
    found = _usable(inventory, use, inventory.at(node), wanted)
    if found is None or len(found) * (wanted.count + 1) > STEPS:
        return None
    return None if any(each.row.consumes or each.row.taints for each in found) else found


def _first_selected(
    inventory: Inventory, candidates: Sequence[PoolDevice], wanted: DeviceRequest
) -> tuple[tuple[AllocatedDevice, ...], ...] | None:
    """Return the first selected ones of these devices, none of which depends on another.

    Selectors are evaluated for the devices that the search would examine, in its order: first those
    that it would choose, and where these cannot be enough all others too, since it tries these
    instead.

    Raises:
        SelectionFailed: a selector has no value for a device.
    """
    selected = inventory.selected(wanted)
    found: list[AllocatedDevice] = []
    enough = _may_be_left(selected, candidates, 0) >= wanted.count
    if not enough:
        return None
    for index, device in enumerate(candidates):
        if not selected.holds(device) or not enough:
            continue
        consumed = consumption(device.row, wanted.capacity) if device.row.shareable else ()
        found.append(_result(wanted.name, device, wanted, consumed or ()))
        if len(found) == wanted.count:
            return (tuple(found),)
        enough = _may_be_left(selected, candidates, index + 1) >= wanted.count - len(found)
    return None


def _may_be_left(selected: Selected, candidates: Sequence[PoolDevice], start: int) -> int:
    """Return how many devices from this one on are not known to be left out."""
    known = selected.known
    if not known:
        return len(candidates) - start
    return sum(known.get(device.id, True) for device in candidates[start:])


def _result(
    name: str, device: PoolDevice, wanted: DeviceRequest, consumed: tuple[tuple[str, int], ...]
) -> AllocatedDevice:
    return AllocatedDevice(
        name,
        device.id,
        wanted.admin,
        consumed=consumed,
        tolerations=wanted.tolerations,
        binding_conditions=device.row.binding_conditions,
        binding_failures=device.row.binding_failures,
    )


class _Search:
    def __init__(
        self, inventory: Inventory, use: DeviceUse, node: int, claims: Sequence[Wanted]
    ) -> None:
        self.at = 0  # the claim that is being worked on
        self._pools = inventory.at(node)
        self._inventory = inventory
        self._use = use
        self._claims = claims
        self._found: list[list[AllocatedDevice]] = [[] for _ in claims]
        self._used: list[tuple[PoolDevice, AllocatedDevice]] = []
        self._candidates: dict[tuple[int, int, int], list[PoolDevice] | None] = {}
        self._steps = 0

    @property
    def results(self) -> tuple[tuple[AllocatedDevice, ...], ...]:
        return tuple(map(tuple, self._found))

    def undo(self) -> None:
        """Return what the search has reserved."""
        for _, result in reversed(self._used):
            if not result.admin:
                self._use.give(result.id, result.consumed)
        self._used.clear()

    def claim(self, number: int) -> bool:
        if number == len(self._claims):
            return True
        return self._request(number, 0)

    def _request(self, claim: int, number: int) -> bool:
        self.at = claim
        requests = self._claims[claim].requests
        if number == len(requests):
            return self.claim(claim + 1)
        request = requests[number]
        return any(
            self._devices(claim, number, place, 0, 0) for place in range(len(request.alternatives))
        )

    def _devices(self, claim: int, number: int, place: int, done: int, start: int) -> bool:
        self.at = claim
        request = self._claims[claim].requests[number]
        wanted = request.alternatives[place]
        candidates = self._candidates_of(claim, number, place)
        if candidates is None:
            return False
        every = wanted.mode is AllocationMode.ALL
        needed = len(candidates) if every else wanted.count
        if done == needed:
            return not (every and not needed) and self._request(claim, number + 1)
        least = len(self._found[claim]) + needed - done + self._least(claim, number + 1)
        if least > MAX_RESULTS:
            return False
        if every:
            return self._try(claim, number, place, done, done)
        left = _may_be_left(self._inventory.selected(wanted), candidates, start)
        return left >= needed - done and any(
            self._try(claim, number, place, done, index) for index in range(start, len(candidates))
        )

    def _least(self, claim: int, number: int) -> int:
        """Return how many devices a claim's requests from this one on need at least."""
        return sum(
            min(
                each.count if each.mode is AllocationMode.EXACT_COUNT else 1
                for each in request.alternatives
            )
            for request in self._claims[claim].requests[number:]
        )

    def _try(self, claim: int, number: int, place: int, done: int, index: int) -> bool:
        self._steps += 1
        if self._steps > STEPS:
            raise SearchEnded
        request = self._claims[claim].requests[number]
        wanted = request.alternatives[place]
        candidates = self._candidates[claim, number, place]
        assert candidates is not None
        device = candidates[index]
        if not self._inventory.selected(wanted).holds(device):
            return False
        name = f"{request.name}/{wanted.name}" if request.first_available else request.name
        if not self._may_use(claim, wanted, device, name):
            return False
        consumed = consumption(device.row, wanted.capacity) if device.row.shareable else ()
        result = _result(name, device, wanted, consumed or ())
        if not wanted.admin:
            self._use.use(device.id, result.consumed)
        self._used.append((device, result))
        self._found[claim].append(result)
        if self._devices(claim, number, place, done + 1, index + 1):
            return True
        self._found[claim].pop()
        self._used.pop()
        if not wanted.admin:
            self._use.give(device.id, result.consumed)
        self.at = claim
        return False

    def _may_use(self, claim: int, wanted: DeviceRequest, device: PoolDevice, name: str) -> bool:
        if wanted.admin:
            if any(result.id == device.id for result in self._found[claim]):
                return False
        elif not self._use.free(device, wanted.capacity):
            return False
        for taint in device.row.taints:
            if taint.effect in KEEPS_AWAY and not any(
                covers(each, taint) for each in wanted.tolerations
            ):
                return False
        return all(
            self._agrees(claim, constraint, device)
            for constraint in self._claims[claim].constraints
            if _concerns(constraint, name)
        )

    def _agrees(self, claim: int, constraint: Constraint, device: PoolDevice) -> bool:
        own = attribute_of(device, constraint.attribute)
        if own is None:
            return False
        count = len(self._found[claim])
        others = [
            attribute_of(other, constraint.attribute)
            for other, result in self._used[len(self._used) - count :]
            if _concerns(constraint, result.request)
        ]
        return own not in others if constraint.distinct else all(own == other for other in others)

    def _candidates_of(self, claim: int, number: int, place: int) -> list[PoolDevice] | None:
        key = (claim, number, place)
        if key not in self._candidates:
            wanted = self._claims[claim].requests[number].alternatives[place]
            # They must not depend on what the search holds at this moment.
            held = [result for _, result in self._used if not result.admin]
            for result in reversed(held):
                self._use.give(result.id, result.consumed)
            try:
                self._candidates[key] = _usable(self._inventory, self._use, self._pools, wanted)
            finally:
                for result in held:
                    self._use.use(result.id, result.consumed)
        return self._candidates[key]


def _usable(
    inventory: Inventory,
    use: DeviceUse,
    pools: Sequence[tuple[Pool, Sequence[PoolDevice]]],
    wanted: DeviceRequest,
) -> list[PoolDevice] | None:
    """Return the devices that may be tried; with mode All those that have to be used."""
    every = wanted.mode is AllocationMode.ALL
    selected = inventory.selected(wanted)
    found: list[PoolDevice] = []
    for pool, devices in pools:
        if not pool.usable:
            if every:
                return None
            continue
        if not every and not wanted.admin:
            found += use.takeable(devices, wanted.capacity)
            continue
        for device in devices:
            if every and not selected.holds(device):
                continue
            if use.sufficient(device, wanted.capacity):
                found.append(device)
    return found


def _concerns(constraint: Constraint, request: str) -> bool:
    named = constraint.requests
    return not named or request in named or request.partition("/")[0] in named

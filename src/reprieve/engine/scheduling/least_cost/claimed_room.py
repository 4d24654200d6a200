"""The devices that members claim, as amounts of nodes: what is free, and what each pod frees.

With `simulateClaims` the devices of victims come free. Requests for a number of devices of a class
are counted, by class and selectors; what else a claim requests (all devices of a node, one of
several forms, equal attributes) is left to the filters. A device that several nodes reach counts on
each, and one of a claim with several users, or on another node than its user, counts as free: there
is never more capacity than is reported. Source: specification 21.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.devices import AllocationMode, DeviceId, DeviceRequest
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filters.dynamic.claims_alike import asked_alike
from reprieve.engine.placement.filters.dynamic.device_inventory import SelectionFailed
from reprieve.engine.placement.filters.dynamic.device_selectors import UnsupportedSelector
from reprieve.engine.placement.filters.dynamic.device_state import DeviceState, device_state_of
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.needs import MANY, Needs

__all__ = ["ClaimedRoom", "claimed_room", "claims_of"]

#: A class of devices and the selectors of a request.
_Sort: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ClaimedRoom:
    """Devices of one sort: `amounts` (classes,), `most` (nodes,) with no unit there.

    `frees`: (slots,) what each pod of a unit frees on its node.
    """

    amounts: I64
    most: I64
    frees: I64


def claims_of(simulation: Simulation, pending: Pending) -> tuple[tuple[_Sort, int], ...]:
    """Return how many devices of each sort a member claims; nothing without `simulateClaims`."""
    if not simulation.policy.simulate_claims or not pending.row.claims:
        return ()
    found: Counter[_Sort] = Counter()
    for requests, _ in asked_alike(simulation.snapshot, pending) or ():
        for request in requests:
            if len(request.alternatives) == 1 and _is_number(request.alternatives[0]):
                only = request.alternatives[0]
                found[only.device_class, only.selectors] += only.count
    return tuple(sorted(found.items()))


def _is_number(asked: DeviceRequest) -> bool:
    exact = asked.mode is AllocationMode.EXACT_COUNT
    return exact and not asked.admin and not asked.unsupported and bool(asked.device_class)


def claimed_room(simulation: Simulation, needs: Needs, slots: I64) -> Iterator[ClaimedRoom]:
    """Yield the free amount of each sort of devices that members claim.

    `needs`: of the members, those of one class with the same claims. `slots`: of the pods of all
    units.
    """
    asked = [dict(claims_of(simulation, pending)) for pending in needs.classes]
    sorts = sorted(set().union(*asked))
    if not sorts:
        return
    state = device_state_of(simulation)
    owners = _owners(simulation, state, slots)
    for sort in sorts:
        found = _devices(simulation, state, sort)
        if found is None:
            continue
        most, nodes_of = found
        frees = np.zeros(len(slots), np.int64)
        for device, place in owners.items():
            nodes = nodes_of.get(device, ())
            if place is None:
                for node in nodes:
                    most[node] -= 1
            elif place >= 0 and [*nodes] == [simulation.snapshot.pod_node.item(slots[place])]:
                frees[place] += 1
        amounts = np.array([each.get(sort, 0) for each in asked], np.int64)
        yield ClaimedRoom(amounts, most, frees)


def _devices(
    simulation: Simulation, state: DeviceState, sort: _Sort
) -> tuple[I64, Mapping[DeviceId, list[int]]] | None:
    """Return how many devices of a sort each node reaches, and the nodes of each device.

    None where a selector states nothing of a device.
    """
    if ("", sort[0]) not in state.inventory.classes:
        return None
    most = np.zeros(len(simulation.snapshot.nodes), np.int64)
    nodes_of: dict[DeviceId, list[int]] = {}
    try:
        selected = state.inventory.selected(DeviceRequest("", *sort))
        for node in range(len(most)):
            for _, devices in state.inventory.at(node):
                for device in devices:
                    if not selected.holds(device):
                        continue
                    # One that may be allocated several times has capacity for any number.
                    most[node] += MANY if device.row.shareable else 1
                    nodes_of.setdefault(device.id, []).append(node)
    except (SelectionFailed, UnsupportedSelector):
        return None
    return np.minimum(most, MANY), nodes_of


def _owners(
    simulation: Simulation, state: DeviceState, slots: I64
) -> Mapping[DeviceId, int | None]:
    """Return by used device the place in `slots` of the pod that frees it.

    None where no pod frees it, -1 where several have to be evicted.
    """
    snapshot = simulation.snapshot
    place_of = {snapshot.pod_uids[slot]: place for place, slot in enumerate(slots.tolist())}
    users = state.users()
    found: dict[DeviceId, int | None] = {}
    for key, row in state.rows.items():
        if row.allocation is None:
            continue
        pods = [place_of.get(uid) for uid in users.get(key, ())]
        place: int | None = None
        if pods and all(each is not None for each in pods):
            place = pods[0] if len(pods) == 1 else -1
        for device in row.allocation.devices:
            if not device.admin:
                found[device.id] = place
    return found

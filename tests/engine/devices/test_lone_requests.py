"""A number of any devices is found as the whole search finds it, and asks selectors the same.

Random nodes with devices that selectors take, leave out or have no value for, that are shared, have
taints or take counters; some are held by others. Both ways are asked about the same nodes in the
same order, twice, so that what is known of a device from before counts in both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from reprieve.engine.cluster.devices import Request
from reprieve.engine.placement.filters.dynamic import device_allocation
from reprieve.engine.placement.filters.dynamic.device_allocation import (
    AllocationFailed,
    SearchEnded,
    Wanted,
    allocate,
)
from reprieve.engine.placement.filters.dynamic.device_inventory import Inventory
from reprieve.engine.placement.filters.dynamic.device_use import DeviceUse
from tests.engine.builders import node, pod, snapshot_of, taint
from tests.engine.devices.drivers import (
    DRIVER,
    asks,
    device,
    device_class,
    published,
)
from tests.engine.volumes.storage import simulation_of

CASES = 400
NODES = 3
OF_KIND = f"device.attributes['{DRIVER}'].kind == 1"


def devices(chosen: random.Random) -> list[Any]:
    """What one node has."""
    odd = chosen.random() < 0.2
    found = []
    for number in range(chosen.randint(1, 7)):
        facts: dict[str, Any] = {}
        if chosen.random() < 0.95:
            facts["kind"] = chosen.choice([0, 1, 1])
        if odd and chosen.random() < 0.4:
            facts["shareable"] = True
        if odd and chosen.random() < 0.3:
            facts["taints"] = (taint("broken=yes:NoSchedule"),)
        if odd and chosen.random() < 0.3:
            facts["consumes"] = (("shared", (("slots", 1),)),)
        found.append(device(f"gpu-{number}", **facts))
    return found


def case(seed: int) -> tuple[Any, list[tuple[str, str, str]], Request]:
    """Three nodes, the devices that others hold, and a request."""
    chosen = random.Random(f"lone {seed}")
    rows: list[Any] = [device_class(), pod("p")]
    held: list[tuple[str, str, str]] = []
    for number in range(NODES):
        own = devices(chosen)
        counters = (("shared", (("slots", 2),)),)
        rows += [node(f"n{number}"), published(f"n{number}", own, counters=counters)]
        held += [(DRIVER, f"n{number}", each.name) for each in own if chosen.random() < 0.3]
    selectors = (OF_KIND,) if chosen.random() < 0.8 else ()
    return simulation_of(snapshot_of(*rows)), held, asks("r", chosen.randint(1, 4), *selectors)


def told(seed: int, seen: Counter[str]) -> tuple[list[Any], Any]:
    """What each node answers when it is asked twice, and what is known of the devices then."""
    view, held, request = case(seed)
    inventory = Inventory(view)
    use = DeviceUse(inventory.published)
    for each in held:
        use.use(each, ())
    said: list[Any] = []
    for index in [*range(NODES), *range(NODES)]:
        try:
            answer = allocate(inventory, use, index, (Wanted((request,)),))
        except (AllocationFailed, SearchEnded) as failed:
            said.append((type(failed), str(failed), getattr(failed, "claim", None)))
            seen["failed"] += 1
            continue
        said.append(answer)
        seen["yes" if answer else "no"] += 1
        if answer:
            # From now on it is held.
            use.use(answer[0][0].id, answer[0][0].consumed)
    return said, inventory.selected(request.alternatives[0]).known


def test_a_lone_request_is_answered_as_by_the_whole_search() -> None:
    seen, directly = Counter[str](), Counter[str]()
    first_selected: Callable[..., Any] = device_allocation._first_selected

    def counted(*arguments: Any) -> Any:
        directly["asked"] += 1
        return first_selected(*arguments)

    for seed in range(CASES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device_allocation, "_first_selected", counted)
            found = told(seed, seen)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device_allocation, "_alone", lambda claims: None)
            expected = told(seed, Counter())
        assert found == expected, seed
    asked = 2 * NODES * CASES
    assert directly["asked"] >= asked // 2
    assert directly["asked"] < asked
    assert min(seen["yes"], seen["no"]) >= asked // 10
    assert seen["failed"] >= asked // 50

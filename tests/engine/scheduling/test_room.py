"""Room tells how far victims have to go before any placement is tried, and never too much."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.room import room_for
from reprieve.engine.scheduling.victims.units import Units, potential_units
from tests.engine.builders import gang, node, pod, snapshot_of

POLICY = Policy(binary_search_priority=True)


def attempt(snapshot: Snapshot) -> Attempt:
    """Decide about the waiting gang `train`."""
    found = Session(snapshot, POLICY).attempt(Unit(tuple(snapshot.pending), "default/train"))
    assert found is not None and found.preemption is not None
    return found


def layers(count: int = 6, **facts: Any) -> Snapshot:
    """Full nodes, each with two pods of every priority; the gang needs three priorities to go."""
    nodes = [
        node(f"n{number}", gpus=2 * count, labels={"rack": f"{number}"}) for number in range(2)
    ]
    pods = [
        pod(f"p{priority}-{place}-{copy}", gpus=1, priority=priority, node=f"n{place}")
        for priority in range(count)
        for place in range(2)
        for copy in range(2)
    ]
    return snapshot_of(*nodes, *pods, gang(2, "train", gpus=5, priority=100, **facts))


def test_where_only_room_counts_one_placement_finds_the_lowest_priority() -> None:
    found = attempt(layers()).preemption
    assert found is not None
    assert found.placements == 1
    assert max(unit.priority for unit in found.victims) == 2


def test_room_that_is_not_enough_for_other_filters_is_looked_for_further_up() -> None:
    # With three priorities gone there is room, one member on each node; but they want one rack.
    found = attempt(layers(topology_key="rack")).preemption
    assert found is not None
    # Both on one node: ten of its twelve devices.
    assert max(unit.priority for unit in found.victims) == 4
    assert 1 < found.placements <= (6).bit_length()


def clusters(seed: int) -> Snapshot:
    """A random cluster of single pods and groups of all kinds of several priorities."""
    chosen = random.Random(seed)
    places = [f"n{number}" for number in range(chosen.randint(2, 5))]
    rows: list[Any] = [node(name, gpus=8) for name in places]
    for number in range(chosen.randint(4, 10)):
        priority = chosen.randint(0, 12)
        if chosen.random() < 0.5:
            rows.append(pod(f"p{number}", gpus=1, priority=priority, node=chosen.choice(places)))
            continue
        size = chosen.randint(1, 4)
        rows.append(
            gang(
                size,
                f"g{number}",
                gpus=1,
                priority=priority,
                all_or_nothing=chosen.random() < 0.6,
                nodes=[chosen.choice(places) for _ in range(size)],
            )
        )
    rows.append(gang(chosen.randint(1, 4), "train", gpus=chosen.choice([2, 4, 6]), priority=10))
    return snapshot_of(*rows)


def units_of(snapshot: Snapshot, below: int) -> Units:
    """Return the units of a priority below this."""
    return potential_units(snapshot, snapshot.pod_node >= 0, below, POLICY)


def listed(units: Units) -> list[tuple[object, ...]]:
    """Return all that units say."""
    return [
        (
            units.pods(unit).tolist(),
            units.priority[unit],
            units.grouped[unit],
            units.size[unit],
            units.start[unit],
            np.flatnonzero(units.of_slot == unit).tolist(),
        )
        for unit in range(len(units))
    ]


def test_some_units_alone_are_the_same_as_if_they_had_been_found_alone() -> None:
    fewer = with_groups = 0
    for seed in range(100):
        snapshot = clusters(seed)
        every = units_of(snapshot, 10)
        for below in range(0, 11, 2):
            found = every.only(every.priority < below)
            anew = units_of(snapshot, below)
            assert listed(found) == listed(anew), (seed, below)
            assert found.groups == anew.groups
            assert found.slots().tolist() == anew.slots().tolist()
            fewer += 0 < len(found) < len(every)
            with_groups += bool(found.groups) and len(found.groups) < len(every.groups)
    assert fewer > 150 and with_groups > 50


def test_halving_finds_the_first_step_with_room() -> None:
    inside = none = 0
    for seed in range(200):
        snapshot = clusters(seed)
        units = units_of(snapshot, 10)
        if not len(units):
            continue
        simulation = Simulation(snapshot, POLICY, POLICY.profiles[0])
        queued = list(snapshot.pending.values())
        room, sure = room_for(simulation, simulation.used, queued)
        assert sure
        levels = np.unique(units.priority).tolist()
        fits = [
            room.without(units_of(snapshot, level).slots()).pods() >= len(queued)
            for level in levels
        ]
        expected = fits.index(True) if True in fits else len(levels)
        enough = room.without(units.slots()).pods() >= len(queued)
        assert room.levels(units, len(queued)) == expected
        inside += 0 < expected < len(levels)
        none += not enough
    assert inside > 20 and none > 10

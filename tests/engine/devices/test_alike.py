"""Nodes that are alike, and pods that ask for the same, answer as if each was asked by itself.

Random clusters of nodes with a few layouts of devices: with identities that nobody reads, in use or
not, shared, with taints or counters, of several pools, or reached by several nodes; and claims of
every kind, among them such whose selectors have no value for some devices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.derived import Derived
from reprieve.engine.cluster.devices import DeviceCapacity, Reach, Request
from reprieve.engine.cluster.rows import Gone
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement import compiled
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.filters.dynamic import device_state, devices
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.reservations import reservations_of
from tests.engine.builders import cluster_of, node, pending_of, pod, snapshot_of, taint
from tests.engine.devices.drivers import (
    DRIVER,
    alternative,
    asks,
    claims,
    device,
    device_class,
    distinct,
    first_of,
    published,
    resource_claim,
    same,
)

CASES = 150
NODES = 60
WAITING = ("p", "q", "r", "s")
OF_KIND = f"device.attributes['{DRIVER}'].kind == 1"
BY_NAME = f"'kind' in device.attributes['{DRIVER}'] && device.attributes['{DRIVER}'].kind == 1"
SMALL = (
    f"cel.bind(c, device.capacity['{DRIVER}'], has(c.memory) && c.memory.isLessThan(quantity('3')))"
)


def layout(chance: random.Random) -> list[dict[str, Any]]:
    """What the devices of one kind of node have."""
    found = []
    odd = chance.random() < 0.3
    for _ in range(chance.randint(0, 5)):
        facts: dict[str, Any] = {"half": chance.randint(0, 1)}
        if chance.random() < 0.97:
            facts["kind"] = chance.choice([0, 1, 1])
        if chance.random() < 0.6:
            facts["capacity"] = {"memory": DeviceCapacity(1_000 * chance.randint(1, 4))}
        if odd and chance.random() < 0.4:
            facts["shareable"] = True
        if odd and chance.random() < 0.3:
            facts["taints"] = (taint("broken=yes:NoSchedule"),)
        if odd and chance.random() < 0.4:
            facts["consumes"] = (("shared", (("slots", 1),)),)
        found.append(facts)
    return found


def request(chance: random.Random) -> tuple[tuple[Request, ...], dict[str, Any]]:
    """The requests of one claim, and what else it says."""
    selectors = chance.choice([(), (BY_NAME,), (BY_NAME,), (OF_KIND,), (SMALL,)])
    count = chance.randint(1, 3)
    kind = chance.choice(["plain", "plain", "all", "first", "two", "capacity", "same", "distinct"])
    if kind == "all":
        return (asks("r", 0, *selectors),), {}
    if kind == "first":
        either = alternative("a", count + 1, *selectors), alternative("b", 1)
        return (first_of("r", *either),), {}
    if kind == "capacity":
        return (asks("r", count, *selectors, capacity=(("memory", 2_000),)),), {}
    if kind in ("two", "same", "distinct"):
        both = asks("r", count, *selectors), asks("t", 1)
        constraint = {"two": (), "same": (same("half"),), "distinct": (distinct("half", "r"),)}
        return both, {"constraints": constraint[kind]}
    return (asks("r", count, *selectors),), {}


def cluster(seed: int) -> Snapshot:
    """Nodes with devices, some of them held, and pods that wait, most of which ask for the same."""
    chance = random.Random(f"alike {seed}")
    layouts = [layout(chance) for _ in range(3)]
    rows: list[Any] = [device_class()]
    counters = (("shared", (("slots", 2),)),)
    for number in range(NODES):
        name = f"n{number:02}"
        rows.append(node(name, labels={"half": str(number % 2)}))
        own = [
            device(f"gpu-{place}", uuid=f"{number}-{place}", **facts)
            for place, facts in enumerate(chance.choice(layouts))
        ]
        cut = chance.choice([0, 0, len(own) // 2])
        for pool, part in (("x", own[:cut]), ("", own[cut:])):
            if part:
                rows.append(published(name, part, pool=f"{name}{pool}", counters=counters))
            for each in part:
                if chance.random() < 0.3:
                    user = f"{name}-{each.name}"
                    got = [(f"{name}{pool}", each.name)]
                    rows += [
                        resource_claim(user, asks(), got=got, users=[user]),
                        pod(user, node=name, claims=claims(user)),
                    ]
    if chance.random() < 0.2:
        reach = Reach(everywhere=True)
        rows.append(published("wide", [device("net", kind=1)], reach=reach))
    requests, facts = request(chance)
    for name in WAITING:
        if chance.random() < 0.2:
            requests, facts = request(chance)
        rows += [resource_claim(name, *requests, **facts), pod(name, claims=claims(name))]
    return snapshot_of(*rows)


def story(snapshot: Snapshot, seed: int, seen: Counter[str]) -> list[Any]:
    """What each waiting pod is answered, and gets, while others are placed and taken back."""
    chance = random.Random(seed)
    policy = Policy(simulate_claims=chance.random() < 0.5)
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    running = np.flatnonzero(snapshot.pod_node >= 0).tolist()
    said: list[Any] = []
    placed: list[Placed] = []
    for name in (*WAITING, *chance.sample(WAITING, 2)):
        if any(each.pending is not None and each.pending.row.name == name for each in placed):
            simulation.unplace(placed.pop())
            continue
        if running and chance.random() < 0.3:
            gone = [slot for slot in running if simulation.present[slot] and chance.random() < 0.1]
            simulation.remove(np.array(gone, np.int64))
        pending = pending_of(snapshot, name)
        codes = simulation.codes(pending)
        said.append(codes.tolist())
        refusal = simulation.refusal(pending)
        said.append(refusal)
        seen["errors"] += refusal is not None and refusal.error
        said += [simulation.status_at(pending, at) for at in chance.sample(range(NODES), 5)]
        fitting = np.flatnonzero(codes == 0).tolist()
        seen["yes" if fitting else "no"] += 1
        if fitting:
            placed.append(simulation.place(pending, chance.choice(fitting)))
            said.append(reservations_of(simulation, pending.row.uid))
    return said


@contextmanager
def each_by_itself() -> Iterator[None]:
    """No node is asked for another one, and no pod has another one's filters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_state, "_FEW", NODES + 1)
        patch.setattr(compiled, "asked_alike", lambda *_: None)
        patch.setattr(devices, "asked_alike", lambda *_: None)
        yield


def test_who_is_alike_is_answered_as_if_asked_alone() -> None:
    seen, asked = Counter[str](), Counter[str]()
    alike = device_state.DeviceState._ask_alike

    def counted(self: Any, wanted: Any, answers: Any, nodes: Any) -> Any:
        left = alike(self, wanted, answers, nodes)
        asked["for others"] += len(nodes) - len(left)
        return left

    for seed in range(CASES):
        snapshot = cluster(seed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device_state.DeviceState, "_ask_alike", counted)
            found = story(snapshot, seed, seen)
        with each_by_itself():
            expected = story(replace(snapshot, derived=Derived()), seed, Counter())
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert one == other, (seed, place)
    assert min(seen["yes"], seen["no"]) >= CASES // 2, seen
    assert seen["errors"] >= CASES // 20, seen
    assert asked["for others"] >= CASES * NODES // 2, asked


def test_what_is_held_follows_claims_that_come_change_and_go() -> None:
    chance = random.Random(3)
    for _ in range(20):
        shared = device("shared", capacity={"memory": DeviceCapacity(9_000)}, shareable=True)
        part = device("part", consumes=(("shared", (("slots", 1),)),))
        counters = (("shared", (("slots", 1),)),)
        state = cluster_of(
            node("n1"),
            device_class(),
            published("n1", [device("a"), device("b"), shared, part], counters=counters),
        )
        names = ("a", "b", "shared", "part")
        rows = {
            name: resource_claim(name, asks(), got=[("n1", name)], users=[name]) for name in names
        }
        there: dict[str, Any] = {}
        for _ in range(12):
            for name in chance.sample(names, 2):
                if name in there and chance.random() < 0.6:
                    row = there.pop(name)
                    state.apply([Gone(row.kind, row.uid, row.namespace, row.name)])
                else:
                    version = chance.randint(1_000_000, 2_000_000)
                    there[name] = replace(rows[name], version=version)
                    rows[name] = there[name]
                    state.apply([there[name]])
            snapshot = state.snapshot()
            kept = device_state.DeviceState(simulation(snapshot))._use
            anew = device_state.DeviceState(simulation(replace(snapshot, derived=Derived())))._use
            assert kept.use_numbers().tolist() == anew.use_numbers().tolist()
            for each in kept._published.numbered:
                assert kept.free(each, ()) == anew.free(each, ()), each.id


def simulation(snapshot: Snapshot) -> Simulation:
    policy = Policy()
    return Simulation(snapshot, policy, policy.profiles[0])

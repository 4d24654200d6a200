"""What is read of published and held devices is kept for the next decision, and none can tell."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from reprieve.engine.cluster.derived import Derived
from reprieve.engine.cluster.devices import DeviceCapacity
from reprieve.engine.cluster.rows import Gone, Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filters.dynamic.device_pools import published_in
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import cluster_of, node, pending_of, pod, slot_of, snapshot_of
from tests.engine.devices.drivers import (
    asks,
    claims,
    device,
    device_class,
    gpus,
    published,
    resource_claim,
)

NODES = ("n1", "n2", "n3")
WAITING = ("p", "q", "r")


def clusters(chance: random.Random) -> Snapshot:
    """Nodes with whole, shared and partitioned devices, some of them held by pods that run."""
    rows: list[Any] = [device_class(), *(node(name) for name in NODES)]
    counters = (("set", (("slots", 2),)),)
    for name in NODES:
        parts = [device(f"part-{n}", consumes=(("set", (("slots", 1),)),)) for n in range(3)]
        shared = device("shared", capacity={"memory": DeviceCapacity(2_000)}, shareable=True)
        kind = chance.choice(("whole", "parts", "shared"))
        own = {"whole": gpus(2), "parts": parts, "shared": [shared]}[kind]
        rows.append(published(name, own, counters=counters))
        for number, each in enumerate(own):
            if chance.random() < 0.5:
                user = f"{name}-{number}"
                held = resource_claim(user, asks(), got=[(name, each.name)], users=[user])
                rows += [held, pod(user, node=name, claims=claims(user))]
    for name in WAITING:
        rows += [resource_claim(name, asks()), pod(name, claims=claims(name))]
    return snapshot_of(*rows)


def simulated(snapshot: Snapshot) -> Simulation:
    policy = Policy(simulate_claims=True)
    return Simulation(snapshot, policy, policy.profiles[0])


def story(snapshot: Snapshot, seed: int) -> list[list[int]]:
    """What each waiting pod is answered while pods go and waiting ones are placed."""
    chance, simulation = random.Random(seed), simulated(snapshot)
    running = np.flatnonzero(snapshot.pod_node >= 0)
    said: list[list[int]] = []
    for name in WAITING:
        for slot in running:
            if simulation.present[slot] and chance.random() < 0.4:
                simulation.remove(np.array([slot]))
        pending = pending_of(snapshot, name)
        codes = simulation.codes(pending)
        said.append(codes.tolist())
        fitting = np.flatnonzero(codes == 0)
        if len(fitting):
            simulation.place(pending, int(chance.choice(fitting.tolist())))
    return said


def test_decisions_find_the_devices_as_they_are_whatever_others_took_before() -> None:
    seen = Counter[str]()
    for seed in range(150):
        snapshot = clusters(random.Random(seed))
        for number in range(3):
            anew = replace(snapshot, derived=Derived())
            expected = story(anew, 10 * seed + number)
            assert story(snapshot, 10 * seed + number) == expected, seed
            answers = [code for codes in expected for code in codes]
            seen["yes"] += 0 in answers
            seen["no"] += any(answers)
    assert min(seen["yes"], seen["no"]) >= 200, seen


def test_devices_are_read_again_when_slices_change_and_not_when_pods_do() -> None:
    cluster = cluster_of(node("n1"), device_class(), published("n1", gpus(1)), pod("a", node="n1"))
    first = cluster.snapshot()
    kept = published_in(first)
    cluster.apply([pod("b", node="n1")])
    assert published_in(cluster.snapshot()) is kept
    cluster.apply([published("n1", gpus(2))])
    later = published_in(cluster.snapshot())
    assert [len(pool.devices) for pool in kept.pools] == [1]
    assert [len(pool.devices) for pool in later.pools] == [2]
    assert [len(pool.devices) for pool in published_in(first).pools] == [1]


def test_a_device_is_free_once_the_claim_that_held_it_is_gone() -> None:
    held = resource_claim("theirs", asks(), got=[("n1", "gpu-0")], users=["v"])
    cluster = cluster_of(
        node("n1"),
        device_class(),
        published("n1", gpus(1)),
        [held, pod("v", node="n1", claims=claims("theirs"))],
        [resource_claim("p", asks()), pod("p", claims=claims("p"))],
    )
    snapshot = cluster.snapshot()
    simulation, pending = simulated(snapshot), pending_of(snapshot, "p")
    assert simulation.codes(pending)[0]
    simulation.remove(np.array([slot_of(snapshot, "v")]))
    assert not simulation.codes(pending)[0]
    assert simulated(snapshot).codes(pending)[0]
    cluster.apply([Gone(Kind.RESOURCE_CLAIM, held.uid, held.namespace, held.name)])
    assert not simulated(cluster.snapshot()).codes(pending)[0]

"""Filters of volumes and devices follow what comes and goes, and undoing restores them exactly."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import Disk, VolumeUse
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.storage import NO_PROVISIONER
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.reservations import Reservations, reservations_of
from tests.engine.builders import node, pending_of, pod, snapshot_of
from tests.engine.devices.drivers import (
    asks,
    claims,
    device,
    device_class,
    gpus,
    published,
    resource_claim,
)
from tests.engine.volumes.storage import (
    attachment,
    claim,
    csi_node,
    simulation_of,
    storage_class,
    volume,
)

CASES = 25
STEPS = 24
NODES = ("n1", "n2", "n3")
CSI = "csi.example.com"


def _cluster(numbers: random.Random) -> Snapshot:
    rows: list[Any] = [
        device_class(),
        storage_class(),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("rwop", volume="once", access_modes=("ReadWriteOncePod",)),
        volume("once", driver=CSI, handle="h-once"),
    ]
    for name in NODES:
        rows.append(node(name))
        rows.append(csi_node(name, csi_example_com=numbers.randint(1, 2)))
        count = numbers.randint(0, 3)
        card = device("card", shareable=True, capacity={"memory": 10})
        rows.append(published(name, [*gpus(count), card]))
        rows.append(volume(f"local-{name}", storage_class="local", on=name, capacity=1))
        if numbers.random() < 0.5:
            rows.append(attachment("once", name))
    for number in range(6):
        rows.append(claim(f"bound-{number}", volume=f"v{number}"))
        rows.append(volume(f"v{number}", driver=CSI, handle=f"h{number}"))
    for number in range(7):
        at = numbers.choice(NODES)
        got = [(at, numbers.choice(("gpu-0", "gpu-1", "gpu-2")))]
        placed = f"b{number}"
        rows.append(resource_claim(f"held-{number}", asks(), got=got, users=[placed]))
        rows.append(pod(placed, node=at, claims=claims(f"held-{number}"), **_mounts(numbers)))
    for number in range(5):
        wanted = numbers.choice(
            (
                asks("r", 1, "!device.allowMultipleAllocations"),
                asks("r", capacity=(("memory", 4_000),)),
            )
        )
        rows.append(resource_claim(f"c{number}", wanted))
        rows.append(claim(f"wait-{number}", storage_class="local"))
        used = claims(f"c{number}" if numbers.random() < 0.7 else "c0")
        mounts = _mounts(numbers)
        if numbers.random() < 0.4:
            mounts["volumes"] = (*mounts["volumes"], VolumeUse(f"wait-{number}"))
        group = numbers.choice(("", "g"))
        rows.append(pod(f"p{number}", claims=used, group=group, **mounts))
    return snapshot_of(*rows)


def _mounts(numbers: random.Random) -> dict[str, Any]:
    names = [f"bound-{n}" for n in range(6)]
    chosen = tuple(VolumeUse(n) for n in numbers.sample(names, numbers.randint(0, 2)))
    if numbers.random() < 0.2:
        chosen = (*chosen, VolumeUse("rwop"))
    disks = tuple(
        Disk("gcePersistentDisk", (name,), numbers.random() < 0.4)
        for name in ("x", "y")
        if numbers.random() < 0.3
    )
    return {"volumes": chosen, "disks": disks}


def _view(simulation: Simulation) -> dict[str, tuple[Any, ...]]:
    return {
        each.row.name: (
            tuple(simulation.codes(each).tolist()),
            tuple(simulation.code_at(each, index) for index in range(len(NODES))),
            tuple(simulation.status_at(each, index).reasons for index in range(len(NODES))),
        )
        for each in simulation.snapshot.pending.values()
        if all(p.pending is None or p.pending.row.uid != each.row.uid for p in simulation.simulated)
    }


def _fresh(simulation: Simulation, placed: list[Placed]) -> Simulation:
    """The same state, reached without undoing anything."""
    again = simulation_of(simulation.snapshot, simulate_claims=simulation.policy.simulate_claims)
    gone = np.flatnonzero((simulation.snapshot.pod_node >= 0) & ~simulation.present)
    again.remove(gone)
    for each in placed:
        assert each.pending is not None
        again.place(pending_of(again.snapshot, each.pending.row.name), each.node)
    return again


@pytest.mark.parametrize("simulate", [False, True])
def test_filters_that_followed_answer_like_new_ones(simulate: bool) -> None:
    numbers = random.Random(11 + simulate)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        simulation = simulation_of(_cluster(numbers), simulate_claims=simulate)
        slots = np.flatnonzero(simulation.snapshot.pod_node >= 0)
        placed: list[Placed] = []
        for number in range(STEPS):
            before = _view(simulation)
            moves = ("remove", "remove", "restore")
            step = numbers.choice(
                moves if number < STEPS // 2 else (*moves, *3 * ("place",), "unplace")
            )
            # With simulated claims a placed pod may have what a pod that comes back had, so that
            # the same state cannot be reached in another order.
            still = simulate and bool(placed)
            there = simulation.present[slots]
            if step == "remove" and there.any() and not still:
                simulation.remove(np.array([numbers.choice(slots[there].tolist())]))
            elif step == "restore" and not there.all() and not still:
                simulation.restore(slots[~there][:1])
            elif step == "unplace" and placed:
                simulation.unplace(placed.pop())
            elif step == "place":
                fits = [
                    (name, index)
                    for name, (codes, _, _) in before.items()
                    for index, code in enumerate(codes)
                    if not code
                ]
                if not fits:
                    continue
                name, index = numbers.choice(fits)
                placed.append(simulation.place(pending_of(simulation.snapshot, name), index))
            else:
                continue
            after = _view(simulation)
            fresh = _fresh(simulation, placed)
            assert after == _view(fresh)
            assert _reserved(simulation, placed) == _reserved(fresh, placed)
            seen[step] += after != before
            seen["blocked"] += any(any(codes) for codes, _, _ in after.values())
    assert seen["blocked"] > 200 and all(
        seen[step] > 10 for step in ("remove", "restore", "place", "unplace")
    ), seen


def _reserved(simulation: Simulation, placed: list[Placed]) -> list[Reservations]:
    return [reservations_of(simulation, each.pending.row.uid) for each in placed if each.pending]


def test_taking_everything_back_restores_every_answer() -> None:
    numbers = random.Random(5)
    changed = 0
    for _ in range(CASES):
        simulation = simulation_of(_cluster(numbers), simulate_claims=bool(numbers.getrandbits(1)))
        before = _view(simulation)
        slots = np.flatnonzero(simulation.snapshot.pod_node >= 0)
        simulation.remove(slots)
        placed = []
        for each in simulation.snapshot.pending.values():
            free = np.flatnonzero(simulation.codes(each) == 0)
            if len(free):
                placed.append(simulation.place(each, int(numbers.choice(free.tolist()))))
        middle = _view(_fresh(simulation, []))
        changed += middle != before
        while placed:
            simulation.unplace(placed.pop())
        assert _view(simulation) == middle
        simulation.restore(slots)
        assert _view(simulation) == before
    assert changed > CASES // 2

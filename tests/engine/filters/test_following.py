"""Filters that follow pods that come and go say what filters made anew would say.

Random clusters of up to 8 nodes and 20 pods, whose pending pods carry spread constraints, affinity
in both directions, ports and requests. After every change the followed answers are compared with
those of filters compiled at that moment, and after all changes are undone with the first ones.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    HostPort,
    NodeRow,
    PodRow,
    Selector,
    SpreadConstraint,
)
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Filter, Placed
from reprieve.engine.placement.filters import compile_filters
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.units.ids import Uid
from tests.engine.builders import matching, node, pod
from tests.engine.filters.outcomes import simulation_of

CASES = 300
FOLLOWING = (
    FilterName.NODE_PORTS,
    FilterName.NODE_RESOURCES_FIT,
    FilterName.POD_TOPOLOGY_SPREAD,
    FilterName.INTER_POD_AFFINITY,
)
KEYS = ("kubernetes.io/hostname", "zone", "rack")


def _selector(rng: random.Random) -> Selector:
    return rng.choice((matching({"app": rng.choice("abc")}), matching({"tier": "x"}), (), None))


def _term(rng: random.Random) -> AffinityTerm:
    return AffinityTerm(
        rng.choice(KEYS), _selector(rng), tuple(rng.sample(("default", "other"), rng.randint(1, 2)))
    )


def _constraint(rng: random.Random) -> SpreadConstraint:
    return SpreadConstraint(
        rng.choice(KEYS),
        rng.randint(1, 2),
        hard=rng.random() < 0.9,
        selector=_selector(rng),
        min_domains=rng.choice((1, 1, 1, 3)),
        honor_affinity=rng.random() < 0.5,
        honor_taints=rng.random() < 0.5,
    )


def _nodes(rng: random.Random) -> list[NodeRow]:
    found = []
    for number in range(rng.randint(1, 8)):
        labels = {key: rng.choice("ab") for key in ("zone", "rack", "pool") if rng.random() < 0.8}
        taints = ["k=v:NoSchedule"] if rng.random() < 0.1 else []
        found.append(
            node(f"n{number}", gpus=rng.randint(0, 8), pods=9, labels=labels, taints=taints)
        )
    return found


def _pod(rng: random.Random, name: str, on: str = "") -> PodRow:
    spec: dict[str, Any] = {"gpus": rng.randint(0, 3)}
    if rng.random() < 0.3:
        spec["host_ports"] = (HostPort(rng.randint(80, 81)),)
    if rng.random() < 0.4:
        spec["spread"] = tuple(_constraint(rng) for _ in range(rng.randint(1, 2)))
    if rng.random() < 0.3:
        spec["affinity"] = tuple(_term(rng) for _ in range(rng.randint(1, 2)))
    if rng.random() < 0.3:
        spec["anti_affinity"] = tuple(_term(rng) for _ in range(rng.randint(1, 2)))
    if rng.random() < 0.2:
        spec["node_selector"] = {"pool": "a"}
    labels = {"app": rng.choice("abc"), **({"tier": "x"} if rng.random() < 0.5 else {})}
    return pod(
        name,
        node=on,
        namespace=rng.choice(("default", "default", "other")),
        labels=labels,
        deleting=bool(on) and rng.random() < 0.15,
        **spec,
    )


def _simulation(rng: random.Random) -> Simulation:
    nodes = _nodes(rng)
    placed = [
        _pod(rng, f"old{number}", rng.choice(nodes).name) for number in range(rng.randint(0, 20))
    ]
    waiting = [_pod(rng, f"new{number}") for number in range(4)]
    simulation, _ = simulation_of(nodes, placed, waiting)
    return simulation


def _compiled(simulation: Simulation, pending: Pending) -> dict[FilterName, Filter]:
    found = compile_filters(simulation, pending)
    assert isinstance(found, tuple)
    return {each.name: each for each in found if each.name in FOLLOWING}


def _check(
    simulation: Simulation, followed: dict[Uid, dict[FilterName, Filter]], seen: Counter[str]
) -> None:
    for pending in simulation.snapshot.pending.values():
        anew = _compiled(simulation, pending)
        mine = followed[pending.row.uid]
        assert set(anew) == set(mine)
        for name, each in anew.items():
            codes = each.codes()
            np.testing.assert_array_equal(mine[name].codes(), codes, err_msg=name)
            alone = [mine[name].code_at(index) for index in range(len(codes))]
            np.testing.assert_array_equal(alone, codes, err_msg=name)
            seen[f"{name} refuses"] += bool(codes.any())
            seen[f"{name} passes"] += not codes.all()
        whole = [simulation.code_at(pending, index) for index in range(len(alone))]
        np.testing.assert_array_equal(simulation.codes(pending), whole)


def _change(
    rng: random.Random, simulation: Simulation, taken: list[int], placed: list[Placed]
) -> None:
    present = np.flatnonzero(simulation.present).tolist()
    match rng.choice(("remove", "restore", "place", "unplace")):
        case "remove" if present:
            slots = rng.sample(present, rng.randint(1, min(3, len(present))))
            simulation.remove(np.array(slots, np.int64))
            taken.extend(slots)
        case "restore" if taken:
            slots = [taken.pop(rng.randrange(len(taken)))]
            simulation.restore(np.array(slots, np.int64))
        case "unplace" if placed:
            simulation.unplace(placed.pop())
        case _:
            pending = rng.choice(list(simulation.snapshot.pending.values()))
            placed.append(simulation.place(pending, rng.randrange(len(simulation.snapshot.nodes))))


def test_followed_filters_equal_filters_made_anew_and_undoing_restores_them() -> None:
    seen: Counter[str] = Counter()
    changed = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        simulation = _simulation(rng)
        waiting = list(simulation.snapshot.pending.values())
        followed = {
            pending.row.uid: {
                each.name: each for each in simulation.filters(pending) if each.name in FOLLOWING
            }
            for pending in waiting
        }
        before = [simulation.codes(pending).copy() for pending in waiting]
        _check(simulation, followed, seen)
        taken: list[int] = []
        placed: list[Placed] = []
        for _ in range(12):
            _change(rng, simulation, taken, placed)
            _check(simulation, followed, seen)
        now = [simulation.codes(pending).copy() for pending in waiting]
        changed += any((a != b).any() for a, b in zip(before, now, strict=True))
        while placed:
            simulation.unplace(placed.pop())
        simulation.restore(np.array(taken, np.int64))
        _check(simulation, followed, seen)
        after = [simulation.codes(pending) for pending in waiting]
        assert all((a == b).all() for a, b in zip(before, after, strict=True)), seed
    assert changed > CASES // 2
    for name in FOLLOWING:
        assert seen[f"{name} refuses"] > CASES, (name, seen)
        assert seen[f"{name} passes"] > CASES, (name, seen)

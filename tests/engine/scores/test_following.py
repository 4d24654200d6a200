"""Scores that follow pods equal scores compiled afresh, whatever came and went in between."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Image,
    NodeTerm,
    Operator,
    Requirement,
    SpreadConstraint,
    Weighted,
)
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.profile import (
    Policy,
    Profile,
    ScoreName,
    ScoringStrategy,
    ScoringType,
)
from reprieve.engine.placement.scores import compile_scores
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import GPU, matching, node, pending_of, pod, service, snapshot_of
from tests.engine.scores.scoring import MIB

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "db", "job")
PROFILES = (
    Profile(),
    Profile(
        strategy=ScoringStrategy(ScoringType.MOST_ALLOCATED, (("cpu", 1), (GPU, 3))),
        balanced_resources=("cpu", "memory", GPU),
        hard_pod_affinity_weight=20,
    ),
    Profile(
        strategy=ScoringStrategy(
            ScoringType.REQUESTED_TO_CAPACITY_RATIO,
            (("cpu", 2), ("memory", 1)),
            ((0, 0), (60, 10), (100, 2)),
        ),
        default_spread=(SpreadConstraint(ZONE, 2, hard=False, selector=None),),
    ),
)


def random_spec(random: Random, app: str) -> dict[str, Any]:
    """A pod's spec, mostly with something that scores look at."""

    def term() -> AffinityTerm:
        selector = matching({"app": random.choice(APPS)})
        return AffinityTerm(random.choice((ZONE, HOST, "rack")), selector, ("default",))

    spec: dict[str, Any] = {
        "labels": {"app": app},
        "cpu": random.choice((0, 300, 1000)),
        "memory": random.choice((0, 200 * MIB, 700 * MIB)),
        "gpus": random.choice((0, 0, 1)),
    }
    if random.random() < 0.4:
        spec["preferred_affinity"] = (Weighted(random.randint(1, 100), term()),)
    if random.random() < 0.3:
        spec["preferred_anti_affinity"] = (Weighted(random.randint(1, 100), term()),)
    if random.random() < 0.3:
        spec["affinity"] = (term(),)
    if random.random() < 0.4:
        spec["spread"] = tuple(
            SpreadConstraint(
                key,
                random.randint(1, 3),
                hard=random.random() < 0.2,
                selector=matching({"app": random.choice(APPS)}),
                honor_taints=random.random() < 0.5,
            )
            for key in random.sample((ZONE, HOST, "rack"), random.randint(1, 2))
        )
    if random.random() < 0.3:
        wish = NodeTerm((Requirement("rack", Operator.IN, ("r0",)),))
        spec["preferred_node_affinity"] = (Weighted(random.randint(1, 100), wish),)
    if random.random() < 0.3:
        spec["node_selector"] = {ZONE: "z0"}
    spec["images"] = random.sample(("a:1", "b:1"), random.randint(0, 2))
    spec["images"] = tuple(spec["images"])
    return spec


def random_snapshot(random: Random) -> Snapshot:
    nodes = []
    for index in range(random.randint(2, 9)):
        labels = {ZONE: f"z{index % 3}"} if random.random() < 0.8 else {}
        if random.random() < 0.6:
            labels["rack"] = f"r{index % 2}"
        taints = [t for t in ("a=:PreferNoSchedule", "b=:NoSchedule") if random.random() < 0.3]
        nodes.append(
            node(
                f"n{index}",
                cpu=random.choice((2000, 8000)),
                memory=random.choice((1000, 4000)) * MIB,
                gpus=random.choice((0, 4)),
                labels=labels,
                taints=taints,
                images=(Image(("a:1",), 400 * MIB),) if random.random() < 0.5 else (),
            )
        )
    there = [
        pod(
            f"there-{index}",
            node=random.choice(nodes).name,
            deleting=random.random() < 0.2,
            **random_spec(random, random.choice(APPS)),
        )
        for index in range(random.randint(0, 25))
    ]
    new = [pod(f"new-{i}", **random_spec(random, random.choice(APPS))) for i in range(4)]
    return snapshot_of(nodes, there, new, service("web", {"app": "web"}))


def values(
    simulation: Simulation, scores: Any, nodes: np.ndarray[Any, Any]
) -> dict[ScoreName, list[int]]:
    return {score.name: score.values(nodes).tolist() for score, _ in scores}


def afresh(simulation: Simulation) -> Simulation:
    """A simulation that has the same pods and has compiled no score."""
    fresh = Simulation(simulation.snapshot, simulation.policy, simulation.profile)
    fresh.remove(np.flatnonzero(fresh.present & ~simulation.present))
    for each in simulation.simulated:
        assert each.pending is not None
        fresh.place(each.pending, each.node)
    return fresh


@pytest.mark.parametrize("profile", range(len(PROFILES)))
def test_scores_that_follow_pods_equal_those_compiled_afresh(profile: int) -> None:
    random = Random(profile)
    changed: Counter[ScoreName] = Counter()
    compared = 0
    for _ in range(120):
        snapshot = random_snapshot(random)
        simulation = Simulation(snapshot, Policy(), PROFILES[profile])
        news = [pending_of(snapshot, f"new-{i}") for i in range(4)]
        every = np.arange(len(snapshot.nodes))
        followed = {each.row.name: compile_scores(simulation, each) for each in news}
        before = {name: values(simulation, s, every) for name, s in followed.items()}
        gone: list[int] = []
        placed: list[Placed] = []

        def tell(pod: Placed, sign: int, followed: Any = followed) -> None:
            for scores in followed.values():
                for score, _ in scores:
                    (score.add if sign > 0 else score.remove)(pod)

        for _ in range(random.randint(1, 12)):
            present = np.flatnonzero(simulation.present).tolist()
            move = random.choice(("remove", "restore", "place", "unplace"))
            if move == "remove" and present:
                slot = random.choice(present)
                simulation.remove(np.array([slot]))
                gone.append(slot)
                tell(simulation.placed_at(slot), -1)
            elif move == "restore" and gone:
                slot = gone.pop(random.randrange(len(gone)))
                simulation.restore(np.array([slot]))
                tell(simulation.placed_at(slot), 1)
            elif move == "place":
                placed.append(simulation.place(random.choice(news), random.choice(every.tolist())))
                tell(placed[-1], 1)
            elif move == "unplace" and placed:
                pod_gone = placed.pop()
                simulation.unplace(pod_gone)
                tell(pod_gone, -1)
            some = np.array(sorted(random.sample(every.tolist(), random.randint(1, len(every)))))
            fresh = afresh(simulation)
            for each in news:
                found = followed[each.row.name]
                expected = compile_scores(fresh, each)
                assert values(simulation, found, every) == values(fresh, expected, every)
                assert values(simulation, found, some) == values(fresh, expected, some)
                compared += 1
        for name, scores in followed.items():
            now = values(simulation, scores, every)
            changed.update(plugin for plugin, found in now.items() if found != before[name][plugin])
        for pod_gone in reversed(placed):
            simulation.unplace(pod_gone)
            tell(pod_gone, -1)
        for slot in gone:
            simulation.restore(np.array([slot]))
            tell(simulation.placed_at(slot), 1)
        assert {name: values(simulation, s, every) for name, s in followed.items()} == before
    assert compared > 1000
    moving = (
        ScoreName.NODE_RESOURCES_FIT,
        ScoreName.BALANCED_ALLOCATION,
        ScoreName.INTER_POD_AFFINITY,
        ScoreName.POD_TOPOLOGY_SPREAD,
    )
    assert {plugin: count >= 50 for plugin, count in changed.items()} == dict.fromkeys(moving, True)


def test_every_score_is_from_0_to_100() -> None:
    random = Random(7)
    seen: Counter[ScoreName] = Counter()
    for round_ in range(200):
        snapshot = random_snapshot(random)
        simulation = Simulation(snapshot, Policy(), PROFILES[round_ % len(PROFILES)])
        every = np.arange(len(snapshot.nodes))
        for index in range(4):
            scores = compile_scores(simulation, pending_of(snapshot, f"new-{index}"))
            for score, _ in scores:
                found = score.values(every)
                assert found.dtype == np.int64
                assert int(found.min()) >= 0
                assert int(found.max()) <= 100
                seen[score.name] += 1
    without = {ScoreName.VOLUME_BINDING, ScoreName.DYNAMIC_RESOURCES}
    assert {name for name, count in seen.items() if count >= 50} == set(ScoreName) - without

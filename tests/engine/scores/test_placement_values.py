"""Scores of topology placements, by hand (specification 17.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprieve.engine.placement.profile import (
    PlacementScoreName,
    Policy,
    Profile,
    ScoringStrategy,
    ScoringType,
)
from reprieve.engine.placement.scores.placements import (
    FeasiblePlacement,
    best_placement,
    placement_scores,
)
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import GPU, node, pending_of, pod, snapshot_of
from tests.engine.scores.scoring import MIB

# Domain x: 8000m and 8000 MiB, 1000m and 3000 MiB used. y: 4000m and 4000 MiB, nothing used.
ROWS: list[Any] = [
    node("x1", cpu=4000, memory=4000 * MIB, gpus=8),
    node("x2", cpu=4000, memory=4000 * MIB),
    node("y1", cpu=4000, memory=4000 * MIB),
    pod("there", node="x1", cpu=1000, memory=3000 * MIB),
    pod("new", cpu=1000, memory=500 * MIB),
    pod("bare"),
    pod("gpu", cpu=1000, memory=500 * MIB, gpus=1),
]


def placements(x: int, y: int, name: str = "new", **profile: Any) -> tuple[list[int], str]:
    """The totals of x and y with so many members proposed for them, and the one taken."""
    snapshot = snapshot_of(ROWS)
    view = Simulation(snapshot, Policy(), Profile(**profile))
    number = pending_of(snapshot, name).pod_class
    found = [
        FeasiblePlacement("x", np.array([0, 1]), x, (number,) * x),
        FeasiblePlacement("y", np.array([2]), y, (number,) * y),
    ]
    return placement_scores(view, found), best_placement(view, found).domain


def test_the_fuller_domain_wins_among_those_with_as_many_members() -> None:
    # x: cpu 3000/8000 = 37, memory 4000/8000 = 50, mean 43. y: 2000/4000 = 50, 1000/4000 = 25: 37.
    assert placements(2, 2) == ([143, 137], "x")


def test_the_domain_with_more_members_wins() -> None:
    # x: 1 of 3 members = 33; cpu 2000/8000 = 25, memory 3500/8000 = 43, mean 34.
    # y: 100; cpu 3000/4000 = 75, memory 1500/4000 = 37, mean 56.
    assert placements(1, 3) == ([67, 156], "y")


def test_members_without_requests_count_with_defaults() -> None:
    # x: cpu (1000 + 400)/8000 = 17, memory (3000 + 800)/8000 = 47, mean 32.
    # y: 400/4000 = 10, 800/4000 = 20, mean 15.
    assert placements(4, 4, "bare") == ([132, 115], "x")


def test_placements_are_scored_by_most_allocated_whatever_the_strategy() -> None:
    least = ScoringStrategy(ScoringType.LEAST_ALLOCATED)
    assert placements(2, 2, strategy=least) == ([143, 137], "x")


def test_the_resources_are_those_of_the_strategy() -> None:
    # GPUs: 2 of 8 on x; y offers none, so nothing counts there. cpu as above.
    gpus = ScoringStrategy(resources=((GPU, 3), ("cpu", 1)))
    # x: (3 * 25 + 37) / 4 = 28; y: cpu alone, 50.
    assert placements(2, 2, "gpu", strategy=gpus) == ([128, 150], "y")
    # Members that request no GPU: cpu alone, 37 and 50.
    assert placements(2, 2, strategy=gpus) == ([137, 150], "y")


def test_weights_are_the_profiles() -> None:
    count, fit = PlacementScoreName.POD_GROUP_PODS_COUNT, PlacementScoreName.NODE_RESOURCES_FIT
    # 33 and 34; 100 and 56.
    assert placements(1, 3, placement_weights=((count, 5), (fit, 2))) == ([233, 612], "y")
    assert placements(1, 3, placement_weights=((fit, 1),)) == ([34, 56], "y")


def test_equal_totals_go_to_the_first_name() -> None:
    assert placements(1, 3, placement_weights=()) == ([0, 0], "x")

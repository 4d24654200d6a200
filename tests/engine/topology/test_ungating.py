"""Ranks of pods: which domain the pod with a number gets, and when numbers are of no use."""

from __future__ import annotations

import pytest

from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment
from reprieve.engine.topology.ungating import Numbering, PlacedPod, group_offsets, places_for

PLACES = TopologyAssignment((HOSTNAME,), (Domain(("a",), 1), Domain(("b",), 2), Domain(("c",), 1)))


@pytest.mark.parametrize(
    ("numbering", "index", "replica", "rank"),
    [
        (Numbering(4), 3, None, 3),
        (Numbering(4), 4, None, None),
        (Numbering(4), None, None, None),
        (Numbering(4), -1, None, None),
        (Numbering(4, offset=1), 0, None, None),
        (Numbering(4, offset=1), 4, None, 3),
        (Numbering(4, replicas=2), 1, 1, 3),
        (Numbering(4, replicas=2), 2, 1, None),
        (Numbering(4, replicas=2), 1, 2, None),
        (Numbering(4, replicas=2), 1, None, None),
        (Numbering(4, replicas=0), 0, 0, None),
        (Numbering(4, offset=1, replicas=2), 0, 0, None),
        (Numbering(4, offset=1, replicas=2), 0, 1, 1),
    ],
)
def test_a_number_is_a_rank_where_it_makes_sense(
    numbering: Numbering, index: int | None, replica: int | None, rank: int | None
) -> None:
    assert numbering.rank(index, replica) == rank


@pytest.mark.parametrize(
    ("pod_sets", "offsets"),
    [
        ([("leader", "g", 1), ("workers", "g", 4)], {"leader": 0, "workers": 1}),
        ([("workers", "g", 4), ("leader", "g", 1)], {"leader": 0, "workers": 1}),
        ([("first", "g", 1), ("second", "g", 1)], {"first": 0, "second": 1}),
        ([("leader", "", 1), ("workers", "", 4)], {"leader": 0, "workers": 0}),
        ([("alone", "g", 3)], {"alone": 0}),
    ],
)
def test_the_larger_pod_set_of_a_group_goes_on_where_the_smaller_one_ends(
    pod_sets: list[tuple[str, str, int]], offsets: dict[str, int]
) -> None:
    assert group_offsets(pod_sets) == offsets


def test_pods_with_ranks_get_the_domains_in_their_order() -> None:
    pods = [PlacedPod(f"p{rank}", rank=rank) for rank in (3, 1, 0, 2)]
    assert places_for(PLACES, pods) == {"p0": ("a",), "p1": ("b",), "p2": ("b",), "p3": ("c",)}


@pytest.mark.parametrize(
    "pods",
    [
        [PlacedPod("x", rank=0), PlacedPod("y")],
        [PlacedPod("x", rank=1), PlacedPod("y", rank=1)],
        [PlacedPod("x", rank=4), PlacedPod("y", rank=0)],
    ],
    ids=["one without", "two alike", "beyond the places"],
)
def test_without_ranks_each_domain_takes_the_next_pods(pods: list[PlacedPod]) -> None:
    assert places_for(PLACES, pods) == {"x": ("a",), "y": ("b",)}


def test_who_runs_elsewhere_than_its_rank_says_ends_the_ranks() -> None:
    pods = [PlacedPod("x", at=("b",), rank=0), PlacedPod("y", rank=2), PlacedPod("z", rank=1)]
    assert places_for(PLACES, pods) == {"y": ("a",), "z": ("b",)}

"""Placements for fit Node: valid, deterministic, and without end for no number of pods."""

from __future__ import annotations

from collections import Counter

from reprieve.engine.idle.model import PodRow
from reprieve.engine.idle.placement import place
from tests.engine.rows import pod


def waiting(name: str, gpus: int = 1, nodes: frozenset[str] | None = None) -> PodRow:
    return pod(name, "Pending", gpus={"amd.com/gpu": gpus}, nodes=nodes)


def room(**free: int) -> dict[str, dict[str, int]]:
    return {node: {"amd.com/gpu": count} for node, count in free.items()}


def test_a_demand_of_more_pods_than_python_has_frames_is_placed() -> None:
    pods = [waiting(f"p{n:04}") for n in range(3_000)]
    placed = place(pods, room(a=1_000, b=2_000))
    assert placed is not None
    assert [uid for uid, _ in placed] == [each.uid for each in pods]
    assert Counter(node for _, node in placed) == {"a": 1_000, "b": 2_000}
    assert place(pods, room(a=1_000, b=1_999)) is None


def test_a_choice_that_leads_nowhere_is_taken_back() -> None:
    # The tightest node for the first pod is the only one for the last.
    pods = [waiting("p0", 2), waiting("p1", 3), waiting("p2", 3)]
    assert place(pods, room(a=5, b=3)) == (("p0-uid", "a"), ("p1-uid", "b"), ("p2-uid", "a"))


def test_pods_go_only_where_they_are_admitted() -> None:
    picky = waiting("p0", 1, frozenset({"b"}))
    assert place([picky, waiting("p1", 4)], room(a=4, b=1)) == (("p0-uid", "b"), ("p1-uid", "a"))
    assert place([picky], room(a=4)) is None

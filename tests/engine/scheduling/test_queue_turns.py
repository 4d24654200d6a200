"""Turns between namespaces: one alone is kube-scheduler's order, and several share among equals."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.engine.scheduling.queueing.turns import Turns
from reprieve.units.ids import Uid
from tests.engine.builders import pod
from tests.engine.scheduling.test_queue import FIT, Site


def tried(site: Site, number: int) -> list[str]:
    """Return the names of the next units, each of which is rejected."""
    found: list[str] = []
    for _ in range(number):
        unit = site.pop()
        assert unit is not None
        found.append(unit.pods[0].rpartition("-")[2])
        site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_one_namespace_is_tried_by_priority_and_in_queue_time_whatever_is_put_back(
    seed: int,
) -> None:
    chance, site = random.Random(seed), Site()
    waiting: dict[str, tuple[int, int, int]] = {}
    for number in range(300):
        site.now += chance.choice((0, 0, 1, SECOND))
        if chance.random() < 0.6:
            name, priority = f"p{number}", chance.choice((0, 0, 5))
            site.add(pod(name, priority=priority))
            waiting[f"pod-{name}"] = (-priority, site.now, number)
        elif waiting and chance.random() < 0.3:
            gone = chance.choice(sorted(waiting))
            site.queue.remove(Uid(gone))
            del waiting[gone]
        elif waiting:
            taken = [site.queue.pop(site.now) for _ in range(min(3, len(waiting)))]
            units = [unit for unit in taken if unit is not None]
            order = sorted(waiting, key=lambda uid: waiting[uid])
            assert [unit.pods[0] for unit in units] == order[: len(taken)]
            for unit in units[1:]:
                site.queue.restore(unit, site.now)
            del waiting[order[0]]


def test_namespaces_of_one_priority_take_turns_and_a_higher_priority_goes_first() -> None:
    site = Site()
    site.add(*(pod(f"a{n}", namespace="a") for n in range(4)))
    site.now += 1
    site.add(*(pod(f"b{n}", namespace="b") for n in range(2)), pod("c0", namespace="c"))
    site.add(pod("top", namespace="a", priority=1))
    assert tried(site, 8) == ["top", "a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_who_comes_again_and_again_has_no_more_turns_than_who_waits() -> None:
    site = Site()
    site.add(*(pod(f"a{n}", namespace="a") for n in range(20)))
    turns: Counter[str] = Counter()
    for number in range(20):
        site.add(pod(f"b{number}", namespace="b"))  # always one, and never tried before
        turns[tried(site, 1)[0][0]] += 1
    assert turns == {"a": 10, "b": 10}


def test_a_namespace_that_was_away_saves_no_turns_up() -> None:
    site = Site()
    site.add(*(pod(f"a{n}", namespace="a") for n in range(30)))
    tried(site, 10)
    site.add(*(pod(f"b{n}", namespace="b") for n in range(10)))
    assert Counter(name[0] for name in tried(site, 10)) == {"a": 5, "b": 5}


def test_who_was_not_tried_has_its_place_and_its_turn_again() -> None:
    site = Site()
    site.add(*(pod(f"a{n}", namespace="a") for n in range(3)))
    site.add(*(pod(f"b{n}", namespace="b") for n in range(3)))
    taken = [site.queue.pop(site.now) for _ in range(6)]
    first = taken[0]
    assert first is not None
    site.done(first, Outcome.REJECTED, {first.pods[0]: (FIT,)})
    for unit in taken[1:]:
        assert unit is not None
        site.queue.restore(unit, site.now)
    site.add(pod("c0", namespace="c"))
    assert tried(site, 6) == ["b0", "c0", "a1", "b1", "a2", "b2"]


def test_what_was_left_behind_is_forgotten_also_where_nobodys_turn_comes() -> None:
    site = Site()
    site.add(pod("stays", priority=5))
    turns: Turns = site.queue._places._active
    for number in range(10_000):
        row = pod(f"p{number}", namespace=f"space-{number}")
        site.add(row)
        site.queue.remove(row.uid)
    assert turns._places < 3_000
    assert sum(len(each.turns) for each in turns._equals.values()) < 3_000
    assert sum(len(each.had) for each in turns._equals.values()) < 3_000


def test_putting_back_leaves_nothing_behind() -> None:
    site = Site()
    site.add(*(pod(f"p{n}", namespace=f"space-{n % 7}") for n in range(70)))
    turns: Turns = site.queue._places._active
    for _ in range(500):
        taken = [site.queue.pop(site.now) for _ in range(64)]
        for unit in taken:
            assert unit is not None
            site.queue.restore(unit, site.now)
    assert turns._places < 3_000
    assert sum(len(each.turns) for each in turns._equals.values()) < 3_000

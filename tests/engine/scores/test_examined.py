"""percentageOfNodesToScore: how many nodes have to pass, and which are looked at (17.1)."""

from __future__ import annotations

import numpy as np
import pytest

from reprieve.engine.placement.scores.examined import enough, examined


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (5000, None, 5000),  # not set: all
        (99, 5, 99),  # less than 100: all
        (100, 5, 100),  # never less than 100
        (1000, 0, 420),  # adaptive: 50 - 1000 / 125 = 42 %
        (5000, 0, 500),  # 50 - 40 = 10 %
        (5600, 0, 336),  # 50 - 44 = 6 %
        (10000, 0, 500),  # never less than 5 %
        (100, 0, 100),  # 50 % of 100 would be 50
        (1000, 100, 1000),
        (1000, 30, 300),
        (1000, 5, 100),
        (1234, 25, 308),  # 308.5
    ],
)
def test_how_many_nodes_have_to_pass(nodes: int, percentage: int | None, expected: int) -> None:
    assert enough(nodes, percentage) == expected


def test_without_a_percentage_all_nodes_are_examined_from_the_first() -> None:
    passing = np.array([False, True, False, True])
    found = examined(passing, None, start=3)
    assert (found.found.tolist(), found.looked_at, found.next_start) == ([1, 3], 4, 3)


def test_a_search_ends_with_enough_nodes_and_the_next_one_starts_there() -> None:
    passing = np.ones(1000, np.bool_)
    first = examined(passing, 10, start=0)
    assert first.found.tolist() == list(range(100))
    assert (first.looked_at, first.next_start) == (100, 100)
    second = examined(passing, 10, start=first.next_start)
    assert second.found.tolist() == list(range(100, 200))
    # Round the end: positions are in the order of names, the search is not.
    last = examined(passing, 10, start=950)
    assert last.found.tolist() == [*range(50), *range(950, 1000)]
    assert (last.looked_at, last.next_start) == (100, 50)


def test_nodes_that_do_not_pass_are_looked_at_too() -> None:
    passing = np.arange(1000) % 3 == 0
    found = examined(passing, 10, start=1)
    # 3, 6, ..., 300: the hundredth that passes is the 300th looked at.
    assert found.found.tolist() == list(range(3, 301, 3))
    assert (found.looked_at, found.next_start) == (300, 301)


def test_a_pod_that_fits_nowhere_has_had_all_nodes_examined() -> None:
    found = examined(np.zeros(1000, np.bool_), 10, start=400)
    assert (found.found.tolist(), found.looked_at, found.next_start) == ([], 1000, 400)


def test_the_start_counts_modulo_the_nodes_there_are() -> None:
    passing = np.ones(200, np.bool_)
    found = examined(passing, 50, start=450)
    assert found.found.tolist() == list(range(50, 150))
    assert found.next_start == 150
    assert examined(np.zeros(0, np.bool_), 50, start=450).looked_at == 0

"""The comparison with the oracle notices a wrong engine: three faults, each makes it fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reprieve.engine.placement import filters
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling import node_by_node, node_sweep, reprieve
from reprieve.engine.scheduling.trackers import Room
from tests.engine.api_objects import Json
from tests.engine.scheduling.agreement import cases_of, disagreement, judged
from tests.oracle.scheduling.group import Outcome

SEEDS = range(200)


@pytest.fixture(scope="module")
def judgements() -> list[tuple[Json, Outcome]]:
    return [(case, judged(case)) for case in cases_of(SEEDS)]


def drop_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are placed, and put back, whatever their spread constraints say."""
    without = {**filters._COMPILE, FilterName.POD_TOPOLOGY_SPREAD: lambda view, pending: None}
    monkeypatch.setattr(filters, "_COMPILE", without)


def drop_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that was refused halfway keeps the room that it had taken."""
    monkeypatch.setattr(Room, "give", lambda self, rows: None)


def drop_budget_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is put back first because a budget would be broken."""

    def none(
        units: object, order: np.ndarray[tuple[int], np.dtype[np.int64]], *_: object
    ) -> object:
        return np.zeros(len(order), np.int64)

    monkeypatch.setattr(reprieve, "violating_pods", none)
    monkeypatch.setattr(node_by_node, "violating_pods", none)
    monkeypatch.setattr(node_sweep, "_violating", lambda units, budgets, unit, node: unit * 0)


def test_without_a_fault_all_agree(judgements: list[tuple[Json, Outcome]]) -> None:
    assert [text for case, outcome in judgements if (text := disagreement(case, outcome))] == []


@pytest.mark.parametrize("fault", [drop_spread, drop_rollback, drop_budget_pass])
def test_the_comparison_fails_with_a_fault(
    fault: Callable[[pytest.MonkeyPatch], None],
    judgements: list[tuple[Json, Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    assert sum(bool(disagreement(case, outcome)) for case, outcome in judgements) >= 3

"""What holds the engine notices a wrong one: each fault makes the comparison or the proof fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement import filters
from reprieve.engine.placement.profile import FilterName, Policy
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.victims import node_by_node, node_sweep, reprieve, units
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import cases_of, disagreement, judged
from tests.engine.scheduling.broken_rules import (
    drop_rollback,
    see_less_room,
    skip_the_reprieve_of_groups,
    take_one_too_many,
)
from tests.oracle.scheduling.group import Outcome

SEEDS = range(200)


@pytest.fixture(scope="module")
def judgements() -> list[tuple[Json, Outcome]]:
    return [(case, judged(case)) for case in cases_of(SEEDS)]


def drop_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are placed, and put back, whatever their spread constraints say."""
    without = {**filters._COMPILE, FilterName.POD_TOPOLOGY_SPREAD: lambda view, pending: None}
    monkeypatch.setattr(filters, "_COMPILE", without)


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


def skip_the_reprieve_on_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a node could lose it loses, whatever the pod needs."""

    def nobody(tried: Mask, pair_node: I64, *_: object) -> Mask:
        return tried[pair_node]

    monkeypatch.setattr(node_sweep, "_rounds", nobody)


def take_all_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group goes as a whole, though its pods may go one by one."""

    def all_whole(snapshot: Snapshot, policy: Policy) -> I32:
        del policy
        found = np.arange(len(snapshot.group_rows) + 1, dtype=np.int32)
        found[-1] = -1
        return found

    monkeypatch.setattr(units, "whole_groups", all_whole)


def skip_the_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets another chance, though the policy says so."""

    def not_better(*_: object) -> bool:
        return False

    monkeypatch.setattr(reprieve, "_return_together", not_better)
    monkeypatch.setattr(reprieve, "_return_singly", lambda *_: None)


PROVEN: dict[Callable[[pytest.MonkeyPatch], None], range] = {
    skip_the_reprieve_of_groups: range(300),
    skip_the_reprieve_on_nodes: range(300),
    take_one_too_many: range(300),
    see_less_room: range(300),
    take_all_of_a_group: range(300),
    drop_rollback: range(1_500),
    skip_the_second_pass: range(1_500),
}


@pytest.mark.parametrize("fault", PROVEN, ids=lambda fault: fault.__name__)
def test_the_proof_of_a_plan_fails_with_a_fault(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of some victim that it could stay; without a fault it states nothing."""
    fault(monkeypatch)
    noticed = 0
    for case in cases_of(PROVEN[fault]):
        snapshot, policy = cluster_of(case).snapshot(), policy_of(case, second_reprieve_pass=True)
        attempt = engine_cycle.attempt_of(case, snapshot, policy)
        if attempt is not None and attempt.plan is not None:
            faults = {each.fault for each in faults_of(snapshot, policy, attempt)}
            noticed += Fault.REDUCIBLE in faults
    assert noticed >= 3

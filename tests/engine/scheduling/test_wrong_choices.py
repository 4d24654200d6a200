"""A permitted but wrong choice that claims to cost the least is refused at run time.

Rules of the choice are broken one at a time, in the search alone; the plan says gap 0 as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.optimum import Instance, instance
from bench.optimum_milp import fits_free, least, lowest_priority
from bench.optimum_variants import drawn
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, NodeRow, PodClass, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling import group_preemption, pod_preemption
from reprieve.engine.scheduling.least_cost import fewest, least_costly
from reprieve.engine.scheduling.least_cost.plan_cost import UnitCosts, plan_cost
from reprieve.engine.scheduling.outcome import Attempt, Preemption, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.units import Units
from reprieve.units.ids import Uid

NOW = 1_800_000_000
HOUR = 3_600
GPU = "nvidia.com/gpu"
BEST = Policy(choice=VictimChoice.BEST)
PODS = 1 << 20


def decided(snapshot: Snapshot, unit: Unit, policy: Policy) -> Attempt:
    attempt = Session(snapshot, policy, now=NOW).attempt(unit)
    assert attempt is not None
    return attempt


def claims_least(search: Any, found: Preemption) -> Preemption:
    return replace(found, gap=0)


def refused(kind: str, seeds: range, policy: Policy = BEST) -> tuple[int, int]:
    """How many decisions cost more than the optimum, and how many of these are refused."""
    wrong = caught = 0
    for seed in seeds:
        given = instance(seed, kind)
        level = lowest_priority(given.gpus, given.units, given.members)
        if level is None or fits_free(given.gpus, given.units, given.members):
            continue
        snapshot = given.snapshot()
        attempt = decided(snapshot, given.unit, policy)
        if attempt.plan is None:
            continue
        faults = faults_of(snapshot, policy, attempt, NOW)
        if exact(given, attempt, level, by_work=policy.harm_order):
            assert faults == (), seed
        else:
            wrong += 1
            caught += bool(faults)
    return wrong, caught


def exact(given: Instance, attempt: Attempt, level: int, *, by_work: bool) -> bool:
    assert attempt.plan is not None
    names = {given.of_pod[victim.root.name] for victim in attempt.plan.victims}
    units = [given.units[name] for name in names]
    if max(unit.priority for unit in units) > level:
        return False
    if by_work:
        best = least(given.gpus, given.units, given.members, level, lambda u: u.lost)
        return sum(unit.lost for unit in units) == best
    best = least(given.gpus, given.units, given.members, level, lambda u: u.pods)
    return sum(unit.pods for unit in units) == best


def without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the victims of kube-scheduler's rules as the least costly ones."""
    monkeypatch.setattr(group_preemption, "least_costly", claims_least)


def reversed_reprieve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the least important units back first."""
    ordered = Units.ordered
    monkeypatch.setattr(Units, "ordered", lambda self, units: ordered(self, units)[::-1])
    without_search(monkeypatch)


def gangs_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a gang as if it were one pod."""

    def units_alone(
        snapshot: Snapshot, found: Preemption, budgets: BudgetMatches, lost: I64 | None
    ) -> tuple[int, ...]:
        cost = plan_cost(snapshot, found, budgets, lost)
        return (*cost[:4], len(found.victims), len(found.victims), *cost[6:])

    def ones(units: Units, *given: object, **more: object) -> UnitCosts:
        return UnitCosts(np.ones(len(units), np.int64), 1, False, len(units) + 1)

    monkeypatch.setattr(least_costly, "plan_cost", units_alone)
    monkeypatch.setattr(least_costly, "unit_costs", ones)
    monkeypatch.setattr(least_costly, "gap_of", lambda *given: 0)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("mixed", without_search),
        pytest.param("equal", without_search, marks=pytest.mark.thorough),
        pytest.param("mixed", reversed_reprieve, marks=pytest.mark.thorough),
        pytest.param("equal", reversed_reprieve, marks=pytest.mark.thorough),
    ],
)
def test_victims_that_are_not_the_least_are_refused(
    kind: str, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    wrong, caught = refused(kind, range(2_000, 2_020))
    assert wrong >= 6 and caught >= wrong * 0.7, (wrong, caught)


@pytest.mark.thorough
def test_victims_are_refused_if_a_gang_counts_as_one_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    gangs_as_one(monkeypatch)
    found = [refused(kind, range(2_000, 2_060)) for kind in ("mixed", "equal")]
    wrong, caught = (sum(each) for each in zip(*found, strict=True))
    assert wrong >= 12 and caught >= wrong * 0.8, (wrong, caught)


def test_the_worst_node_for_a_pod_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def worst(
        simulation: Simulation,
        pending: Any,
        candidates: Any,
        found: Preemption,
        on_node: Callable[[int], Preemption],
    ) -> Preemption:
        budgets = budget_matches(simulation)
        others = [on_node(node) for node in candidates.nodes.tolist()]
        dearest = max(others, key=lambda each: plan_cost(simulation.snapshot, each, budgets, None))
        return replace(dearest, gap=0)

    monkeypatch.setattr(pod_preemption, "least_costly_node", worst)
    wrong, caught = refused("single", range(2_000, 2_024))
    assert wrong >= 6 and caught == wrong, (wrong, caught)


def without_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no pod that a budget does not allow."""

    def blind(
        snapshot: Snapshot, found: Preemption, budgets: BudgetMatches, lost: I64 | None
    ) -> tuple[int, ...]:
        cost = plan_cost(snapshot, found, budgets, lost)
        return (*cost[:2], 0, *cost[3:])

    monkeypatch.setattr(least_costly, "allowances", lambda *given: None)
    monkeypatch.setattr(least_costly, "plan_cost", blind)
    monkeypatch.setattr(least_costly, "gap_of", lambda *given: 0)


def without_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Propose victims as if no constraint of the members counted pods."""
    monkeypatch.setattr(fewest, "even_limits", lambda *given: [])
    monkeypatch.setattr(fewest, "node_limits", lambda *given: None)
    monkeypatch.setattr(least_costly, "gap_of", lambda *given: 0)


@pytest.mark.parametrize(
    ("variant", "broken"), [("budgets", without_budgets), ("spread", without_spread)]
)
def test_what_is_wrong_under_budgets_and_with_spread_is_refused(
    variant: str, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = caught = 0
    for seed in range(40):
        given, rows = drawn(variant, "mixed", seed)
        cluster = Cluster()
        cluster.apply(rows)
        snapshot = cluster.snapshot()
        right = decided(snapshot, given.unit, BEST)
        with monkeypatch.context() as patched:
            broken(patched)
            attempt = decided(snapshot, given.unit, BEST)
        if attempt.preemption is None or right.preemption is None or right.plan is None:
            continue
        budgets = budget_matches(Simulation(snapshot, BEST, BEST.profiles[0]))
        cost, least_cost = (
            plan_cost(snapshot, each.preemption, budgets, None)[:5]
            for each in (attempt, right)
            if each.preemption is not None
        )
        assert faults_of(snapshot, BEST, right, NOW) == (), seed
        if cost > least_cost and attempt.plan is not None:
            wrong += 1
            caught += bool(faults_of(snapshot, BEST, attempt, NOW))
    assert wrong >= 2 and caught >= wrong * 0.7, (wrong, caught)


def test_lost_work_that_counts_more_than_the_bound_says_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`long` runs for days and says nothing: it loses an hour at most, `saved` lost more."""
    policy = replace(BEST, harm_order=True, max_lost_work=HOUR)

    def row(name: str, node: str, start: int, checkpoint: int = 0, priority: int = 1) -> PodRow:
        entry = PodClass((("cpu", 1_000), (GPU, 8)), 1_000, 200 * 2**20)
        return PodRow(
            Uid(name),
            "default",
            name,
            1,
            entry,
            node=node,
            priority=priority,
            start=start,
            checkpoint=checkpoint,
        )

    rows: list[Change] = [
        NodeRow(Uid(n), n, 1, {"pods": 110, "cpu": 64_000, GPU: 8}, {}) for n in ("a", "b")
    ]
    rows += [
        row("long", "a", NOW - 90 * HOUR),
        row("saved", "b", NOW - 90 * HOUR, checkpoint=NOW - 3 * HOUR),
        row("train", "", NOW, priority=10),
    ]
    cluster = Cluster()
    cluster.apply(rows)
    snapshot, unit = cluster.snapshot(), Unit((Uid("train"),))
    attempt = decided(snapshot, unit, policy)
    assert attempt.plan is not None
    assert [victim.root.name for victim in attempt.plan.victims] == ["long"]
    assert faults_of(snapshot, policy, attempt, NOW) == ()
    ignored = replace(policy, max_lost_work=1_000 * HOUR)
    attempt = decided(snapshot, unit, ignored)
    assert attempt.plan is not None
    assert [victim.root.name for victim in attempt.plan.victims] == ["saved"]
    (fault,) = faults_of(snapshot, policy, attempt, NOW)
    assert "a plain choice of victims costs less" in str(fault)

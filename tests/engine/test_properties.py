"""The promises that concern decisions, on random clusters, against the naive oracle.

Each test counts what it generated: too few preemptions or refusals and it proves nothing, so it
fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.check import check_all
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, Policy
from reprieve.engine.idle.outcome import Evaluation, Reason
from reprieve.engine.plan import Plan
from tests.engine.cases import NOW, clusters
from tests.engine.rows import policy_of, rows_of
from tests.oracle import naive

Case = dict[str, Any]
REFUSALS = (Reason.SHORT, Reason.NO_PLACEMENT)


@pytest.fixture(params=[50, pytest.param(150, marks=pytest.mark.thorough)], ids=["some", "many"])
def examples(request: pytest.FixtureRequest) -> int:
    """How many clusters each promise is held on."""
    return int(request.param)


def hold(
    promise: Callable[[Case, Evaluation], None],
    examples: int,
    most_demands: int = 3,
    **options: Any,
) -> None:
    """Run `promise` on many clusters and see that they were worth it."""
    counted: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(clusters(most_demands))
    def run(case: Case) -> None:
        evaluation = decided(case, policy_of(case, **options))
        counted["cases"] += 1
        counted["preemption"] += any(plan.preemptor for plan in evaluation.plans)
        counted["refusal"] += any(each.reason in REFUSALS for each in evaluation.declined)
        promise(case, evaluation)

    run()
    # What is drawn depends a little on the modules that the process has loaded.
    assert counted["preemption"] >= 0.2 * counted["cases"], counted
    assert counted["refusal"] >= 0.05 * counted["cases"], counted


def decided(case: Case, policy: Policy) -> Evaluation:
    return evaluate(rows_of(case), policy, Nanos(NOW * SECOND))


def victims(plan: Plan) -> list[str]:
    return [f"{v.subject.namespace}/{v.subject.name}" for v in plan.victims]


def preemptor(plan: Plan) -> str:
    return "" if plan.preemptor is None else f"{plan.preemptor.namespace}/{plan.preemptor.name}"


def listed(evaluation: Evaluation) -> list[tuple[str, list[str]]]:
    return [(preemptor(plan), victims(plan)) for plan in evaluation.plans]


def row(case: Case, key: str) -> Case:
    found: Case = next(w for w in case["workloads"] if w["key"] == key)
    return found


@pytest.mark.parametrize("trim", [False, True])
def test_the_sum_decides_as_the_oracle_does(trim: bool, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        assert listed(evaluation) == naive.decide(case, trim=trim)

    hold(promise, examples, irreducible=trim)


def test_somebody_goes_with_the_node_fit_if_and_only_if_the_demand_then_has_nodes() -> None:
    """Free room counts, and so does everything that pods ask for beside GPUs."""
    counted: Counter[str] = Counter()

    def promise(case: Case, evaluation: Evaluation) -> None:
        (demand,) = naive.demands(case)
        idle, anyway = naive.idle_pool(case), naive.leaving_anyway(demand, case)
        fits = naive.can_place(demand, case, anyway)
        would_fit = naive.can_place(demand, case, [*anyway, *idle])
        plans = [plan for plan in evaluation.plans if plan.preemptor is not None]
        assert bool(plans) is (would_fit and not fits)
        by_sum = any(whom for whom, _ in naive.decide(case))
        counted["useless by the sum"] += by_sum and not would_fit
        counted["missed by the sum"] += bool(plans) and not by_sum
        for plan in plans:
            chosen = [row(case, key) for key in victims(plan)]
            assert all(victim in idle for victim in chosen)
            pods = {p["name"]: p for p in demand["pods"]}
            places = [(pods[uid], node) for uid, node in plan.placement]
            assert naive.fits_together(places, case, [*anyway, *chosen])
            for spare in chosen:
                rest = [victim for victim in chosen if victim is not spare]
                assert not naive.fits_together(places, case, [*anyway, *rest])
            counted["free room used"] += bool(plan.proof.free)

    hold(promise, 400, most_demands=1, fit=Fit.NODE)
    assert counted["useless by the sum"] >= 5, counted
    assert counted["missed by the sum"] >= 5, counted
    assert counted["free room used"] >= 4, counted


@pytest.mark.parametrize("fit", list(Fit))
def test_room_made_for_a_demand_that_goes_serves_the_next_one_alike(
    fit: Fit, examples: int
) -> None:
    """One demand, one eviction: whoever asks for the same after it finds the room on its way."""
    counted: Counter[str] = Counter()

    def promise(case: Case, evaluation: Evaluation) -> None:
        (first,) = naive.demands(case)
        gone = [key for plan in evaluation.plans if plan.preemptor for key in victims(plan)]
        if not gone:
            return
        name = first["key"].split("/")[1]
        marked = {"phase": "Preempting", "preempted_for": name, "idle_since": None}
        others = [
            {**w, **marked} if w["key"] in gone else w
            for w in case["workloads"]
            if w["key"] != first["key"]
        ]
        pods = [{**p, "name": f"next-{p['name']}"} for p in first["pods"]]
        second = {**first, "key": "team-b/next", "root": "root-next", "pods": pods}
        later = {**case, "workloads": [*others, second]}
        again = decided(later, policy_of(case, fit=fit))
        assert [preemptor(plan) for plan in again.plans if plan.preemptor] == []
        counted["handed on"] += 1
        counted["others idle"] += bool(naive.idle_pool(later))

    hold(promise, examples, most_demands=1, fit=fit)
    assert counted["handed on"] >= examples * 0.13, counted
    assert counted["others idle"] >= examples * 0.06, counted


@pytest.mark.parametrize("trim", [False, True])
def test_all_placements_of_one_run_fit_together(trim: bool, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        places, leaving = [], []
        for plan in evaluation.plans:
            leaving += [row(case, key) for key in victims(plan)]
            if plan.preemptor is not None:
                pods = {p["name"]: p for p in row(case, preemptor(plan))["pods"]}
                assert {uid for uid, _ in plan.placement} == set(pods)
                places += [(pods[uid], node) for uid, node in plan.placement]
        leaving += [w for w in case["workloads"] if naive.on_its_way(w, case) is not None]
        assert naive.fits_together(places, case, leaving)

    hold(promise, examples, fit=Fit.NODE, irreducible=trim)


@pytest.mark.parametrize("fit", list(Fit))
def test_every_plan_is_feasible(fit: Fit, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        for plan in evaluation.plans:
            need = row(case, preemptor(plan))["gpus"] if plan.preemptor else {}
            chosen = [row(case, key) for key in victims(plan)]
            for name, count in need.items():
                beside = plan.proof.in_flight[name] + plan.proof.free.get(name, 0)
                assert naive.total(chosen, name) + beside >= count

    hold(promise, examples, fit=fit)


@pytest.mark.parametrize("trim", [False, True])
def test_every_plan_is_irreducible_or_says_that_it_may_not_be(trim: bool, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        for plan in evaluation.plans:
            if plan.preemptor is None:
                continue
            need = row(case, preemptor(plan))["gpus"]
            chosen = [row(case, key) for key in victims(plan)]
            superfluous = [
                spare["key"]
                for spare in chosen
                if all(
                    naive.total([w for w in chosen if w is not spare], name)
                    + plan.proof.in_flight[name]
                    >= count
                    for name, count in need.items()
                )
            ]
            assert not superfluous or (plan.proof.compatible and not trim)
            assert plan.proof.compatible is bool(superfluous)

    hold(promise, examples, irreducible=trim)


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("fit", list(Fit))
def test_the_independent_check_accepts_every_plan(fit: Fit, trim: bool, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        policy = policy_of(case, fit=fit, irreducible=trim)
        now, held = Nanos(NOW * SECOND), evaluation.reservations
        assert check_all(evaluation.plans, rows_of(case), policy, now, held) == ()

    hold(promise, examples, fit=fit, irreducible=trim)


@pytest.mark.parametrize("fit", list(Fit))
def test_the_order_of_the_input_plays_no_role(fit: Fit, examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        turned = {
            **case,
            "workloads": [{**w, "pods": w["pods"][::-1]} for w in case["workloads"][::-1]],
            "nodes": dict(reversed(case["nodes"].items())),
            "claims": dict(reversed(case["claims"].items())),
        }
        assert decided(turned, policy_of(case, fit=fit)) == evaluation

    hold(promise, examples, fit=fit)


def test_silent_work_is_never_a_victim(examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        for plan in evaluation.plans:
            assert all(naive.fresh(row(case, key), case) for key in victims(plan))

    hold(promise, examples)


def test_victim_sets_are_disjoint_and_leave_out_what_is_claimed(examples: int) -> None:
    def promise(case: Case, evaluation: Evaluation) -> None:
        everybody = [key for plan in evaluation.plans for key in victims(plan)]
        assert len(everybody) == len(set(everybody))
        assert not {row(case, key)["root"] for key in everybody} & set(case["claims"])

    hold(promise, examples)


def test_a_plan_that_was_committed_is_not_decided_again(examples: int) -> None:
    """The next run sees the claims of this one: the same demand gets nobody, nobody goes twice."""

    def promise(case: Case, evaluation: Evaluation) -> None:
        claims = dict(case["claims"])
        for plan in evaluation.plans:
            claims |= {v.root.uid: preemptor(plan) or None for v in plan.victims}
        again = decided({**case, "claims": claims}, policy_of(case))
        served = {preemptor(plan) for plan in evaluation.plans}
        assert not {preemptor(plan) for plan in again.plans} & served

    hold(promise, examples)

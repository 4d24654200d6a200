"""What follows from an evaluation is a list, in order; a plan goes on only if its proof holds."""

from __future__ import annotations

import logging
from dataclasses import replace

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Fit, IdleSnapshot, Policy
from reprieve.engine.idle.outcome import Evaluation
from reprieve.planes.idle.evaluating.effects import (
    Begin,
    CountDeclined,
    EvaluateAt,
    Log,
    Refuse,
    TellOnce,
    answers_of,
    plans_of,
)
from tests.engine.rows import NOW, ago, demand, snapshot, workload

POLICY = Policy()


def evaluated(found: IdleSnapshot, policy: Policy = POLICY) -> Evaluation:
    return evaluate(found, policy, NOW)


def test_each_decline_is_counted_and_logged_and_the_next_due_instant_asked_for() -> None:
    found = snapshot(workload("young", idle_since=ago(30)), workload("unneeded"))
    evaluation = replace(evaluated(found), next_due=Nanos(NOW + MINUTE))
    effects = list(answers_of(evaluation, POLICY))
    counted = [each.declined.subject.name for each in effects if isinstance(each, CountDeclined)]
    assert sorted(counted) == ["unneeded", "young"]
    logged = [each for each in effects if isinstance(each, Log)]
    assert {each.level for each in logged} == {logging.DEBUG}
    assert all(": " in each.text for each in logged)
    assert effects[-1] == EvaluateAt(Nanos(NOW + MINUTE))
    assert not any(isinstance(each, TellOnce) for each in effects)


def test_a_demand_that_is_not_served_is_told_why() -> None:
    found = snapshot(workload("small", gpus=2), demand("wants", gpus=8))
    (told,) = (
        each
        for each in answers_of(evaluated(found), Policy(fit=Fit.SUM))
        if isinstance(each, TellOnce)
    )
    assert told.subject.name == "wants"
    assert told.text.reason == "NobodyMakesWay"


def test_a_plan_whose_proof_holds_begins_with_its_texts() -> None:
    found = snapshot(workload("victim", gpus=8), demand(gpus=4))
    (begin,) = plans_of(evaluated(found), found, POLICY, NOW)
    assert isinstance(begin, Begin)
    assert [victim.subject.name for victim in begin.plan.victims] == ["victim"]
    assert all(victim.reason for victim in begin.plan.victims)


def test_a_plan_that_fails_its_check_is_never_begun_and_the_others_are() -> None:
    found = snapshot(
        workload("first", gpus=4, idle_since=ago(7000)),
        workload("second", gpus=4),
        demand("d1", gpus=4, created=ago(900)),
        demand("d2", gpus=4, created=ago(800)),
    )
    evaluation = evaluated(found)
    bad, good = evaluation.plans
    need = {name: 2 * amount for name, amount in bad.proof.need.items()}
    spoilt = replace(bad, proof=replace(bad.proof, need=need))
    effects = list(plans_of(replace(evaluation, plans=(spoilt, good)), found, POLICY, NOW))
    assert [type(each) for each in effects] == [Refuse, Begin]
    refused = effects[0]
    assert isinstance(refused, Refuse)
    assert refused.plan == spoilt and refused.why


def test_the_same_evaluation_gives_the_same_effects() -> None:
    found = snapshot(workload("victim", gpus=8), demand(gpus=4))
    evaluation = evaluated(found)
    assert list(plans_of(evaluation, found, POLICY, NOW)) == list(
        plans_of(evaluation, found, POLICY, NOW)
    )

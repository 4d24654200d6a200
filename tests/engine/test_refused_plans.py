"""Plans that the scheduling plane refuses, and whose idle work is free for which demand."""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.idle.asking import idle_work
from reprieve.engine.idle.check import check_all
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Policy, Workload
from reprieve.engine.idle.outcome import Reason
from reprieve.engine.plan import Plan
from tests.engine.rows import NOW, ago, demand, snapshot, workload

POLICY = Policy()


def one(*rows: Workload) -> Plan:
    (plan,) = evaluate(snapshot(*rows), POLICY, NOW).plans
    return plan


def names(plan: Plan) -> list[str]:
    return [victim.subject.name for victim in plan.victims]


def test_the_victims_of_a_refused_plan_are_left_to_later_demands() -> None:
    idle = workload("idle", gpus=4)
    first, second = demand("first", 4, created=ago(60)), demand("second", 2, created=ago(30))
    plan = one(idle, first, second)
    assert plan.preemptor == first.ref
    seen = replace(snapshot(idle, first, second), refused=frozenset([plan.id]))
    found = evaluate(seen, POLICY, NOW)
    assert [(each.preemptor, names(each)) for each in found.plans] == [(second.ref, ["idle"])]
    assert [each.reason for each in found.declined] == [Reason.NOT_CONFIRMED]
    assert check_all(found.plans, seen, POLICY, NOW) == ()


def test_the_next_sets_of_idle_work_follow_one_that_is_refused_until_none_is_left() -> None:
    wanted = demand("wanted", 4)
    idle = (
        workload("oldest", gpus=4, idle_since=ago(3_000)),
        workload("half", gpus=2, idle_since=ago(2_500)),
        workload("other-half", gpus=2, idle_since=ago(2_000)),
        workload("youngest", gpus=4, idle_since=ago(1_900)),
    )
    refused, tried = set[str](), list[list[str]]()
    while True:
        seen = replace(snapshot(*idle, wanted), refused=frozenset(refused))
        found = evaluate(seen, POLICY, NOW)
        if not found.plans:
            break
        (plan,) = found.plans
        assert check_all([plan], seen, POLICY, NOW) == ()
        refused.add(plan.id)
        tried.append(names(plan))
    # The default policy reprieves no unit of the sum that it found.
    assert tried == [
        ["oldest"],
        ["half", "other-half"],
        ["other-half", "youngest"],
        ["half", "youngest"],
        ["youngest"],
    ]
    assert Reason.NOT_CONFIRMED in {each.reason for each in found.declined}


def test_a_plan_is_not_refused_for_what_was_said_of_other_victims() -> None:
    wanted = demand("wanted", 4)
    refused = one(workload("idle", gpus=4), wanted)
    seen = replace(snapshot(workload("other", gpus=4), wanted), refused=frozenset([refused.id]))
    (plan,) = evaluate(seen, POLICY, NOW).plans
    assert names(plan) == ["other"]


def test_idle_work_is_free_for_demands_that_are_served_before_the_one_that_needs_it() -> None:
    idle, spare = workload("idle", gpus=4), workload("spare", gpus=1)
    first = demand("first", 16, created=ago(60))
    second = demand("second", 4, created=ago(30))
    seen = snapshot(idle, spare, first, second)
    evaluation = evaluate(seen, POLICY, NOW)
    assert [names(plan) for plan in evaluation.plans] == [["idle"]]
    work = idle_work(seen, evaluation)
    assert {each.key for each in work.rows} == {idle.key, spare.key}
    free = {
        (each.key, root)
        for each in (first, second)
        for root in (idle.root.uid, spare.root.uid)
        if work.is_free(each, root)
    }
    assert free == {
        (first.key, idle.root.uid),
        (first.key, spare.root.uid),
        (second.key, spare.root.uid),
    }

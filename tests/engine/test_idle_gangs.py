"""A waiting gang is one demand: it takes what it needs once, all of it or nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from reprieve.engine.idle.check import check_all
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.gangs import gang_of, joined
from reprieve.engine.idle.model import IdleSnapshot, Phase, Policy, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.units.ids import GpuWorkloadKey
from tests.engine.rows import NOW, ago, demand, pod, snapshot, workload

GPU = "amd.com/gpu"


def member(name: str, gpus: int = 2, group: str = "ring", age: float = 7200) -> Workload:
    pods = [pod(f"{name}-0", "Pending", gpus={GPU: gpus}, demand=True, group=group)]
    return demand(name, gpus, pods=pods, created=ago(age))


def together(*rows: Workload, others: dict[str, list[str]] | None = None) -> IdleSnapshot:
    members: dict[str, set[GpuWorkloadKey]] = {}
    for row in rows:
        if gang_of(row):
            members.setdefault(gang_of(row), set()).add(row.key)
    for gang, names in (others or {}).items():
        members[gang].update(GpuWorkloadKey(f"ml-team/{name}") for name in names)
    return snapshot(*joined(rows, members)[0], served=frozenset({GpuWorkloadKey("ml-team/first")}))


def taken(evaluation: Evaluation) -> list[tuple[str, list[str]]]:
    return [
        (plan.preemptor.name if plan.preemptor else "", [v.subject.name for v in plan.victims])
        for plan in evaluation.plans
    ]


def test_a_gang_takes_one_victim_where_its_pods_apart_would_take_one_each() -> None:
    idle = [workload(name, gpus=4, idle_since=ago(3600)) for name in ("a", "b")]
    gang = [member("second", age=10), member("first", age=20)]
    apart = evaluate(snapshot(*idle, *gang), Policy(), NOW)
    assert taken(apart) == [("first", ["a"]), ("second", ["b"])]
    seen = together(*idle, *gang)
    once = evaluate(seen, Policy(), NOW)
    assert taken(once) == [("first", ["a"])]
    assert once.plans[0].proof.need == {GPU: 4}
    assert check_all(once.plans, seen, Policy(), NOW) == ()


def test_a_gang_that_cannot_have_all_takes_nobody() -> None:
    rows = [workload("a", gpus=4), *(member(f"m{k}") for k in range(3))]
    assert taken(evaluate(snapshot(*rows), Policy(), NOW)) == [("m0", ["a"])]
    evaluation = evaluate(together(*rows), Policy(), NOW)
    assert (evaluation.plans, evaluation.declined[0].amounts) == ((), {GPU: 2})


def test_what_was_taken_for_a_member_that_waits_no_longer_is_still_the_gangs() -> None:
    """`first` spoke for the gang and has its pod bound; its sibling follows in a moment."""
    gone = workload("a", Phase.PREEMPTED, 4, pods=[], preempted_for="first", preempted_at=ago(5))
    rows = [gone, workload("b", gpus=4), member("second")]
    assert taken(evaluate(together(*rows), Policy(), NOW)) == [("second", ["b"])]
    seen = together(*rows, others={"ml-team/ring": ["first"]})
    assert taken(evaluate(seen, Policy(), NOW)) == []


def test_pods_of_several_groups_or_namespaces_or_of_none_are_no_gang() -> None:
    pods = [pod(f"p{k}", "Pending", group=group) for k, group in enumerate(("x", "y", ""))]
    assert gang_of(demand(pods=pods)) == gang_of(demand(pods=pods[2:])) == ""
    assert gang_of(demand(pods=pods[:1])) == "ml-team/x"
    there = replace(member("m1"), ref=replace(member("m1").ref, namespace="other"))
    rows, speakers = joined([member("m0"), there], {})
    assert (len(rows), speakers) == (2, {row.key: row.key for row in rows})


def test_a_gang_decides_as_one_workload_of_its_size_would() -> None:
    random, seen = Random(3), Counter[str]()
    for number in range(400):
        idle = [
            workload(f"v{k}", gpus=random.randint(1, 6), idle_since=ago(random.randint(700, 4000)))
            for k in range(random.randint(1, 6))
        ]
        size, gpus = random.randint(2, 5), random.randint(1, 3)
        ages = [random.randint(10, 90) for _ in range(size)]
        gang = [member(f"m{k}", gpus, age=age) for k, age in enumerate(ages)]
        other = demand("other", random.randint(1, 5), created=ago(random.randint(10, 90)))
        speaker = min(gang, key=lambda each: (each.created, each.key))
        whole = replace(
            speaker,
            gpus={GPU: size * gpus},
            pods=tuple(sorted((p for m in gang for p in m.pods), key=lambda p: p.name)),
        )
        rows = [*idle, *gang, other]
        random.shuffle(rows)
        view = together(*rows)
        evaluation = evaluate(view, Policy(), NOW)
        single = evaluate(snapshot(*idle, whole, other), Policy(), NOW)
        assert taken(evaluation) == taken(single), number
        assert check_all(evaluation.plans, view, Policy(), NOW) == (), number
        apart = evaluate(snapshot(*rows), Policy(), NOW)
        seen["fewer"] += sum(len(v) for _, v in taken(apart)) > sum(
            len(v) for _, v in taken(evaluation)
        )
        seen["served"] += any(who == speaker.ref.name for who, _ in taken(evaluation))
        seen["refused"] += not any(who == speaker.ref.name for who, _ in taken(evaluation))
    assert min(seen.values()) >= 60, seen

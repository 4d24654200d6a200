"""Cycles: what they may never do, and that neither order of events nor speed changes them."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane, ProofLevel
from reprieve.engine.quota.cycle import cycle, cycles
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Check,
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.taking_back import preemptions_failed, undo_admission
from reprieve.engine.quota.waiting.continuing import Continuation, count_grown
from reprieve.engine.quota.waiting.queues import Queues
from tests.oracle import quota as oracle
from tests.quota.cases import NOW, Scene, Size, plain, scene

SIZE = Size(admitted=12, pending=14)


def start(case: Scene, order: Random | None = None) -> tuple[Holdings, Queues]:
    holdings, queues = Holdings(case.configuration), Queues(case.configuration)
    admitted, pending = list(case.admitted), [*case.pending, case.incoming]
    if order is not None:
        order.shuffle(admitted)
        order.shuffle(pending)
    for workload in admitted:
        holdings.hold(workload)
    for workload in pending:
        queues.push(workload)
    return holdings, queues


def summary(result: CycleResult) -> list[tuple[Any, ...]]:
    return [
        (
            entry.workload.key,
            entry.outcome,
            entry.message,
            entry.reason,
            entry.admission,
            [(target.holder.key, target.reason) for target in entry.targets],
        )
        for entry in result.entries
    ]


def test_no_admission_takes_a_node_above_its_limits() -> None:
    random = Random(41)
    admissions = borrowed = lent = 0
    for number in range(900):
        case = scene(random, size=SIZE)
        holdings, queues = start(case)
        world = oracle.World(plain(case))
        for entry in cycle(holdings, queues, NOW).of(Outcome.ADMITTED):
            admissions += 1
            assert entry.admission is not None
            usage = {
                (flavor, resource): pod_set.usage[resource]
                for pod_set in entry.admission.pod_sets
                for resource, flavor in pod_set.flavors.items()
            }
            node: oracle.Node = ("queue", entry.cluster_queue)
            for pair, amount in usage.items():
                assert amount <= max(0, world.available(node, pair)), (number, entry.workload.key)
            before = copy.deepcopy(world.usage)
            world.change({"queue": entry.cluster_queue, "usage": usage}, 1)
            for pair in usage:
                for each in world.path(node):
                    spent = world.used(each, pair)
                    grew = spent > _used(world, before, each, pair)
                    _, borrowing, lending = world.quota(each, pair)
                    most = world.subtree(each, pair)
                    root = world.parent(each) is None
                    # A root lends nothing that its children keep: their lending limits are in it.
                    assert not (root and grew) or spent <= most, (number, each)
                    assert borrowing is None or not grew or spent <= most + borrowing
                    borrowed += spent > most
                    lent += lending is not None
    assert admissions >= 500
    assert min(borrowed, lent) >= 100


def _used(world: oracle.World, usage: oracle.Usage, node: oracle.Node, pair: oracle.Pair) -> int:
    now, world.usage = world.usage, usage
    found = world.used(node, pair)
    world.usage = now
    return found


def test_the_same_objects_give_the_same_cycle_whatever_order_built_them() -> None:
    random = Random(42)
    preempting = 0
    for number in range(250):
        case = scene(random, size=SIZE)
        first = cycle(*start(case), NOW)
        second = cycle(*start(case, Random(number)), NOW)
        assert summary(first) == summary(second), number
        preempting += bool(first.of(Outcome.PREEMPTING))
    assert preempting >= 40


def test_cycles_back_to_back_equal_as_many_cycles_on_a_rebuilt_state() -> None:
    random = Random(43)
    seen: Counter[str] = Counter()
    for number in range(200):
        case = scene(random, size=SIZE)
        fast = [summary(result) for result in cycles(*start(case), NOW, limit=30)]
        holdings, queues = start(case)
        slow, continuation = [], Continuation()
        for index in range(len(fast)):
            fresh = Holdings(case.configuration)
            for holder in holdings.holders.values():
                fresh.hold(holder.workload)
            # Bookmarks of flavors count in generations of the queue, which a rebuild starts anew.
            fresh.generations = dict(holdings.generations)
            holdings = fresh
            result = cycle(holdings, queues, NOW, index)
            slow.append(summary(result))
            count_grown(result, holdings, queues)
            continuation.follows(result, holdings, queues)
            seen.update(entry.outcome for entry in result.entries)
        assert fast == slow, number
        seen["several cycles"] += len(fast) > 3
    outcomes = (Outcome.ADMITTED, Outcome.PREEMPTING, Outcome.SKIPPED, Outcome.NO_CANDIDATES)
    assert min(seen[outcome] for outcome in outcomes) >= 20, seen
    assert seen["several cycles"] >= 60


def test_every_issued_preemption_is_a_plan_whose_sums_hold() -> None:
    random = Random(44)
    plans = 0
    for number in range(400):
        case = scene(random, size=SIZE)
        holdings, queues = start(case)
        for entry in cycle(holdings, queues, NOW).entries:
            plan = plan_of(entry, holdings.tree, number, "policy")
            if plan is None:
                continue
            plans += 1
            assert (plan.plane, plan.proof.level) == (Plane.QUOTA, ProofLevel.QUOTA)
            assert [v.subject.uid for v in plan.victims] == [
                target.holder.workload.uid for target in entry.issued
            ]
            for resource, need in plan.proof.need.items():
                room = plan.proof.in_flight[resource] + plan.proof.freed.get(resource, 0)
                assert need <= room, (number, resource)
    assert plans >= 80


def one_queue(**changes: Any) -> Configuration:
    quotas = FlavorQuotas("default", {"cpu": Quota(4)})
    queue = ClusterQueue("team", groups=(ResourceGroup(("cpu",), (quotas,)),), **changes)
    return Configuration(
        {"team": queue},
        {},
        {"default": ResourceFlavor("default")},
        {"ns/main": LocalQueue("ns/main", "team")},
        {"ns": {}},
        Settings(),
    )


def job(name: str, cpu: int, priority: int = 0, **changes: Any) -> Workload:
    pods = (PodSet("main", 1, {"cpu": cpu}),)
    return replace(
        Workload("ns", name, uid=name, queue="ns/main", priority=priority, pod_sets=pods), **changes
    )


def run(configuration: Configuration, *workloads: Workload) -> tuple[Holdings, Queues, CycleResult]:
    holdings, queues = Holdings(configuration), Queues(configuration)
    for workload in workloads:
        queues.push(workload)
    return holdings, queues, cycle(holdings, queues, NOW)


def test_an_admission_that_could_not_be_written_is_taken_back() -> None:
    holdings, queues, result = run(one_queue(), job("a", 4))
    undo_admission(holdings, queues, result.entries[0])
    assert holdings.holders == {}
    assert queues.active() == {"team": ["ns/a"]}


def test_a_strict_queue_waits_for_its_head_and_a_best_effort_queue_does_not() -> None:
    jobs = (job("big", 5, priority=1), job("small", 1))
    strict = one_queue(strategy=QueueingStrategy.STRICT_FIFO)
    holdings, queues, _ = run(strict, *jobs)
    cycle(holdings, queues, NOW, 1)
    assert (dict(holdings.holders), queues.active()) == ({}, {"team": ["ns/big", "ns/small"]})
    holdings, queues, _ = run(one_queue(), *jobs)
    cycle(holdings, queues, NOW, 1)
    assert list(holdings.holders) == ["ns/small"]
    assert queues.inadmissible() == {"team": ["ns/big"]}


def test_workloads_of_one_shape_are_set_aside_together_and_come_back_together() -> None:
    _, queues, _ = run(one_queue(), *(job(f"big{k}", 5) for k in range(3)), job("late", 1))
    assert queues.inadmissible() == {"team": ["ns/big0", "ns/big1", "ns/big2"]}
    queues.push(job("big3", 5))
    assert queues.inadmissible() == {"team": ["ns/big0", "ns/big1", "ns/big2", "ns/big3"]}
    queues.flush(["team"])
    assert queues.inadmissible() == {}
    assert len(queues.active()["team"]) == 5


def test_a_preemptor_stays_first_until_its_victims_are_gone() -> None:
    preemption = Preemption(Policy.LOWER_PRIORITY)
    configuration = one_queue(preemption=preemption)
    holdings, queues, _ = run(configuration, job("low", 4))
    queues.push(job("high", 4, priority=1))
    result = cycle(holdings, queues, NOW, 1)
    (entry,) = result.of(Outcome.PREEMPTING)
    assert entry.message.endswith(". Pending the preemption of 1 workload(s)")
    # A later one of higher priority does not get in between, and no eviction is written twice.
    queues.push(job("higher", 4, priority=2))
    again = cycle(holdings, queues, NOW, 2)
    assert [(e.workload.name, e.outcome, e.issued) for e in again.entries] == [
        ("high", Outcome.PREEMPTING, ())
    ]


def test_evictions_that_could_not_be_written_are_taken_back() -> None:
    preemption = Preemption(Policy.LOWER_PRIORITY)
    configuration = one_queue(preemption=preemption)
    holdings, queues, _ = run(configuration, job("low", 2), job("mean", 2))
    cycle(holdings, queues, NOW, 1)
    queues.push(job("high", 4, priority=1))
    (entry,) = cycle(holdings, queues, NOW, 2).of(Outcome.PREEMPTING)
    preemptions_failed(holdings, queues, entry, ["ns/low"])
    assert entry.message.endswith(". Pending the preemption of 1 workload(s)")
    assert [h.evicted for h in holdings.holders.values()].count(True) == 1
    preemptions_failed(holdings, queues, entry, ["ns/low", "ns/mean"])
    assert entry.message.endswith(". Preempting 2 workload(s) failed, will retry.")
    assert not any(holder.evicted for holder in holdings.holders.values())
    # It has lost its place at the head, and tries again.
    queues.push(job("higher", 4, priority=2))
    again = cycle(holdings, queues, NOW, 3)
    assert [(e.workload.name, len(e.issued)) for e in again.entries] == [("higher", 2)]


def test_a_never_fitting_workload_is_told_which_resource_and_how_much() -> None:
    _, _, result = run(one_queue(), job("huge", 9))
    (entry,) = result.entries
    assert entry.reason == "ExceedsMaxQuota"
    assert entry.message == (
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
        "previously considered podsets requests (0) + current podset request (9m) > "
        "maximum capacity (4m)"
    )


def test_admission_waits_for_the_pods_of_what_was_admitted_before() -> None:
    configuration = replace(one_queue(), settings=Settings(block_admission=True))
    holdings, queues, _ = run(configuration, job("a", 1), job("b", 1))
    blocked = cycle(holdings, queues, NOW, 1)
    assert [(e.workload.name, e.outcome, e.reason) for e in blocked.entries] == [
        ("b", Outcome.BLOCKED, "WaitingForPodsReady")
    ]
    holdings.hold(replace(holdings.holders["ns/a"].workload, pods_ready=True))
    queues.flush(["team"])
    assert [e.outcome for e in cycle(holdings, queues, NOW, 2).entries] == [Outcome.ADMITTED]


def test_no_head_is_taken_while_the_cohort_is_in_a_cycle() -> None:
    loop = {"x": Cohort("x", "y"), "y": Cohort("y", "x")}
    configuration = replace(one_queue(cohort="x"), cohorts=loop)
    holdings, queues, result = run(configuration, job("a", 1))
    assert (result.entries, dict(holdings.holders)) == ([], {})
    assert (queues.active(), queues.inadmissible()) == ({"team": ["ns/a"]}, {})
    broken = replace(configuration, cohorts={"x": Cohort("x")})
    holdings.configure(broken)
    queues.configure(broken)
    cycle(holdings, queues, NOW, 1)
    assert list(holdings.holders) == ["ns/a"]


def test_what_a_check_kept_away_is_tried_again_once_the_check_allows_it() -> None:
    held = {"check": Check.RETRY}
    holdings, queues, result = run(one_queue(), job("a", 1, checks=held))
    assert [entry.message for entry in result.entries] == [
        "The workload has failed admission checks"
    ]
    assert queues.inadmissible() == {"team": ["ns/a"]}
    queues.push(job("a", 1, checks={"check": Check.PENDING}))
    cycle(holdings, queues, NOW, 1)
    assert list(holdings.holders) == ["ns/a"]


def test_grouped_pod_sets_keep_their_counts_when_their_targets_are_found_anew() -> None:
    """`a` and `c` are one group around `b`: an assignment has them in another order."""
    groups = (ResourceGroup(("cpu",), (FlavorQuotas("default", {"cpu": Quota(8)}),)),)
    taking = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
    queues_of = {
        name: ClusterQueue(name, "all", groups, preemption=taking) for name in ("one", "two")
    }
    lender = ResourceGroup(("cpu",), (FlavorQuotas("default", {"cpu": Quota(0)}),))
    queues_of["three"] = ClusterQueue("three", "all", (lender,))
    configuration = Configuration(
        queues_of,
        {},
        {"default": ResourceFlavor("default")},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in queues_of},
        {"ns": {}},
        Settings(),
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for number in range(2):
        queues.push(replace(job(f"low{number}", 8), queue="ns/three"))
        cycle(holdings, queues, NOW, number)
    pod_sets = (
        PodSet("a", 1, {"cpu": 1}, group="g"),
        PodSet("b", 5, {"cpu": 1}),
        PodSet("c", 2, {"cpu": 1}, group="g"),
    )
    for name in ("one", "two"):
        queues.push(replace(job(name, 1, priority=1), queue=f"ns/{name}", pod_sets=pod_sets))
    result = cycle(holdings, queues, NOW, 2)
    assert result.recomputations
    assert [
        {each.name: each.count for each in entry.assignment.pod_sets}
        for entry in result.entries
        if entry.assignment is not None
    ] == [{"a": 1, "b": 5, "c": 2}] * 2


def test_who_cannot_have_its_preemptions_recorded_waits_alone_and_longer_each_time() -> None:
    """Also if it could be decided about in between: that is no success."""
    configuration = one_queue(preemption=Preemption(Policy.LOWER_PRIORITY))
    holdings, queues, _ = run(configuration, job("low", 4))
    cycle(holdings, queues, NOW, 1)
    queues.push(job("high", 4, priority=2))
    queues.push(job("other", 4, priority=1))
    now, pauses = NOW, []
    for number in range(2, 5):
        (entry,) = cycle(holdings, queues, now, number).of(Outcome.PREEMPTING)
        assert entry.workload.name == "high"
        preemptions_failed(holdings, queues, entry, ["ns/low"])
        until = queues.fail_to_record("ns/high", now)
        assert until is not None
        pauses.append((until - now) // SECOND)
        now = until
    assert pauses == [10, 20, 40]
    early = Nanos(now - 1)
    assert [each.workload.name for each in cycle(holdings, queues, early, 5).entries] == ["other"]
    queues.push(job("high", 4, priority=3))
    assert "ns/high" not in queues.unrecorded, "it has changed"
    queues.delete("ns/high")
    assert queues.fail_to_record("ns/high", now) is None
    assert "ns/high" not in queues.unrecorded

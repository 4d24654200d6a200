"""The evaluation by hand: what the vectors and random clusters do not name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import Hold, Rule
from reprieve.engine.idle.check import Fault, check, check_all
from reprieve.engine.idle.claims import before_each, committed
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import Facts, Present
from reprieve.engine.idle.model import (
    Fit,
    NodeRow,
    Phase,
    PodRow,
    Policy,
    PreemptionPolicy,
    Reservation,
    Workload,
)
from reprieve.engine.idle.outcome import Declined, Reason
from reprieve.engine.plan import Guard, Plan, ProofLevel
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.wording.kaiwo import (
    conditions_after,
    declined_text,
    event_text,
    idle_text,
    preemption_started,
    with_reasons,
)
from tests.engine.rows import NOW, ago, demand, pod, snapshot, with_settings, workload

POLICY = Policy()
GPU, PART = "amd.com/gpu", "amd.com/gpu-0"


def one(*rows: Workload, policy: Policy = POLICY, **changes: object) -> Plan:
    (plan,) = evaluate(snapshot(*rows, **changes), policy, NOW).plans
    return plan


def reasons(*rows: Workload, policy: Policy = POLICY) -> dict[str, Reason]:
    declined = evaluate(snapshot(*rows), policy, NOW).declined
    return {each.subject.name: each.reason for each in declined}


def names(plan: Plan) -> list[str]:
    return [victim.subject.name for victim in plan.victims]


def on(node: str, name: str, gpus: int) -> Workload:
    return workload(name, gpus=gpus, pods=[pod(f"{name}-0", gpus={GPU: gpus}, node=node)])


def test_a_plan_carries_its_proof_and_its_guards() -> None:
    victim, wanting = workload("v", gpus=8), demand(gpus=4)
    plan = one(victim, wanting)
    assert plan.proof.level is ProofLevel.SUM
    assert (plan.proof.need, plan.proof.freed) == ({GPU: 4}, {GPU: 8})
    assert not plan.proof.compatible
    assert plan.guards == (
        Guard(wanting.ref, (Phase.PENDING_GPU,)),
        Guard(victim.ref, (Phase.IDLE,)),
    )


def test_oldest_idle_first_may_overshoot_and_says_so() -> None:
    rows = (
        workload("old", gpus=2, idle_since=ago(7000)),
        workload("young", gpus=8),
        demand(gpus=8),
    )
    plan = one(*rows)
    assert (names(plan), plan.proof.compatible) == (["old", "young"], True)
    trimmed = one(*rows, policy=Policy(irreducible=True))
    assert (names(trimmed), trimmed.proof.compatible) == (["young"], False)
    assert trimmed.reprieved == {"NotNeeded": 1}
    assert reasons(*rows, policy=Policy(irreducible=True))["old"] is Reason.REPRIEVED


def test_a_reprieved_workload_may_serve_the_next_demand() -> None:
    rows = (
        workload("old", gpus=2, idle_since=ago(7000)),
        workload("young", gpus=8),
        demand("d1", gpus=8, created=ago(900)),
        demand("d2", gpus=2, created=ago(800)),
    )
    plans = evaluate(snapshot(*rows), Policy(irreducible=True), NOW).plans
    assert [names(plan) for plan in plans] == [["young"], ["old"]]


def test_all_resource_names_are_planned_at_once() -> None:
    victim = workload("both", gpus={GPU: 4, PART: 2})
    assert names(one(victim, demand(gpus={GPU: 4, PART: 2}))) == ["both"]
    assert reasons(victim, demand(gpus={GPU: 4, PART: 3}))["demand"] is Reason.SHORT


def test_every_idle_workload_that_stays_has_a_reason() -> None:
    rows = (
        workload("young", idle_since=ago(30)),
        workload("timerless", idle_since=None),
        workload("silent", samples={}),
        workload("claimed"),
        workload("unneeded"),
    )
    evaluation = evaluate(snapshot(*rows, claims={Uid("claimed-uid"): None}), POLICY, NOW)
    assert {d.subject.name: d.reason for d in evaluation.declined} == {
        "young": Reason.WITHIN_GRACE,
        "timerless": Reason.NO_TIMER,
        "silent": Reason.NOT_FRESH,
        "claimed": Reason.CLAIMED,
        "unneeded": Reason.NO_DEMAND,
    }
    assert evaluation.next_due == Nanos(NOW + 570 * SECOND)
    young = next(d for d in evaluation.declined if d.reason is Reason.WITHIN_GRACE)
    assert declined_text(young) == "it is within its grace period until 2026-03-04T10:24:30Z"


def test_a_shortfall_is_named() -> None:
    evaluation = evaluate(snapshot(workload(gpus=3), demand(gpus=10)), POLICY, NOW)
    short = evaluation.declined[0]
    assert short == Declined(demand().ref, Reason.SHORT, {GPU: 7})
    assert declined_text(short) == (
        "all eligible idle workloads together are short of 7 amd.com/gpu"
    )


def test_a_grace_period_is_over_on_the_second() -> None:
    for since, expected in ((599, []), (600, ["w"])):
        rows = (workload(idle_since=ago(since)), demand())
        plans = evaluate(snapshot(*rows), POLICY, NOW).plans
        assert [name for plan in plans for name in names(plan)] == expected


def test_a_timer_in_the_future_counts_as_now() -> None:
    row = with_settings(workload(idle_since=ago(-5000)), policy=PreemptionPolicy.ALWAYS)
    evaluation = evaluate(snapshot(row), POLICY, NOW)
    assert evaluation.plans == ()
    assert evaluation.next_due == Nanos(NOW + 10 * MINUTE)


def test_a_claim_tells_demands_of_one_name_apart() -> None:
    """Two demands share a name; the committed victim serves the one in team-b."""
    d1 = demand("d", namespace="team-a", created=ago(900))
    d2 = demand("d", namespace="team-b", created=ago(800))
    flying = workload("f", Phase.PREEMPTING, preempted_for="d")
    rows = (d1, d2, flying, workload("idle"))
    claims = {flying.root.uid: GpuWorkloadKey("team-b/d")}
    plan = one(*rows, claims=claims)
    assert plan.preemptor == d1.ref
    assert evaluate(snapshot(*rows), POLICY, NOW).plans == ()  # the name alone is credited to both


def test_an_always_victim_in_flight_is_credited_to_the_oldest_demand_only() -> None:
    freeing = workload("freeing", Phase.PREEMPTING)
    rows = (
        freeing,
        workload("idle"),
        demand("d1", created=ago(900)),
        demand("d2", created=ago(800)),
    )
    plan = one(*rows)
    assert plan.preemptor is not None
    assert (plan.preemptor.name, names(plan)) == ("d2", ["idle"])


def test_gpus_that_were_free_before_a_demand_came_are_not_credited_to_it() -> None:
    released: dict[str, Any] = {"preempted_at": ago(12), "pods": [], "released": ago(10)}
    gone = workload("gone", Phase.PREEMPTED, **released)
    before, after = demand(gpus=8, created=ago(11)), demand(gpus=8, created=ago(9))
    # It waited for them when they came free: four more are enough.
    assert names(one(gone, workload("idle"), before)) == ["idle"]
    # It came to find them taken: four would be evicted in vain, and eight are needed.
    assert evaluate(snapshot(gone, workload("idle"), after), POLICY, NOW).plans == ()
    assert names(one(gone, workload("a"), workload("b"), after)) == ["a", "b"]


def test_each_always_victim_is_a_plan_of_its_own() -> None:
    rows = [
        with_settings(workload(name), policy=PreemptionPolicy.ALWAYS) for name in ("b", "a", "c")
    ]
    plans = evaluate(snapshot(*rows), POLICY, NOW).plans
    assert [names(plan) for plan in plans] == [["a"], ["b"], ["c"]]
    assert {plan.proof.level for plan in plans} == {ProofLevel.EXEMPT}


def test_a_victim_that_does_not_end_is_planned_around() -> None:
    for late, expected in ((60, None), (61, ["idle"])):
        stuck = workload(
            "stuck",
            Phase.PREEMPTED,
            pods=[pod("stuck-0", terminating=True, ends=ago(late))],
            preempted_for="demand",
            preempted_at=ago(120),
        )
        evaluation = evaluate(snapshot(stuck, workload("idle"), demand()), POLICY, NOW)
        assert [names(plan) for plan in evaluation.plans] == ([expected] if expected else [])
        if expected is None:
            assert evaluation.next_due == Nanos(NOW + 1)


def test_two_records_of_one_root_count_once() -> None:
    twin = workload("twin")
    twin = replace(twin, root=workload("w").root)
    assert reasons(workload("w"), twin, demand(gpus=8))["demand"] is Reason.SHORT


def test_fit_node_counts_node_boundaries() -> None:
    rows = (on("a", "v1", 4), on("b", "v2", 4), demand(gpus=8))
    nodes = (NodeRow("a", {GPU: 0}), NodeRow("b", {GPU: 0}))
    policy = Policy(fit=Fit.NODE)
    assert len(one(*rows, nodes=nodes).victims) == 2
    evaluation = evaluate(snapshot(*rows, nodes=nodes), policy, NOW)
    assert evaluation.plans == ()
    assert evaluation.declined[0].reason is Reason.NO_PLACEMENT
    roomy = (NodeRow("a", {GPU: 4}), NodeRow("b", {GPU: 0}))
    plan = one(*rows, nodes=roomy, policy=policy)
    # The sum asks for both, as the guide has it; the pod goes where it fits.
    assert plan.placement == ((Uid("demand-0-uid"), "a"),)
    assert plan.proof.level is ProofLevel.PLACEMENT


def test_fit_node_goes_on_past_the_sum_until_the_pod_has_a_node() -> None:
    rows = (
        replace(on("a", "v1", 4), created=ago(1)),
        on("b", "v2", 8),
        demand(gpus=4, pods=[pod("d-0", "Pending", demand=True, nodes=frozenset({"b"}))]),
    )
    nodes = (NodeRow("a", {GPU: 0}), NodeRow("b", {GPU: 0}))
    plan = one(*rows, nodes=nodes, policy=Policy(fit=Fit.NODE))
    # The older one is on a node that the pod may not use.
    assert (names(plan), plan.placement) == (["v2"], ((Uid("d-0-uid"), "b"),))
    anywhere = demand(gpus=8, pods=[pod("d-0", "Pending", gpus={GPU: 8}, demand=True)])
    plan = one(*rows[:2], anywhere, nodes=nodes, policy=Policy(fit=Fit.NODE))
    # It does not help where it is, and is put back: placements are irreducible without an option.
    assert (names(plan), plan.reprieved, plan.proof.compatible) == (["v2"], {"NotNeeded": 1}, False)


def test_fit_node_counts_free_room_beside_idle_work() -> None:
    rows = (on("a", "v", 4), demand(gpus=8))
    nodes = (NodeRow("a", {GPU: 4}),)
    plan = one(*rows, nodes=nodes, policy=Policy(fit=Fit.NODE))
    assert (names(plan), plan.proof.need, plan.proof.freed) == (["v"], {GPU: 8}, {GPU: 4})
    assert plan.proof.free == {GPU: 4}
    assert check(plan, snapshot(*rows, nodes=nodes), Policy(fit=Fit.NODE), NOW) == ()
    sum_of = evaluate(snapshot(*rows, nodes=nodes), POLICY, NOW)
    assert (sum_of.plans, sum_of.declined[0].amounts) == ((), {GPU: 4})


def test_fit_node_takes_nobody_where_something_else_is_short() -> None:
    wanting = pod("d-0", "Pending", gpus={GPU: 1}, asks={"cpu": 1_000_000}, demand=True)
    rows = (on("a", "v", 8), demand(gpus=1, pods=[wanting]))
    nodes = (NodeRow("a", {GPU: 0, "cpu": 64_000}),)
    evaluation = evaluate(snapshot(*rows, nodes=nodes), Policy(fit=Fit.NODE), NOW)
    assert evaluation.plans == ()
    assert evaluation.declined[0].reason is Reason.NO_PLACEMENT
    assert evaluation.declined[0].amounts == {GPU: 1, "cpu": 1_000_000}
    assert len(one(*rows, nodes=nodes).victims) == 1  # which the sum does not see


def test_pods_that_fit_alone_but_not_together_are_told_so() -> None:
    pods = [pod(f"d-{n}", "Pending", gpus={GPU: 4}, demand=True) for n in range(2)]
    nodes = (NodeRow("a", {GPU: 6}), NodeRow("b", {GPU: 2}))
    (declined,) = evaluate(
        snapshot(demand(gpus=8, pods=pods), nodes=nodes), Policy(fit=Fit.NODE), NOW
    ).declined
    assert declined.reason is Reason.NO_PLACEMENT
    assert declined_text(declined) == (
        "each of its pods would have a node, but not all of them together"
    )


def test_fit_node_counts_what_victims_free_beside_gpus() -> None:
    idle = pod("v-0", gpus={GPU: 1}, asks={"cpu": 60_000}, node="a")
    wanting = pod("d-0", "Pending", gpus={GPU: 1}, asks={"cpu": 32_000}, demand=True)
    rows = (workload("v", gpus=1, pods=[idle]), demand(gpus=1, pods=[wanting]))
    nodes = (NodeRow("a", {GPU: 4, "cpu": 4_000}),)
    plan = one(*rows, nodes=nodes, policy=Policy(fit=Fit.NODE))
    assert names(plan) == ["v"]
    assert check(plan, snapshot(*rows, nodes=nodes), Policy(fit=Fit.NODE), NOW) == ()
    enough = (NodeRow("a", {GPU: 4, "cpu": 32_000}),)
    covered = evaluate(snapshot(*rows, nodes=enough), Policy(fit=Fit.NODE), NOW)
    assert (covered.plans, covered.declined[0].reason) == ((), Reason.COVERED)


def test_fit_node_asks_for_what_waits_only() -> None:
    """Half of the workload runs: its other pod needs two GPUs, not four."""
    pods = [pod("d-0", gpus={GPU: 2}), pod("d-1", "Pending", gpus={GPU: 2}, demand=True)]
    rows = (on("a", "v", 2), demand(gpus=4, pods=pods))
    plan = one(*rows, nodes=(NodeRow("a", {GPU: 0}),), policy=Policy(fit=Fit.NODE))
    assert (names(plan), plan.proof.need) == (["v"], {GPU: 2})


@pytest.mark.parametrize(
    "pods", [[], [pod("d-0", "Pending", gpus={GPU: 4}, demand=True, gated=True)]]
)
def test_a_demand_for_quota_is_proven_by_the_sum_with_fit_node_too(pods: list[PodRow]) -> None:
    """Its GPUs are free on some node; the quota for them is what idle work holds."""
    waiting = replace(demand(gpus=4), pods=tuple(pods))
    rows = (on("a", "v", 4), waiting)
    nodes = (NodeRow("a", {GPU: 4}),)
    plan = one(*rows, nodes=nodes, policy=Policy(fit=Fit.NODE))
    assert (names(plan), plan.proof.level) == (["v"], ProofLevel.SUM)
    assert check(plan, snapshot(*rows, nodes=nodes), Policy(fit=Fit.NODE), NOW) == ()


@pytest.mark.parametrize("fit", list(Fit))
def test_room_made_for_a_demand_that_has_gone_is_for_who_waits_next(fit: Fit) -> None:
    ending = pod("s1-0", gpus={GPU: 4}, node="a", terminating=True, ends=ago(-20))
    for phase in (Phase.PREEMPTING, Phase.PREEMPTED):
        s1 = workload(
            "s1", phase, pods=[ending], samples={}, preempted_for="d1", preempted_at=ago(5)
        )
        rows = (s1, on("a", "s2", 4), demand("d2", gpus=4))
        seen = snapshot(*rows, nodes=(NodeRow("a", {GPU: 0}),))
        evaluation = evaluate(seen, Policy(fit=fit), NOW)
        assert evaluation.plans == ()
        assert evaluation.declined[0].reason is Reason.COVERED
        # Two that wait need both.
        two = replace(seen, workloads=(*rows, demand("d3", gpus=4, created=ago(10))))
        plans = evaluate(two, Policy(fit=fit), NOW).plans
        assert [names(plan) for plan in plans] == [["s2"]]
        assert check_all(plans, two, Policy(fit=fit), NOW, evaluation.reservations) == ()


def test_room_that_its_demand_has_taken_is_for_nobody_else() -> None:
    ended = workload("s1", Phase.PREEMPTED, pods=[], preempted_for="d1", preempted_at=ago(5))
    rows = (ended, workload("s2"), demand("d2"))
    assert evaluate(snapshot(*rows), POLICY, NOW).plans == ()  # d1 is gone, and left it behind
    runs = frozenset({GpuWorkloadKey("ml-team/d1")})
    ending = replace(ended, pods=(pod("s1-0", terminating=True, ends=ago(-20)),))
    assert evaluate(snapshot(ending, *rows[1:], served=runs), POLICY, NOW).plans == ()
    served = snapshot(*rows, served=runs)
    (plan,) = evaluate(served, POLICY, NOW).plans
    assert names(plan) == ["s2"]
    assert check(plan, served, POLICY, NOW) == ()


def test_fit_node_leaves_reserved_room_alone() -> None:
    rows = (on("a", "v1", 4), demand(gpus=4))
    held = Reservation(GpuWorkloadKey("ml-team/other"), Uid("p"), "a", {GPU: 4})
    policy = Policy(fit=Fit.NODE)
    nodes = (NodeRow("a", {GPU: 0}),)
    taken = snapshot(*rows, nodes=nodes, reservations=(held,))
    assert evaluate(taken, policy, NOW).plans == ()
    ours = replace(held, demand=GpuWorkloadKey("ml-team/demand"))
    assert evaluate(replace(taken, reservations=(ours,)), policy, NOW).plans != ()


def test_fit_node_proves_nothing_without_a_pending_pod() -> None:
    row = demand(pods=[pod("d-0", "Pending", gpus={})])
    assert reasons(workload(), row, policy=Policy(fit=Fit.NODE))["demand"] is Reason.NO_PENDING_POD


def test_a_committed_plan_claims_its_victims_and_its_room() -> None:
    rows = snapshot(on("a", "v1", 4), demand(gpus=4), nodes=(NodeRow("a", {GPU: 0}),))
    policy = Policy(fit=Fit.NODE)
    (plan,) = evaluate(rows, policy, NOW).plans
    after = committed(rows, plan)
    assert after.claims == {Uid("v1-uid"): "ml-team/demand"}
    assert [(r.node, r.amounts) for r in after.reservations] == [("a", {GPU: 4})]
    again = evaluate(after, policy, NOW)
    assert again.plans == ()
    assert {d.reason for d in again.declined} == {Reason.CLAIMED, Reason.COVERED}


@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        (Fault.UNKNOWN_VICTIM, (demand(),)),
        (Fault.NOT_IDLE, (workload(phase=Phase.ACTIVE), demand())),
        (Fault.WITHIN_GRACE, (workload(idle_since=ago(5)), demand())),
        (Fault.NOT_FRESH, (workload(samples={}), demand())),
        (
            Fault.WRONG_POLICY,
            (with_settings(workload(), policy=PreemptionPolicy.ALWAYS), demand()),
        ),
        (Fault.WRONG_NEED, (workload(), demand(gpus=5))),
        (Fault.UNKNOWN_PREEMPTOR, (workload(), demand(idle_since=None, gpus=4, name="d2"))),
    ],
)
def test_the_check_sees_that_the_world_has_changed(fault: Fault, rows: tuple[Workload]) -> None:
    plan = one(workload(), demand())
    found = {v.fault for v in check(plan, snapshot(*rows), POLICY, NOW)}
    assert fault in found


def test_the_check_refuses_plans_that_prove_nothing() -> None:
    rows = snapshot(workload(gpus=3), workload("w2", gpus=3), demand(gpus=4))
    (plan,) = evaluate(rows, POLICY, NOW).plans
    assert check(plan, rows, POLICY, NOW) == ()
    small = replace(plan, victims=plan.victims[:1])
    faults = {v.fault for v in check(small, rows, POLICY, NOW)}
    assert faults == {Fault.WRONG_ID, Fault.WRONG_SUM, Fault.NOT_FEASIBLE}
    boasting = replace(plan, proof=replace(plan.proof, in_flight={GPU: 9}))
    faults = {v.fault for v in check(boasting, rows, POLICY, NOW)}
    assert faults == {Fault.OVERSTATED_FLIGHT, Fault.REDUCIBLE}
    assert {v.fault for v in check_all([plan, plan], rows, POLICY, NOW)} >= {Fault.CLAIMED}
    unguarded = replace(plan, guards=())
    assert {v.fault for v in check(unguarded, rows, POLICY, NOW)} == {Fault.UNGUARDED}


def test_texts_name_every_amount_that_the_demand_asks_for() -> None:
    victim = workload("v", gpus={GPU: 4, PART: 2, "amd.com/gpu-1": 1})
    plan = one(victim, demand("d", gpus={GPU: 4, PART: 2}))
    (named,) = with_reasons(plan, [victim], NOW).victims
    assert named.reason == (
        "Preempted to free 4 amd.com/gpu, 2 amd.com/gpu-0 for pending workload d"
    )
    assert str(preemption_started(plan, named, victim, NOW)) == (
        "Warning PreemptionStarted Freeing 4 amd.com/gpu, 2 amd.com/gpu-0 GPU(s) for pending "
        "workload d"
    )


def test_texts_of_the_policy_always_have_whole_seconds() -> None:
    victim = with_settings(workload(idle_since=ago(720.4)), policy=PreemptionPolicy.ALWAYS)
    plan = one(victim)
    (named,) = with_reasons(plan, [victim], NOW).victims
    assert named.reason == (
        "Policy is Always and workload has been idle for 12m0s (threshold: 10m0s)"
    )
    assert preemption_started(plan, named, victim, NOW).message == (
        "Workload has been idle for 12m0s (limit: 10m0s, policy: Always); preempting"
    )


def test_the_event_and_the_record_name_the_idle_time_of_the_decision() -> None:
    victim = with_settings(workload(idle_since=ago(720.6)), policy=PreemptionPolicy.ALWAYS)
    (named,) = with_reasons(one(victim), [victim], NOW).victims
    later = Nanos(NOW + 30 * SECOND)  # the mark is written, and told, after a turn was waited for
    assert "idle for 12m1s (" in named.reason
    assert "idle for 12m1s (" in preemption_started(one(victim), named, victim, later).message
    assert idle_text(victim, NOW) == "12m1s"


def test_conditions_follow_the_phase_and_the_metrics() -> None:
    ours = Facts(Present(Uid("w-uid")))
    silent = workload(phase=Phase.PENDING_OTHER, samples={})
    decided = step(silent, ours, POLICY, NOW)
    first = conditions_after([], decided, silent, NOW)
    assert [(c.type, c.status, c.reason) for c in first] == [
        ("PhaseUpdated", "True", "PhaseActive"),
        ("MetricsAvailable", "False", "NoSamples"),
    ]
    assert first[0].message == event_text(decided.events[0], silent).message
    heard = workload(phase=Phase.ACTIVE)
    later = Nanos(NOW + SECOND)
    second = conditions_after(first, step(heard, ours, POLICY, later), heard, later)
    assert [(c.status, c.reason, c.last_transition_time) for c in second] == [
        ("True", "PhaseIdle", "2026-03-04T10:15:01Z"),
        ("True", "Fresh", "2026-03-04T10:15:01Z"),
    ]
    assert conditions_after([], step(heard, ours, POLICY, NOW), heard, NOW)[0].type == (
        "PhaseUpdated"
    )


def test_a_run_s_plans_are_seen_one_after_the_other() -> None:
    rows = snapshot(
        workload("v1", idle_since=ago(7000)),
        workload("v2"),
        demand("d1", created=ago(900)),
        demand("d2", created=ago(800)),
    )
    plans = evaluate(rows, POLICY, NOW).plans
    seen = [len(before.claims) for _, before in before_each(plans, rows)]
    assert seen == [0, 1]


def test_room_that_a_younger_demand_is_given_is_not_held_against_the_plan_of_an_older_one() -> None:
    """The older one takes what is free on one node and what is idle on another."""
    leaving = workload(
        "leaving",
        Phase.PREEMPTING,
        pods=[pod("leaving-0", gpus={GPU: 2}, node="a", terminating=True)],
        samples={},
        preempted_for="young",
    )
    rows = snapshot(
        on("b", "idle", 4),
        leaving,
        demand(
            "old",
            gpus=8,
            pods=[pod(f"old-{number}", "Pending", gpus={GPU: 4}, demand=True) for number in (0, 1)],
            created=ago(900),
        ),
        demand("young", gpus=2, created=ago(800)),
        nodes=(NodeRow("a", {GPU: 4}), NodeRow("b", {GPU: 0})),
    )
    policy = Policy(fit=Fit.NODE)
    decided = evaluate(rows, policy, NOW)
    assert [names(plan) for plan in decided.plans] == [["idle"]]
    assert [each.demand for each in decided.reservations] == ["ml-team/young"]
    assert check_all(decided.plans, rows, policy, NOW, decided.reservations) == ()


def test_room_that_an_older_demand_was_given_is_held_against_later_plans() -> None:
    rows = snapshot(
        on("a", "idle", 4),
        demand("old", gpus=4, created=ago(900)),
        demand("young", gpus=4, created=ago(800)),
        nodes=(NodeRow("a", {GPU: 4}),),
    )
    policy = Policy(fit=Fit.NODE)
    decided = evaluate(rows, policy, NOW)
    assert [names(plan) for plan in decided.plans] == [["idle"]]
    assert [each.demand for each in decided.reservations] == ["ml-team/old"]
    ((_, seen),) = before_each(decided.plans, rows, decided.reservations)
    assert seen.reservations == decided.reservations


def held(demand: str, *names: str, seconds: int = 60) -> dict[str, dict[Uid, Hold]]:
    hold = Hold(Nanos(NOW + seconds * SECOND), Rule.REPEATED)
    return {demand: {Uid(f"{name}-uid"): hold for name in names}}


def test_who_is_held_from_a_demand_stays_and_another_one_goes() -> None:
    rows = (workload("old", idle_since=ago(7000)), workload("young"), demand())
    holds = held("ml-team/demand", "old")
    found = evaluate(snapshot(*rows, holds=holds), POLICY, NOW)
    (plan,) = found.plans
    assert names(plan) == ["young"]
    assert {each.subject.name: (each.reason, each.until) for each in found.declined} == {
        "old": (Reason.HELD, NOW + MINUTE)
    }
    assert found.next_due == NOW + MINUTE
    over = evaluate(snapshot(*rows, holds=holds), POLICY, Nanos(NOW + MINUTE))
    assert [names(each) for each in over.plans] == [["old"]]


def test_who_is_held_from_one_demand_goes_for_another() -> None:
    rows = (workload("v"), demand("first", created=ago(100)), demand("second", created=ago(50)))
    found = evaluate(snapshot(*rows, holds=held("ml-team/first", "v")), POLICY, NOW)
    assert [(each.preemptor and each.preemptor.name, names(each)) for each in found.plans] == [
        ("second", ["v"])
    ]


def test_who_is_held_from_everybody_does_not_go_for_nobody() -> None:
    always = with_settings(workload("v"), policy=PreemptionPolicy.ALWAYS)
    found = evaluate(snapshot(always, holds=held("", "v")), POLICY, NOW)
    assert (found.plans, found.next_due) == ((), NOW + MINUTE)
    assert [each.reason for each in found.declined] == [Reason.HELD]
    assert "before" in declined_text(found.declined[0])


def test_a_plan_with_a_victim_that_is_held_is_refused() -> None:
    rows = (workload("v"), demand())
    plan = one(*rows)
    seen = snapshot(*rows, holds=held("ml-team/demand", "v"))
    assert [each.fault for each in check(plan, seen, POLICY, NOW)] == [Fault.HELD]
    assert check(plan, seen, POLICY, Nanos(NOW + MINUTE)) == ()

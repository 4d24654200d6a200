"""What displaced work may take back, as the records of its displacement say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Rejected,
    Stage,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.idle.check import Fault, check
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Debt, Fit, IdleSnapshot, NodeRow, Phase, Policy
from reprieve.engine.idle.outcome import Reason
from reprieve.planes.idle.evaluating.debts import debt_of
from tests.engine.rows import NOW, ago, pod, workload

AT = parse_instant("2026-03-04T10:00:00Z")
GPU = "amd.com/gpu"


def victim(name: str, lineage: str, gpus: int = 2, unit: str = "") -> Victim:
    ref = ObjectRef("v1", "Pod", name, f"uid-{name}", "team")
    return Victim(ref, ref, {GPU: gpus, "pods": 1}, "lower priority", unit=unit, lineage=lineage)


def record(
    *victims: Victim,
    by: str = "owner/wanted",
    said: str = "NotAsked",
    seconds: int = 0,
    states: dict[str, VictimState] | None = None,
    **changes: Any,
) -> Preemption:
    spec = PreemptionSpec(
        **{
            "plane": "scheduling",
            "plan_id": "p",
            "attempt": 1,
            "proof": Proof("Placement"),
            "victims": list(victims),
            "decided_at": format_instant(Nanos(AT + seconds * SECOND)),
            "preemptor_lineage": by,
            "stages": [Stage("scheduling")],
            "rejected": [Rejected("idle", said)],
            "depth": 1,
            **changes,
        }
    )
    found = [VictimStatus(f"uid-{name}", state) for name, state in (states or {}).items()]
    return Preemption(
        Metadata(f"r{seconds}", "operator"),
        spec,
        PreemptionStatus(IntentPhase.COMPLETED, victims=found),
    )


def debt(*records: Preemption, now: int = 60) -> Debt | None:
    return debt_of(records, {"owner/bob"}, {GPU}, Nanos(AT + now * SECOND))


def test_a_debt_is_what_was_lost_to_the_last_preemptor_less_what_was_taken_back() -> None:
    gang = (victim("b1", "owner/bob", unit="u"), victim("b2", "", unit="u"))
    lost = record(*gang, victim("c", "owner/cat"))
    assert debt(lost) == Debt(4)
    assert debt(lost, record(victim("b3", "owner/bob"), seconds=5)) == Debt(6)
    taken = record(victim("d", "owner/dan", 3), by="owner/bob", plane="idle", seconds=9)
    assert debt(lost, taken) == Debt(1)
    other = record(victim("b4", "owner/bob", 1), by="owner/other", seconds=8)
    assert debt(lost, other) == Debt(1)


@pytest.mark.parametrize("state", [VictimState.SPARED, VictimState.FAILED])
def test_who_stayed_lost_nothing(state: VictimState) -> None:
    lost = record(victim("b1", "owner/bob"), victim("b2", "owner/bob"), states={"b1": state})
    assert debt(lost) == Debt(2)


def test_there_is_no_debt_of_a_second_return_nor_after_an_hour_nor_without_a_record() -> None:
    lost = record(victim("b1", "owner/bob"))
    assert debt() is None and debt(record(victim("c", "owner/cat"))) is None
    assert debt(record(victim("b1", "owner/bob"), depth=2)) is None
    assert debt(record(victim("b1", "owner/bob"), dry_run=True)) is None
    assert debt(lost, now=HOUR // SECOND) is None
    assert debt(lost, record(victim("d", "x", 2), by="owner/bob", seconds=1)) is None


@pytest.mark.parametrize("said", ["Declined", "OwnedByAnother", "Unanswered", "FewerByPriority"])
def test_only_what_has_become_idle_since_goes_where_idle_work_could_have_gone_before(
    said: str,
) -> None:
    found = debt(record(victim("b1", "owner/bob"), said=said))
    assert found == Debt(2, AT)
    before, later = workload("w", idle_since=ago(1800)), workload("w", idle_since=ago(800))
    assert (found.allows(before), found.allows(later)) == (False, True)


@pytest.mark.parametrize("said", ["NotAsked", "Declined"])
def test_idle_work_that_its_priority_allowed_to_go_for_the_preemptor_stays(said: str) -> None:
    """It was a candidate then, idle or busy, so that it does not go for the return of another."""
    found = debt(record(victim("b1", "owner/bob"), said=said, preemptor_priority=1000))
    assert found is not None
    assert found == Debt(2, None if said == "NotAsked" else AT, 1000)
    later = workload("w", idle_since=ago(800))
    allowed = [found.allows(replace(later, precedence=each)) for each in (999, 1000, 2000)]
    assert allowed == [False, True, True]


def of_quota(**changes: Any) -> Debt | None:
    return debt(record(victim("b1", "owner/bob"), plane="quota", **changes))


def test_idle_work_whose_quota_could_be_taken_for_the_preemptor_stays() -> None:
    found = of_quota(preemptor_priority=1000)
    assert found == Debt(2, None, None, 1000)
    later = workload("w", idle_since=ago(800))
    allowed = [found.allows(replace(later, queued=each)) for each in (None, 999, 1000, 2000)]
    assert allowed == [True, False, True, True]
    any_priority = of_quota(preemptor_priority=1000, reclaims_any=True)
    assert any_priority is not None
    highest = [any_priority.allows(replace(later, queued=each)) for each in (None, 2**31 - 1)]
    assert highest == [True, False]


def test_a_record_of_quota_without_a_priority_bounds_nothing_by_it() -> None:
    """Earlier versions wrote none."""
    assert of_quota() == Debt(2)


def test_the_highest_priority_counts_of_several_plans_for_one_preemptor() -> None:
    lost = (record(victim("b1", "owner/bob"), preemptor_priority=5),)
    more = record(victim("b2", "owner/bob"), seconds=5, preemptor_priority=9)
    other = record(victim("b3", "owner/bob"), by="owner/other", seconds=1, preemptor_priority=99)
    found = debt(*lost, other, more)
    assert found is not None and found.above == 9


@pytest.mark.parametrize(
    ("owed", "taken"),
    [(None, []), (Debt(3), []), (Debt(4), ["idle"]), (Debt(4, ago(1100)), []), (Debt(4, AT), [])],
)
def test_an_evaluation_takes_no_more_than_the_debt(owed: Debt | None, taken: list[str]) -> None:
    waiting = pod("bob-0", "Pending", gpus={GPU: 4}, node=None)
    demand = workload("bob", Phase.PENDING_GPU, pods=[waiting])
    idle = workload("idle", pods=[pod("idle-0", gpus={GPU: 4}, node="n0")])
    snapshot = IdleSnapshot(
        1,
        (demand, idle),
        (NodeRow("n0", {GPU: 0}),),
        displaced=frozenset({demand.key}),
        debts={} if owed is None else {demand.key: owed},
    )
    policy = Policy(fit=Fit.NODE)
    found = evaluate(snapshot, policy, NOW)
    assert [each.subject.name for plan in found.plans for each in plan.victims] == taken
    if not taken:
        assert Reason.DISPLACED in {each.reason for each in found.declined}
        (plan,) = evaluate(replace(snapshot, displaced=frozenset(), debts={}), policy, NOW).plans
        faults = [each.fault for each in check(plan, snapshot, policy, NOW)]
        assert faults == [Fault.BEYOND_DEBT]
    else:
        assert check(found.plans[0], snapshot, policy, NOW) == ()

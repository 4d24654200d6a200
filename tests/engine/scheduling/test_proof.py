"""A decision is looked at once more before it is carried out: every fault is found and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.plan import Plan
from reprieve.engine.plan_faults import PlanFault, PlanRefused
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.outcome import Attempt, Explanation, Preemption, Sentence, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.planes.scheduling.cycle import slices
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.ids import Uid
from tests.engine.builders import gang, node, pod, snapshot_of

POLICY = scheduling_settings().policy
WAITING = tuple(Uid(f"pod-train-{number}") for number in range(2))
UNIT = Unit(WAITING, "default/train")


def full() -> Snapshot:
    """Two full nodes: a group that goes as a whole, and one pod of a priority that stays."""
    return snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        gang(2, "low", gpus=4, priority=1, all_or_nothing=True, nodes=("a", "a")),
        pod("high", gpus=8, priority=100, node="b"),
        gang(2, "train", gpus=4, priority=10),
    )


def decided(snapshot: Snapshot) -> tuple[Attempt, Plan]:
    """Return what the engine decides about the waiting group."""
    attempt = Session(snapshot, POLICY).attempt(UNIT)
    assert attempt is not None and attempt.plan is not None
    return attempt, attempt.plan


def named(snapshot: Snapshot, attempt: Attempt, plan: Plan, *names: str) -> Attempt:
    """Return the attempt with these pods as its victims, named as often as they are given."""
    slots = [snapshot.pod_keys.index(f"default/{name}") for name in names]
    like = plan.victims[0]
    victims = [
        replace(like, root=replace(like.root, name=name, uid=Uid(f"pod-{name}"))) for name in names
    ]
    found = attempt.preemption
    assert found is not None
    unit = replace(found.victims[0], pods=tuple(slots))
    preemption = replace(found, victims=(unit,))
    return replace(attempt, preemption=preemption, plan=replace(plan, victims=tuple(victims)))


def placed(attempt: Attempt, plan: Plan, *places: tuple[Uid, str]) -> Attempt:
    """Return the attempt with these nominations only."""
    members = tuple(
        replace(member, nominate=dict(places)[member.uid])
        for member in attempt.members
        if member.uid in dict(places)
    )
    return replace(attempt, members=members, plan=replace(plan, placement=places))


def test_what_the_engine_decides_has_no_fault() -> None:
    snapshot = full()
    attempt, plan = decided(snapshot)
    assert {victim.root.name for victim in plan.victims} == {"low-0", "low-1"}
    assert faults_of(snapshot, POLICY, attempt) == ()


def test_a_group_one_of_whose_pods_does_not_end_is_not_torn_by_the_others() -> None:
    group, stuck, other = gang(2, "low", gpus=4, priority=1, all_or_nothing=True, nodes=("a", "a"))
    assert isinstance(stuck, PodRow)
    rows = [group, replace(stuck, deleting=True), other]
    snapshot = snapshot_of(node("a", gpus=8), rows, gang(1, "train", gpus=4, priority=10))
    unit = Unit(WAITING[:1], "default/train")
    attempt = Session(snapshot, POLICY, overdue=[stuck.uid]).attempt(unit)
    assert attempt is not None and attempt.plan is not None
    assert [victim.root.name for victim in attempt.plan.victims] == ["low-1"]
    assert faults_of(snapshot, POLICY, attempt) == ()


Tamper = Callable[[Snapshot, Attempt, Plan], Attempt]
CASES: dict[str, tuple[Tamper, tuple[PlanFault, ...]]] = {
    "half a group": (
        lambda snapshot, attempt, plan: named(snapshot, attempt, plan, "low-0"),
        (PlanFault(Fault.TORN_GROUP, "default/low", "1/2"),),
    ),
    "a victim twice": (
        lambda snapshot, attempt, plan: named(snapshot, attempt, plan, "low-0", "low-1", "low-1"),
        (
            PlanFault(Fault.NAMED_TWICE, "default/low-1"),
            PlanFault(Fault.TORN_GROUP, "default/low", "3/2"),
        ),
    ),
    "a victim of a higher priority": (
        lambda snapshot, attempt, plan: named(snapshot, attempt, plan, "high"),
        (PlanFault(Fault.NOT_LOWER, "default/high", "100"),),
    ),
    "a pod that does not wait": (
        lambda _, attempt, plan: placed(
            attempt, plan, *zip((*WAITING, Uid("gone")), "aaa", strict=True)
        ),
        (PlanFault(Fault.UNKNOWN_MEMBER, "gone"),),
    ),
    "a node that is not there": (
        lambda _, attempt, plan: placed(attempt, plan, (WAITING[0], "a"), (WAITING[1], "c")),
        (PlanFault(Fault.UNKNOWN_NODE, WAITING[1], "c"),),
    ),
    "a node that stays full": (
        lambda _, attempt, plan: placed(attempt, plan, (WAITING[0], "a"), (WAITING[1], "b")),
        (PlanFault(Fault.NOT_FEASIBLE, WAITING[1], "b"),),
    ),
    "too few members": (
        lambda _, attempt, plan: placed(attempt, plan, (WAITING[0], "a")),
        (PlanFault(Fault.SHORT, "", "1/2"),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_that_was_tampered_with_is_refused_with_its_fault(case: str) -> None:
    tamper, faults = CASES[case]
    snapshot = full()
    attempt, plan = decided(snapshot)
    assert faults_of(snapshot, POLICY, tamper(snapshot, attempt, plan)) == faults


def test_a_victim_that_has_gone_meanwhile_is_missed() -> None:
    attempt, _ = decided(full())
    later = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        gang(2, "low", gpus=4, priority=1, all_or_nothing=True, nodes=("a",)),
        pod("high", gpus=8, priority=100, node="b"),
        gang(2, "train", gpus=4, priority=10),
    )
    assert faults_of(later, POLICY, attempt) == (PlanFault(Fault.UNKNOWN_VICTIM, "default/low-1"),)


def test_victims_are_found_again_on_a_newer_snapshot() -> None:
    attempt, _ = decided(full())
    # Other slots: the pods came in another order.
    later = snapshot_of(
        gang(2, "train", gpus=4, priority=10),
        pod("high", gpus=8, priority=100, node="b"),
        gang(2, "low", gpus=4, priority=1, all_or_nothing=True, nodes=("a", "a")),
        node("b", gpus=8),
        node("a", gpus=8),
    )
    assert faults_of(later, POLICY, attempt) == ()


def nominates_only(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    failed: GroupPlacing,
) -> Preemption:
    """A plugin that promises a full node and names nobody who is preempted."""
    del simulation, group, policy, choose, failed
    places = tuple((pending.row.uid, "a") for pending in queued)
    return Preemption(Code.SUCCESS, Explanation(Sentence.FOUND_GROUP, (0,)), nominated=places)


def test_a_plugins_plan_that_does_not_hold_is_a_failure_of_its_unit_alone() -> None:
    plugins = {**GROUP_POST_FILTERS, "DefaultPreemption": nominates_only}
    other = Unit((Uid("pod-single"),))
    snapshot = snapshot_of(
        node("a", gpus=8),
        pod("low", gpus=8, priority=1, node="a"),
        gang(2, "train", gpus=4, priority=10),
        pod("single", priority=10),
    )
    (refused,), left = decide(snapshot, POLICY, [UNIT, other], SystemClock(), plugins=plugins)
    assert isinstance(refused.failure, PlanRefused)
    assert refused.attempt is None
    assert refused.failure.faults == tuple(
        PlanFault(Fault.NOT_FEASIBLE, uid, "a") for uid in WAITING
    )
    assert str(refused.failure) == "; ".join(
        f"{uid}: the pod does not pass on its node without the victims (a)" for uid in WAITING
    )
    assert left == [other]


def test_a_plan_that_cannot_be_proven_for_a_fault_of_the_proof_is_its_units_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the test says no")

    monkeypatch.setattr(slices, "faults_of", broken)
    other = Unit((Uid("pod-single"),))
    (failed,), left = decide(full(), POLICY, [UNIT, other], SystemClock())
    assert str(failed.failure) == "the test says no"
    assert (failed.attempt, left) == (None, [other])

"""The proof of a plan finds every victim that could stay, and none that could not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from kubeworld.units.clock import VirtualClock
from reprieve.engine.cluster.rows import HostPort, SpreadConstraint
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.plan import Plan
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.scheduling.outcome import Attempt, Unit, UnitVictim
from reprieve.engine.scheduling.proofs import irreducible
from reprieve.engine.scheduling.proofs.commit import still_holds
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.units.ids import Uid
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.builders import gang, matching, node, pod, snapshot_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import cases_of, sound
from tests.oracle.scheduling import units
from tests.oracle.scheduling.objects import Cluster, key_of
from tests.oracle.scheduling.preemption import Choice, refused_with, returnable
from tests.oracle.scheduling.situations import PREEMPTOR_PRIORITY
from tests.tiers import first_of

CHUNK, CHUNKS = 100, 2
FIRST = 60_000  # seeds that nobody else looks at
NOT_MONOTONE = {"spread", "affinity"}


def decided(
    snapshot: Snapshot, key: str = "default/train", policy: Policy | None = None
) -> Attempt:
    """What the engine decides about all pods that wait, in the order of their names."""
    waiting = Unit(tuple(sorted(snapshot.pending)), key)
    attempt = Session(snapshot, policy or Policy()).attempt(waiting)
    assert attempt is not None and attempt.plan is not None
    assert faults_of(snapshot, policy or Policy(), attempt) == ()
    return attempt


def with_more(snapshot: Snapshot, attempt: Attempt, more: Iterable[str]) -> Attempt:
    """The attempt with one unit more among its victims, of these pods."""
    slots = tuple(snapshot.pod_keys.index(key) for key in more)
    found, plan = attempt.preemption, attempt.plan
    assert found is not None and plan is not None
    victims = plan.victims
    for slot in slots:
        namespace, _, name = snapshot.pod_keys[slot].partition("/")
        root = replace(victims[0].root, namespace=namespace, name=name, uid=snapshot.pod_uids[slot])
        victims = (*victims, replace(victims[0], subject=root, root=root, unit=""))
    preemption = replace(found, victims=(*found.victims, UnitVictim(slots, 0)))
    return replace(attempt, preemption=preemption, plan=replace(plan, victims=victims))


def could_stay(snapshot: Snapshot, attempt: Attempt, policy: Policy | None = None) -> set[str]:
    """The names of pods of which the proof says that they could stay; it states nothing else."""
    faults = faults_of(snapshot, policy or Policy(), attempt)
    assert {each.fault for each in faults} <= {Fault.REDUCIBLE}, faults
    return {each.subject.partition("/")[2] for each in faults}


def names(plan: Plan | None) -> set[str]:
    assert plan is not None
    return {victim.root.name for victim in plan.victims}


def test_a_victim_too_many_on_a_members_node_could_stay() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        [pod(f"low-{number}", gpus=2, node="a", priority=number) for number in range(4)],
        gang(1, "train", gpus=4, priority=10),
    )
    attempt = decided(snapshot)
    assert names(attempt.plan) == {"low-0", "low-1"}
    assert could_stay(snapshot, with_more(snapshot, attempt, ["default/low-2"])) == {
        "low-0",
        "low-1",
        "low-2",
    }


def test_a_victim_elsewhere_could_stay() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=2),
        pod("low", gpus=8, node="a", priority=1),
        pod("far", gpus=2, node="b", priority=1),
        gang(1, "train", gpus=4, priority=10),
    )
    attempt = with_more(snapshot, decided(snapshot), ["default/far"])
    assert faults_of(snapshot, Policy(), attempt) == (
        PlanFault(Fault.REDUCIBLE, "default/far", "1"),
    )
    assert str(faults_of(snapshot, Policy(), attempt)[0]) == (
        "default/far: the victim could stay (1)"
    )


def test_a_plain_pod_takes_nobody_whom_it_does_not_need() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        [pod(f"low-{number}", gpus=4, node="a", priority=number) for number in range(2)],
        pod("high", gpus=4, priority=10),
    )
    attempt = decided(snapshot, "")
    assert names(attempt.plan) == {"low-0"}
    assert could_stay(snapshot, with_more(snapshot, attempt, ["default/low-1"])) == {
        "low-0",
        "low-1",
    }


def test_of_a_group_whose_pods_go_one_by_one_only_those_that_are_needed_go() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        gang(4, "low", gpus=4, priority=1, nodes=("a", "a", "b", "b")),
        gang(1, "train", gpus=8, priority=10),
    )
    attempt = decided(snapshot)
    rest = {f"low-{number}" for number in range(4)} - names(attempt.plan)
    assert len(rest) == 2
    more = with_more(snapshot, attempt, [f"default/{name}" for name in rest])
    assert could_stay(snapshot, more) == rest


def test_a_group_that_goes_as_a_whole_comes_back_as_a_whole() -> None:
    """No pod of it but one is in the way, and it takes all others with it."""
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        gang(3, "low", gpus=4, priority=1, all_or_nothing=True, nodes=("a", "b", "b")),
        pod("stays", gpus=4, node="a", priority=100),
        gang(1, "train", gpus=4, priority=10),
    )
    assert names(decided(snapshot).plan) == {"low-0", "low-1", "low-2"}


def test_pods_of_one_group_on_one_node_are_counted_together() -> None:
    """Each of them alone would fit beside the member."""
    snapshot = snapshot_of(
        node("a", gpus=8),
        gang(4, "low", gpus=2, priority=1, all_or_nothing=True, nodes="aaaa"),
        gang(1, "train", gpus=4, priority=10),
    )
    assert len(names(decided(snapshot).plan)) == 4


def test_who_keeps_a_member_away_may_go_though_there_is_room() -> None:
    port = (HostPort(80),)
    snapshot = snapshot_of(
        node("a", cpu=8_000),
        pod("low", cpu=100, node="a", priority=1, host_ports=port),
        pod("other", cpu=100, node="a", priority=1),
        gang(1, "train", cpu=100, priority=10, host_ports=port),
    )
    attempt = decided(snapshot)
    assert names(attempt.plan) == {"low"}
    assert could_stay(snapshot, with_more(snapshot, attempt, ["default/other"])) == {"other"}


def spread_scene(waiting: Any) -> Snapshot:
    """Two zones with two pods each, one node full; whoever waits spreads with them."""
    return snapshot_of(
        node("a", gpus=4, labels={"zone": "a"}),
        node("b", gpus=4, labels={"zone": "b"}),
        [pod(f"a{n}", gpus=2, node="a", priority=1, labels={"app": "x"}) for n in range(2)],
        [pod(f"b{n}", gpus=2, node="b", priority=1, labels={"app": "x"}) for n in range(2)],
        waiting,
    )


APP = {"app": "x"}
EVEN = SpreadConstraint("zone", 1, hard=True, selector=matching(APP))


@pytest.mark.parametrize("second", [False, True])
def test_who_counts_for_a_spread_constraint_is_asked_about_where_victims_are_tried_again(
    second: bool,
) -> None:
    policy = Policy(second_reprieve_pass=second)
    waiting = gang(1, "train", gpus=2, priority=10, labels=APP, spread=(EVEN,))
    snapshot = spread_scene(waiting)
    attempt = decided(snapshot, policy=policy)
    rest = {"a0", "a1", "b0", "b1"} - names(attempt.plan)
    more = sorted(rest)[-1]
    found = could_stay(snapshot, with_more(snapshot, attempt, [f"default/{more}"]), policy)
    assert (more in found) is second


@pytest.mark.parametrize("key", ["zone", "kubernetes.io/hostname"])
def test_groups_over_several_domains_are_counted_in_all_of_them(key: str) -> None:
    """Every group has a pod in each zone: whether one could stay, the emptiest zone says."""
    zones = ["abc"[number % 3] for number in range(12)]
    names_of = [f"n{number:02}" for number in range(12)]
    rows = [
        node(name, gpus=8, labels={"zone": zone})
        for name, zone in zip(names_of, zones, strict=True)
    ]
    groups = [
        gang(
            3,
            f"low-{n}",
            gpus=2,
            priority=1,
            all_or_nothing=True,
            labels=APP,
            nodes=names_of[3 * (n % 4) :][:3],
        )
        for n in range(16)
    ]
    even = SpreadConstraint(key, 1, hard=True, selector=matching(APP))
    waiting = gang(4, "train", gpus=4, priority=10, labels=APP, spread=(even,))
    snapshot = snapshot_of(rows, *groups, waiting)
    attempt = decided(snapshot)
    gone = {name.rpartition("-")[0] for name in names(attempt.plan)}
    staying = sorted({f"low-{n}" for n in range(16)} - gone)
    more = [f"default/{staying[-1]}-{number}" for number in range(3)]
    careless = with_more(snapshot, attempt, more)
    expected = {name for name in {*gone, staying[-1]} if fits_beside(snapshot, careless, name)}
    assert staying[-1] in expected
    assert len(expected) < len(gone)
    found = could_stay(snapshot, careless)
    assert {name.rpartition("-")[0] for name in found} == expected


def fits_beside(snapshot: Snapshot, attempt: Attempt, name: str) -> bool:
    """Whether a whole group could stay: all filters of all members, on a simulation of its own."""
    assert attempt.plan is not None
    gone = {f"{each.root.namespace}/{each.root.name}" for each in attempt.plan.victims}
    gone -= {key for key in gone if key.rpartition("-")[0] == f"default/{name}"}
    simulation = Simulation(snapshot, Policy(), Policy().profiles[0])
    simulation.remove(np.array([snapshot.pod_keys.index(key) for key in sorted(gone)], np.int64))
    for uid, where in attempt.plan.placement:
        pending, index = snapshot.pending[uid], snapshot.node_index[where]
        if simulation.code_at(pending, index):
            return False
        simulation.place(pending, index)
    return True


def test_a_node_that_is_kept_for_another_pod_is_asked_about_with_it() -> None:
    """Both are decided on one snapshot: the second needs room beside the first."""
    snapshot = snapshot_of(
        node("a", gpus=8),
        [pod(f"low-{number}", gpus=2, node="a", priority=number) for number in range(4)],
        pod("first", gpus=2, priority=20),
        pod("second", gpus=2, priority=10),
    )
    wanted = [Unit((Uid("pod-first"),)), Unit((Uid("pod-second"),))]
    found, left = decide(snapshot, Policy(), wanted, VirtualClock())
    assert (left, [each.failure for each in found]) == ([], [None, None])
    plans = [each.attempt.plan for each in found if each.attempt is not None]
    assert [names(plan) for plan in plans] == [{"low-0"}, {"low-0", "low-1"}]


def test_that_somebody_has_left_meanwhile_is_no_reason_to_drop_a_plan() -> None:
    rows = [pod(f"low-{number}", gpus=4, node="a", priority=number) for number in range(2)]
    train = gang(1, "train", gpus=4, priority=10)
    attempt = decided(snapshot_of(node("a", gpus=8), rows, train))
    later = snapshot_of(node("a", gpus=8), rows[:1], train)
    assert could_stay(later, attempt) == {"low-0"}
    assert still_holds(later, Policy(), attempt)


def test_of_many_victims_that_could_stay_the_first_are_named() -> None:
    rows = [pod(f"far-{number}", gpus=1, node="b", priority=1) for number in range(40)]
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=40),
        pod("low", gpus=8, node="a", priority=1),
        rows,
        gang(1, "train", gpus=8, priority=10, node_selector={"kubernetes.io/hostname": "a"}),
    )
    attempt = decided(snapshot)
    for row in rows:
        attempt = with_more(snapshot, attempt, [f"default/{row.name}"])
    assert could_stay(snapshot, attempt) == {f"far-{number}" for number in range(20)}


def test_where_only_room_counts_nobody_is_tried_with_whole_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the work grows with victims and members, and not with their product."""

    def no(*_: object) -> bool:
        raise AssertionError("tried")

    snapshot = snapshot_of(
        [node(f"n{number}", gpus=8) for number in range(20)],
        [pod(f"low-{n}", gpus=1, node=f"n{n % 20}", priority=1) for n in range(160)],
        gang(20, "train", gpus=8, priority=10),
    )
    monkeypatch.setattr(irreducible, "_stays", no)
    assert len(names(decided(snapshot).plan)) == 160


@pytest.mark.parametrize("chunk", first_of(range(CHUNKS)))
@pytest.mark.parametrize("second", [False, True])
def test_on_random_clusters_the_proof_names_whom_the_naive_reading_finds(
    chunk: int, second: bool
) -> None:
    """One unit of a lower priority more goes than has to."""
    start = FIRST + chunk * CHUNK
    seen = Counter[str]()
    for case in cases_of(range(start, start + CHUNK)):
        snapshot, policy = cluster_of(case).snapshot(), policy_of(case, second_reprieve_pass=second)
        attempt = engine_cycle.attempt_of(case, snapshot, policy)
        if attempt is None or attempt.plan is None:
            continue
        assert faults_of(snapshot, policy, attempt) == (), case["seed"]
        seen["proven"] += 1
        more = a_unit_more(case, snapshot, attempt)
        if more is None:
            continue
        careless = with_more(snapshot, attempt, more)
        state, choice = Cluster.of(sound(case)), choice_of(snapshot, careless)
        if refused_with(choice, state, case["pending"]):
            seen["company"] += 1
            continue
        expected = {frozenset(unit) for unit in returnable(choice, state, case["pending"])}
        faults = faults_of(snapshot, policy, careless)
        assert {each.fault for each in faults} <= {Fault.REDUCIBLE}, case["seed"]
        got = {unit_named(each.subject, state) for each in faults}
        exact = bool(second and attempt.unit.group) or not NOT_MONOTONE & {*case["situations"]}
        seen["exact" if exact else "monotone part"] += 1
        seen["found"] += bool(got)
        assert got == expected if exact else got <= expected, case["seed"]
    assert seen["proven"] >= CHUNK // 4
    assert seen["exact"] >= CHUNK // 10
    assert seen["found"] >= CHUNK // 10


def a_unit_more(case: Json, snapshot: Snapshot, attempt: Attempt) -> list[str] | None:
    """The keys of a unit of a lower priority that stays by the plan, if there is one."""
    assert attempt.plan is not None
    gone = {f"{v.root.namespace}/{v.root.name}" for v in attempt.plan.victims}
    own = {f"{p.row.namespace}/{p.row.name}" for p in snapshot.pending.values()}
    staying = [
        [key_of(each) for each in unit.pods]
        for unit in units.cluster_units(Cluster.of(case))
        if unit.priority < PREEMPTOR_PRIORITY
    ]
    staying = [unit for unit in staying if not (gone | own) & {*unit}]
    return Random(str(case["seed"])).choice(staying) if staying else None


def choice_of(snapshot: Snapshot, attempt: Attempt) -> Choice:
    """The plan of an attempt in the words of the oracle."""
    plan = attempt.plan
    assert plan is not None
    keys = {uid: f"{p.row.namespace}/{p.row.name}" for uid, p in snapshot.pending.items()}
    victims = tuple(f"{each.root.namespace}/{each.root.name}" for each in plan.victims)
    return Choice("Success", "", victims, {keys[uid]: name for uid, name in plan.placement})


def unit_named(key: str, state: Cluster) -> frozenset[str]:
    """The keys of the unit that a pod belongs to."""
    found = ({key_of(each) for each in unit.pods} for unit in units.cluster_units(state))
    return next(frozenset(unit) for unit in found if key in unit)

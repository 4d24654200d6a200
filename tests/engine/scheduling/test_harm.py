"""What is lost with a victim, and that equals are preempted in the order of it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    ResourceClaimRow,
)
from reprieve.engine.cluster.rows import Entry, IdleRow, Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.harm import claimed_by, lost_by, lost_work
from reprieve.units.ids import Uid
from tests.engine.builders import GPU, gang, node, pod, slot_of, snapshot_of

NOW = 1_800_000_000
HOUR = 3_600
POLICY = Policy(harm_order=True)


def idle(name: str, *pods: str, measured: int = NOW) -> Entry:
    """What the idle plane knows of these pods."""
    row = IdleRow(Uid(f"idle-{name}"), "default", name, 1, pods, measured)
    return Entry(Kind.IDLE, row.uid, "default", name, 1, row)


def attempt(snapshot: Snapshot, policy: Policy = POLICY) -> Attempt:
    """Decide about the waiting gang `train`; its plan, if any, is proven."""
    found = Session(snapshot, policy, now=NOW).attempt(
        Unit(tuple(snapshot.pending), "default/train")
    )
    assert found is not None
    assert faults_of(snapshot, policy, found) == ()
    return found


def victims(found: Attempt) -> dict[str, str]:
    """Return the victims with the rule that chose each."""
    return {v.root.name: v.rule for v in found.plan.victims} if found.plan is not None else {}


@pytest.mark.parametrize(
    ("facts", "lost"),
    [
        ({"start": NOW - 600}, 600),
        ({"start": NOW - 2 * HOUR}, HOUR),  # silence never pays
        ({"start": NOW - 9 * HOUR, "checkpoint": NOW - 2 * HOUR}, 2 * HOUR),
        ({"start": NOW - 60, "checkpoint": NOW - 2 * HOUR}, 60),  # of its last run
        ({"start": NOW - 600, "checkpoint": NOW + 60}, 600),  # in the future: says nothing
        ({"checkpoint": NOW - 60}, 0),  # has not started yet
        ({}, 0),
    ],
)
def test_lost_is_the_time_since_the_last_checkpoint_or_the_start(
    facts: dict[str, Any], lost: int
) -> None:
    snapshot = snapshot_of(node("n", gpus=8), pod("p", gpus=4, node="n", **facts))
    assert lost_work(snapshot, NOW, HOUR)[slot_of(snapshot, "p")] == lost * 4


def test_a_checkpoint_of_the_group_is_one_of_all_its_pods() -> None:
    rows: list[Any] = gang(2, "g", gpus=1, nodes=["n", "n"], start=NOW - 2 * HOUR)
    rows[0] = replace(rows[0], checkpoint=NOW - 300)
    rows[1] = replace(rows[1], checkpoint=NOW - 100)
    snapshot = snapshot_of(node("n", gpus=8), rows)
    lost = lost_work(snapshot, NOW, HOUR)
    assert [lost[slot_of(snapshot, f"g-{number}")] for number in range(2)] == [100, 300]
    assert [lost_by(row, rows[0], NOW) for row in rows[1:]] == [100, 300]


def test_devices_are_extended_resources_only() -> None:
    extended = {"hugepages-2Mi": 512, "amd.com/gpu": 2}
    snapshot = snapshot_of(
        node("n", gpus=8, extended=extended),
        pod("p", cpu=4000, gpus=1, extended=extended, node="n", start=NOW - 10),
    )
    assert GPU in snapshot.resources
    assert lost_work(snapshot, NOW, HOUR).max() == 30


def claim(name: str, *users: str, devices: int = 2, **facts: Any) -> Entry:
    """A claim with so many devices beside one for administration, reserved for these uids."""
    given = [AllocatedDevice("r", ("d", "p", f"{name}-{number}")) for number in range(devices)]
    admin = AllocatedDevice("r", ("d", "p", "all"), admin=True)
    consumers = tuple(Consumer("pods", user, Uid(user)) for user in users)
    row = ResourceClaimRow(
        Uid(name),
        "default",
        name,
        1,
        allocation=Allocation((*given, admin)),
        reserved_for=consumers,
        **facts,
    )
    return Entry(Kind.RESOURCE_CLAIM, row.uid, "default", name, 1, row)


def test_devices_of_claims_count_beside_extended_resources_and_shared_ones_once() -> None:
    rows: list[Any] = gang(2, "g", nodes=["n", "n"], start=NOW - 10)
    first = pod("p", gpus=1, node="n", start=NOW - 10)
    other = pod("q", node="n", start=NOW - 10)
    snapshot = snapshot_of(
        node("n", gpus=8),
        first,
        other,
        rows,
        claim("both", first.uid, other.uid),
        claim("own", other.uid, devices=1),
        claim("group", rows[0].uid, devices=3),
        claim("made", other.uid, extended=True),
        claim("unused"),
    )
    lost = lost_work(snapshot, NOW, HOUR)
    assert [lost[slot_of(snapshot, name)] for name in ("p", "q", "g-0", "g-1")] == [30, 10, 30, 0]
    assert lost_by(first, None, NOW, claimed_by(snapshot)[first.uid]) == 30


def pair(*extra: object, **facts: Any) -> Snapshot:
    """Two full nodes; by score `first` is preempted. `facts` are those of `second`."""
    return snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("first", gpus=8, priority=1, node="a", start=NOW - 1_000),
        pod("second", gpus=8, priority=1, node="b", **facts),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
        *extra,  # type: ignore[arg-type]
    )


def test_idle_work_goes_first_and_then_what_loses_least() -> None:
    more = {"start": NOW - 3_000}
    assert victims(attempt(pair(**more), Policy())) == {"first": "lower priority"}
    assert victims(attempt(pair(**more))) == {"first": "lower priority, least lost work"}
    less = {"start": NOW - 100}
    assert victims(attempt(pair(**less))) == {"second": "lower priority, least lost work"}
    known = idle("w", "second")
    assert victims(attempt(pair(known, **more))) == {"second": "lower priority, idle"}


def test_idleness_that_was_measured_long_ago_is_none() -> None:
    stale = idle("w", "second", measured=NOW - 181)
    assert set(victims(attempt(pair(stale, start=NOW - 3_000)))) == {"first"}


def test_a_group_is_idle_only_as_a_whole() -> None:
    def cluster(*pods: str) -> Snapshot:
        return snapshot_of(
            node("a", gpus=8, cpu=64_000),
            node("b", gpus=8, cpu=32_000),
            gang(
                2,
                "low",
                gpus=4,
                priority=1,
                all_or_nothing=True,
                nodes=["a", "a"],
                start=NOW - 3_000,
            ),
            gang(1, "other", gpus=8, priority=1, nodes=["b"], start=NOW - 100),
            idle("w", *pods),
            gang(1, "train", gpus=8, cpu=1000, priority=10),
        )

    assert set(victims(attempt(cluster("low-0")))) == {"other-0"}
    assert victims(attempt(cluster("low-0", "low-1"))) == {
        "low-0": "lower priority, whole group, idle",
        "low-1": "lower priority, whole group, idle",
    }


def test_a_lower_priority_goes_before_anything_that_loses_less() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        pod("lowest", gpus=8, priority=1, node="a", start=NOW - 3_000),
        pod("low", gpus=8, priority=2, node="b", start=NOW - 10),
        idle("w", "low"),
        gang(1, "train", gpus=8, priority=10),
    )
    assert set(victims(attempt(snapshot))) == {"lowest"}


def test_a_single_pod_preempts_where_least_is_lost() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        pod("first", gpus=8, priority=1, node="a", start=NOW - 1_000),
        pod("second", gpus=8, priority=1, node="b", start=NOW - 5_000, checkpoint=NOW - 60),
        pod("single", gpus=8, priority=10),
    )
    unit = Unit((Uid("pod-single"),))
    # By the KEP's rules the pod that started last is preempted.
    for policy, victim in ((Policy(), "first"), (POLICY, "second")):
        found = Session(snapshot, policy, now=NOW).attempt(unit)
        assert found is not None
        assert set(victims(found)) == {victim}


def test_where_nobody_loses_anything_the_victims_are_those_of_the_kep() -> None:
    def cluster(gpus: int) -> Snapshot:
        return snapshot_of(
            node("a", gpus=8, cpu=64_000),
            node("b", gpus=8, cpu=32_000),
            pod("first", gpus=gpus, cpu=64_000, priority=2, node="a", start=NOW - 3_000),
            pod("second", gpus=gpus, cpu=32_000, priority=1, node="b", start=NOW - 100),
            gang(1, "train", cpu=1_000, priority=10),
        )

    assert set(victims(attempt(cluster(0), Policy()))) == {"first"}
    assert set(victims(attempt(cluster(0)))) == {"first"}
    assert set(victims(attempt(cluster(1)))) == {"second"}


def clusters(seed: int) -> Snapshot:
    """A random full cluster of single pods and whole groups of one or two priorities."""
    chosen = random.Random(seed)
    rows: list[Any] = []
    names = count()
    free = [8] * chosen.randint(2, 8)
    rows += [node(f"n{number}", gpus=8) for number in range(len(free))]
    for _ in range(40):
        gpus = chosen.choice([1, 2, 4, 8])
        rooms = [number for number, room in enumerate(free) if room >= gpus]
        size = min(len(rooms), chosen.choice([1, 1, 2, 3]))
        if not size:
            continue
        places = chosen.sample(rooms, size)
        for place in places:
            free[place] -= gpus
        since = NOW - chosen.randint(0, 3 * HOUR)
        saved = chosen.choice([0, NOW - chosen.randint(0, HOUR)])
        rows.append(
            gang(
                size,
                f"g{next(names)}",
                gpus=gpus,
                priority=chosen.choice([1, 1, 1, 2]),
                all_or_nothing=chosen.random() < 0.7,
                nodes=[f"n{place}" for place in places],
                start=since,
                checkpoint=saved,
            )
        )
    rows.append(gang(chosen.choice([1, 2, 3]), "train", gpus=chosen.choice([4, 8]), priority=10))
    return snapshot_of(*rows)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_placements": 6},
    {"max_placements": 6, "cascade_aware": True},
    {"binary_search_priority": True, "topology_preemption": True, "max_placements": 3},
]


@pytest.mark.parametrize("cases", [20, pytest.param(60, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("options", OPTIONS, ids=["alone", "placements", "cascade", "together"])
def test_plans_are_feasible_irreducible_and_the_same_again(
    options: dict[str, Any], cases: int
) -> None:
    policy = replace(POLICY, **options)
    preempted = several = 0
    for seed in range(cases):
        snapshot = clusters(seed)
        found = attempt(snapshot, policy)
        assert found == attempt(clusters(seed), policy)
        if found.plan is None or found.preemption is None:
            continue
        preempted += 1
        several += len(found.preemption.victims) > 1
        for unit in found.preemption.victims:
            assert not _without(snapshot, policy, found, unit.pods), (seed, unit)
    assert preempted > cases * 0.6 and several > cases * 0.3


def _without(snapshot: Snapshot, policy: Policy, found: Attempt, spared: tuple[int, ...]) -> bool:
    """Return whether the plan would still be feasible with these pods kept."""
    assert found.plan is not None and found.preemption is not None
    uids = {snapshot.pod_uids[slot] for slot in spared}
    preemption = replace(
        found.preemption,
        victims=tuple(unit for unit in found.preemption.victims if unit.pods != spared),
    )
    plan = replace(
        found.plan, victims=tuple(v for v in found.plan.victims if v.root.uid not in uids)
    )
    return not faults_of(snapshot, policy, replace(found, preemption=preemption, plan=plan))


def test_equals_are_told_apart_by_name_whatever_the_order_of_events() -> None:
    preempted = 0
    for seed in range(40):
        chosen = random.Random(seed)
        rows: list[Any] = [node(f"n{number}", gpus=8) for number in range(4)]
        for number in range(8):
            places = [f"n{place}" for place in chosen.sample(range(4), 2)]
            rows.append(
                gang(
                    2,
                    f"g{number}",
                    gpus=2,
                    priority=1,
                    all_or_nothing=True,
                    nodes=places,
                    start=NOW - 600,
                )
            )
        rows.append(gang(2, "train", gpus=chosen.choice([4, 8]), priority=10))
        plans = set()
        for _ in range(3):
            found = attempt(snapshot_of(*rows))
            plan = found.plan
            if plan is not None:
                plans.add((plan.id, plan.placement, tuple(victims(found))))
            chosen.shuffle(rows)
        assert len(plans) <= 1, seed
        preempted += len(plans)
    assert preempted > 15

"""Each option of job preemption does what it says, and leaves the rest alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from reprieve.engine.cluster.rows import Change
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, Profile, VictimChoice
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.job import (
    Budgets,
    Job,
    JobPolicy,
    JobPreemption,
    JobReason,
    Placement,
    VictimGangs,
)
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job, respect_others
from reprieve.units.ids import Uid
from tests.engine.builders import budget, node, pending_of, pod, snapshot_of

POLICY = Policy(profiles=(Profile(),))
OURS = JobPolicy()
BEST = replace(POLICY, choice=VictimChoice.BEST)
NOW = 1_800_000_000


def preempt(
    *rows: Change | Iterable[Change],
    policy: JobPolicy = OURS,
    members: tuple[str, ...] = ("g-0",),
    gangs: tuple[tuple[Uid, ...], ...] = (),
    by: Policy = POLICY,
) -> tuple[Snapshot, JobPreemption]:
    snapshot = snapshot_of(*rows)
    simulation = Simulation(snapshot, by, by.profiles[0])
    simulation.now = NOW
    pending = tuple(pending_of(snapshot, name) for name in members)
    job = Job("default/g", pending[0], pending, gangs=gangs)
    respect_others(simulation, job)
    return snapshot, preempt_for_job(simulation, job, policy)


def victims(snapshot: Snapshot, found: JobPreemption) -> set[str]:
    return {snapshot.pod_keys[slot].partition("/")[2] for slot in found.slots}


def low(name: str, where: str, cpu: int = 4, **facts: Any) -> Change:
    return pod(name, cpu=cpu * 1000, priority=10, node=where, **facts)


def member(name: str, cpu: int = 4, **facts: Any) -> Change:
    return pod(name, cpu=cpu * 1000, priority=100, **facts)


def machines(count: int, cpu: int = 4) -> list[Change]:
    return [node(f"n{number}", cpu=cpu * 1000) for number in range(1, count + 1)]


# Budgets.


def guarded(name: str, where: str) -> Change:
    return low(name, where, labels={"app": "guarded"})


GUARD: Mapping[str, str] = {"app": "guarded"}


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [(Budgets.PREFER, {"free"}), (Budgets.IGNORE, {"guarded"}), (Budgets.REQUIRE, {"free"})],
)
def test_victims_of_an_exhausted_budget_are_spared_first(
    budgets: Budgets, expected: set[str]
) -> None:
    # One of the two has to go; by name alone the guarded one would be put back last.
    snapshot, found = preempt(
        machines(1, cpu=8),
        low("free", "n1"),
        guarded("guarded", "n1"),
        budget("b", GUARD, allowed=0),
        member("g-0"),
        policy=JobPolicy(budgets=budgets),
    )
    assert found.reason is JobReason.SUCCESS
    assert victims(snapshot, found) == expected


def test_a_budget_gives_way_when_nobody_else_can_unless_it_is_required() -> None:
    rows = [*machines(1), guarded("only", "n1"), budget("b", GUARD, allowed=0), member("g-0")]
    snapshot, found = preempt(rows, policy=JobPolicy(budgets=Budgets.PREFER))
    assert (found.reason, found.violating) == (JobReason.SUCCESS, 1)
    assert victims(snapshot, found) == {"only"}
    _, refused = preempt(rows, policy=JobPolicy(budgets=Budgets.REQUIRE))
    assert (refused.reason, refused.slots) == (JobReason.NOT_HELPFUL, ())


def test_a_required_budget_is_not_used_up_by_several_victims_together() -> None:
    rows = [
        *machines(2),
        guarded("a", "n1"),
        guarded("b", "n2"),
        budget("b", GUARD, allowed=1),
        member("g-0"),
        member("g-1"),
    ]
    members = ("g-0", "g-1")
    _, refused = preempt(rows, policy=JobPolicy(budgets=Budgets.REQUIRE), members=members)
    assert (refused.reason, refused.slots) == (JobReason.NOT_HELPFUL, ())
    snapshot, found = preempt(rows, members=members)
    assert victims(snapshot, found) == {"a", "b"}


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [(Budgets.REQUIRE, {"free-1", "free-2"}), (Budgets.PREFER, {"free-1", "free-2"})],
)
def test_the_least_costly_victims_break_no_budget_where_others_are_enough(
    budgets: Budgets, expected: set[str]
) -> None:
    rows = [
        *machines(2, cpu=8),
        pod("guarded", cpu=8_000, priority=10, node="n1", labels=GUARD),
        low("free-1", "n2"),
        low("free-2", "n2"),
        budget("b", GUARD, allowed=0),
        member("g-0", 8),
    ]
    snapshot, found = preempt(rows, policy=JobPolicy(budgets=budgets), by=BEST)
    assert victims(snapshot, found) == expected
    assert found.violating == 0
    snapshot, found = preempt(rows, policy=JobPolicy(budgets=Budgets.IGNORE), by=BEST)
    assert victims(snapshot, found) == {"guarded"}


def test_a_required_budget_stays_unbroken_though_lower_priorities_would_break_it() -> None:
    rows = [
        *machines(2, cpu=8),
        pod("guarded-1", cpu=4_000, priority=1, node="n1", labels=GUARD),
        pod("guarded-2", cpu=4_000, priority=1, node="n1", labels=GUARD),
        low("free", "n2", 8),
        budget("b", GUARD, allowed=1),
        member("g-0", 8),
    ]
    snapshot, found = preempt(rows, policy=JobPolicy(budgets=Budgets.REQUIRE), by=BEST)
    assert victims(snapshot, found) == {"free"}
    assert found.violating == 0
    snapshot, found = preempt(rows, by=BEST)
    assert victims(snapshot, found) == {"guarded-1", "guarded-2"}
    assert found.violating == 1


def test_of_equal_numbers_of_pods_those_that_lose_less_go_with_harm_order() -> None:
    day, minute = NOW - 86_400, NOW - 60

    def rows(long: str, short: str) -> list[Change]:
        return [
            *(node(name, cpu=64_000, gpus=8) for name in ("n1", "n2")),
            pod("long", cpu=1_000, gpus=8, priority=10, node=long, start=day),
            pod("short", cpu=1_000, gpus=8, priority=10, node=short, start=minute),
            pod("g-0", cpu=1_000, gpus=8, priority=100),
        ]

    least_lost = replace(BEST, harm_order=True)
    snapshot, found = preempt(rows("n1", "n2"), by=least_lost)
    assert victims(snapshot, found) == {"short"}
    snapshot, found = preempt(rows("n2", "n1"), by=least_lost)
    assert victims(snapshot, found) == {"short"}
    assert found.gap == 0


# Gangs of victims.


def test_the_least_costly_victims_are_whole_gangs_where_gangs_go_as_a_unit() -> None:
    whole = JobPolicy(victim_gangs=VictimGangs.ALL)
    rows = [
        *machines(3),
        *(low(f"v-{number}", f"n{number}") for number in (1, 2)),
        low("alone", "n3"),
        member("g-0"),
    ]
    gang = ((Uid("pod-v-1"), Uid("pod-v-2")),)
    snapshot, found = preempt(rows, policy=whole, gangs=gang, by=BEST)
    assert victims(snapshot, found) == {"alone"}
    both = [*rows, member("g-1")]
    snapshot, found = preempt(both, policy=whole, gangs=gang, members=("g-0", "g-1"), by=BEST)
    assert victims(snapshot, found) == {"v-1", "v-2"}
    assert len(found.gangs) == 1


def test_the_gang_of_a_victim_goes_as_a_unit_or_not_at_all() -> None:
    rows = [*machines(2), low("v-0", "n1"), low("v-1", "n2"), member("g-0")]
    gang = ((Uid("pod-v-0"), Uid("pod-v-1")),)
    snapshot, alone = preempt(rows, gangs=gang)
    assert len(victims(snapshot, alone)) == 1
    whole = JobPolicy(victim_gangs=VictimGangs.ALL)
    snapshot, found = preempt(rows, policy=whole, gangs=gang)
    assert victims(snapshot, found) == {"v-0", "v-1"}
    # One that may not go protects all of its gang.
    shielded = low("v-1", "n2", labels={"scheduling.koordinator.sh/disable-preemptible": "true"})
    rows = [*machines(2), low("v-0", "n1"), shielded, member("g-0")]
    _, refused = preempt(rows, policy=whole, gangs=gang)
    assert (refused.reason, refused.slots) == (JobReason.NOT_HELPFUL, ())


# Quotas.


def test_pods_of_protected_quotas_and_namespaces_stay() -> None:
    label = {"quota.scheduling.koordinator.sh/name": "gold"}
    rows = [*machines(1), low("v", "n1", labels=label), member("g-0")]
    assert preempt(rows)[1].reason is JobReason.SUCCESS
    gold = JobPolicy(protected_quotas=frozenset({"gold"}))
    assert preempt(rows, policy=gold)[1].reason is JobReason.NOT_HELPFUL
    default = JobPolicy(protected_namespaces=frozenset({"default"}))
    assert preempt(rows, policy=default)[1].reason is JobReason.NOT_HELPFUL


# Placement.


def test_search_reaches_a_placement_that_no_single_order_finds() -> None:
    # 6+4 and 5+5 fill both nodes; the largest first on the first node leaves no other way.
    rows = [
        *machines(2, cpu=10),
        low("v-1", "n1", 10),
        low("v-2", "n2", 10),
        *(member(f"g-{number}", cpu) for number, cpu in enumerate((6, 5, 5, 4))),
    ]
    members = ("g-0", "g-1", "g-2", "g-3")
    literal = JobPolicy(Placement.FIRST_FIT)
    assert preempt(rows, policy=literal, members=members)[1].reason is JobReason.NOT_HELPFUL
    snapshot, found = preempt(rows, members=members)
    assert found.reason is JobReason.SUCCESS
    assert victims(snapshot, found) == {"v-1", "v-2"}


def test_members_with_selectors_of_their_own_are_placed_by_search() -> None:
    rows = [
        node("n1", cpu=4000, labels={"pool": "a"}),
        node("n2", cpu=4000, labels={"pool": "b"}),
        low("v-1", "n1"),
        low("v-2", "n2"),
        member("g-0", node_selector={"pool": "a"}),
        member("g-1", node_selector={"pool": "b"}),
    ]
    members = ("g-0", "g-1")
    literal = JobPolicy(Placement.FIRST_FIT)
    assert preempt(rows, policy=literal, members=members)[1].reason is JobReason.NOT_HELPFUL
    _, found = preempt(rows, members=members)
    assert dict(found.nominated) == {"pod-g-0": "n1", "pod-g-1": "n2"}


def test_a_node_where_nobody_has_to_go_is_taken_before_others() -> None:
    rows = [*machines(3), low("v-1", "n1"), low("v-2", "n2"), member("g-0"), member("g-1")]
    snapshot, found = preempt(rows, members=("g-0", "g-1"))
    assert "n3" in dict(found.nominated).values()
    assert len(victims(snapshot, found)) == 1

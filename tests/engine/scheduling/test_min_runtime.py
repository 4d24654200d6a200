"""Just-started work is preempted for nobody, as long as it requests and the limit allows."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Gates, Policy, Profile, policy_text
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup, GangState
from reprieve.engine.scheduling.gangs.job import JobOptions, JobPolicy, JobReason, VictimGangs
from reprieve.engine.scheduling.outcome import Attempt, Spared, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from tests.engine.builders import (
    cluster_of,
    composite,
    gang,
    later,
    namespace,
    node,
    pod,
    priority_class,
    slot_of,
    snapshot_of,
)

NOW = 1_700_000_000
MOST = 600
POLICY = Policy(max_min_runtime=MOST)
TREES = replace(POLICY, gates=Gates(composite_pod_group=True))


def until(*rows: Any, name: str = "p", policy: Policy = POLICY, space: str = "default") -> int:
    """For how many seconds from now a pod is protected, -1 where it may be a victim."""
    snapshot = snapshot_of(node("a", gpus=64), *rows)
    found = protected_until(snapshot, policy, NOW)
    end = 0 if found is None else int(found[slot_of(snapshot, name, space)])
    return end - NOW if end else -1


def started(name: str = "p", ago: int | None = 10, **facts: Any) -> PodRow:
    start = None if ago is None else NOW - ago
    return pod(name, node="a", gpus=1, start=start, **facts)


def decide(snapshot: Snapshot, policy: Policy = POLICY, now: int = NOW, **session: Any) -> Attempt:
    group = "default/train" if "pod-train-0" in snapshot.pending else ""
    unit = Unit(tuple(snapshot.pending), group)
    found = Session(snapshot, policy, now=now, **session).attempt(unit)
    assert found is not None
    assert faults_of(snapshot, policy, found, now) == ()
    return found


def victims(found: Attempt) -> set[str]:
    return {v.root.name for v in found.plan.victims} if found.plan is not None else set()


# What counts, and for how long.


@pytest.mark.parametrize(
    ("own", "of_class", "of_space", "expected"),
    [
        (100, 200, 300, 90),
        (None, 200, 300, 190),
        (None, None, 300, 290),
        (None, None, None, -1),
        (0, 200, 300, -1),  # whoever says nothing is needed is believed
        (-1, 200, 300, 190),  # what cannot be read says nothing
        (-1, -1, -1, -1),
        (10_000, None, None, MOST - 10),  # the limit
        (10, None, None, -1),  # it is over
        (11, None, None, 1),
    ],
)
def test_the_closest_counts_and_up_to_the_limit(
    own: int | None, of_class: int | None, of_space: int | None, expected: int
) -> None:
    around = [
        priority_class("high", 5, min_runtime=of_class),
        namespace("default", min_runtime=of_space),
        namespace("other", min_runtime=MOST),
        priority_class("other", 5, min_runtime=MOST),
    ]
    assert until(started(min_runtime=own, priority_class="high"), *around) == expected
    rows = gang(1, "g", nodes=["a"], start=NOW - 10, priority_class="high", min_runtime=500)
    group = replace(rows[0], min_runtime=own)
    assert isinstance(group, GroupRow)
    assert until(group, rows[1], *around, name="g-0") == expected


def test_nothing_is_protected_unless_it_is_switched_on() -> None:
    row = started(min_runtime=500)
    assert until(row, policy=Policy()) == -1
    assert protected_until(snapshot_of(node("a"), row), Policy(), NOW) is None
    assert not Policy().timed and POLICY.timed
    assert "max_min_runtime" not in policy_text(Policy())
    assert "max_min_runtime=600" in policy_text(POLICY)


def test_pods_of_a_group_say_nothing_unless_groups_count_for_nothing() -> None:
    rows = gang(1, "g", nodes=["a"], start=NOW - 10, min_runtime=500)
    assert until(*rows, name="g-0") == -1
    plain = replace(POLICY, gates=Gates(generic_workload=False))
    assert until(*rows, name="g-0", policy=plain) == 490


def test_the_nearest_composite_group_that_says_something_counts() -> None:
    rows = gang(1, "g", nodes=["a"], start=NOW - 10, parent="inner")
    root = composite("root", min_runtime=300)
    inner = composite("inner", parent="root", min_runtime=-1)
    assert until(*rows, root, inner, name="g-0", policy=TREES) == 290
    assert until(*rows, root, replace(inner, min_runtime=50), name="g-0", policy=TREES) == 40
    assert until(*rows, root, inner, name="g-0") == -1  # the gate is off


def test_of_all_that_go_together_the_earliest_start_and_the_longest_time_count() -> None:
    first = gang(2, "x", nodes=["a", "a"], start=NOW - 50, parent="root")
    second = gang(1, "y", nodes=["a"], start=NOW - 10, parent="root")
    saying = [replace(first[0], min_runtime=60), replace(second[0], min_runtime=100)]
    root = composite("root", all_or_nothing=True)
    rows = [*saying, *first[1:], *second[1:], root]
    for name in ("x-0", "x-1", "y-0"):
        assert until(*rows, name=name, policy=TREES) == 50
    alone = replace(root, all_or_nothing=False)
    assert until(*rows[:-1], alone, name="x-1", policy=TREES) == 10
    assert until(*rows[:-1], alone, name="y-0", policy=TREES) == 90


@pytest.mark.parametrize("mode", [False, True], ids=["single", "all"])
def test_a_pod_that_starts_again_protects_nobody_anew(mode: bool) -> None:
    rows = gang(2, "g", nodes=["a", "a"], start=NOW - 100, all_or_nothing=mode)
    group = replace(rows[0], min_runtime=100)
    assert isinstance(rows[2], PodRow)
    again = replace(rows[2], start=NOW)
    assert until(group, rows[1], again, name="g-1") == -1
    assert until(group, again, name="g-1") == 100  # all of it is new


def test_what_has_not_started_has_nothing_to_lose() -> None:
    assert until(started(ago=None, min_runtime=500)) == -1
    assert until(started(ago=-5, min_runtime=500)) == -1  # a clock that is ahead
    rows = gang(2, "g", nodes=["a", "a"], start=NOW - 10, all_or_nothing=True)
    group = replace(rows[0], min_runtime=100)
    assert isinstance(rows[2], PodRow)
    assert until(group, rows[1], replace(rows[2], start=None), name="g-1") == 90


def test_what_is_on_its_way_out_is_not_kept() -> None:
    assert until(started(min_runtime=500, deleting=True)) == -1
    rows = gang(2, "g", nodes=["a", "a"], start=NOW - 10, all_or_nothing=True)
    group = replace(rows[0], min_runtime=100)
    assert isinstance(rows[2], PodRow)
    deleted = replace(rows[2], deleting=True)
    assert until(group, rows[1], deleted, name="g-0") == 90  # somebody deleted one of them
    assert until(group, rows[1], replace(deleted, preempted=True), name="g-0") == -1


def test_it_may_change_while_the_work_runs() -> None:
    row = started(min_runtime=100)
    space = namespace("default", min_runtime=200)
    held = cluster_of(node("a", gpus=8), row)
    found = []
    for change in (None, space, later(row, min_runtime=None), namespace("default")):
        held.apply([] if change is None else [change])
        snapshot = held.snapshot()
        ends = protected_until(snapshot, POLICY, NOW)
        found.append(0 if ends is None else int(ends[slot_of(snapshot, "p")]) - NOW)
    assert found == [90, 90, 190, 0]


# What follows.


@pytest.mark.parametrize("grouped", [False, True], ids=["pod", "gang"])
def test_a_preemptor_waits_for_the_first_to_have_had_its_time(grouped: bool) -> None:
    train = gang(1, "train", gpus=8, priority=10)
    waiting = train if grouped else [pod("train", gpus=8, priority=10)]
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        pod("fresh", gpus=8, priority=1, node="a", start=NOW - 100, min_runtime=300),
        pod("fresher", gpus=8, priority=1, node="b", start=NOW - 50, min_runtime=300),
        pod("above", priority=10, node="b", start=NOW - 90, min_runtime=91),
        waiting,
    )
    first = decide(snapshot)
    assert (victims(first), first.spared) == (set(), Spared(2, NOW + 200))
    before = decide(snapshot, now=NOW + 199)
    assert (victims(before), before.spared) == (set(), Spared(2, NOW + 200))
    after = decide(snapshot, now=NOW + 200)
    assert (victims(after), after.spared) == ({"fresh"}, None)
    assert decide(snapshot, Policy()).spared is None


def test_who_may_not_preempt_is_not_tried_again_for_it() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        pod("fresh", gpus=8, priority=1, node="a", start=NOW - 100, min_runtime=300),
        pod("polite", gpus=8, priority=10, preempts=False),
    )
    assert decide(snapshot).spared is None


def test_a_group_with_a_floor_is_protected_as_one() -> None:
    rows: list[Any] = gang(2, "g", gpus=4, min_count=1, priority=1, nodes=["a", "a"])
    members = [replace(rows[1], start=NOW - 500), replace(rows[2], start=NOW - 5)]
    policy = replace(POLICY, non_uniform_groups=True)
    for runtime, gone in ((100, {"g-0", "g-1"}), (600, set())):
        group = replace(rows[0], floor=2, min_runtime=runtime)
        waiting = gang(1, "train", gpus=4, priority=10)
        assert (
            victims(decide(snapshot_of(node("a", gpus=8), group, members, waiting), policy)) == gone
        )


def test_the_proof_knows_minimum_runtimes() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        pod("fresh", gpus=8, priority=1, node="a", start=NOW - 10, min_runtime=20),
        gang(1, "train", gpus=8, priority=10),
    )
    unit = Unit(tuple(snapshot.pending), "default/train")
    found = Session(snapshot, POLICY, now=NOW + 10).attempt(unit)
    assert found is not None and victims(found) == {"fresh"}
    faults = faults_of(snapshot, POLICY, found, NOW)
    assert [(each.fault, each.subject) for each in faults] == [(Fault.PROTECTED, "default/fresh")]
    assert faults_of(snapshot, POLICY, found, NOW + 10) == ()


@pytest.mark.parametrize(
    ("together", "now", "gone", "first"),
    [
        (VictimGangs.POD, NOW, set(), NOW + 30),
        (VictimGangs.POD, NOW - 60, set(), NOW - 50),
        (VictimGangs.ALL, NOW, {"low-0", "low-1"}, None),
        (VictimGangs.ALL, NOW - 60, set(), NOW - 50),
    ],
)
def test_jobs_of_gangs_honour_it_and_a_gang_counts_from_its_first_pod(
    together: VictimGangs, now: int, gone: set[str], first: int | None
) -> None:
    low = [
        pod(f"low-{n}", gpus=4, priority=1, node="a", start=NOW - ago, min_runtime=100)
        for n, ago in enumerate((150, 70))
    ]
    high = [pod(f"high-{n}", gpus=4, priority=10, gang="default/high") for n in range(2)]
    snapshot = snapshot_of(node("a", gpus=8), low, high)
    others = (tuple(row.uid for row in low),)
    group = GangGroup("default/high", (GangState("default/high", 2),), others=others)
    unit = Unit(tuple(row.uid for row in high), f"{GANG_KEY}default/high")
    jobs = JobOptions(JobPolicy(victim_gangs=together))
    found = Session(snapshot, POLICY, gangs={unit.group: group}, jobs=jobs, now=now).attempt(unit)
    assert found is not None and found.gang is not None and found.gang.job is not None
    assert faults_of(snapshot, POLICY, found, now) == ()
    assert victims(found) == gone
    assert found.gang.job.reason is (JobReason.SUCCESS if gone else JobReason.NOT_HELPFUL)
    assert (found.spared.until if found.spared is not None else None) == first


@pytest.mark.parametrize("together", VictimGangs)
def test_a_pod_that_preempts_as_a_job_honours_it_too(together: VictimGangs) -> None:
    low = [
        pod(f"low-{n}", gpus=4, priority=1, node="a", start=NOW - ago, min_runtime=100)
        for n, ago in enumerate((150, 70))
    ]
    high = pod("high", gpus=8, priority=10, scheduler_name="koord")
    snapshot = snapshot_of(node("a", gpus=8), low, high)
    jobs = JobOptions(
        JobPolicy(victim_gangs=together),
        names=frozenset({"koord"}),
        gangs=(("default/low", tuple(row.uid for row in low)),),
    )
    policy = replace(POLICY, profiles=(Profile(scheduler_name="koord"),))
    found = Session(snapshot, policy, jobs=jobs, now=NOW).attempt(Unit((high.uid,)))
    assert found is not None and found.gang is not None
    assert faults_of(snapshot, policy, found, NOW) == ()
    if together is VictimGangs.ALL:
        assert (victims(found), found.spared) == ({"low-0", "low-1"}, None)
    else:
        assert (victims(found), found.spared) == (set(), Spared(1, NOW + 30))


@pytest.mark.parametrize("cases", [100, pytest.param(400, marks=pytest.mark.thorough)])
def test_nobody_within_its_time_makes_way_and_nobody_has_more_than_the_limit(cases: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(cases):
        chance = random.Random(seed)
        rows: list[Any] = [node(name, gpus=8) for name in "abc"]
        asked: dict[str, int] = {}  # by pod, what counts for it
        starts: dict[str, list[int]] = {}  # by work
        work: dict[str, str] = {}
        for number in range(4):
            name, size = f"g{number}", chance.randint(1, 3)
            places = [chance.choice("abc") for _ in range(size)]
            said = chance.choice((None, None, 60, 300, 5_000))
            whole = chance.random() < 0.5
            if size == 1 and chance.random() < 0.6:
                row = pod(name, gpus=3, priority=1, node=places[0], min_runtime=said)
                made = [replace(row, start=NOW - chance.randint(0, 700))]
            else:
                made = gang(  # type: ignore[assignment]
                    size, name, gpus=3, priority=1, nodes=places, all_or_nothing=whole
                )
                rows.append(replace(made[0], min_runtime=said))
                made = [replace(each, start=NOW - chance.randint(0, 700)) for each in made[1:]]
            for each in made:
                asked[each.name] = min(said or 0, MOST)
                assert each.start is not None
                starts.setdefault(name, []).append(each.start)
                work[each.name] = name
            rows += made
        size = chance.randint(1, 3)
        rows += gang(size, "train", gpus=chance.choice((4, 8)), priority=10)
        snapshot = snapshot_of(*rows)
        for now in (NOW, NOW + 100, NOW + 400, NOW + MOST):
            found = decide(snapshot, now=now)
            young = {
                name for name, seconds in asked.items() if now < min(starts[work[name]]) + seconds
            }
            assert not victims(found) & young, seed
            seen["spared some"] += bool(victims(found)) and bool(young)
            seen["waited"] += found.spared is not None
            if found.spared is not None:
                ends = [min(starts[work[name]]) + asked[name] for name in young]
                assert found.spared == Spared(len(young), min(ends)), seed
            if now == NOW + MOST:
                assert not young
                same = decide(snapshot, Policy())
                assert victims(found) == victims(same) and found.code is same.code, seed
                seen["preempted in the end"] += bool(victims(found))
            if not young:
                assert victims(found) == victims(decide(snapshot, Policy())), seed
    wanted = ("spared some", "waited", "preempted in the end")
    assert min(seen[what] for what in wanted) > cases * 0.15, seen

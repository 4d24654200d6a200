"""The cycle of a gang group on one snapshot: bound together, parked, or given back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reprieve.engine.cluster.rows import Change, PodRow
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup, GangState
from reprieve.engine.scheduling.gangs.job import JobOptions, JobPolicy, JobReason, Placement
from reprieve.engine.scheduling.outcome import Attempt, Nominate, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid
from tests.engine.builders import node, pending_of, pod, snapshot_of

POLICY = Policy(profiles=(Profile(),))
ON = JobOptions()
OFF = JobOptions(enabled=False)


def gang(minimum: int = 2, **facts: Any) -> GangGroup:
    return GangGroup("default/g", (GangState("default/g", minimum, **facts),))


def member(name: str, cpu: int = 4, **facts: Any) -> PodRow:
    return pod(name, cpu=cpu * 1000, priority=100, gang="default/g", **facts)


def cycle(
    *rows: Change | Iterable[Change],
    group: GangGroup | None = None,
    options: JobOptions = ON,
    members: tuple[str, ...] = ("g-0", "g-1"),
) -> Attempt:
    snapshot = snapshot_of(*rows)
    key = f"{GANG_KEY}default/g"
    session = Session(snapshot, POLICY, gangs={key: group or gang()}, jobs=options)
    uids = tuple(pending_of(snapshot, name).row.uid for name in members)
    attempt = session.attempt(Unit(uids, key))
    assert attempt is not None and attempt.gang is not None
    return attempt


def machines(count: int) -> list[Change]:
    return [node(f"n{number}", cpu=4000) for number in range(1, count + 1)]


def low(name: str, where: str) -> Change:
    return pod(name, cpu=4000, priority=10, node=where)


def bound(attempt: Attempt) -> dict[str, str]:
    return {str(member.uid): member.bind for member in attempt.members if member.bind}


def test_all_members_are_bound_together_and_surplus_waits_for_the_next_cycle() -> None:
    rows = [*machines(3), member("g-0"), member("g-1"), member("g-2")]
    attempt = cycle(rows, members=("g-0", "g-1", "g-2"))
    assert attempt.code is Code.SUCCESS
    assert set(bound(attempt)) == {"pod-g-0", "pod-g-1"}


def test_nobody_is_bound_when_one_does_not_fit_and_preemption_is_off() -> None:
    attempt = cycle(machines(1), member("g-0"), member("g-1"), options=OFF)
    assert (attempt.code, bound(attempt)) == (Code.UNSCHEDULABLE, {})
    assert attempt.gang is not None
    assert (attempt.gang.trigger, attempt.gang.parked) == (Uid("pod-g-1"), ())


def test_members_of_a_gang_that_is_not_strict_wait_for_the_others() -> None:
    group = gang(strict=False, wait=7)
    attempt = cycle(machines(1), member("g-0"), member("g-1"), group=group, options=OFF)
    assert attempt.gang is not None
    assert attempt.gang.parked == ((Uid("pod-g-0"), "n1"),)
    assert attempt.gang.waits == (7,)
    assert not attempt.gang.gave_back


def test_no_member_takes_a_node_that_is_kept_for_somebody_above_it() -> None:
    above = pod("other", cpu=4000, priority=70, nominated="n2")
    low = replace(member("g-1"), priority=50)
    attempt = cycle(machines(2), above, member("g-0"), low, options=OFF)
    assert bound(attempt) == {}


def two_gangs(*, strict: tuple[bool, bool], waits: tuple[int, int] = (0, 0)) -> GangGroup:
    states = (
        GangState(id, 2, strict=one, wait=wait)
        for id, one, wait in zip(("default/g", "x/h"), strict, waits, strict=True)
    )
    return GangGroup("default/g,x/h", tuple(states))


def of_two(*names: str) -> list[Change]:
    first = [member(name) for name in names if name.startswith("g")]
    return [*first, *(replace(_pod(name), gang="x/h") for name in names if name.startswith("h"))]


@pytest.mark.parametrize(
    ("strict", "parked"),
    [((True, True), 0), ((False, True), 0), ((True, False), 3), ((False, False), 3)],
)
def test_the_gang_of_the_member_that_does_not_fit_says_whether_all_give_back(
    strict: tuple[bool, bool], parked: int
) -> None:
    names = ("g-0", "g-1", "h-0", "h-1")
    group = two_gangs(strict=strict)
    rows = [*machines(3), *of_two(*names)]
    attempt = cycle(rows, group=group, options=OFF, members=names)
    assert attempt.gang is not None
    assert attempt.gang.trigger == Uid("pod-h-1")
    assert len(attempt.gang.parked) == parked
    assert attempt.gang.gave_back == (not parked)


def test_each_member_waits_for_the_time_of_its_own_gang() -> None:
    names = ("g-0", "h-0")
    group = two_gangs(strict=(True, True), waits=(600, 30))
    attempt = cycle([*machines(2), *of_two(*names)], group=group, options=OFF, members=names)
    assert attempt.gang is not None
    assert attempt.gang.parked == ((Uid("pod-g-0"), "n1"), (Uid("pod-h-0"), "n2"))
    assert attempt.gang.waits == (600, 30)


def test_a_strict_gang_goes_on_waiting_when_little_enough_is_missing() -> None:
    rows = [*machines(9), *(member(f"g-{number}") for number in range(10))]
    members = tuple(f"g-{number}" for number in range(10))
    for tolerated, parked in ((10, 9), (9, 0)):
        group = gang(10, tolerated=tolerated)
        attempt = cycle(rows, group=group, options=OFF, members=members)
        assert attempt.gang is not None
        assert len(attempt.gang.parked) == parked


def test_those_who_waited_are_bound_with_the_one_that_was_missing() -> None:
    waiting = member("g-0", node="n1")
    group = gang(waiting=((Uid("pod-g-0"), "n1"),))
    attempt = cycle(machines(2), waiting, member("g-1"), group=group, members=("g-1",))
    assert bound(attempt) == {"pod-g-1": "n2"}
    assert attempt.gang is not None
    assert attempt.gang.bound_before == ((Uid("pod-g-0"), "n1"),)


def test_running_members_count_only_where_the_policy_says_so() -> None:
    rows: list[Change] = [*machines(2), member("g-0", node="n1"), member("g-1")]
    running = gang(policy="waiting-and-running", bound=1)
    assert bound(cycle(rows, group=running, members=("g-1",))) == {"pod-g-1": "n2"}
    waiting = cycle(rows, group=gang(policy="only-waiting", bound=1), members=("g-1",))
    assert bound(waiting) == {}
    assert waiting.gang is not None
    assert waiting.gang.parked == ((Uid("pod-g-1"), "n2"),)


def test_all_gangs_of_a_group_have_to_be_satisfied() -> None:
    two = GangGroup("default/g,x/h", (GangState("default/g", 1), GangState("x/h", 1)))
    rows: list[Change] = [*machines(2), member("g-0"), replace(_pod("h-0"), gang="x/h")]
    attempt = cycle(rows, group=two, members=("g-0", "h-0"))
    assert set(bound(attempt)) == {"pod-g-0", "pod-h-0"}
    assert bound(cycle(rows, group=two, members=("g-0",))) == {}


def _pod(name: str) -> Any:
    return pod(name, cpu=4000, priority=100)


def test_a_placement_without_victims_is_found_before_anybody_is_evicted() -> None:
    # The small one goes to the emptier node by score, where the large one would have fitted.
    rows: list[Change] = [
        node("n1", cpu=6000),
        node("n2", cpu=3000),
        pod("runs", cpu=1, priority=10, node="n2"),
        member("g-0", 2),
        member("g-1", 6),
    ]
    attempt = cycle(rows)
    assert attempt.plan is None
    assert bound(attempt) == {"pod-g-0": "n2", "pod-g-1": "n1"}


def test_victims_are_planned_for_all_members_and_everybody_is_nominated() -> None:
    rows = [*machines(2), low("v-1", "n1"), low("v-2", "n2"), member("g-0"), member("g-1")]
    for placement in Placement:
        attempt = cycle(rows, options=JobOptions(JobPolicy(placement)))
        assert attempt.plan is not None
        assert {victim.root.name for victim in attempt.plan.victims} == {"v-1", "v-2"}
        assert {member.nominate for member in attempt.members} == {"n1", "n2"}


def test_a_member_that_fits_keeps_its_node_in_the_literal_placement() -> None:
    rows = [*machines(2), low("v-1", "n1"), member("g-0"), member("g-1")]
    attempt = cycle(rows, options=JobOptions(JobPolicy(Placement.FIRST_FIT)))
    assert attempt.plan is not None
    assert [victim.root.name for victim in attempt.plan.victims] == ["v-1"]
    assert {str(m.uid): m.nominate for m in attempt.members} == {
        "pod-g-0": "n2",
        "pod-g-1": "n1",
    }
    assert attempt.gang is not None and attempt.gang.waiting == 1


def test_without_a_way_all_nominations_are_cleared() -> None:
    rows = [
        *machines(2),
        low("v-1", "n1"),
        pod("stays", cpu=4000, priority=1000, node="n2"),
        member("g-0", nominated="n1"),
        member("g-1"),
    ]
    attempt = cycle(rows)
    assert attempt.plan is None
    assert {member.nominate for member in attempt.members} == {Nominate.CLEAR}
    assert attempt.gang is not None and attempt.gang.job is not None
    assert attempt.gang.job.reason is JobReason.NOT_HELPFUL


def test_a_pod_of_a_satisfied_gang_preempts_alone_and_never_when_that_is_off() -> None:
    snapshot = snapshot_of(machines(1), low("v-1", "n1"), member("g-0"))
    uid = pending_of(snapshot, "g-0").row.uid
    attempt = Session(snapshot, POLICY, jobs=JobOptions()).attempt(Unit((uid,)))
    assert attempt is not None and attempt.plan is not None and attempt.gang is not None
    assert attempt.gang.key == "default/g-0"
    off = Session(snapshot, POLICY, jobs=OFF).attempt(Unit((uid,)))
    assert off is not None and off.plan is None

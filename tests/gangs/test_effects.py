"""What follows from a gang's cycle is a list, in order, once it is known who waits in Permit."""

from __future__ import annotations

from typing import Any

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup
from reprieve.engine.scheduling.gangs.job import JobOptions
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.engine.scheduling.session import Session
from reprieve.planes.scheduling.cycle.effects import Announce, Assume, Evict, Hold, Return, WritePod
from reprieve.planes.scheduling.gangs.effects import (
    GangEffect,
    GangFacts,
    HoldBack,
    InPermit,
    Park,
    Release,
    Satisfy,
    Unpark,
    gang_effects,
)
from reprieve.settings.coscheduling import CoschedulingSettings
from reprieve.units.ids import Uid
from reprieve.wording.attempts import GangOf
from tests.engine.builders import pending_of, snapshot_of
from tests.gangs.test_cycle import OFF, ON, POLICY, gang, low, machines, member

KEY = f"{GANG_KEY}default/g"
FIRST, SECOND = Uid("pod-g-0"), Uid("pod-g-1")


def decided(
    snapshot: Snapshot,
    group: GangGroup | None = None,
    options: JobOptions = ON,
    members: tuple[str, ...] = ("g-0", "g-1"),
) -> Attempt:
    session = Session(snapshot, POLICY, gangs={KEY: group or gang()}, jobs=options)
    unit = Unit(tuple(pending_of(snapshot, name).row.uid for name in members), KEY)
    attempt = session.attempt(unit)
    assert attempt is not None and attempt.gang is not None
    return attempt


def facts(snapshot: Snapshot, *, plain: bool = False, **permit: InPermit) -> GangFacts:
    rows = {each.row.uid: each.row for each in snapshot.pending.values()}
    return GangFacts(
        rows=rows,
        gangs=dict.fromkeys(rows, GangOf("default/g", 2, plain)),
        permit={each.row.uid: each for each in permit.values()},
        snapshot=snapshot,
        settings=CoschedulingSettings(),
    )


def effects(attempt: Attempt, known: GangFacts) -> list[GangEffect]:
    assert attempt.gang is not None
    return list(gang_effects(attempt, attempt.gang, known))


def after_parking(attempt: Attempt, known: GangFacts, *waits: InPermit) -> list[GangEffect]:
    park = effects(attempt, known)[-1]
    assert isinstance(park, Park)
    assert {each.row.uid for each in waits} <= set(park.about)
    return list(park.then({each.row.uid: each for each in waits}))


def waiting(row: PodRow, node: str = "n1", *, ours: bool = True) -> InPermit:
    return InPermit(row, node, row, ours)


def of(kind: type[Any], found: list[GangEffect]) -> list[Any]:
    return [each for each in found if isinstance(each, kind)]


def test_a_gang_with_its_minimum_is_bound_together_with_those_that_waited() -> None:
    snapshot = snapshot_of(machines(2), member("g-0"), member("g-1"))
    row = pending_of(snapshot, "g-1").row
    group = GangGroup("default/g", (gang(waiting=((SECOND, "n2"),)).gangs[0],))
    attempt = decided(snapshot, group, members=("g-0",))
    assert attempt.gang is not None
    assert attempt.gang.bound_before == ((SECOND, "n2"),)
    found = effects(attempt, facts(snapshot, waits=waiting(row, "n2")))
    names = [type(each).__name__ for each in found]
    assert names[-5:] == ["Unpark", "Return", "Assume", "Satisfy", "Log"]
    assert of(Unpark, found) == [Unpark([SECOND])]
    (assumed,) = of(Assume, found)
    assert {(row.uid, each.bind) for row, each in assumed.placed} == {
        (FIRST, attempt.members[0].bind),
        (SECOND, "n2"),
    }
    assert set(assumed.annotations.values()) == {"default/g", "2"}
    assert of(Satisfy, found) == [Satisfy(KEY)]


def test_members_that_wait_in_permit_leave_the_queue_only_once_they_do() -> None:
    snapshot = snapshot_of(machines(1), member("g-0"), member("g-1"))
    attempt = decided(snapshot, gang(strict=False, wait=7), OFF)
    known = facts(snapshot)
    (returned,) = of(
        Return, after_parking(attempt, known, waiting(pending_of(snapshot, "g-0").row))
    )
    assert (returned.outcome, returned.placed) == (Outcome.REJECTED, {FIRST})
    # A dry run parks nobody: the same decision, and everybody is in the queue again.
    (returned,) = of(Return, after_parking(attempt, known))
    assert (returned.outcome, returned.placed) == (Outcome.REJECTED, set())


def test_a_group_without_a_way_is_held_back_and_not_one_that_preempts() -> None:
    snapshot = snapshot_of(machines(1), member("g-0"), member("g-1"))
    hopeless = after_parking(decided(snapshot, options=OFF), facts(snapshot))
    assert of(HoldBack, hopeless) == [HoldBack(KEY)]
    assert of(Evict, hopeless) == of(Hold, hopeless) == []

    snapshot = snapshot_of(
        machines(2), low("a", "n1"), low("b", "n2"), member("g-0"), member("g-1")
    )
    preempts = after_parking(decided(snapshot), facts(snapshot))
    assert of(HoldBack, preempts) == []
    names = [type(each).__name__ for each in preempts]
    assert names.index("Hold") < names.index("Return") < names.index("Evict") == len(names) - 1
    (evict,) = of(Evict, preempts)
    assert {victim.root.name for victim in evict.plan.victims} == {"a", "b"}


def test_a_victim_that_waits_in_permit_is_rejected_and_not_evicted() -> None:
    snapshot = snapshot_of(
        machines(2), low("a", "n1"), low("b", "n2"), member("g-0"), member("g-1")
    )
    attempt, known = decided(snapshot), facts(snapshot)
    assert attempt.plan is not None
    victim = next(each for each in attempt.plan.victims if each.root.name == "a")
    row = pending_of(snapshot_of(machines(1), member("a")), "a").row
    waits = InPermit(row, "n1", row, True)
    assert victim.root.uid == row.uid
    found = after_parking(attempt, known, waits)
    assert of(Release, found)[0] == Release([row.uid])
    (evict,) = of(Evict, found)
    assert [each.root.name for each in evict.plan.victims] == ["b"]
    said = [each for each in of(Announce, found) if each.row is row]
    assert [each.text.reason for each in said] == ["Preempted", "FailedScheduling"]
    assert attempt.gang is not None and attempt.gang.trigger is not None
    assert said[0].by is known.rows[attempt.gang.trigger]


def test_who_waited_is_told_why_it_no_longer_does_unless_it_is_not_ours_any_more() -> None:
    snapshot = snapshot_of(machines(1), low("a", "n1"), member("g-0"), member("g-1"))
    row = pending_of(snapshot, "g-0").row
    group = GangGroup("default/g", (gang(waiting=((FIRST, "n1"),)).gangs[0],))
    attempt = decided(snapshot, group, OFF, members=("g-1",))
    assert attempt.gang is not None and attempt.gang.rejected == (FIRST,)
    for ours in (True, False):
        found = after_parking(attempt, facts(snapshot), waiting(row, ours=ours))
        assert of(Release, found) == [Release([FIRST])]
        told = [each for each in of(WritePod, found) if each.row is row]
        assert len(told) == ours

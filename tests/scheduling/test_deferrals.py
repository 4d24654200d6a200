"""How long a unit waits for the idle plane, and for pods that end, before it preempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.api.reprieve import ObjectRef, PreemptionSpec, Proof, Stage
from reprieve.engine.scheduling.outcome import Unit
from reprieve.planes.common.joint import IdleSide, Joint, SchedulingSide, Verdict
from reprieve.planes.scheduling.cycle.joint_side import Deferrals
from reprieve.units.ids import Uid

UNIT = Unit((Uid("one"),))
GOING = frozenset({Uid("idle")})


class _Idle:
    def __init__(self) -> None:
        self.says = Verdict.UNDECIDED

    def verdicts(self, demands: Sequence[Sequence[Uid]]) -> list[Verdict]:
        return [self.says] * len(demands)

    def going_for(self, demand: Sequence[Uid]) -> frozenset[Uid]:
        return GOING if list(demand) == list(UNIT.pods) else frozenset()


class _Hand:
    """A clock whose hand a test turns."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic(self) -> int:
        return self.now


def _record(plane: str) -> PreemptionSpec:
    preemptor = ObjectRef("v1", "Pod", "one", UNIT.pods[0], "team")
    return PreemptionSpec(
        plane, "plan", 1, Proof("Placement"), [], "", preemptor, stages=[Stage(plane)]
    )


def _made(owner: Callable[[Unit], str] = lambda unit: "") -> tuple[Deferrals, _Idle, _Hand]:
    idle, hand = _Idle(), _Hand()
    joint = Joint(
        idle=cast("IdleSide", idle), scheduling=cast("SchedulingSide", cast("Any", object()))
    )
    return Deferrals(joint, cast("Clock", hand), owner=owner), idle, hand


def test_a_unit_is_put_off_for_five_seconds_while_nothing_is_decided() -> None:
    deferrals, _, hand = _made()
    assert deferrals.of([UNIT]).deferred == {UNIT}
    hand.now = 5 * SECOND
    assert deferrals.of([UNIT]).deferred == frozenset()


def test_a_unit_of_which_nothing_is_known_yet_is_asked_about_once_more_within_a_second() -> None:
    """Its root has not opted in perhaps, and then nobody would wake it before the five seconds."""
    deferrals, idle, hand = _made()
    early = deferrals.of([UNIT]).until[UNIT]
    assert 0 < early < SECOND
    hand.now = early
    assert deferrals.of([UNIT]).until == {UNIT: 5 * SECOND}
    idle.says = Verdict.NOT_ASKED
    assert deferrals.of([UNIT]).deferred == frozenset()


def test_an_answer_ends_the_wait_and_the_next_question_has_a_wait_of_its_own() -> None:
    deferrals, idle, hand = _made()
    deferrals.of([UNIT])
    idle.says = Verdict.DECLINED
    assert deferrals.of([UNIT]).deferred == frozenset()
    hand.now, idle.says = HOUR, Verdict.UNDECIDED
    assert deferrals.of([UNIT]).deferred == {UNIT}


def test_a_unit_that_is_served_is_put_off_without_end() -> None:
    deferrals, idle, hand = _made()
    idle.says = Verdict.SERVED
    for hand.now in (0, HOUR):
        assert deferrals.of([UNIT]).deferred == {UNIT}


def test_patience_counts_from_when_the_unit_waits_for_room_and_ends_after_a_minute() -> None:
    deferrals, idle, hand = _made()
    idle.says = Verdict.DECLINED
    hand.now = HOUR  # it has waited for long, but not for pods that end
    assert deferrals.of([UNIT]).patient == {UNIT}
    deferrals.waits(UNIT, for_room=True)
    hand.now = HOUR + MINUTE - 1
    assert deferrals.of([UNIT]).patient == {UNIT}
    hand.now = HOUR + MINUTE
    assert deferrals.of([UNIT]).patient == frozenset()
    deferrals.waits(UNIT, for_room=False)
    assert deferrals.of([UNIT]).patient == {UNIT}


def test_alone_nobody_is_put_off() -> None:
    found = Deferrals(Joint(), cast("Clock", _Hand())).of([UNIT])
    assert (found.deferred, found.patient) == (frozenset(), frozenset())


def test_a_unit_preempts_once_beside_idle_work_that_has_gone_for_it() -> None:
    deferrals, idle, _ = _made()
    idle.says = Verdict.HELPED
    found = deferrals.of([UNIT])
    assert (found.deferred, found.without) == (frozenset(), {UNIT: GOING})
    assert (deferrals.is_mixed(UNIT), deferrals.rejection(UNIT)) == (True, None)
    deferrals._joint.demands.written("own", _record("scheduling"))
    found = deferrals.of([UNIT])
    assert (found.deferred, found.without) == (frozenset({UNIT}), {UNIT: GOING})


def test_a_unit_whose_idle_work_has_not_gone_yet_preempts_nobody() -> None:
    deferrals, idle, _ = _made()
    idle.says = Verdict.SERVED
    found = deferrals.of([UNIT])
    assert (found.deferred, found.without, deferrals.is_mixed(UNIT)) == (
        frozenset({UNIT}),
        {},
        False,
    )


def test_nothing_is_evicted_for_pods_of_one_owner_until_a_moment_after_the_first_of_them() -> None:
    """They are created one after the other, and share their victims."""
    first, second, other = (Unit((Uid(name),)) for name in ("first", "second", "other"))
    owners = {first: "job", second: "job", other: ""}
    deferrals, idle, hand = _made(owners.__getitem__)
    idle.says = Verdict.NOT_ASKED
    found = deferrals.of([first, other])
    assert found.deferred == frozenset({first}) and 0 < found.until[first] < SECOND
    end = hand.now = found.until[first] - 1
    assert deferrals.of([first, second]).until.items() >= {first: end + 1, second: end + 1}.items()
    hand.now = end + 1
    assert not deferrals.of([first, second]).deferred
    deferrals.forget(first)  # it preempts, and those that come later are looked at anew
    assert deferrals.of([second]).deferred == frozenset({second})

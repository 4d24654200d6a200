"""What follows from an attempt is a list, the same however often it is asked for, and in order."""

from __future__ import annotations

import logging
from dataclasses import replace

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.outcome import Attempt, Spared, Unit
from reprieve.engine.scheduling.queueing.queue import Outcome
from reprieve.engine.scheduling.session import Session
from reprieve.planes.scheduling.cycle.effects import (
    Announce,
    Assume,
    Effect,
    Evict,
    Facts,
    Hold,
    Log,
    Nominated,
    Observe,
    Remind,
    Return,
    WriteGroup,
    WritePod,
    effects_of,
)
from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.ids import Uid
from tests.engine.builders import gang, node, pod, snapshot_of

POLICY = scheduling_settings().policy
TRAIN = gang(2, "train", gpus=4, priority=10)
UNIT = Unit((Uid("pod-train-0"), Uid("pod-train-1")), "default/train")


def attempted(snapshot: Snapshot, unit: Unit = UNIT) -> Attempt:
    attempt = Session(snapshot, POLICY).attempt(unit)
    assert attempt is not None
    return attempt


def facts(snapshot: Snapshot, *, async_preemption: bool = True) -> Facts:
    groups = [row for row in TRAIN if isinstance(row, GroupRow)]
    return Facts(
        rows={each.row.uid: each.row for each in snapshot.pending.values()},
        groups={row.key: row for row in groups},
        snapshot=snapshot,
        condition_type="PodGroupInitiallyScheduled",
        async_preemption=async_preemption,
    )


def full() -> Snapshot:
    """A node on which a pod of lower priority stands, and the gang that waits."""
    return snapshot_of(node("a", gpus=8), pod("low", gpus=8, priority=1, node="a"), TRAIN)


def kinds(effects: tuple[Effect, ...]) -> list[str]:
    return [type(each).__name__ for each in effects]


def test_a_gang_that_is_placed_leaves_the_queue_and_is_bound() -> None:
    snapshot = snapshot_of(node("a", gpus=8), TRAIN)
    observed, returned, assumed = effects_of(attempted(snapshot), facts(snapshot))
    assert isinstance(observed, Observe)
    assert isinstance(returned, Return)
    assert (returned.outcome, set(returned.placed)) == (Outcome.PLACED, set(UNIT.pods))
    assert isinstance(assumed, Assume)
    assert [(row.name, member.bind) for row, member in assumed.placed] == [
        ("train-0", "a"),
        ("train-1", "a"),
    ]


def test_victims_are_evicted_last_and_the_entry_waits_for_them() -> None:
    snapshot = full()
    attempt = attempted(snapshot)
    effects = effects_of(attempt, facts(snapshot))
    assert kinds(effects) == [
        "Observe",
        *["Nominated"] * 2,
        *["WritePod", "Announce"] * 2,
        "WriteGroup",
        "Hold",
        "Return",
        "Evict",
    ]
    assert [each.node for each in effects if isinstance(each, Nominated)] == ["a", "a"]
    assert [each.nominated for each in effects if isinstance(each, WritePod)] == ["a", "a"]
    (hold,) = (each for each in effects if isinstance(each, Hold))
    evict = effects[-1]
    assert isinstance(evict, Evict)
    assert [victim.root.name for victim in evict.plan.victims] == ["low"]
    assert (hold.key, evict.preemptor.key, evict.then) == ("default/train",) * 2 + ((),)


def test_without_asynchronous_preemption_all_are_told_once_the_victims_are_deleted() -> None:
    snapshot = full()
    attempt = attempted(snapshot)
    effects = effects_of(attempt, facts(snapshot, async_preemption=False))
    assert kinds(effects) == ["Observe", "Nominated", "Nominated", "Evict"]
    evict = effects[-1]
    assert isinstance(evict, Evict)
    assert kinds(evict.then) == [*["WritePod", "Announce"] * 2, "WriteGroup", "Return"]


def test_where_all_victims_are_on_their_way_nobody_is_evicted() -> None:
    before = full()
    attempt = attempted(before)
    leaving = snapshot_of(
        node("a", gpus=8), pod("low", gpus=8, priority=1, node="a", deleting=True), TRAIN
    )
    effects = effects_of(attempt, replace(facts(before), snapshot=leaving))
    assert "Evict" not in kinds(effects) and "Hold" not in kinds(effects)
    assert effects[-1] == Return(UNIT, Outcome.REJECTED, rejected_by=_return(effects).rejected_by)


def test_who_cannot_be_placed_is_told_with_its_group_and_comes_back_to_the_queue() -> None:
    snapshot = snapshot_of(node("a", gpus=4), TRAIN)
    effects = effects_of(attempted(snapshot), facts(snapshot))
    told = [each for each in effects if isinstance(each, WritePod | Announce | WriteGroup)]
    assert [type(each) for each in told] == [WritePod, Announce, WritePod, Announce, WriteGroup]
    assert _return(effects).outcome is Outcome.REJECTED


def test_a_pod_that_is_gone_meanwhile_is_left_out() -> None:
    snapshot = full()
    known = facts(snapshot)
    left: dict[Uid, PodRow] = {UNIT.pods[1]: known.rows[UNIT.pods[1]]}
    effects = effects_of(attempted(snapshot), replace(known, rows=left))
    assert {each.row.name for each in effects if isinstance(each, WritePod | Announce)} == {
        "train-1"
    }
    assert [each.uid for each in effects if isinstance(each, Nominated)] == [UNIT.pods[1]]


def test_the_next_try_is_at_the_first_end_of_what_protects_others() -> None:
    snapshot = snapshot_of(node("a", gpus=4), TRAIN)
    attempt = replace(attempted(snapshot), spared=Spared(3, 1_000))
    reminded = effects_of(attempt, facts(snapshot))[-2:]
    assert [type(each) for each in reminded] == [Log, Remind]
    log, remind = reminded
    assert isinstance(log, Log) and isinstance(remind, Remind)
    assert log.level < logging.DEBUG and "3 pods" in log.text
    assert (remind.unit, remind.at) == (UNIT, 1_000 * SECOND)


def test_the_same_attempt_gives_the_same_effects_and_changes_nothing() -> None:
    snapshot = full()
    attempt, known = attempted(snapshot), facts(snapshot)
    assert effects_of(attempt, known) == effects_of(attempt, known)


def _return(effects: tuple[Effect, ...]) -> Return:
    (found,) = (each for each in effects if isinstance(each, Return))
    return found

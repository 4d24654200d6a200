"""The transition table: each row by hand, and the living phases against the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import (
    DeleteOutcome,
    Event,
    Facts,
    MetricsHealth,
    MetricsReason,
    Missing,
    Present,
    Unreadable,
)
from reprieve.engine.idle.model import Aggregation, Phase, Policy
from reprieve.engine.idle.transitions import TRANSITIONS, Action, EventReason
from reprieve.units.ids import Uid
from reprieve.wording.documentation import transitions_markdown
from tests.engine import cases
from tests.engine.rows import (
    NOW,
    ago,
    demand,
    pod,
    policy_of,
    row_of,
    sample,
    with_settings,
    workload,
)
from tests.oracle import naive

POLICY = Policy()
OURS = Facts(root=Present(Uid("w-uid")))


def test_an_idle_workload_waits_for_its_grace_period() -> None:
    decided = step(workload(idle_since=ago(570)), OURS, POLICY, NOW)
    assert (decided.row, decided.status.phase, decided.action) == (15, Phase.IDLE, Action.EVALUATE)
    assert decided.requeue == 60 * SECOND
    assert decided.wake == Nanos(NOW + 30 * SECOND)  # the end of ten minutes
    assert decided.events == ()


def test_samples_of_gpus_that_a_pod_does_not_hold_do_not_make_it_look_idle() -> None:
    forged = [sample(0.0, gpu_id=f"x{index}") for index in range(9)]
    row = workload(phase=Phase.ACTIVE, samples={"w-0": [*forged, sample(32.0), *forged]}, gpus=1)
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.status.phase, decided.status.aggregated_utilization) == (Phase.ACTIVE, 32.0)


def test_samples_of_a_pod_without_gpus_do_not_make_its_workload_look_idle() -> None:
    row = workload(
        phase=Phase.ACTIVE,
        pods=[pod("w-0"), pod("w-1", gpus={})],
        samples={"w-0": [sample(32.0)], "w-1": [sample(0.0)]},
    )
    row = with_settings(row, aggregation=Aggregation.MIN)
    assert step(row, OURS, POLICY, NOW).status.phase is Phase.ACTIVE


def test_a_drop_below_the_threshold_starts_the_timer() -> None:
    row = workload(phase=Phase.ACTIVE, samples={"w-0": [sample(2.1), sample(0.3, gpu_id="1")]})
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.status.phase, decided.status.idle_since) == (Phase.IDLE, NOW)
    assert decided.status.aggregated_utilization == 1.2
    assert decided.events == (Event(EventReason.WORKLOAD_IDLE, 1.2),)
    assert decided.phase_updated


@pytest.mark.parametrize("phase", [Phase.ACTIVE, Phase.IDLE])
def test_without_fresh_samples_a_workload_keeps_its_phase(phase: Phase) -> None:
    row = workload(phase=phase, samples={"w-0": [sample(0.0, seen=100)]})
    decided = step(row, OURS, POLICY, NOW)
    assert decided.status.phase is phase
    assert decided.status.idle_since == row.status.idle_since
    assert decided.metrics is MetricsReason.STALE
    assert decided.events == ()


def test_after_two_silent_windows_the_timer_is_cleared_and_no_stretch_starts() -> None:
    row = workload(samples={"w-0": [sample(0.0, seen=121)]})
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.row, decided.status.phase, decided.status.idle_since) == (20, Phase.IDLE, None)
    again = step(replace(row, status=decided.status), OURS, POLICY, NOW)
    assert (again.row, again.status.idle_since) == (21, None)


def test_after_a_restart_the_timer_waits_for_a_fresh_poll() -> None:
    unseen = {"w-0": [sample(0.0, seen=None)]}
    row = workload(samples=unseen, last_metrics_update=ago(100))
    decided = step(row, OURS, POLICY, NOW)
    assert decided.status.idle_since == row.status.idle_since
    assert decided.action is Action.NONE
    long_ago = workload(samples=unseen, last_metrics_update=ago(200))
    assert step(long_ago, OURS, POLICY, NOW).status.idle_since is None


def test_one_busy_pod_is_enough_to_be_active_while_another_is_silent() -> None:
    pods = [pod("w-0"), pod("w-1")]
    row = workload(pods=pods, samples={"w-0": [sample(90.0)]})
    assert step(row, OURS, POLICY, NOW).status.phase is Phase.ACTIVE


def test_one_silent_pod_keeps_the_workload_from_becoming_idle() -> None:
    pods = [pod("w-0"), pod("w-1")]
    row = workload(phase=Phase.ACTIVE, pods=pods, samples={"w-0": [sample(0.0)]})
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.status.phase, decided.metrics) == (Phase.ACTIVE, MetricsReason.NO_SAMPLES)


def test_a_gpu_that_its_pod_no_longer_reports_stops_counting_after_two_windows() -> None:
    for seen, phase, count in ((61, Phase.ACTIVE, 2), (121, Phase.IDLE, 1)):
        samples = {"w-0": [sample(0.0), sample(90.0, seen=seen, gpu_id="1")]}
        decided = step(workload(phase=Phase.ACTIVE, samples=samples), OURS, POLICY, NOW)
        assert decided.status.phase is phase
        assert len(decided.status.tracked_pods[0].samples) == count


def test_finished_pods_do_not_run_and_their_gpus_still_count() -> None:
    pods = [pod("w-0"), pod("w-1", "Succeeded")]
    row = workload(pods=pods, samples={"w-0": [sample(0.0)], "w-1": [sample(80.0, seen=500)]})
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.status.phase, decided.gpus) == (Phase.IDLE, {"amd.com/gpu": 8})
    done = workload(pods=[pod("w-0", "Succeeded")], samples={"w-0": [sample(90.0)]})
    assert step(done, OURS, POLICY, NOW).status.phase is Phase.PENDING_OTHER


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        (MetricsHealth.OK, MetricsReason.NO_SAMPLES),
        (MetricsHealth.UNREACHABLE, MetricsReason.ENDPOINT_UNREACHABLE),
        (MetricsHealth.INVALID, MetricsReason.INVALID_SAMPLE),
        (MetricsHealth.OLD, MetricsReason.STALE),
    ],
)
def test_missing_metrics_are_named(health: MetricsHealth, reason: MetricsReason) -> None:
    row = workload(phase=Phase.PENDING_OTHER, samples={})
    decided = step(row, replace(OURS, metrics=health), POLICY, NOW)
    assert (decided.status.phase, decided.metrics) == (Phase.ACTIVE, reason)


def test_a_clock_that_went_backwards_breaks_nothing() -> None:
    row = workload(idle_since=ago(-900))
    decided = step(row, OURS, POLICY, NOW)
    assert (decided.status.phase, decided.status.idle_since) == (Phase.IDLE, NOW)
    ahead = workload(samples={"w-0": [sample(0.0, seen=-900)]})
    assert step(ahead, OURS, POLICY, NOW).metrics is MetricsReason.STALE
    record = workload(phase=Phase.PREEMPTED, finished_at=ago(-900))
    kept = step(record, Facts(Missing()), POLICY, NOW)
    assert (kept.row, kept.requeue) == (6, 24 * HOUR)


@pytest.mark.parametrize(
    ("facts", "row", "phase", "action"),
    [
        (OURS, 16, Phase.PREEMPTING, Action.DELETE_ROOT),
        (Facts(Unreadable()), 16, Phase.PREEMPTING, Action.DELETE_ROOT),
        (Facts(Missing()), 1, Phase.PREEMPTED, Action.NONE),
        (replace(OURS, delete=DeleteOutcome.ACCEPTED), 1, Phase.PREEMPTED, Action.NONE),
        (replace(OURS, delete=DeleteOutcome.NOT_FOUND), 1, Phase.PREEMPTED, Action.NONE),
        (replace(OURS, delete=DeleteOutcome.UID_CONFLICT), 1, Phase.PREEMPTED, Action.NONE),
        (replace(OURS, delete=DeleteOutcome.FORBIDDEN), 2, Phase.IDLE, Action.NONE),
        (replace(OURS, delete=DeleteOutcome.FAILED), 3, Phase.PREEMPTING, Action.NONE),
    ],
)
def test_a_victim_follows_the_deletion_of_its_root(
    facts: Facts, row: int, phase: Phase, action: Action
) -> None:
    victim = workload(phase=Phase.PREEMPTING, preempted_for="d", preemption_reason="r")
    decided = step(victim, facts, POLICY, NOW)
    assert (decided.row, decided.status.phase, decided.action) == (row, phase, action)
    assert decided.backed_off is (row == 3)
    assert decided.status.preempted_for == ("" if phase is Phase.IDLE else "d")


def test_a_preempted_root_whose_pods_come_back_is_tracked_anew() -> None:
    record = workload(
        phase=Phase.PREEMPTED,
        pods=[pod("w-1", "Pending", created=ago(10))],
        preempted_at=ago(60),
        finished_at=ago(60),
        preempted_for="d",
    )
    decided = step(record, OURS, POLICY, NOW)
    assert (decided.row, decided.status.phase) == (17, Phase.PENDING_OTHER)
    assert decided.status.finished_at is None
    for facts, created in ((Facts(Present(Uid("w-uid"), True)), 10), (OURS, 90)):
        old = replace(record, pods=(pod("w-1", created=ago(created)),))
        assert step(old, facts, POLICY, NOW).status.phase is Phase.PREEMPTED


def test_ttl_zero_keeps_the_record() -> None:
    record = with_settings(workload(phase=Phase.DELETED, finished_at=ago(10**7)), ttl=0)
    assert step(record, Facts(Missing()), POLICY, NOW).action is Action.NONE
    over = with_settings(record, ttl=30 * MINUTE)
    assert step(over, Facts(Missing()), POLICY, NOW).action is Action.DELETE_GPU_WORKLOAD


def test_a_suspended_root_short_of_quota_is_a_demand() -> None:
    row = workload(phase=Phase.PENDING_OTHER, pods=[])
    decided = step(row, replace(OURS, quota_short=True), POLICY, NOW)
    assert (decided.row, decided.status.phase, decided.action) == (
        10,
        Phase.PENDING_GPU,
        Action.EVALUATE,
    )


def test_a_lost_first_status_write_is_made_up_for() -> None:
    decided = step(workload(phase=Phase.NEW, pods=[]), OURS, POLICY, NOW)
    assert (decided.row, decided.status.phase) == (9, Phase.PENDING_OTHER)
    assert decided.events == (Event(EventReason.WORKLOAD_PENDING),)


def test_a_pod_that_is_being_deleted_is_no_demand() -> None:
    row = demand("w", pods=[pod("w-0", "Pending", demand=True, terminating=True)])
    assert step(row, OURS, POLICY, NOW).status.phase is Phase.PENDING_OTHER


@pytest.mark.parametrize("phase", list(Phase))
def test_some_row_holds_whatever_the_facts(phase: Phase) -> None:
    for root in (Present(Uid("w-uid")), Present(Uid("x")), Missing(), Unreadable()):
        for outcome in (None, *DeleteOutcome):
            for row in (workload(phase=phase, pods=[]), workload(phase=phase, pods=None)):
                step(row, Facts(root, delete=outcome), POLICY, NOW)


def test_the_documentation_has_every_row_once() -> None:
    numbers = [line.split("|")[1].strip() for line in transitions_markdown().splitlines()[2:]]
    assert numbers == [str(row.number) for row in TRANSITIONS]
    assert sorted(map(int, numbers)) == list(range(1, 22))


seen = st.sampled_from([*([cases.NOW - 5] * 6), cases.NOW - 61, cases.NOW - 121, None])
living = st.sampled_from(["", "PendingOther", "PendingGpu", "Active", "Idle"])


@st.composite
def pods(draw: st.DrawFn, index: int) -> dict[str, Any]:
    polls = draw(st.lists(seen, max_size=2))
    return {
        "name": f"w-{index}",
        "phase": draw(st.sampled_from(["Running"] * 8 + ["Pending", "Succeeded"])),
        "node": "node-0",
        "nodes": None,
        "gpus": {"amd.com/gpu": 1} if draw(st.integers(0, 5)) else {},
        "demand": draw(st.booleans()),
        "terminating": draw(st.integers(0, 7)) == 0,
        # Samples that were not seen by this process have no other trace than the pod's start.
        "seen": polls if None not in polls else [],
        "values": [draw(st.sampled_from([0.0, 1.5, 4.0, 4.99, 5.0, 60.0])) for _ in polls]
        if None not in polls
        else [],
        "heard": draw(st.sampled_from([None, cases.NOW - 10, cases.NOW - 500])),
    }


def test_living_phases_are_those_of_the_oracle() -> None:
    counted: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(
        st.lists(st.integers(0, 0), min_size=1, max_size=3).flatmap(
            lambda each: st.tuples(*(pods(index) for index in range(len(each))))
        ),
        living,
        st.sampled_from(list(Aggregation)),
    )
    def run(chosen: tuple[dict[str, Any], ...], before: str, how: Aggregation) -> None:
        each = {
            "key": "team-a/w",
            "root": "w-uid",
            "phase": before,
            "created": 0,
            "idle_since": cases.NOW - 300 if before == "Idle" else None,
            "grace": 600,
            "policy": "OnPressure",
            "gpus": {"amd.com/gpu": 1},
            "preempted_for": "",
            "preempted_at": None,
            "pods": list(chosen),
        }
        case = {"now": cases.NOW, "window": cases.WINDOW, "settling": 15}
        # A GPU that is forgotten while its pod reports another is the engine's own rule.
        for one in chosen:
            if any(s == cases.NOW - 121 for s in one["seen"]):
                one["seen"] = [cases.NOW - 121 for _ in one["seen"]]
        row = with_settings(row_of(each), aggregation=how)
        decided = step(row, OURS, policy_of(case), Nanos(cases.NOW * SECOND))
        expected = naive.phase(each, case, 5.0, how.value)
        assert (decided.status.phase.value, decided.status.idle_since is not None) == expected
        counted["cases"] += 1
        counted[expected[0]] += 1

    run()
    assert counted["Idle"] >= 0.1 * counted["cases"], counted
    assert counted["Active"] >= 0.1 * counted["cases"], counted
    assert counted["PendingGpu"] + counted["PendingOther"] >= 0.1 * counted["cases"], counted

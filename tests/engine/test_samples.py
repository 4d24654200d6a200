"""Merging polls, growing old, aggregating, and when a status write is due."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Aggregation, GpuSample, Phase, Policy, Status, TrackedPod
from reprieve.engine.idle.samples import (
    Reading,
    SampleState,
    aggregate,
    freshness,
    merge,
    track,
    write_due,
)
from reprieve.intake.gpuworkloads import remembered, status_from_api, status_to_api
from tests.engine.rows import NOW, ago, pod, sample, workload
from tests.oracle import naive

POLICY = Policy()


def status(*samples: GpuSample, updated: Nanos | None = None) -> Status:
    return Status(Phase.ACTIVE, (TrackedPod("a", samples),), last_metrics_update=updated)


def only(merged: Status) -> GpuSample:
    ((one,),) = [each.samples for each in merged.tracked_pods]
    return one


def test_a_poll_always_advances_seen_and_moves_small_steps_not_at_all() -> None:
    known = GpuSample("0", 10.0, ago(15), ago(15))
    merged = merge(status(known), {"a": [Reading("0", 10.005)]}, NOW, POLICY)
    assert only(merged.status) == replace(known, seen=NOW)
    assert not merged.changed


def test_a_value_that_moved_is_stored_with_two_decimals() -> None:
    known = GpuSample("0", 10.0, ago(15), ago(15))
    merged = merge(status(known), {"a": [Reading("0", 33.33333)]}, NOW, POLICY)
    assert only(merged.status) == GpuSample("0", 33.33, NOW, NOW)
    assert merged.status.last_metrics_update == NOW


def test_steady_samples_are_refreshed_once_a_minute() -> None:
    known = GpuSample("0", 10.0, ago(60), ago(15))
    merged = merge(status(known, updated=ago(60)), {"a": [Reading("0", 10.0)]}, NOW, POLICY)
    assert (merged.changed, only(merged.status).updated) == (True, NOW)


def test_of_two_samples_of_one_gpu_the_higher_counts_in_whatever_order() -> None:
    for values in ([97.0, 0.0], [0.0, 97.0]):
        readings = {"a": [Reading("0", value) for value in values]}
        assert only(merge(status(), readings, NOW, POLICY).status).utilization == 97.0


def test_pods_that_are_not_tracked_are_ignored() -> None:
    merged = merge(status(), {"b": [Reading("0", 10.0)]}, NOW, POLICY)
    assert (merged.changed, merged.status) == (False, status())


def test_partitions_survive_a_restart() -> None:
    readings = {"a": [Reading("0", 90.0, "0"), Reading("0", 2.0, "1")]}
    first = merge(status(), readings, NOW, POLICY).status
    restored = status_from_api(status_to_api(first))
    later = Nanos(NOW + 15 * SECOND)
    again = merge(restored, readings, later, POLICY).status
    assert [(s.partition, s.utilization, s.seen) for s in again.tracked_pods[0].samples] == [
        ("0", 90.0, later),
        ("1", 2.0, later),
    ]


def test_what_this_process_knows_survives_the_echo_of_its_own_write() -> None:
    first = merge(status(), {"a": [Reading("0", 90.0, "0")]}, NOW, POLICY).status
    assert remembered(status_from_api(status_to_api(first)), first) == first


def test_samples_of_pods_that_are_gone_are_dropped() -> None:
    tracked = [TrackedPod("b", (sample(),)), TrackedPod("gone", (sample(),))]
    assert track(tracked, [pod("b"), pod("a")]) == (TrackedPod("a"), tracked[0])


def test_freshness_lasts_three_intervals_but_at_least_a_minute() -> None:
    for interval, window in ((1, 60), (15, 60), (60, 180)):
        policy = Policy(polling_interval=interval * SECOND)
        for age, state in ((window, SampleState.FRESH), (window + 1, SampleState.STALE)):
            row = workload(samples={"w-0": [sample(seen=age)]})
            assert freshness(row, policy, NOW).state is state


def test_instants_alone_are_written_once_a_minute() -> None:
    written = status(sample(3.0, seen=30), updated=ago(59))
    newer = status(sample(3.0, seen=0), updated=NOW)
    assert not write_due(written, newer, NOW)
    assert write_due(written, newer, Nanos(NOW + SECOND))
    assert write_due(written, status(sample(4.0, seen=0), updated=NOW), NOW)
    assert write_due(written, replace(newer, phase=Phase.IDLE), NOW)
    assert not write_due(written, written, Nanos(NOW + 3600 * SECOND))


percent = st.floats(0, 100)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.lists(percent, max_size=3), max_size=4), st.sampled_from(list(Aggregation)))
def test_aggregation_is_that_of_the_oracle(values: list[list[float]], how: Aggregation) -> None:
    tracked = [
        TrackedPod(str(n), tuple(GpuSample(str(m), v, NOW) for m, v in enumerate(pod_values)))
        for n, pod_values in enumerate(values)
    ]
    exact, found = naive.aggregate(values, how.value), aggregate(tracked, how)
    assert (found is None) is (exact is None)
    if found is not None and exact is not None:
        assert abs(found - float(exact)) <= 0.005 + 1e-9
        assert round(found, 2) == found


def test_halves_are_rounded_as_sums_from_left_to_right_fall() -> None:
    # Their exact sum lies above the half, the sum of the reference below it.
    values = (8.44, 1.21, 7.54, 2.59)
    tracked = [TrackedPod("a", tuple(GpuSample(str(n), v, NOW) for n, v in enumerate(values)))]
    assert aggregate(tracked, Aggregation.MAX) == 4.94

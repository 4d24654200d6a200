"""Utilisation samples: reading one poll, growing old, and becoming one number per workload.

Merging: values are rounded to two decimals; a value that moved by more than 0.01 is stored. `seen`
advances with every poll that contains the GPU, `updated` (written as `lastUpdate`) with a change
and at least once a minute. Entries are keyed by GPU id and partition; partitions are not stored in
the status, so an entry read back after a restart is adopted by the first partition of its GPU. Of
several values of one GPU in one poll the highest counts.

Freshness: a sample is fresh while its last poll lies within the policy's window. A workload is
fresh when every running pod that requests GPUs has samples and all of them are fresh: silence is
not idleness. A GPU that its pod no longer reports stops counting after two windows.

Source: specification of the idle plane, section 10 and hazards H2, H5, H6 and H13.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import (
    Aggregation,
    GpuSample,
    PodRow,
    Policy,
    Status,
    TrackedPod,
    Workload,
)

__all__ = [
    "REFRESH",
    "Freshness",
    "ImpossibleReading",
    "Merged",
    "Reading",
    "SampleState",
    "aggregate",
    "freshness",
    "is_fresh",
    "merge",
    "track",
    "without_forgotten",
    "write_due",
]

REFRESH: Final = 60 * SECOND  # how often instants are written when nothing else changes
_MOVED: Final = 0.01  # percent


@dataclass(frozen=True, slots=True)
class Reading:
    """What one poll states about one GPU of a pod; percent 0-100, finite."""

    gpu_id: str
    utilization: float
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class ImpossibleReading:
    """A sample that cannot be used: not a number, infinite or outside 0-100; `old`: of long ago."""

    pod: str
    gpu_id: str
    not_a_number: bool = False
    old: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """The status after a poll; `changed`: anything but `seen` differs."""

    status: Status
    changed: bool


class SampleState(StrEnum):
    """What is known about how busy a workload is."""

    FRESH = "Fresh"
    STALE = "Stale"
    NO_SAMPLES = "NoSamples"


@dataclass(frozen=True, slots=True)
class Freshness:
    """`until`: the last instant at which a FRESH state holds without another poll.

    `since`: when the workload was last heard of, as far as known.
    """

    state: SampleState
    since: Nanos | None
    until: Nanos | None = None


def merge(
    status: Status,
    readings: Mapping[str, Sequence[Reading]],
    now: Nanos,
    policy: Policy,
    impossible: Sequence[ImpossibleReading] = (),
) -> Merged:
    """Apply one poll: `readings` per pod name of the workload's namespace, in the text's order.

    Pods that the status does not track are ignored. The caller leaves out workloads that are
    Preempted or Deleted.
    """
    if policy.literal.impossible_samples_refuse_all and _refused(status, impossible):
        return Merged(status, changed=False)
    changed = False
    pods = []
    for pod in status.tracked_pods:
        found = readings.get(pod.name)
        if found:
            samples, moved = _merged_samples(pod.samples, found, now, policy)
            pods.append(TrackedPod(pod.name, samples))
            changed = changed or moved
        else:
            pods.append(pod)
    updated = now if changed else status.last_metrics_update
    return Merged(
        replace(status, tracked_pods=tuple(pods), last_metrics_update=updated), changed=changed
    )


def track(tracked: Iterable[TrackedPod], pods: Iterable[PodRow]) -> tuple[TrackedPod, ...]:
    """Return one entry per owned pod, sorted by name; samples of pods still there are kept."""
    known = {pod.name: pod for pod in tracked}
    names = sorted({pod.name for pod in pods})
    return tuple(known.get(name) or TrackedPod(name) for name in names)


def aggregate(
    pods: Iterable[TrackedPod], how: Aggregation, asked: Mapping[str, int] | None = None
) -> float | None:
    """Return percent with two decimals: the mean inside each pod, then Min, Max or Avg.

    Pods without samples are left out; None when no pod has any. Sums are computed in the order of
    the entries, as the reference does: an exact sum would round some halves the other way.
    `asked`: how many GPUs pods request; of one with more samples only so many count, the highest.
    """
    means = [
        _sum(values) / len(values)
        for pod in pods
        if (values := _values(pod, None if asked is None else asked.get(pod.name, 0)))
    ]
    if not means:
        return None
    if how is Aggregation.MIN:
        return rounded(min(means))
    if how is Aggregation.MAX:
        return rounded(max(means))
    return rounded(_sum(means) / len(means))


def _values(pod: TrackedPod, most: int | None) -> list[float]:
    values = [sample.utilization for sample in pod.samples]
    return values if most is None or most >= len(values) else sorted(values, reverse=True)[:most]


def is_fresh(sample: GpuSample, policy: Policy, now: Nanos) -> bool:
    """Return whether the last poll that contained it lies within the window.

    A poll in the future (the clock jumped backwards) proves nothing; the next poll mends it.
    """
    return sample.seen is not None and 0 <= now - sample.seen <= policy.freshness


def fresh_only(pods: Iterable[TrackedPod], policy: Policy, now: Nanos) -> tuple[TrackedPod, ...]:
    """Return the pods with those of their samples that are fresh."""
    return tuple(
        replace(pod, samples=tuple(s for s in pod.samples if is_fresh(s, policy, now)))
        for pod in pods
    )


def without_forgotten(
    pods: Iterable[TrackedPod], policy: Policy, now: Nanos
) -> tuple[TrackedPod, ...]:
    """Return the pods without GPUs that they stopped reporting two windows ago.

    Entries of a pod of which nothing is fresh stay: they show what was known last.
    """
    return tuple(_without_forgotten(pod, policy, now) for pod in pods)


def freshness(workload: Workload, policy: Policy, now: Nanos) -> Freshness:
    """Return whether enough is known to call the workload idle."""
    tracked = {pod.name: pod.samples for pod in workload.status.tracked_pods}
    states: list[SampleState] = []
    heard: list[Nanos] = []
    oldest: list[Nanos] = []
    unknown = False
    for pod in workload.pods:
        if pod.phase != "Running" or pod.terminating or not pod.gpus:
            continue
        samples = tracked.get(pod.name, ())
        last = _last_heard(workload.status, pod, samples, now)
        unknown = unknown or last is None
        if last is not None:
            heard.append(last)
        if not samples:
            states.append(SampleState.NO_SAMPLES)
        elif all(is_fresh(sample, policy, now) for sample in samples):
            states.append(SampleState.FRESH)
            oldest.extend(sample.seen for sample in samples if sample.seen is not None)
        else:
            states.append(SampleState.STALE)
    since = None if unknown or not heard else min(heard)
    if not states or SampleState.NO_SAMPLES in states:
        return Freshness(SampleState.NO_SAMPLES, since)
    if SampleState.STALE in states:
        return Freshness(SampleState.STALE, since)
    return Freshness(SampleState.FRESH, since, Nanos(min(oldest) + policy.freshness))


def write_due(written: Status, status: Status, now: Nanos) -> bool:
    """Return whether `status` must be written over `written`.

    Anything but instants of samples is written at once; those alone at most once a minute.
    """
    if _without_instants(written) != _without_instants(status):
        return True
    if _instants(written) == _instants(status):
        return False
    last = written.last_metrics_update
    return last is None or last > now or now - last >= REFRESH


def rounded(value: float) -> float:
    """Return `value` with two decimals, halves away from zero."""
    if not value:
        return 0.0
    hundredths = abs(value) * 100
    whole = math.floor(hundredths)
    # Adding a half and cutting would round 0.49999999999999994 up.
    return math.copysign((whole + (hundredths - whole >= 0.5)) / 100, value)


def _sum(values: Iterable[float]) -> float:
    """Return the plain sum from left to right; `sum` compensates from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


def _merged_samples(
    samples: tuple[GpuSample, ...], readings: Sequence[Reading], now: Nanos, policy: Policy
) -> tuple[tuple[GpuSample, ...], bool]:
    entries = list(samples)
    changed = False
    latest: dict[tuple[str, str | None], float] = {}
    for reading in readings:
        collapse = policy.literal.partitions_collapse
        key = (reading.gpu_id, None if collapse else reading.partition)
        value = rounded(reading.utilization)
        # Of two samples of one GPU one is wrong: only the higher cannot make busy work look idle.
        latest[key] = value if collapse else max(value, latest.get(key, value))
    chosen: set[int] = set()
    for (gpu_id, partition), value in latest.items():
        index = _entry(entries, gpu_id, partition, chosen)
        if index is None:
            chosen.add(len(entries))
            entries.append(GpuSample(gpu_id, value, now, now, partition))
            changed = True
            continue
        chosen.add(index)
        known = entries[index]
        moved = abs(value - known.utilization) > _MOVED
        refreshed = not policy.literal.missing_metrics_are_zero and not (
            0 <= now - known.updated < REFRESH
        )
        changed = changed or moved or refreshed
        entries[index] = GpuSample(
            gpu_id,
            value if moved else known.utilization,
            now if moved or refreshed else known.updated,
            now,
            partition,
        )
    return tuple(entries), changed


def _entry(
    entries: Sequence[GpuSample], gpu_id: str, partition: str | None, chosen: set[int]
) -> int | None:
    adoptable = None
    for index, entry in enumerate(entries):
        if entry.gpu_id != gpu_id or index in chosen:
            continue
        if entry.partition == partition:
            return index
        if entry.partition is None and adoptable is None:
            adoptable = index
    return adoptable


def _refused(status: Status, impossible: Sequence[ImpossibleReading]) -> bool:
    known = {(pod.name, s.gpu_id) for pod in status.tracked_pods for s in pod.samples}
    names = {pod.name for pod in status.tracked_pods}
    return any(
        reading.pod in names
        and not (reading.not_a_number and (reading.pod, reading.gpu_id) in known)
        for reading in impossible
    )


def _without_forgotten(pod: TrackedPod, policy: Policy, now: Nanos) -> TrackedPod:
    if not any(is_fresh(sample, policy, now) for sample in pod.samples):
        return pod
    kept = tuple(
        sample
        for sample in pod.samples
        if now - (sample.updated if sample.seen is None else sample.seen) <= 2 * policy.freshness
    )
    return pod if len(kept) == len(pod.samples) else replace(pod, samples=kept)


def _last_heard(
    status: Status, pod: PodRow, samples: Sequence[GpuSample], now: Nanos
) -> Nanos | None:
    seen = [s.seen for s in samples if s.seen is not None and s.seen <= now]
    if seen:
        return max(seen)
    return status.last_metrics_update if samples else pod.started


def _without_instants(status: Status) -> Status:
    pods = tuple(
        replace(pod, samples=tuple(replace(s, updated=Nanos(0), seen=None) for s in pod.samples))
        for pod in status.tracked_pods
    )
    return replace(status, tracked_pods=pods, last_metrics_update=None)


def _instants(status: Status) -> tuple[object, ...]:
    return (
        status.last_metrics_update,
        *(s.updated for pod in status.tracked_pods for s in pod.samples),
    )

"""Polls all metric sources every interval and hands each poll on as one value.

The first poll comes at once (the reference waits for one interval): after a restart nothing may be
decided before fresh samples are there. A poll that lasts longer than the interval delays the next
one; polls never overlap and missed ones are not made up for. A poll waits for all its targets, each
with its own timeout; a target that fails leaves out its own pods and is named in the poll.

What is remembered from poll to poll is only which pods each target showed last, so that a pod
without a sample can be distinguished from a pod whose exporter does not answer; targets that are
absent are forgotten.

Where two exporters contradict each other about one GPU the poll names it; of all samples of a GPU
the engine uses the highest, so that no user can make other people's work look idle by publishing
samples of it. One exporter that has a sample for each process does not contradict itself. A pod
with more samples than the GPUs of any node is not believed at all. Source: specification of the
idle plane, section 10.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND
from kubeworld.units.instants import Nanos
from reprieve.intake.exposition import Defect, InvalidSample, Sample
from reprieve.planes.idle.measures.metric_sources import (
    MetricSource,
    Reading,
    ServiceAddresses,
    Target,
    targets_of,
)

__all__ = [
    "MAXIMUM_PER_POD",
    "Conflict",
    "PodKey",
    "Poll",
    "Scraper",
    "SourceHealth",
    "TargetReader",
]


#: No node has so many GPUs and partitions of GPUs; samples are stored in an object of 1.5 MiB.
MAXIMUM_PER_POD: Final = 512
#: Percent that two exporters' samples of one GPU may differ without contradicting each other.
_TOLERANCE: Final = 10.0


#: A sample, and the URL of the target that it came from.
_Spoken: TypeAlias = tuple[str, Sample]


class PodKey(NamedTuple):
    """Namespace and name of a pod, as the metric's labels give them."""

    namespace: str
    name: str


class Conflict(NamedTuple):
    """What the exporters with the least and the most of one GPU state, percent."""

    gpu_id: str
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How one configured source answered in one poll.

    `failures`: the readings without exposition, each with its class and detail.
    """

    source: MetricSource
    targets: int
    samples: int
    failures: tuple[Reading, ...] = ()

    @property
    def answered(self) -> bool:
        """Return whether at least one target gave a reading."""
        return len(self.failures) < self.targets


@dataclass(frozen=True, slots=True)
class Poll:
    """All that one poll saw.

    `at`, `monotonic`: the instant at which the poll began, so no sample is older than its poll
    states. `samples`: by pod, in the order of sources and texts (later ones win where two speak of
    the same GPU). `invalid`: samples that cannot be used, by pod. `conflicts`: a GPU of each pod of
    which samples contradict each other. `sharing`: of pods whose devices are reported for others,
    too, the pods of each such device, by its UUID. `unreachable`: pods that a target showed when it
    last answered, that it fails to show now, and that no other work shows. `unassigned`: number of
    samples of GPUs that no work holds. `duration` in nanoseconds.
    """

    at: Nanos
    monotonic: Nanos
    duration: int = 0
    samples: Mapping[PodKey, Sequence[Sample]] = field(default_factory=dict)
    invalid: Mapping[PodKey, Sequence[InvalidSample]] = field(default_factory=dict)
    conflicts: Mapping[PodKey, Conflict] = field(default_factory=dict)
    sharing: Mapping[PodKey, Mapping[str, frozenset[PodKey]]] = field(default_factory=dict)
    unreachable: frozenset[PodKey] = frozenset()
    sources: tuple[SourceHealth, ...] = ()
    unassigned: int = 0
    readings: tuple[Reading, ...] = field(default=(), repr=False)

    @property
    def failing(self) -> bool:
        """Return whether any target gave no reading."""
        return any(health.failures for health in self.sources)


class TargetReader(Protocol):
    """What fetches; `metric_sources.MetricReader` in the product."""

    async def read(self, target: Target) -> Reading:
        """Return the reading of one target; never raises for what the target does."""
        ...


class Scraper:
    """Polls `sources` every `interval` nanoseconds and calls `on_poll` with each result."""

    def __init__(
        self,
        sources: Sequence[MetricSource],
        services: ServiceAddresses,
        reader: TargetReader,
        clock: Clock,
        interval: int,
        on_poll: Callable[[Poll], None],
        freshness: int | None = None,
    ) -> None:
        """`freshness`: how far from now a sample's own time may be; None: it is not read."""
        self._freshness = freshness
        self._sources = sources
        self._services = services
        self._reader = reader
        self._clock = clock
        self._interval = interval
        self._on_poll = on_poll
        # By URL: the pods that all and only the present targets showed when they last answered.
        self._shown: dict[str, frozenset[PodKey]] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        due = self._clock.monotonic()
        while True:
            self._on_poll(await self.poll())
            due = Nanos(max(due + self._interval, self._clock.monotonic()))
            await self._clock.sleep(due - self._clock.monotonic())

    async def poll(self) -> Poll:
        """Read every target once."""
        at, monotonic = self._clock.wall(), self._clock.monotonic()
        targets = [
            target for source in self._sources for target in targets_of(source, self._services)
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._reader.read(target)) for target in targets]
        readings = tuple(task.result() for task in tasks)
        duration = self._clock.monotonic() - monotonic
        return self._gather(at, monotonic, duration, readings)

    def _gather(
        self, at: Nanos, monotonic: Nanos, duration: int, readings: tuple[Reading, ...]
    ) -> Poll:
        samples: dict[PodKey, list[Sample]] = {}
        spoken: dict[PodKey, list[_Spoken]] = {}
        invalid: dict[PodKey, list[InvalidSample]] = {}
        failed: list[str] = []
        shown: dict[str, frozenset[PodKey]] = {}
        unassigned = 0
        for reading in readings:
            url = reading.target.shown
            if reading.exposition is None:
                failed.append(url)
                shown[url] = self._shown.get(url, frozenset())
                continue
            pods = set()
            for sample in reading.exposition.samples:
                pod = PodKey(sample.namespace, sample.pod)
                pods.add(pod)
                if self._is_old(sample, at):
                    old = InvalidSample(*pod, sample.gpu_id, Defect.OLD)
                    invalid.setdefault(pod, []).append(old)
                    continue
                samples.setdefault(pod, []).append(sample)
                spoken.setdefault(pod, []).append((url, sample))
            for bad in reading.exposition.invalid:
                invalid.setdefault(PodKey(bad.namespace, bad.pod), []).append(bad)
            shown[url] = frozenset(pods)
            unassigned += reading.exposition.unassigned
        self._shown = shown
        for pod in [pod for pod, found in samples.items() if len(found) > MAXIMUM_PER_POD]:
            first = samples.pop(pod)[0]
            del spoken[pod]
            bad = InvalidSample(pod.namespace, pod.name, first.gpu_id, Defect.TOO_MANY)
            invalid.setdefault(pod, []).append(bad)
        lost = {pod for url in failed for pod in shown[url]}
        sharing = _sharing(samples)
        for pod in sharing:
            samples[pod] = _of_whole_devices(samples, pod, sharing[pod])
        return Poll(
            at=at,
            monotonic=monotonic,
            duration=duration,
            samples=samples,
            invalid=invalid,
            conflicts=_conflicts(spoken),
            sharing=sharing,
            unreachable=frozenset(lost - samples.keys() - invalid.keys()),
            sources=_health(self._sources, readings),
            unassigned=unassigned,
            readings=readings,
        )

    def _is_old(self, sample: Sample, at: Nanos) -> bool:
        """Return whether the own time of a sample is too far from now, either way.

        The last value of an exporter whose clock was ahead would count until that time comes.
        """
        if self._freshness is None or sample.at is None:
            return False
        return abs(at - sample.at * MILLISECOND) > self._freshness


def _conflicts(spoken: Mapping[PodKey, Sequence[_Spoken]]) -> dict[PodKey, Conflict]:
    """Return of which pods two exporters state different values.

    One exporter may have several samples of a GPU, one for each process or container of the pod:
    their highest is what it states.
    """
    conflicts: dict[PodKey, Conflict] = {}
    for pod, found in spoken.items():
        if len(found) < 2:
            continue
        highest: dict[tuple[str, str], dict[tuple[str, str, str], float]] = {}
        for url, sample in found:
            said = highest.setdefault((sample.gpu_id, sample.partition), {})
            whose = (url, *sample.scraped)
            said[whose] = max(sample.utilization, said.get(whose, 0.0))
        for (gpu_id, _), each in highest.items():
            if max(each.values()) - min(each.values()) > _TOLERANCE:
                conflicts[pod] = Conflict(gpu_id, min(each.values()), max(each.values()))
                break
    return conflicts


def _sharing(
    samples: Mapping[PodKey, Sequence[Sample]],
) -> dict[PodKey, dict[str, frozenset[PodKey]]]:
    """Return which devices are reported for several pods; parts of one are devices of their own."""
    pods: dict[tuple[str, str], set[PodKey]] = {}
    for pod, found in samples.items():
        for sample in found:
            if sample.uuid:
                pods.setdefault((sample.uuid, sample.partition), set()).add(pod)
    sharing: dict[PodKey, dict[str, frozenset[PodKey]]] = {}
    for device, several in pods.items():
        for pod in several if len(several) > 1 else ():
            sharing.setdefault(pod, {})[_device_text(*device)] = frozenset(several)
    return sharing


def _device_text(uuid: str, partition: str) -> str:
    return f"{uuid}/{partition}" if partition else uuid


def _of_whole_devices(
    samples: Mapping[PodKey, Sequence[Sample]], pod: PodKey, shared: Mapping[str, frozenset[PodKey]]
) -> list[Sample]:
    """Return a pod's samples with the use of each device by all pods that it is reported for.

    An exporter may know the processes of one of them only, or state different parts of the use.
    """
    highest: dict[str, float] = {}
    for each in frozenset().union(*shared.values()):
        for sample in samples[each]:
            device = _device_text(sample.uuid, sample.partition)
            highest[device] = max(sample.utilization, highest.get(device, 0.0))
    found = []
    for sample in samples[pod]:
        device = _device_text(sample.uuid, sample.partition)
        if device in shared and sample.utilization < highest[device]:
            sample = replace(sample, utilization=highest[device])
        found.append(sample)
    return found


def _health(
    sources: Sequence[MetricSource], readings: Sequence[Reading]
) -> tuple[SourceHealth, ...]:
    targets: Counter[MetricSource] = Counter()
    counts: Counter[MetricSource] = Counter()
    failures: dict[MetricSource, list[Reading]] = {}
    for reading in readings:
        source = reading.target.source
        targets[source] += 1
        if reading.exposition is None:
            failures.setdefault(source, []).append(reading)
        else:
            counts[source] += len(reading.exposition.samples)
    return tuple(
        SourceHealth(source, targets[source], counts[source], tuple(failures.get(source, ())))
        for source in dict.fromkeys(sources)
    )

"""What a replay is judged by.

All times count from the first arrival; *the window* is from there to the last one, while there is
demand; jobs continue until all have finished.

* admitted: jobs that got devices within the window; `admitted_h` are the device-hours of all their
  work, however much of it is done by then
* done: device-hours within the window that were of use, that is held, used, and not undone later
  than that; `useful share` is their share of the capacity
* wait: of one job all the time in which it held no devices, before its first start and after each
  displacement; `first wait` is the former alone
* completion: from the arrival until the last work is done; idle time after that does not count
* lost: device-hours of progress that were undone, and those held without doing anything (restarts,
  last saves); over the whole replay
* stranded: device-hours within the window that were free while a job waited that requested no more
  than was free: what fragmentation costs; with quotas, too, a job that has its quota; 0 where
  nothing is placed on nodes
* preemptions: displacements; `most` of one job, `repeated` are jobs with more than one
* notified: displacements before which the job was notified, and how many of them ended saved;
  spared: device-hours of progress that would have been undone at the moment of these notices
* urgent wait: the wait of the jobs of the highest priority
* unused: device-hours that jobs held without using them, over the whole replay; reclaimed: those
  for which jobs that were preempted for being idle would have stayed so, had they not been evicted
* served: jobs for which idle ones were preempted; reclaimed_by: those that got devices at the
moment at which idle work left some, for whichever job, and how long half of them had waited at
most by then
* asked: jobs that request a domain; together: the share of their starts with all pods in one domain
  of the level that they request; their wait is that of these jobs
* finish ratio: a job's completion time by the time that its work needs; of each tenant the mean,
  `largest` of them, and Jain's index over them, 1 where all are alike

Percentiles are those of the nearest rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log10
from typing import Final

from kubeworld.units.durations import HOUR, SECOND
from reprieve.simulation.idleness import work_of
from reprieve.simulation.replaying.lives import Life, Replay

__all__ = ["GRID_S", "SIZES", "Measures", "SizeWaits", "measured", "percentile"]

#: Upper ends of size classes, in devices; the last one has none.
SIZES: Final[tuple[tuple[str, int | None], ...]] = (
    ("1", 1),
    ("2-4", 4),
    ("5-8", 8),
    ("9+", None),
)
#: Waits in seconds at which the distribution is kept: 1 s to 10^7 s, 24 for each power of ten.
GRID_S: Final[tuple[float, ...]] = tuple(10 ** (step / 24) for step in range(7 * 24 + 1))
_BINS: Final = 240
_MOST_BARS: Final = 6


@dataclass(frozen=True, slots=True)
class SizeWaits:
    """Waits of the jobs of one size class, in seconds."""

    size: str
    jobs: int
    p50_s: float
    p95_s: float


@dataclass(frozen=True, slots=True)
class Measures:
    """See above. `wait_shares`: of `GRID_S`, the share of jobs that waited no longer.

    `use` is the mean of the devices in use in equal parts of the replay, `often` how many jobs were
    preempted so often: never, once and so on, the last one being that often or more.
    """

    jobs: int
    admitted: int
    makespan_s: float
    done_h: float
    useful_share: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    first_wait_p50_s: float
    first_wait_p95_s: float
    completion_mean_s: float
    preemptions: int
    most: int
    repeated: int
    lost_h: float
    undone_h: float
    idle_h: float
    finish_ratio_largest: float
    jain: float
    by_size: tuple[SizeWaits, ...]
    wait_shares: tuple[float, ...]
    use: tuple[float, ...]
    often: tuple[int, ...]
    stranded_h: float = 0.0
    unplaced_h: float = 0.0
    for_nodes: int = 0
    returned: int = 0
    unready: int = 0
    unused_h: float = 0.0
    reclaimed_h: float = 0.0
    for_idle: int = 0
    idle_ended: int = 0
    idle_undone_h: float = 0.0
    served: int = 0
    reclaimed_by: int = 0
    reclaimed_by_wait_p50_s: float = 0.0
    admitted_h: float = 0.0
    notified: int = 0
    notified_saved: int = 0
    spared_h: float = 0.0
    urgent_wait_p95_s: float = 0.0
    asked: int = 0
    together: float = 0.0
    asked_wait_p95_s: float = 0.0


def measured(replay: Replay, capacity: int) -> Measures:
    """Return the measures of a replay in which all jobs have finished."""
    asked = [life for life in replay.lives if life.job.required or life.job.preferred]
    starts = sum(life.displaced + 1 for life in asked)
    return replace(
        _of_all_jobs(replay, capacity),
        asked=len(asked),
        together=sum(life.together for life in asked) / starts if starts else 0.0,
        asked_wait_p95_s=percentile(sorted(life.waited for life in asked), 95) / SECOND,
    )


def _of_all_jobs(replay: Replay, capacity: int) -> Measures:
    lives = replay.lives
    within = max(life.job.arrival for life in lives)
    waits = sorted(life.waited for life in lives)
    first = sorted((life.started or 0) - life.job.arrival for life in lives)
    undone, idle = sum(life.lost for life in lives), sum(life.idle for life in lives)
    ratios = _ratios(lives)
    displaced = [life.displaced for life in lives]
    reclaimed_by = sorted(life.reclaim_wait for life in lives if life.reclaim_wait is not None)
    admitted = [life.job for life in lives if life.started is not None and life.started <= within]
    return Measures(
        jobs=len(lives),
        admitted=len(admitted),
        makespan_s=replay.ended / SECOND,
        done_h=replay.done_at_end / HOUR,
        useful_share=replay.done_at_end / (capacity * within) if within else 0.0,
        wait_p50_s=percentile(waits, 50) / SECOND,
        wait_p95_s=percentile(waits, 95) / SECOND,
        wait_p99_s=percentile(waits, 99) / SECOND,
        first_wait_p50_s=percentile(first, 50) / SECOND,
        first_wait_p95_s=percentile(first, 95) / SECOND,
        completion_mean_s=sum(_completion(life) for life in lives) / len(lives) / SECOND,
        preemptions=sum(displaced),
        most=max(displaced),
        repeated=sum(count > 1 for count in displaced),
        lost_h=(undone + idle) / HOUR,
        undone_h=undone / HOUR,
        idle_h=idle / HOUR,
        finish_ratio_largest=max(ratios),
        jain=sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios)),
        by_size=_by_size(lives),
        wait_shares=_shares(waits),
        use=_use(replay),
        often=tuple(
            sum(count == times for count in displaced)
            if times < _MOST_BARS
            else sum(count >= times for count in displaced)
            for times in range(_MOST_BARS + 1)
        ),
        stranded_h=replay.stranded_at_end / HOUR,
        unplaced_h=replay.unplaced_at_end / HOUR,
        for_nodes=replay.for_nodes,
        returned=replay.returned,
        unready=replay.unready,
        unused_h=sum(life.unused for life in lives) / HOUR,
        reclaimed_h=sum(life.reclaimed for life in lives) / HOUR,
        for_idle=replay.for_idle,
        idle_ended=sum(life.ends for life in lives),
        idle_undone_h=sum(life.undone_idle for life in lives) / HOUR,
        served=sum(life.served for life in lives),
        reclaimed_by=len(reclaimed_by),
        reclaimed_by_wait_p50_s=percentile(reclaimed_by, 50) / SECOND,
        notified=sum(life.notified for life in lives),
        notified_saved=sum(life.saved for life in lives),
        spared_h=sum(life.spared for life in lives) / HOUR,
        urgent_wait_p95_s=percentile(_urgent_waits(lives), 95) / SECOND,
        admitted_h=sum(work_of(job) * job.devices for job in admitted) / HOUR,
    )


def _urgent_waits(lives: Sequence[Life]) -> list[int]:
    highest = max(life.job.priority or 0 for life in lives)
    return sorted(life.waited for life in lives if (life.job.priority or 0) == highest)


def percentile(ordered: Sequence[int], share: int) -> int:
    """Return the value of the nearest rank, 0 of none."""
    return ordered[max(0, ceil(len(ordered) * share / 100) - 1)] if ordered else 0


def _completion(life: Life) -> int:
    assert life.worked is not None, "a replay ends when all jobs have finished"
    return life.worked - life.job.arrival


def _ratios(lives: Sequence[Life]) -> list[float]:
    of: dict[str, list[float]] = {}
    for life in lives:
        needed = work_of(life.job)
        if needed:  # who never uses its devices waits for nothing
            of.setdefault(life.job.tenant, []).append(_completion(life) / needed)
    return [sum(ratios) / len(ratios) for _, ratios in sorted(of.items())] or [1.0]


def _by_size(lives: Sequence[Life]) -> tuple[SizeWaits, ...]:
    found, above = [], 0
    for name, most in SIZES:
        waits = sorted(
            life.waited
            for life in lives
            if life.job.devices > above and (most is None or life.job.devices <= most)
        )
        above = most or 0
        if waits:
            half, most_of_them = percentile(waits, 50) / SECOND, percentile(waits, 95) / SECOND
            found.append(SizeWaits(name, len(waits), half, most_of_them))
    return tuple(found)


def _shares(waits: Sequence[int]) -> tuple[float, ...]:
    counts = [0] * (len(GRID_S) + 1)
    for wait in waits:
        step = 0 if wait <= SECOND else ceil(round(log10(wait / SECOND) * 24, 9))
        counts[min(step, len(GRID_S))] += 1
    found, below = [], 0
    for count in counts[:-1]:
        below += count
        found.append(below / len(waits))
    return tuple(found)


def _use(replay: Replay) -> tuple[float, ...]:
    """Return the mean of the devices in use in `_BINS` equal parts of the replay."""
    end = max(replay.ended, 1)
    sums = [0.0] * _BINS
    for (since, devices), (until, _) in pairwise([*replay.use, (end, 0)]):
        if not devices:
            continue
        first, last = since * _BINS // end, min(_BINS - 1, until * _BINS // end)
        for place in range(first, last + 1):
            start, stop = place * end / _BINS, (place + 1) * end / _BINS
            sums[place] += devices * max(0.0, min(until, stop) - max(since, start))
    return tuple(total / (end / _BINS) for total in sums)

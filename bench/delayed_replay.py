"""A replay in which the steps take time that take some on a cluster, and how the two compare.

A replay takes no time for anything but work. On a cluster each step takes some (`Step`), so that
events change their places, and from then on the two go other ways: that says nothing about whether
the replay decides rightly. So the cluster's own figures stand beside two things: the replay as a
study makes it, which is what the bound of 2 % is for, and many replays of the same jobs in which
each step takes as long as one that was noted on the cluster, drawn by seed. Where the cluster's
figure lies in the middle of those, time and chance explain what is off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from statistics import median
from typing import Final

from bench.cluster_study import Played, agreement
from kubeworld.units.durations import SECOND
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Replay
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Displaced, Run, Saved, WorkModel
from reprieve.simulation.trace import Job

__all__ = ["Delayed", "InRealTime", "Step", "beside_replays"]

_BOUND: Final = 0.02


class Step(StrEnum):
    """What takes time on a cluster and none in a replay."""

    QUEUE = "queue"  # a Job was created, until its Workload is there
    START = "start"  # it has quota, until its container runs
    RELEASE = "release"  # its container ended, until its Workload has finished
    STOP = "stop"  # it is told to end, until its container is
    LEAVE = "leave"  # it is told to end, until its quota is free


@dataclass
class InRealTime:
    """What came of the jobs; `took_s` are the seconds of each step as often as it was taken."""

    played: Played = field(default_factory=Played)
    lost_device_s: float = 0.0
    took_s: dict[Step, list[float]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Delayed:
    """A work model on a cluster where steps take as long as one of those noted, by seed."""

    model: WorkModel
    took_s: Mapping[Step, Sequence[float]]
    seed: int

    @property
    def evict(self) -> int:
        """Return what the model says."""
        return self.model.evict

    def arrivals(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs as they come to be queued."""
        moved = [
            replace(job, arrival=job.arrival + self._drawn(job, 0, Step.QUEUE)) for job in jobs
        ]
        return sorted(moved, key=lambda job: job.arrival)

    def finishes(self, job: Job, run: Run) -> int:
        """Return when its quota is free if it is left alone."""
        ended = self.model.finishes(job, self._running(job, run))
        return ended + self._drawn(job, run.started, Step.RELEASE)

    def idle(self, job: Job, run: Run, now: int) -> int:
        """Return for how long its container has run for nothing."""
        running = self._running(job, run)
        return self.model.idle(job, running, max(now, running.started))

    def displaced(self, job: Job, run: Run, now: int, notice: int = 0) -> Displaced:
        """Return what displacing the run now leaves."""
        running = self._running(job, run)
        ended = self.model.finishes(job, running)
        stopped = now + self._drawn(job, run.started, Step.STOP)
        at = max(min(stopped, ended), running.started)
        found = self.model.displaced(job, running, at, notice)
        leaves = max(stopped, now + self._drawn(job, run.started, Step.LEAVE))
        return replace(found, leaves=leaves)

    def save_time(self, job: Job) -> int:
        """Return how long a save of the job takes."""
        return self.model.save_time(job)

    def saved(self, job: Job, run: Run, now: int) -> Saved:
        """Return what the run can say of its saves."""
        running = self._running(job, run)
        return self.model.saved(job, running, max(now, running.started))

    def _running(self, job: Job, run: Run) -> Run:
        return replace(run, started=run.started + self._drawn(job, run.started, Step.START))

    def _drawn(self, job: Job, at: int, step: Step) -> int:
        noted = self.took_s.get(step)
        if not noted:
            return 0
        drawn = Random(f"{self.seed}/{job.id}/{at}/{step}").choice(noted)
        return round(drawn * SECOND)


def beside_replays(
    jobs: Sequence[Job],
    model: WorkModel,
    real: InRealTime,
    tenants: Sequence[str],
    devices: int,
    draws: int = 200,
) -> tuple[bool, dict[str, int | float]]:
    """Return whether makespan and lost device time are those of the replay, and the figures."""

    def replayed(jobs: Sequence[Job], model: WorkModel) -> Replay:
        return replay(jobs, PolicySpec("classical"), model, tenants, (1, devices))

    plain = replayed(jobs, model)
    found = agreement(Played.of(plain), real.played)
    makespan_s, lost_s = real.played.makespan_s, real.lost_device_s
    lost_off = _lost_device_s(plain) / lost_s - 1 if lost_s else 0.0
    figures: dict[str, int | float] = {
        "jobs": len(jobs),
        "admissions": len(real.played.admitted),
        "preempted": len(real.played.victims),
        "preempted_in_replay": sum(life.displaced for life in plain.lives),
        "admissions_same_percent": round(100 * found.admissions, 1),
        "victims_same_percent": round(100 * found.victims, 1),
        "makespan_s": round(makespan_s, 1),
        "makespan_off_percent": round(100 * found.makespan_off, 2),
        "lost_device_h": round(lost_s / 3_600, 3),
        "lost_off_percent": round(100 * lost_off, 2),
        "mean_run_s": round(sum(job.duration for job in jobs) / len(jobs) / SECOND, 1),
    }
    for step, took in real.took_s.items():
        figures[f"{step}_median_s"] = round(median(took), 3)
        figures[f"{step}_most_s"] = round(max(took), 3)
    models = [Delayed(model, real.took_s, seed) for seed in range(draws)]
    delayed = [replayed(each.arrivals(jobs), each) for each in models]
    for name, at, values in (
        ("makespan", makespan_s, sorted(each.ended / SECOND for each in delayed)),
        ("lost", lost_s, sorted(map(_lost_device_s, delayed))),
    ):
        middle = median(values)
        figures[f"delayed_{name}_off_percent"] = round(100 * (middle / at - 1) if at else 0.0, 2)
        figures[f"{name}_rank_percent"] = round(100 * bisect_right(values, at) / draws, 1)
        least, most = values[draws * 25 // 1_000], values[-1 - draws * 25 // 1_000]
        figures[f"delayed_{name}_spread_percent"] = round(100 * (most - least) / middle, 1)
    return abs(found.makespan_off) <= _BOUND and abs(lost_off) <= _BOUND, figures


def _lost_device_s(replayed: Replay) -> float:
    """Return device seconds that were undone, or spent on restarts."""
    return sum(life.lost + life.idle for life in replayed.lives) / SECOND

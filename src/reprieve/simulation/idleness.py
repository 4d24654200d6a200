"""Jobs that hold devices without using them: when, for how long, and what of it is work.

Of a job's progress, which runs from 0 to its duration, one stretch may be idle: it holds its
devices and uses none of them. `Job.idle_from` is where it begins; it continues to the job's end, or
for `idle_for`, after which the job uses its devices again. A restart that precedes it is no
idleness. Where a trace does not state it, a study may draw it (`Idleness`): which share of the jobs
is idle, between which shares of their durations, and how many of them are used again.

Progress counts on while a job is idle, as its time on the devices does: displaced by others it
comes back as it was at its last save, and is idle for the rest. Only what was busy can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from reprieve.simulation.replaying.work import Run, WorkModel
from reprieve.simulation.trace import Job

__all__ = [
    "NEVER_IDLE",
    "Idleness",
    "busy_between",
    "idle_instants",
    "idle_stretch",
    "unused",
    "work_done_at",
    "work_of",
]


@dataclass(frozen=True, slots=True)
class Idleness:
    """What is drawn for jobs of a trace that does not state when they are idle.

    `share` of them become idle, at a moment between the shares `after` of its duration. Of these
    `again` are used again, after an even part of what is left. `utilization` is what the devices of
    an idle job show, in percent.
    """

    share: float = 0.0
    after: tuple[float, float] = (0.0, 1.0)
    again: float = 0.0
    utilization: float = 0.0

    def drawn(self, job: Job, random: Random) -> Job:
        """Return the job with its idleness; as much is drawn for each, so that none shifts others.

        What the trace states of a job stays.
        """
        idle, at, back, part = (random.random() for _ in range(4))
        if job.idle_from is not None or idle >= self.share:
            return job
        low, high = self.after
        begins = round(job.duration * (low + (high - low) * at))
        left = job.duration - begins
        if left <= 0:
            return job
        lasts = max(1, round(left * part)) if back < self.again else None
        return replace(job, idle_from=begins, idle_for=lasts)


#: Nothing is drawn.
NEVER_IDLE: Final = Idleness()


def idle_stretch(job: Job) -> tuple[int, int] | None:
    """Return between which two points of its progress a job is idle, None if it never is."""
    if job.idle_from is None or job.idle_from >= job.duration:
        return None
    if job.idle_for is None:
        return job.idle_from, job.duration
    return job.idle_from, min(job.duration, job.idle_from + job.idle_for)


def work_of(job: Job) -> int:
    """Return the progress with which its last work is done."""
    stretch = idle_stretch(job)
    return stretch[0] if stretch is not None and stretch[1] == job.duration else job.duration


def busy_between(job: Job, low: int, high: int) -> int:
    """Return how much of this progress is work."""
    stretch = idle_stretch(job)
    if stretch is None:
        return high - low
    return high - low - max(0, min(high, stretch[1]) - max(low, stretch[0]))


def idle_instants(model: WorkModel, job: Job, run: Run) -> tuple[int, int] | None:
    """Return when a run that is left alone begins to be idle, and when it ceases to be."""
    stretch = idle_stretch(job)
    if stretch is None or run.kept >= stretch[1]:
        return None
    return _at(model, job, run, max(run.kept, stretch[0])), _at(model, job, run, stretch[1])


def unused(model: WorkModel, job: Job, run: Run, until: int) -> int:
    """Return for how long a run has held its devices until then without using them."""
    found = idle_instants(model, job, run)
    return 0 if found is None else max(0, min(until, found[1]) - found[0])


def work_done_at(model: WorkModel, job: Job, run: Run, until: int) -> int | None:
    """Return when a run did the job's last work, None if it had not until then, or was before."""
    work = work_of(job)
    if work < run.kept or (work == run.kept and work):
        return None
    at = _at(model, job, run, work)
    return at if at <= until else None


def _at(model: WorkModel, job: Job, run: Run, progress: int) -> int:
    """Return when a run that is left alone is as far as that."""
    return model.finishes(job, run) - (job.duration - progress)

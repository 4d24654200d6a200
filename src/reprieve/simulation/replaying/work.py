"""What work has done when it is displaced, and what it has to do again: a model to be replaced.

Progress is device time. A job saves its progress every `checkpoint`, while it runs; a save that
began is good once `save` is over. Displaced, it falls back to its last good save, or to what it had
when it started, and what it did since is lost, by the rule that production counts with
(`engine.lost_work`). If `save` fits into the grace period, it saves once more before it ends: it
holds its devices for that time, does nothing else, and loses no progress. With notice it saves
likewise if `save` fits into that; if not, it works on until the deadline. Whatever it saves, it
holds its devices for `evict` after its eviction began, as its pods need time to end. When it starts
again it first pays the `restart`, in which nothing is done. A trace's durations are assumed to
contain the job's own saves.

Another model has the methods of `WorkModel`. Times are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubeworld.units.instants import Nanos
from reprieve.engine.lost_work import lost_device_seconds
from reprieve.engine.notice.expected import NO_TERMS, Terms
from reprieve.simulation.trace import Job

__all__ = ["Checkpointing", "Displaced", "Run", "Saved", "WorkModel"]


@dataclass(frozen=True, slots=True)
class Run:
    """One time that a job holds its devices: since when, and how far it was then.

    `kept` is progress on each device; `again` states that it was displaced before.
    """

    started: int
    kept: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Displaced:
    """What becomes of a run that is displaced.

    It leaves its devices at `leaves` with progress `kept`. `lost` is progress that is undone,
    `idle` what it held its devices for without doing anything: restart and last save. All are of
    each device.
    """

    leaves: int
    kept: int
    lost: int
    idle: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Up to when a run is saved, and when its next save will be good; None: there is none.

    `terms`: of a notice that it would be given.
    """

    at: Nanos | None = None
    next: Nanos | None = None
    terms: Terms = NO_TERMS


class WorkModel(Protocol):
    """How work continues, and what displacing it costs."""

    @property
    def evict(self) -> int:
        """Return for how long work that is displaced holds its devices at least."""
        ...

    def finishes(self, job: Job, run: Run) -> int:
        """Return the instant at which the run finishes the job if it is left alone."""
        ...

    def idle(self, job: Job, run: Run, now: int) -> int:
        """Return for how long the run has held its devices for nothing so far."""
        ...

    def displaced(self, job: Job, run: Run, now: int, notice: int = 0) -> Displaced:
        """Return what displacing the run now leaves; `notice`: its notice."""
        ...

    def save_time(self, job: Job) -> int:
        """Return how long a save of the job lasts, 0 where it saves nothing on notice."""
        ...

    def saved(self, job: Job, run: Run, now: int) -> Saved:
        """Return what the run can state of its saves."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """The model above; what a job states of itself has precedence. `checkpoint` 0 never saves."""

    checkpoint: int = 0
    save: int = 0
    restart: int = 0
    grace: int = 0
    evict: int = 0

    def finishes(self, job: Job, run: Run) -> int:
        """Return the instant at which the run finishes the job if it is left alone."""
        return run.started + self._restart(job, run) + job.duration - run.kept

    def idle(self, job: Job, run: Run, now: int) -> int:
        """Return how much of the run was its restart so far."""
        return min(now - run.started, self._restart(job, run))

    def save_time(self, job: Job) -> int:
        """Return how long a save of the job lasts, 0 where it saves nothing on notice."""
        return self.save if job.save is None else job.save

    def _saves_within(self, job: Job, time: int) -> bool:
        return 0 < self.save_time(job) <= time

    def displaced(self, job: Job, run: Run, now: int, notice: int = 0) -> Displaced:
        """Return what displacing the run now leaves; `notice`: its notice."""
        if notice and not self._saves_within(job, notice):
            return self.displaced(job, run, min(now + notice, self.finishes(job, run)))
        idle = self.idle(job, run, now)
        worked_from = run.started + self._restart(job, run)
        worked = max(0, now - worked_from)
        save = self.save_time(job)
        if worked and 0 < save <= max(self.grace, notice):
            stays = max(save, self.evict)
            return Displaced(now + stays, run.kept + worked, 0, idle + stays)
        checkpoint = self.checkpoint if job.checkpoint is None else job.checkpoint
        saves = max(0, worked - save) // checkpoint if checkpoint else 0
        saved = saves * checkpoint if checkpoint else 0
        lost = lost_device_seconds(worked_from, worked_from + saved, 1, now) if worked else 0
        return Displaced(now + self.evict, run.kept + saved, lost, idle + self.evict)

    def saved(self, job: Job, run: Run, now: int) -> Saved:
        """Return what the run can state of its saves."""
        checkpoint = self.checkpoint if job.checkpoint is None else job.checkpoint
        if not checkpoint:
            return Saved()
        save = self.save_time(job)
        worked_from = run.started + self._restart(job, run)
        saves = max(0, now - worked_from - save) // checkpoint
        at = Nanos(worked_from + saves * checkpoint) if saves else None
        return Saved(at, Nanos(worked_from + (saves + 1) * checkpoint + save))

    def _restart(self, job: Job, run: Run) -> int:
        if not run.again:
            return 0
        return self.restart if job.restart is None else job.restart

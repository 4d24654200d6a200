"""What being idle does to a job's life: what it held unused, what is undone, and its way back.

A job that is preempted for being idle, and has no work left, ends there: its work is done. One that
would have been used again comes back when it would have been, since its user submits it again then:
from its last save, with its restart to pay, and without the rest of its idle time.
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.simulation.idleness import (
    busy_between,
    idle_instants,
    idle_stretch,
    unused,
    work_done_at,
    work_of,
)
from reprieve.simulation.replaying.lives import IdleVictim, Life
from reprieve.simulation.replaying.work import Displaced, Run, WorkModel

__all__ = [
    "changes_of",
    "comes_back",
    "end_of_run",
    "idle_victim",
    "is_idle",
    "undone",
    "unused_now",
]


def changes_of(model: WorkModel, life: Life) -> tuple[int, ...]:
    """Return when the run of a job begins to be idle, and when it is used again, if ever."""
    assert life.run is not None
    found = idle_instants(model, life.doing, life.run)
    if found is None:
        return ()
    return found[:1] if found[1] == model.finishes(life.doing, life.run) else found


def is_idle(model: WorkModel, life: Life, now: int) -> bool:
    """Return whether a job that runs holds its devices without using them."""
    assert life.run is not None
    found = idle_instants(model, life.doing, life.run)
    return found is not None and found[0] <= now < found[1]


def undone(life: Life, cost: Displaced) -> int:
    """Return what of a displaced run is undone work; idle time is none."""
    return busy_between(life.doing, cost.kept, cost.kept + cost.lost)


def end_of_run(model: WorkModel, life: Life, run: Run, now: int, kept: int) -> None:
    """Note what a run that ends held unused, and whether its work is done with what is kept."""
    life.unused += unused(model, life.doing, run, now) * life.job.devices
    done = work_done_at(model, life.doing, run, now)
    life.worked = life.worked if done is None else done
    if kept < work_of(life.doing):
        life.worked = None


def unused_now(model: WorkModel, life: Life, now: int) -> int:
    """Return the device-nanoseconds that the present run has held unused until then."""
    if life.run is None:
        return 0
    return unused(model, life.doing, life.run, now) * life.job.devices


def idle_victim(model: WorkModel, life: Life, now: int, why: str) -> IdleVictim:
    """Return what becomes of an idle job that is preempted."""
    assert life.run is not None
    found = idle_instants(model, life.doing, life.run)
    assert found is not None, "who is preempted for being idle is idle"
    ends = work_of(life.doing) < life.doing.duration
    return IdleVictim(found[0], found[1], ends, why)


def comes_back(life: Life, until: int) -> None:
    """Keep a job away until it would have been used again, with its work from then on."""
    stretch = idle_stretch(life.doing)
    assert stretch is not None
    begins, ends = stretch
    life.rest = replace(
        life.doing,
        duration=life.doing.duration - (ends - begins),
        idle_from=None,
        idle_for=None,
    )
    life.kept, life.away = min(life.kept, begins), until

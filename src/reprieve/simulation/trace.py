"""A job trace: what was submitted, when, how wide and how long, whatever file it comes from.

Times are nanoseconds since the first arrival of the trace. `duration` is what the job needs on all
of its devices without being displaced. What a trace does not state is None or empty, and a study
assigns it by seeded rules. Lines that cannot be read are kept with the reason, so that they are
counted and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Job", "Malformed", "Trace", "device_time", "widest", "window"]


@dataclass(frozen=True, slots=True)
class Job:
    """One job; `id` is unique in its trace. Times in nanoseconds.

    `notice`: the notice that it requests before it is preempted, 0 for none.
    `idle_from` is the progress after which it stays on its devices without using them, None if it
    never does; `idle_for` for how long, None to its end. `required` and `preferred`: the level of
    domains of which it needs one, or would rather have one, to itself or shared with others.
    """

    id: str
    arrival: int
    devices: int
    duration: int
    model: str = ""
    tenant: str = ""
    priority: int | None = None
    checkpoint: int | None = None
    save: int | None = None
    restart: int | None = None
    notice: int | None = None
    idle_from: int | None = None
    idle_for: int | None = None
    required: str = ""
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that was left out, and why; lines are counted from 1."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their arrivals, ties in the order of the file.

    `without` counts the jobs that want no devices, which are none of ours.
    """

    name: str
    jobs: tuple[Job, ...]
    malformed: tuple[Malformed, ...] = ()
    without: int = 0


def device_time(jobs: Sequence[Job]) -> int:
    """Return the device-nanoseconds that the jobs request."""
    return sum(job.devices * job.duration for job in jobs)


def window(jobs: Sequence[Job]) -> int:
    """Return the nanoseconds from the first to the last arrival."""
    return jobs[-1].arrival - jobs[0].arrival if jobs else 0


def widest(jobs: Sequence[Job]) -> int:
    """Return the most devices that one of the jobs requests."""
    return max((job.devices for job in jobs), default=0)

"""What a study submits: a trace brought to a load, with tenants and priorities where it has none.

The load is the device time requested, as a share of what the capacity offers between the first and
the last arrival. To reach another one jobs are drawn from the trace: whole copies of it, each
turned by a number of days so that its daily rhythm stays while its bursts fall apart, and of one
more such copy as many jobs, in a random order, as come nearest to the load. Everything is drawn
from the seed and the trace's name alone, so that all policies are given the same jobs.

A job that wants more devices than there are, or than a domain has that it requires, is left out and
counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from random import Random

from kubeworld.units.durations import HOUR
from reprieve.simulation.domains import NO_DOMAINS, NOBODY_ASKS, AskingDomain, Domains
from reprieve.simulation.idleness import NEVER_IDLE, Idleness
from reprieve.simulation.replaying.notified_jobs import NEVER_NOTIFIED, Asking
from reprieve.simulation.trace import Job, Trace, device_time, window
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError

__all__ = ["Demand", "Tenants", "demand", "load_of"]

DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Tenants:
    """Who submits, where the trace does not state it: the k-th of `count` with weight 1/k^`zipf`.

    `priorities` are priorities with their shares of the jobs.
    """

    count: int = 1
    zipf: float = 0.0
    priorities: Mapping[int, float] = field(default_factory=lambda: {0: 1.0})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the tenants' names, the one with most jobs first."""
        width = len(str(self.count))
        return tuple(f"tenant-{number:0{width}}" for number in range(1, self.count + 1))


@dataclass(frozen=True, slots=True)
class Demand:
    """The jobs of a replay, all with tenant and priority; `own_load` is that of the trace itself.

    `too_wide` counts the trace's jobs that want more devices than there are, or in one domain.
    """

    jobs: tuple[Job, ...]
    own_load: float
    load: float
    too_wide: int = 0


def load_of(jobs: Sequence[Job], capacity: int, within: int) -> Fraction:
    """Return the share of the capacity that the jobs request within so many nanoseconds."""
    return Fraction(device_time(jobs), capacity * within) if within and capacity else Fraction(0)


def demand(
    trace: Trace,
    tenants: Tenants,
    capacity: int,
    load: float | None,
    seed: int,
    idleness: Idleness = NEVER_IDLE,
    asking: Asking = NEVER_NOTIFIED,
    nodes: tuple[int, int] | None = None,
    domains: Domains = NO_DOMAINS,
    topology: AskingDomain = NOBODY_ASKS,
) -> Demand:
    """Return what is submitted; a load of None is the trace as it is.

    `nodes`: how many there are, and the devices of each; None: one that has the whole capacity.

    Raises:
        UsageError: the trace has no jobs, or none that fit, or all come at once, so that it has no
            load.
    """
    if not trace.jobs:
        unread = trace.malformed
        why = f", the first is line {unread[0].line}: {unread[0].why}" if unread else ""
        raise UsageError(
            f"trace {trace.name}: no job in it; {counted(len(unread), 'unreadable line')}{why}; "
            f"{counted(trace.without, 'job')} without devices; accepted: at least one job"
        )
    count, of_a_node = nodes or (1, capacity)
    fitting = [j for j in trace.jobs if j.devices <= domains.most(j, count, of_a_node)]
    if not fitting:
        raise UsageError(
            f"trace {trace.name}: no job requests at most {counted(capacity, 'device')}, which is "
            f"what the cluster has; it has {counted(len(trace.jobs), 'job')} and "
            f"{counted(len(trace.malformed), 'unreadable line')}"
        )
    within = window(fitting)
    own = load_of(fitting, capacity, within)
    jobs = fitting
    if load is not None:
        if not within:
            raise UsageError(
                f"trace {trace.name}: all jobs arrive at once, so it has no load; accepted: a "
                f"workload without load"
            )
        jobs = _sampled(fitting, Fraction(load) / own, Random(f"{seed}/{trace.name}/load"))
    first = jobs[0].arrival
    jobs = [replace(job, arrival=job.arrival - first) for job in jobs]
    jobs = _assigned(jobs, tenants, Random(f"{seed}/{trace.name}/tenants"))
    random = Random(f"{seed}/{trace.name}/idleness")
    jobs = [idleness.drawn(job, random) for job in jobs]
    random = Random(f"{seed}/{trace.name}/notice")
    jobs = [asking.drawn(job, random) for job in jobs]
    random = Random(f"{seed}/{trace.name}/topology")
    most = min(count, dict(domains.levels).get(topology.level, count)) * of_a_node
    jobs = [topology.drawn(job, most, random) for job in jobs]
    reached = load_of(jobs, capacity, within)
    too_wide = len(trace.jobs) - len(fitting)
    return Demand(tuple(jobs), float(own), float(reached), too_wide)


def _sampled(jobs: Sequence[Job], factor: Fraction, random: Random) -> list[Job]:
    """Return so many times the demand of the jobs, in the order of their arrivals."""
    start, end = jobs[0].arrival, jobs[-1].arrival
    days = max(1, (end - start) // DAY)
    whole = int(factor)
    found = list(jobs) if whole else []
    for copy in range(1, whole + 1):
        turn = random.randrange(days) * DAY
        part: Sequence[Job] = jobs
        if copy == whole:
            wanted = (factor - whole) * device_time(jobs)
            part = _nearest(random.sample(jobs, len(jobs)), wanted)
        for job in part:
            moved = start + (job.arrival - start + turn) % (end - start)
            found.append(replace(job, id=f"{job.id}+{copy}", arrival=moved))
    if not whole:
        found = _nearest(random.sample(jobs, len(jobs)), factor * device_time(jobs))
    found.sort(key=lambda job: (job.arrival, job.id))
    return found


def _nearest(jobs: Sequence[Job], wanted: Fraction) -> list[Job]:
    """Return as many of the first jobs as come nearest to the device time that is wanted."""
    sums = [0, *accumulate(job.devices * job.duration for job in jobs)]
    best = min(range(len(sums)), key=lambda count: abs(sums[count] - wanted))
    return list(jobs[:best])


def _assigned(jobs: Sequence[Job], tenants: Tenants, random: Random) -> list[Job]:
    names = tenants.names
    weights = [1 / rank**tenants.zipf for rank in range(1, len(names) + 1)]
    levels, shares = list(tenants.priorities), list(tenants.priorities.values())
    found = []
    for job in jobs:
        # Both are drawn for every job, so that a column more in the trace changes no other draw.
        tenant = random.choices(names, weights)[0]
        priority = random.choices(levels, shares)[0]
        found.append(
            replace(
                job,
                tenant=job.tenant or tenant,
                priority=priority if job.priority is None else job.priority,
            )
        )
    return found

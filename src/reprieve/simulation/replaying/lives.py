"""What became of the jobs of a replay: the life of each, and the decisions in their order.

A job holds quota from its reservation until it leaves, and devices from its start until it leaves.
Where one plane decides alone that is the same; with both it may hold quota and wait for nodes,
which costs others the quota: that is `unplaced`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.engine.plan import Proof
from reprieve.simulation.replaying.work import Run
from reprieve.simulation.trace import Job

__all__ = [
    "Admitted",
    "Decision",
    "IdleVictim",
    "Life",
    "Preempted",
    "Replay",
    "Reserved",
    "Unready",
    "Victim",
]


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that was preempted, why, and the device-nanoseconds of progress that are undone by it.

    `idle`: where it was preempted for being idle, what became of it.
    """

    job: str
    rule: str
    lost: int
    leaves: int
    idle: IdleVictim | None = None


@dataclass(frozen=True, slots=True)
class IdleVictim:
    """Since when it was idle, until when it would have been, and what the engine states of it.

    `ends`: it had nothing left to do; else it comes back at `until`.
    """

    since: int
    until: int
    ends: bool
    why: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """A job got quota and waits for nodes; `borrows`: for more than its tenant's own."""

    at: int
    job: str
    borrows: bool


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job got its devices; `borrows`: it uses more than its tenant's own.

    `nodes`: of each of its pods, where jobs are placed on nodes. Where it got quota before, that
    states whether it borrows.
    """

    at: int
    job: str
    again: bool
    borrows: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unready:
    """A job gave its quota back, since it got no nodes in time; it is queued again later."""

    at: int
    job: str
    queued_again: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """Jobs are preempted for another one; `why` is what the engine states about that one.

    `plane` is whose decision it is where several decide, else empty. For no particular job, by
    the idle plane, the preemptor is empty. `proof` is why that one fits, where that is no text.
    """

    at: int
    preemptor: str
    victims: tuple[Victim, ...]
    why: str
    plane: str = ""
    proof: Proof | None = None


Decision = Reserved | Admitted | Preempted | Unready


@dataclass(slots=True)
class Life:
    """What became of one job.

    Attributes:
        job: as it was submitted.
        started: when it got its devices for the first time, None until then.
        finished: None while it is not.
        waited: for how long it held no devices, from its arrival until it finished.
        displaced: how often it was preempted.
        lost: device-nanoseconds of progress that were undone.
        idle: device-nanoseconds that it held for restarts, last saves and while it was preempted.
        kept: progress that a next run begins with.
        queued_since: since when it holds no devices.
        run: while it runs.
        holds: it holds devices, also while it leaves them.
        leaves: when it leaves, if it is preempted.
        unready: how often it got no nodes in time.
        spell: counts its changes between waiting for quota, for nodes, and running.
        rest: the job as it continues, without idle time that was cut short; None: as it came.
        worked: when its last work was done, None while that is not.
        unused: device-nanoseconds that it held without using them.
        reclaimed: device-nanoseconds for which it would have stayed idle, had it not been
            preempted.
        undone_idle: of `lost`, what the idle plane has cost it.
        ends: it had nothing left to do when it was preempted.
        away: when it comes back after it was preempted for being idle, None while it is not away.
        served: idle jobs were preempted for it.
        notified: how often it was notified before it was preempted; `saved`: how often it saved.
        spared: device-nanoseconds of progress that would have been undone without notice.
        together: how often it started with all of its pods in one domain of the level it requests.
        reclaim_wait: how long it had waited when it started as idle work left; None: it never did.
    """

    job: Job
    started: int | None = None
    finished: int | None = None
    waited: int = 0
    displaced: int = 0
    lost: int = 0
    idle: int = 0
    kept: int = 0
    queued_since: int = 0
    run: Run | None = None
    holds: bool = False
    leaves: int | None = None
    unready: int = 0
    spell: int = 0
    rest: Job | None = None
    worked: int | None = None
    unused: int = 0
    reclaimed: int = 0
    undone_idle: int = 0
    ends: bool = False
    away: int | None = None
    served: bool = False
    reclaim_wait: int | None = None
    notified: int = 0
    saved: int = 0
    spared: int = 0
    together: int = 0

    @property
    def doing(self) -> Job:
        """Return the job as it continues."""
        return self.rest or self.job


@dataclass(slots=True)
class Replay:
    """What a replay came to.

    Attributes:
        lives: in the order of arrivals.
        decisions: in their order.
        use: instants, each with the devices that are held from then on.
        done_at_end: device-nanoseconds that were of use until the last arrival.
        unused_at_end: those until then that were held without being used.
        stranded_at_end: device-nanoseconds that were free until then while a job waited for nodes
            that requested no more than was free; 0 where nothing is placed on nodes.
        unplaced_at_end: device-nanoseconds of quota that jobs held until then without devices.
        for_nodes: how often a job was preempted by a decision of the scheduling plane.
        returned: how often a job lost its quota to others while it waited for nodes.
        unready: how often a job gave it back since it got no nodes in time.
        for_idle: how often a job was preempted by a decision of the idle plane.
        cycles: how many the engine ran.
        ended: the instant of the last event.
    """

    lives: list[Life]
    decisions: list[Decision] = field(default_factory=list)
    use: list[tuple[int, int]] = field(default_factory=list)
    done_at_end: int = 0
    unused_at_end: int = 0
    stranded_at_end: int = 0
    unplaced_at_end: int = 0
    for_nodes: int = 0
    returned: int = 0
    unready: int = 0
    for_idle: int = 0
    cycles: int = 0
    ended: int = 0

"""The replay of jobs under one policy: events on a virtual clock, and decisions.

What happens is an event: a job arrives, finishes, leaves its devices after it was displaced, or may
be taken again because somebody is not spared any more. Events of one instant are applied together,
in that order of kinds and then in the order in which they were made; then the `deciding.Decider`
decides until that changes nothing: the quota engine's cycles, exactly as the operator runs them on
what it watches, the scheduling engine's attempts on nodes, or a policy of one's own. Who is
admitted holds its devices at the same instant. Who is preempted leaves them as soon as the work
model says, but never before all is decided, as on a cluster: others may take meanwhile what is
free, and then what it leaves does not suffice. There is no clock, no randomness and no I/O here:
the same jobs under the same policy give the same decisions.

A decision that fails by a fault of the engine ends the replay, since figures that leave a job out
would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.simulation.deciding import Decider, EngineDecider, Placements
from reprieve.simulation.own_decider import OwnDecider, Standing
from reprieve.simulation.policy import SCHEDULING, PolicySpec
from reprieve.simulation.quota_cluster import key_of
from reprieve.simulation.scheduling_decider import SchedulingDecider
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Run, Saved, WorkModel
from reprieve.units.durations import SECOND
from reprieve.units.errors import ReprieveError
from reprieve.units.instants import Nanos

__all__ = ["Admitted", "Life", "Preempted", "Replay", "ReplayFault", "Victim", "replay"]


#: How often somebody may leave at one instant, which is seldom: a loop that nobody holds is told.
_MOST_ROUNDS: Final = 10_000


class ReplayFault(ReprieveError):
    """The engine failed to decide, or the replay does not come to an end."""


class Kind(IntEnum):
    """Kinds of events, in the order in which those of one instant are applied."""

    FINISH = 0
    LEAVE = 1
    ARRIVE = 2
    RETRY = 3


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that made way, why, and the device-nanoseconds of progress that are undone by it."""

    job: str
    rule: str
    lost: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job got its devices; `borrows` says that it took more than its tenant's own.

    `nodes`: of each of its pods, where jobs are placed on nodes.
    """

    at: int
    job: str
    again: bool
    borrows: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preempted:
    """Jobs make way for another one; `why` is what the engine says about that one."""

    at: int
    preemptor: str
    victims: tuple[Victim, ...]
    why: str


@dataclass(slots=True)
class Life:
    """What became of one job.

    Attributes:
        job: as it was submitted.
        started: when it got its devices for the first time, None until then.
        finished: None while it is not.
        waited: for how long it held no devices, from its arrival until it finished.
        displaced: how often it made way.
        lost: device-nanoseconds of progress that were undone.
        idle: device-nanoseconds that it held for restarts and last saves.
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


@dataclass(slots=True)
class Replay:
    """What a replay came to.

    Attributes:
        lives: in the order of arrivals.
        decisions: in their order.
        use: instants, each with the devices that are held from then on.
        done_at_end: device-nanoseconds that were of use until the last arrival.
        lost_at_end: those undone or idle until then.
        stranded_at_end: device-nanoseconds that were free until then while a job waited that asked
            for no more than was free; 0 where nothing is placed on nodes.
        cycles: how many the engine ran.
        ended: the instant of the last event.
    """

    lives: list[Life]
    decisions: list[Admitted | Preempted] = field(default_factory=list)
    use: list[tuple[int, int]] = field(default_factory=list)
    done_at_end: int = 0
    lost_at_end: int = 0
    stranded_at_end: int = 0
    cycles: int = 0
    ended: int = 0


def replay(
    jobs: Sequence[Job],
    policy: PolicySpec,
    model: WorkModel,
    tenants: Sequence[str],
    nodes: tuple[int, int],
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Replay jobs until all have finished.

    Args:
        jobs: with tenant and priority, in the order of their arrivals.
        policy: how the engine is set up.
        model: how work goes on and what displacing costs.
        tenants: who has quota, beside those that the trace names.
        nodes: how many there are, and the devices of each.
        progress: called now and then with the jobs that have finished, and the virtual instant.

    Raises:
        ReplayFault: the engine failed to decide, or jobs can never run.
    """
    run = _Replay(jobs, policy, model, tenants, nodes)
    return run.run(progress)


class _Replay:
    def __init__(
        self,
        jobs: Sequence[Job],
        policy: PolicySpec,
        model: WorkModel,
        tenants: Sequence[str],
        nodes: tuple[int, int],
    ) -> None:
        submitting = {job.tenant for job in jobs}
        # Where the trace says all tenants, those of the study have no jobs and no quota.
        given = tenants if submitting.intersection(tenants) else ()
        names = [*given, *sorted(submitting.difference(given))]
        self.policy, self.model = policy, model
        self.decider: Decider
        self.placing: SchedulingDecider | None = None
        if SCHEDULING in policy.planes:
            self.decider = self.placing = SchedulingDecider(policy, nodes, self._saved)
        elif policy.own is None:
            self.decider = EngineDecider(policy, names, nodes, self._saved)
        else:
            self.decider = OwnDecider(policy, names, nodes, self._standing)
        self.lives = [Life(job) for job in jobs]
        self.numbers = {key_of(job): number for number, job in enumerate(jobs)}
        self.result = Replay(self.lives)
        #: (instant, kind, sequence, job's number, its run or "", ClusterQueue to be tried again)
        self.events: list[tuple[int, Kind, int, int, int, str]] = []
        self.sequence = 0
        self.used, self.left = 0, len(jobs)
        self.looked = 0, 0  # until when `stranded_at_end` is counted, and what is so from then on
        self.last_arrival = jobs[-1].arrival if jobs else 0
        self.retries: set[tuple[int, str]] = set()
        for number, job in enumerate(jobs):
            self._add(job.arrival, Kind.ARRIVE, number)

    def run(self, progress: Callable[[int, int], None] | None) -> Replay:
        """Apply events and decide until there are none."""
        measured, told, rounds, last = False, 0, 0, -1
        while self.events and self.left:
            now = self.events[0][0]
            rounds, last = rounds + 1 if now == last else 0, now
            if rounds > _MOST_ROUNDS:
                raise ReplayFault(
                    f"policy {self.policy.name}: at {now / SECOND:,.0f} s decisions go on without "
                    f"an end: {_MOST_ROUNDS} times somebody left at once"
                )
            if not measured and now > self.last_arrival:
                self._measure()
                measured = True
            while self.events and self.events[0][0] == now:
                _, kind, _, number, runs, queue = heappop(self.events)
                self._apply(Nanos(now), kind, number, runs, queue)
            self._decide(Nanos(now))
            self._note_use(now)
            if self.placing is not None:
                self._note_stranded(now, self.placing)
            self.result.ended = now
            done = len(self.lives) - self.left
            if progress is not None and done - told >= 1_000:
                told = done
                progress(done, now)
        if self.left:
            stuck = next(life.job for life in self.lives if life.finished is None)
            raise ReplayFault(
                f"policy {self.policy.name}: nothing happens any more, and {self.left} jobs have "
                f"not finished, among them {stuck.id} of {stuck.tenant} with {stuck.devices} "
                f"devices"
            )
        if not measured:
            self._measure()
        return self.result

    def _add(self, at: int, kind: Kind, number: int, runs: int = 0, queue: str = "") -> None:
        self.sequence += 1
        heappush(self.events, (at, kind, self.sequence, number, runs, queue))

    def _apply(self, now: Nanos, kind: Kind, number: int, runs: int, queue: str) -> None:
        if kind is Kind.RETRY:
            self.retries.discard((now, queue))
            self.decider.retry(queue)
            return
        life = self.lives[number]
        if kind is Kind.ARRIVE:
            life.queued_since = now
            self.decider.waits(life.job, number, now)
        elif kind is Kind.LEAVE:
            self._leave(now, number)
        elif runs == life.displaced and life.run is not None:  # else it was displaced meanwhile
            life.idle += self.model.idle(life.job, life.run, now) * life.job.devices
            life.run, life.finished, life.kept = None, now, life.job.duration
            self.left -= 1
            self._release(life.job)

    def _standing(self, key: str, now: int) -> Standing:
        life = self.lives[self.numbers[key]]
        lost = 0
        if life.run is not None:
            lost = self.model.displaced(life.job, life.run, now).lost * life.job.devices
        return Standing(life.displaced, lost)

    def _saved(self, key: str, now: Nanos) -> Saved:
        life = self.lives[self.numbers[key]]
        return Saved() if life.run is None else self.model.saved(life.job, life.run, now)

    def _release(self, job: Job) -> None:
        self.used -= job.devices
        self.decider.left(job)

    def _leave(self, now: Nanos, number: int) -> None:
        life = self.lives[number]
        life.queued_since = now
        self._release(life.job)
        self.decider.waits(life.job, number, now)

    def _note_use(self, now: int) -> None:
        use = self.result.use
        if use and use[-1][0] == now:
            use.pop()
        if not use or use[-1][1] != self.used:
            use.append((now, self.used))

    def _note_stranded(self, now: int, placing: SchedulingDecider) -> None:
        """Count what was stranded since the last decision, and look at what is so after this."""
        since, devices = self.looked
        until = min(now, self.last_arrival)
        self.result.stranded_at_end += devices * max(0, until - since)
        self.looked = until, placing.stranded

    def _decide(self, now: Nanos) -> None:
        """Decide until that changes nothing; who makes way holds its devices meanwhile."""
        if self.decider.has_heads():
            for result in self.decider.decide(now):
                self.result.cycles += 1
                self._carry_out(now, result)

    def _carry_out(self, now: Nanos, result: CycleResult | Placements) -> None:
        """Do what a cycle decided."""
        if isinstance(result, Placements):
            for key, on in result.started:
                self._start(now, key, nodes=on)
            for preemptor, victims, why in result.preempted:
                self._displace(now, preemptor, victims, why)
            return
        if result.fault is not None or result.queue_faults:
            fault = result.fault or next(iter(result.queue_faults.values()))
            raise ReplayFault(f"policy {self.policy.name}: {fault!r}") from fault
        for entry in result.entries:
            if entry.outcome is Outcome.FAULT:
                raise ReplayFault(
                    f"policy {self.policy.name}: {entry.workload.key}: {entry.message}"
                ) from entry.failure
            if entry.outcome is Outcome.ADMITTED:
                key = entry.workload.key
                self._start(now, key, self.decider.borrows(entry))
            elif entry.issued:
                going = [(target.holder.key, str(target.reason)) for target in entry.issued]
                self._displace(now, entry.workload.key, going, entry.message)
        for queue, at in sorted(result.retries.items()):
            if (at, queue) not in self.retries:
                self.retries.add((at, queue))
                self._add(at, Kind.RETRY, 0, queue=queue)

    def _start(
        self, now: Nanos, key: str, borrows: bool = False, nodes: tuple[str, ...] = ()
    ) -> None:
        number = self.numbers[key]
        life = self.lives[number]
        again = life.displaced > 0
        life.waited += now - life.queued_since
        life.started = now if life.started is None else life.started
        life.run = Run(now, life.kept, again)
        self.used += life.job.devices
        self._add(self.model.finishes(life.job, life.run), Kind.FINISH, number, life.displaced)
        self.result.decisions.append(Admitted(now, key, again, borrows, nodes))

    def _displace(
        self, now: Nanos, preemptor: str, going: Sequence[tuple[str, str]], why: str
    ) -> None:
        """Displace jobs, each by its rule."""
        victims = []
        for key, rule in going:
            number = self.numbers[key]
            life = self.lives[number]
            assert life.run is not None, "who makes way holds devices"
            cost = self.model.displaced(life.job, life.run, now)
            devices = life.job.devices
            life.displaced += 1
            life.kept, life.run = cost.kept, None
            life.lost += cost.lost * devices
            life.idle += cost.idle * devices
            victims.append(Victim(key, rule, cost.lost * devices, cost.leaves))
            # Also what leaves at once: as on a cluster, it holds quota until all is decided.
            self._add(max(now, cost.leaves), Kind.LEAVE, number)
        self.result.decisions.append(Preempted(now, preemptor, tuple(victims), why))

    def _measure(self) -> None:
        """Note what was of use until the last arrival."""
        end, held = self.last_arrival, 0
        for (since, devices), (until, _) in pairwise([*self.result.use, (end, 0)]):
            held += devices * (until - since)
        idle = sum(
            self.model.idle(life.job, life.run, end) * life.job.devices
            for life in self.lives
            if life.run is not None
        )
        wasted = sum(life.lost + life.idle for life in self.lives) + idle
        self.result.lost_at_end = wasted
        self.result.done_at_end = held - wasted

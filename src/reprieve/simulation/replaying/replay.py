"""The replay of jobs under one policy: events on a virtual clock, and decisions.

What happens is an event: a job arrives, finishes, leaves its devices after it was displaced, may be
tried again because a candidate is not spared any more, has waited for nodes for too long, uses
its devices no more or again, or has been idle for its grace period. Events of one instant are
applied together, in that order of kinds and then in the order in which they were made; then the
`deciding.Decider` decides until that changes nothing: the quota engine's cycles, exactly as the
operator runs them on what it watches, the scheduling engine's attempts on nodes, both one after the
other, or a policy of one's own. Who is admitted holds its devices at the same instant. Who is
preempted leaves them as soon as the work model states, but never before all is decided, as on a
cluster: others may use meanwhile what is free, and then what it leaves does not suffice. There is
no clock, no randomness and no I/O here: the same jobs under the same policy give the same
decisions.

A decision that fails by a fault of the engine ends the replay, since figures that leave a job out
would be wrong. So does a loop without an end (`loop_guard.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from heapq import heappop, heappush

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.notice.expected import AtStake
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.waiting.requeuing import backoff_end
from reprieve.simulation.domains import NO_DOMAINS, Domains, node_names
from reprieve.simulation.policy import IDLE, QUOTA, SCHEDULING, PolicySpec
from reprieve.simulation.replaying.deciders import deciders_of
from reprieve.simulation.replaying.deciding import Placements, Reclaim, Reclaims
from reprieve.simulation.replaying.held_devices import HeldDevices
from reprieve.simulation.replaying.idle_lives import (
    changes_of,
    comes_back,
    end_of_run,
    idle_victim,
    is_idle,
    undone,
)
from reprieve.simulation.replaying.idle_rows import proof_text
from reprieve.simulation.replaying.joint_decider import JointDecider
from reprieve.simulation.replaying.lives import (
    Admitted,
    Life,
    Preempted,
    Replay,
    Reserved,
    Unready,
    Victim,
)
from reprieve.simulation.replaying.loop_guard import LoopGuard, ReplayFault
from reprieve.simulation.replaying.notified_jobs import NotifiedJobs
from reprieve.simulation.replaying.own_decider import Standing
from reprieve.simulation.replaying.quota_cluster import key_of, nodes_of
from reprieve.simulation.replaying.work import Displaced, Run, Saved, WorkModel
from reprieve.simulation.trace import Job
from reprieve.units.counts import counted

__all__ = ["replay"]


class Kind(IntEnum):
    """Kinds of events, in the order in which those of one instant are applied."""

    FINISH = 0
    LEAVE = 1
    ARRIVE = 2
    RETRY = 3
    UNREADY = 4
    USE = 5
    GRACE = 6


def replay(
    jobs: Sequence[Job],
    policy: PolicySpec,
    model: WorkModel,
    tenants: Sequence[str],
    nodes: tuple[int, int],
    progress: Callable[[int, int], None] | None = None,
    idle_utilization: float = 0.0,
    domains: Domains = NO_DOMAINS,
) -> Replay:
    """Replay jobs until all have finished.

    Args:
        jobs: with tenant and priority, in the order of their arrivals.
        policy: how the engine is set up.
        model: how work continues and what displacing costs.
        tenants: who has quota, beside those that the trace names.
        nodes: how many there are, and the devices of each.
        progress: called now and then with the jobs that have finished, and the virtual instant.
        idle_utilization: what the devices of an idle job show, in percent.
        domains: those of the nodes, for jobs that request one.

    Raises:
        ReplayFault: the engine failed to decide, or jobs can never run.
    """
    run = _Replay(jobs, policy, model, tenants, nodes, idle_utilization, domains)
    return run.run(progress)


class _Replay:
    def __init__(
        self,
        jobs: Sequence[Job],
        policy: PolicySpec,
        model: WorkModel,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        idle_utilization: float,
        domains: Domains,
    ) -> None:
        submitting = {job.tenant for job in jobs}
        # Where the trace states all tenants, those of the study have no jobs and no quota.
        given = tenants if submitting.intersection(tenants) else ()
        names = [*given, *sorted(submitting.difference(given))]
        self.policy, self.model = policy, model
        saved, standing = self._saved, self._standing
        found = deciders_of(policy, names, nodes, saved, standing, idle_utilization, domains)
        self.domains = domains
        self.places = {name: number for number, name in enumerate(node_names(nodes[0]))}
        self.decider, self.placing = found.asked, found.placing
        self.joint, self.idle = found.joint, found.idle
        self.lives = [Life(job) for job in jobs]
        self.numbers = {key_of(job): number for number, job in enumerate(jobs)}
        self.result = Replay(self.lives)
        #: (instant, kind, sequence, job's number, its run or spell, ClusterQueue to be tried again)
        self.events: list[tuple[int, Kind, int, int, int, str]] = []
        self.sequence = 0
        self.left = len(jobs)
        self.devices = HeldDevices(self.result, model, jobs[-1].arrival if jobs else 0)
        self.notified = NotifiedJobs(policy)
        self.freed = -1  # when idle work left its devices last
        self.retries: set[tuple[int, str]] = set()
        self.guard = LoopGuard(policy)
        for number, job in enumerate(jobs):
            self._add(job.arrival, Kind.ARRIVE, number)

    def run(self, progress: Callable[[int, int], None] | None) -> Replay:
        """Apply events and decide until there are none."""
        notified = 0
        while self.events and self.left:
            now = self.events[0][0]
            self.guard.decides(now)
            self.devices.measure_before(now)
            while self.events and self.events[0][0] == now:
                _, kind, _, number, runs, queue = heappop(self.events)
                self._apply(Nanos(now), kind, number, runs, queue)
            self._decide(Nanos(now))
            self.devices.observe(now)
            if self.placing is not None:
                self.devices.observe_nodes(now, self.placing, quotas=self.joint is not None)
            self.result.ended = now
            done = len(self.lives) - self.left
            if progress is not None and done - notified >= 1_000:
                notified = done
                progress(done, now)
        if self.left:
            stuck = next(life.job for life in self.lives if life.finished is None)
            raise ReplayFault(
                f"policy {self.policy.name}: nothing happens any more, with "
                f"{counted(self.left, 'unfinished job')}, among them {stuck.id} of {stuck.tenant} "
                f"with {counted(stuck.devices, 'device')}"
            )
        self.devices.measure_before(None)
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
        if kind in (Kind.USE, Kind.GRACE):
            self._look_at_use(now, kind, number, runs)
            return
        if kind in (Kind.ARRIVE, Kind.FINISH):
            self.guard.goes_on()
        if kind is Kind.ARRIVE:
            if not life.unready:  # else it is queued again
                life.queued_since = now
            self.decider.waits(life.job, number, now)
        elif kind is Kind.LEAVE:
            self._leave(now, number)
        elif kind is Kind.UNREADY:
            if runs == life.spell and self.joint is not None:
                self._give_up(now, number, self.joint)
        elif runs == life.displaced and life.run is not None:  # else it was displaced meanwhile
            life.idle += self.model.idle(life.doing, life.run, now) * life.job.devices
            end_of_run(self.model, life, life.run, now, life.doing.duration)
            life.run, life.finished, life.kept = None, now, life.doing.duration
            self.left -= 1
            self._release(life)

    def _standing(self, key: str, now: int) -> Standing:
        life = self.lives[self.numbers[key]]
        lost = 0
        if life.run is not None:
            cost = self.model.displaced(life.doing, life.run, now)
            lost = undone(life, cost) * life.job.devices
        return Standing(life.displaced, lost)

    def _saved(self, key: str, now: Nanos) -> Saved:
        life = self.lives[self.numbers[key]]
        if life.run is None:
            return Saved()
        found = self.model.saved(life.doing, life.run, now)
        terms = self.notified.terms(life.job, self.model.save_time(life.doing), now)
        return replace(found, terms=terms) if terms.time else found

    def _notified(self, preemptor: str, going: Iterable[str], now: int) -> Mapping[str, int]:
        """Return the notices of jobs that are preempted for one, by their keys."""
        who = self.lives[self.numbers[preemptor]].job if preemptor else None
        priority, victims = None if who is None else who.priority or 0, {}
        for key in going:
            life = self.lives[self.numbers[key]]
            if life.run is None or life.leaves is not None or not life.job.notice:
                continue
            terms = self.notified.terms(life.job, self.model.save_time(life.doing), now, priority)
            undone = self.model.displaced(life.doing, life.run, now).lost
            victims[key] = AtStake(undone, life.job.devices, terms)
        return self.notified.notified(victims, who) if victims else {}

    def _release(self, life: Life) -> None:
        if life.holds:
            self.devices.release(life.job.devices)
        life.holds = False
        self.decider.left(life.job)

    def _leave(self, now: Nanos, number: int) -> None:
        life = self.lives[number]
        life.leaves = None
        if life.holds:  # else it waits since before
            life.queued_since = now
        self._release(life)
        if life.ends or life.away is not None:
            self.freed = now
        if life.ends:
            life.finished, self.left = now, self.left - 1
            return
        if life.away is not None:
            life.queued_since, life.away = max(now, life.away), None
            self._add(life.queued_since, Kind.ARRIVE, number)
            return
        if self.joint is not None and self.joint.has_quota(life.job):
            self._wait_for_nodes(now, number, lost=True)
        self.decider.waits(life.job, number, now)

    def _wait_for_nodes(self, now: Nanos, number: int, lost: bool = False) -> None:
        """Note that a job has quota and no nodes; `lost`: it was on some already."""
        life, rules = self.lives[number], self.policy.pods_ready
        life.spell += 1
        if rules is None:
            return
        seconds = rules.recovery_s if lost else rules.timeout_s
        if seconds or not lost:  # a recovery timeout of zero waits for ever
            at = now + round((seconds or 0) * SECOND)
            self._add(at, Kind.UNREADY, number, life.spell)

    def _give_up(self, now: Nanos, number: int, joint: JointDecider) -> None:
        """Withdraw quota from a job that got no nodes in time, and queue it again later."""
        life, rules = self.lives[number], self.policy.pods_ready
        assert rules is not None, "else there is no wait"
        life.spell += 1
        life.unready += 1
        self.result.unready += 1
        joint.gives_up(life.job, now)
        again = backoff_end(rules.backoff, life.unready, now)
        assert again is not None, "a study accepts no limit"
        self._add(again, Kind.ARRIVE, number)
        self.result.decisions.append(Unready(now, key_of(life.job), again))

    def _look_at_use(self, now: Nanos, kind: Kind, number: int, runs: int) -> None:
        """Report to the idle plane that a job uses its devices no more or again, or since when."""
        life = self.lives[number]
        if self.idle is None or runs != life.displaced or life.run is None:
            return
        if kind is Kind.GRACE:
            self.idle.look()
            return
        due = self.idle.shows(life.job, is_idle(self.model, life, now), now)
        if due is not None:
            self._add(max(now, due), Kind.GRACE, number, life.displaced)

    def _decide(self, now: Nanos) -> None:
        """Decide until that changes nothing; who is preempted holds its devices meanwhile."""
        if self.decider.has_heads():
            for result in self.decider.decide(now):
                self.result.cycles += result.count if isinstance(result, CycleResult) else 1
                self._carry_out(now, result)

    def _carry_out(self, now: Nanos, result: CycleResult | Placements | Reclaims) -> None:
        """Do what a cycle decided."""
        if isinstance(result, Reclaims):
            for plan in result.plans:
                self._reclaim(now, plan)
            self._try_again(("", at) for at in sorted(result.retries))
            return
        if isinstance(result, Placements):
            for key, on in result.started:
                self._start(now, key, nodes=on)
            for preemptor, victims, why in result.preempted:
                self.result.for_nodes += len(victims)
                self._displace(now, preemptor, victims, why, SCHEDULING)
            self._try_again(("", at) for at in sorted(result.retries))
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
                key, borrows = entry.workload.key, self.decider.borrows(entry)
                if self.joint is not None:
                    self.result.decisions.append(Reserved(now, key, borrows))
                    self._wait_for_nodes(now, self.numbers[key])
                else:
                    self._start(now, key, borrows, nodes_of(entry.admission))
            elif entry.issued:
                going = [(target.holder.key, str(target.reason)) for target in entry.issued]
                self._displace(now, entry.workload.key, going, entry.message, QUOTA)
        self._try_again(sorted(result.retries.items()))

    def _try_again(self, due: Iterable[tuple[str, int]]) -> None:
        """Try ClusterQueues again at some instants, all of them and nodes where it is empty."""
        for queue, at in due:
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
        if self.freed == now and life.reclaim_wait is None:
            life.reclaim_wait = life.waited
        life.run = Run(now, life.kept, again)
        life.spell += 1
        life.holds = True
        asked = life.job.required or life.job.preferred
        if asked and nodes:
            numbers = [self.places[each] for each in nodes]
            life.together += self.domains.together(asked, numbers)
        self.devices.hold(life.job.devices)
        self._add(self.model.finishes(life.doing, life.run), Kind.FINISH, number, life.displaced)
        for at in changes_of(self.model, life) if self.idle is not None else ():
            self._add(at, Kind.USE, number, life.displaced)
        self.result.decisions.append(Admitted(now, key, again, borrows, nodes))

    def _displace(
        self, now: Nanos, preemptor: str, going: Sequence[tuple[str, str]], why: str, plane: str
    ) -> None:
        """Displace jobs, each by its rule."""
        victims = []
        notified = self._notified(preemptor, (key for key, _ in going), now)
        for key, rule in going:
            number = self.numbers[key]
            life = self.lives[number]
            lost = 0
            if life.leaves is None:
                lost, life.leaves = self._evict(now, life, notified.get(key, 0))
                # Also what leaves at once: as on a cluster, it holds quota until all is decided.
                self._add(max(now, life.leaves), Kind.LEAVE, number)
            victims.append(Victim(key, rule, lost, life.leaves))
            self.guard.displaces(now, preemptor, key)
        said = plane if len(self.policy.planes) > 1 else ""
        self.result.decisions.append(Preempted(now, preemptor, tuple(victims), why, said))

    def _reclaim(self, now: Nanos, plan: Reclaim) -> None:
        """Evict idle jobs: those that have nothing left to do end, the others come back later."""
        victims = []
        for key, rule, why in plan.victims:
            number = self.numbers[key]
            life = self.lives[number]
            found = idle_victim(self.model, life, now, why)
            lost, life.leaves = self._evict(now, life, ends=found.ends)
            life.reclaimed += max(0, found.until - life.leaves) * life.job.devices
            if not found.ends:
                life.undone_idle += lost
                comes_back(life, found.until)
            self._add(max(now, life.leaves), Kind.LEAVE, number)
            victims.append(Victim(key, rule, lost, life.leaves, found))
        self.result.for_idle += len(victims)
        if plan.preemptor:
            self.lives[self.numbers[plan.preemptor]].served = True
        said = proof_text(plan.proof)
        self.result.decisions.append(
            Preempted(now, plan.preemptor, tuple(victims), said, IDLE, plan.proof)
        )

    def _evict(
        self, now: Nanos, life: Life, notice: int = 0, *, ends: bool = False
    ) -> tuple[int, int]:
        """Stop a job; return the device time that is undone by it, and when it leaves.

        `notice`: its length. `ends`: its work is done, so that nothing is undone and
        nothing is to be saved.
        """
        if life.run is None:
            assert self.joint is not None, (
                "who is preempted holds devices, unless it has quota alone"
            )
            self.result.returned += 1
            life.spell += 1
            return 0, now
        cost = self.model.displaced(life.doing, life.run, now, notice)
        if notice:
            without = self.model.displaced(life.doing, life.run, now)
            saved = 0 < self.model.save_time(life.doing) <= notice
            life.notified, life.saved = life.notified + 1, life.saved + saved
            life.spared += max(0, undone(life, without) - undone(life, cost)) * life.job.devices
            self.notified.ended(life.job, saved=saved)
        if ends:
            idle = self.model.idle(life.doing, life.run, now)
            stays = self.model.evict
            cost = Displaced(now + stays, life.doing.duration, 0, idle + stays)
            life.ends = True
        devices, lost = life.job.devices, undone(life, cost)
        end_of_run(self.model, life, life.run, now, cost.kept)
        life.displaced += 1
        life.kept, life.run = cost.kept, None
        life.lost += lost * devices
        life.idle += cost.idle * devices
        return lost * devices, cost.leaves

"""Deciding by the idle engine, for whom the other planes find no devices.

1. Nodes are given first, and quota before them where it is needed (`scheduling_decider`,
   `joint_decider`); with `planes: [idle]` no job is preempted for nodes. Beside other planes no job
   is preempted yet for one that the idle engine has not evaluated or evicts idle work for.
2. Then the idle engine evaluates: who still waits for nodes, and has none nominated, is a demand,
   and so is who waits for quota; who has been idle for its grace period may be preempted, for a
   demand or, by policy `Always`, for no work. Phases come of the engine's own table
   (`idle_rows.stepped`), plans of its evaluation.
3. Beside other planes the quota engine names what is to be evicted for quota, the scheduling engine
   what is evicted beside victims by priority, and it confirms what the idle engine has found
   (`idle_asking`).
4. Every plan passes the check that the plane runs before it carries one out.
5. A job for which no victims were found is tried again, and may preempt. Capacity that comes free
   is kept for the job that it was freed for where the scheduling plane decides; else the first job
   gets it.

Nothing is evaluated while no job has been idle for its grace period, since no plan comes of that,
and a demand that wants more than is free, about to be free and idle is not passed to the engine.

Source: specification of the idle plane, sections 11 and 14; the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import PodRow as ClusterPod
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.harm_budgets.budget import HarmSide
from reprieve.engine.idle.asking import idle_work
from reprieve.engine.idle.check import check
from reprieve.engine.idle.claims import before_each
from reprieve.engine.idle.debts import ANY
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import marked
from reprieve.engine.idle.model import (
    Debt,
    Fit,
    IdleSnapshot,
    Phase,
    PodRow,
    PreemptionPolicy,
    Status,
    Workload,
)
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.mixed import BY_PRIORITY
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.engine.quota.model import Policy
from reprieve.simulation.domains import NO_DOMAINS, Domains
from reprieve.simulation.policy import IDLE, QUOTA, SCHEDULING, PolicySpec
from reprieve.simulation.replaying.deciding import Placements, Reclaim, Reclaims
from reprieve.simulation.replaying.delays import Delays
from reprieve.simulation.replaying.harm import Candidates, NodeHarm
from reprieve.simulation.replaying.idle_asking import idle_units, is_mixed, mixtures, releases
from reprieve.simulation.replaying.idle_rows import (
    BUSY,
    free_rows,
    idle_pods,
    idle_workload,
    polled,
    stepped,
)
from reprieve.simulation.replaying.joint_answers import Answers, Chains
from reprieve.simulation.replaying.joint_decider import JointDecider
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.scheduling_decider import SchedulingDecider
from reprieve.simulation.replaying.work import Saved
from reprieve.simulation.trace import Job
from reprieve.units.errors import ReprieveError
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import with_reasons

__all__ = ["IdleDecider", "IdleFault"]

_PART: Final = (Phase.IDLE, Phase.PREEMPTING)


class IdleFault(ReprieveError):
    """What the engine decided does not pass its check."""


@dataclass(slots=True)
class _Held:
    """A job on nodes: what its devices show, and its status."""

    job: Job
    number: int
    percent: float
    status: Status


class IdleDecider:
    """The idle engine beside those that give nodes.

    `placing` has those that are on nodes or wait for them, `joint` those with quota, None without.
    """

    def __init__(
        self,
        policy: PolicySpec,
        tenants: Sequence[str],
        nodes: tuple[int, int],
        saved: Callable[[str, Nanos], Saved],
        percent: float,
        domains: Domains = NO_DOMAINS,
    ) -> None:
        """`percent` is what the devices of an idle job show; the rest as of the others."""
        self.joint = None
        if QUOTA in policy.planes:
            self.joint = JointDecider(policy, tenants, nodes, saved, domains)
            self.placing = self.joint.placing
        else:
            self.placing = SchedulingDecider(policy, nodes, saved, domains=domains)
        self._harm = NodeHarm(self.placing.governor, IDLE, saved)
        self._retries: set[Nanos] = set()
        self._name, self._nodes, self._percent = policy.name, nodes, percent
        self._settings, self._policy = policy.idle.settings, policy.idle.policy
        self._answers, self._chains = Answers(), Chains()
        self._together = SCHEDULING in policy.planes
        if self._together:
            self.placing.answers = self._answers
            self._policy = replace(self._policy, fewest=self._policy.fit is Fit.NODE)
        self._preempts = self._together and policy.preempts
        self._reclaims_any = policy.preemption.reclaim_within_cohort is Policy.ANY
        self._devices: dict[str, int] = {}
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._since: dict[str, tuple[Nanos, int]] = {}  # when queued last, and the priority
        self._delays = Delays(policy.idle.delay, policy.governor.emergency_priority)
        self._held: dict[str, _Held] = {}
        self._idle: set[str] = set()  # in the phase Idle
        self._claims: dict[Uid, GpuWorkloadKey | None] = {}
        self._claimed: dict[str, Uid] = {}
        self._demands: dict[str, tuple[list[ClusterPod], Workload]] = {}
        self._changed = False
        self._revision = 0

    @property
    def _inner(self) -> JointDecider | SchedulingDecider:
        return self.joint or self.placing

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job."""
        self._devices[key_of(job)] = job.devices
        self._jobs[key_of(job)] = job, number
        self._since[key_of(job)] = now, job.priority or 0
        self._inner.waits(job, number, now)

    def left(self, job: Job) -> None:
        """Record that a job holds its devices no more."""
        key = key_of(job)
        self._held.pop(key, None)
        self._idle.discard(key)
        claim = self._claimed.pop(key, None)
        if claim is not None:
            del self._claims[claim]
            self._note_going()
        self._inner.left(job)

    def shows(self, job: Job, idle: bool, now: Nanos) -> Nanos | None:
        """Record that a job uses its devices no more, or again; return when its grace is over.

        None where it does not count as idle.
        """
        key = key_of(job)
        held = self._held[key]
        if key in self._claimed:
            return None
        held.percent = self._percent if idle else BUSY
        pods = idle_pods(job, self.placing.pods_of(key), self._nodes[1])
        held.status = self._looked_at(held, pods, now)
        self._changed = True
        self._idle.discard(key)
        since = held.status.idle_since
        if held.status.phase is not Phase.IDLE or since is None:
            return None
        self._idle.add(key)
        return Nanos(since + self._settings.grace_period)

    def look(self) -> None:
        """Evaluate again: a grace period is over."""
        self._changed = True

    def retry(self, tenant: str) -> None:
        """Try a tenant's jobs for quota again; where it is empty, all, and idle work."""
        self._changed |= not tenant
        self._inner.retry(tenant)

    def borrows(self, entry: Entry) -> bool:
        """Return what the quota engine states of it."""
        return self._inner.borrows(entry)

    def has_heads(self) -> bool:
        """Return whether there is anything to decide."""
        return self._changed or self._inner.has_heads()

    def decide(self, now: Nanos) -> Iterator[CycleResult | Placements | Reclaims]:
        """Give nodes until that changes nothing, then see whether idle work is to be preempted."""
        self._changed = False
        self._retries.clear()
        if self._together:
            yield from self._decide_together(now)
            return
        yield from self._given(now)
        if any(self._is_due(key, now) for key in self._idle):
            plans = self._evaluated(now)
            if plans or self._retries:
                yield Reclaims(plans, frozenset(self._retries))

    def _decide_together(self, now: Nanos) -> Iterator[CycleResult | Placements | Reclaims]:
        """Have the idle engine answer for would-be preemptors, and try those again."""
        answers = self._answers
        answers.begin(self._idle_pods())
        while True:
            yield from self._given(now)
            waiting = {key_of(job) for job in self._waiting()}
            plans: tuple[Reclaim, ...] = ()
            if any(self._is_due(key, now) for key in self._idle):
                plans = self._evaluated(now)
            if plans or self._retries:
                yield Reclaims(plans, frozenset(self._retries))
            again = (answers.asked & waiting) | {each.preemptor for each in plans}
            answers.asked.clear()
            answers.decline(waiting)
            if not again - {""}:
                return
            self._inner.activate(again)

    def _given(self, now: Nanos) -> Iterator[CycleResult | Placements]:
        """Give quota and nodes until that changes nothing."""
        if self._inner.has_heads():
            for found in self._inner.decide(now):
                yield found
                if isinstance(found, Placements):
                    self._note(found, now)
                if self._together:
                    self._note_displaced(found, now)

    def _note_displaced(self, found: CycleResult | Placements, now: Nanos) -> None:
        """Record what was preempted, by which job."""
        if isinstance(found, Placements):
            preempted = {key: [name for name, _ in victims] for key, victims, _ in found.preempted}
        else:
            preempted = {
                entry.workload.key: [target.holder.key for target in entry.issued]
                for entry in found.entries
                if entry.issued
            }
        for key, victims in preempted.items():
            devices = {name: self._devices[name] for name in victims}
            own, by_priority = self._precedence(self._jobs[key][0]), isinstance(found, Placements)
            of_quota = None if by_priority else ANY if self._reclaims_any else own
            bounds = own if by_priority else None, of_quota
            self._chains.displaced(now, key, devices, self._answers.decides, bounds)

    def _note(self, found: Placements, now: Nanos) -> None:
        """Record which jobs run."""
        started = {key for key, _ in found.started}
        for job, number, pods in self.placing.placed() if started else ():
            if key_of(job) in started:
                held = _Held(job, number, BUSY, Status())
                held.status = self._looked_at(held, idle_pods(job, pods, self._nodes[1]), now)
                self._held[key_of(job)] = held
                self._demands.pop(key_of(job), None)

    def _looked_at(self, held: _Held, pods: tuple[PodRow, ...], now: Nanos) -> Status:
        status = polled(held.status, pods, held.percent, now, self._policy)
        row = idle_workload(held.job, held.number, self._settings, status, pods)
        return stepped(row, self._policy, now)

    def _is_due(self, key: str, now: Nanos) -> bool:
        since = self._held[key].status.idle_since
        return since is not None and now - since >= self._settings.grace_period

    def _evaluated(self, now: Nanos) -> tuple[Reclaim, ...]:
        plans: list[Reclaim] = []
        refused = set[str]()
        # A plan that budgets do not allow is decided again, with fewer of those that do not fit,
        # and so is one that is not confirmed: its victims may help later demands.
        while self._carried_out(plans, refused, now):
            pass
        return tuple(plans)

    def _carried_out(self, plans: list[Reclaim], refused: set[str], now: Nanos) -> bool:
        """Evaluate once, and add what is carried out; whether it is to be decided again.

        `refused`: ids of plans that were not confirmed at this instant.
        """
        snapshot, found = self._evaluation(frozenset(refused), now)
        confirmed = []
        again = False
        for plan in found.plans:
            why = self._refusal(plan, now)
            if not why:
                confirmed.append(plan)
            elif why not in BY_PRIORITY:
                refused.add(plan.id)
                again = True
        if again:
            return True
        for plan, seen in before_each(found.plans, snapshot, found.reservations):
            if plan not in confirmed:
                continue
            wrong = check(plan, seen, self._policy, now)
            if wrong:
                raise IdleFault(f"policy {self._name}: {'; '.join(map(str, wrong))}")
            if not self._counts(plan, now):
                return True
            plans.append(self._committed(with_reasons(plan, seen.workloads, now), now))
        return False

    def _counts(self, plan: Plan, now: Nanos) -> bool:
        """Count who is preempted, unless harm budgets do not allow all of them together."""
        if not self._harm:
            return True
        demand = "" if plan.preemptor is None else _key(plan.preemptor)
        rules = {_key(victim.root): victim.rule for victim in plan.victims}
        asks, jobs = self._asking(demand), self._candidates(rules, now)
        return self._harm.counts(demand, asks, tuple(rules.items()), jobs, now)

    def _asking(self, demand: str) -> HarmSide | None:
        return None if not demand else NodeHarm.side(*self._jobs[demand])

    def _candidates(self, keys: Iterable[str], now: Nanos) -> Candidates:
        """Return jobs as budgets know them; time that one was idle is no work."""
        return {
            key: (
                NodeHarm.side(held.job, held.number),
                partial(self._lost, key, Nanos(min(now, held.status.idle_since or now))),
            )
            for key, held in ((key, self._held[key]) for key in keys)
        }

    def _lost(self, key: str, at: Nanos) -> int:
        job, start = self._held[key].job, self.placing.pods_of(key)[0].start
        return self._harm.lost(key, job, start, at)

    def _holds(
        self, rows: Sequence[Workload], demands: Sequence[Workload], now: Nanos
    ) -> dict[str, Mapping[Uid, Hold]]:
        """Return which roots budgets spare from each demand, and from none."""
        if not self._harm:
            return {}
        roots = {_key(row.root): row.root.uid for row in rows if row.status.phase is Phase.IDLE}
        jobs, found = self._candidates(roots, now), dict[str, Mapping[Uid, Hold]]()
        for demand in ("", *(str(each.key) for each in demands)):
            held = self._harm.held(demand, self._asking(demand), jobs, now)
            if held and (demand or self._settings.policy is PreemptionPolicy.ALWAYS):
                found[demand] = {roots[key]: hold for key, hold in held.items()}
                self._retries.update(hold.until for hold in held.values())
        return found

    def _evaluation(self, refused: frozenset[str], now: Nanos) -> tuple[IdleSnapshot, Evaluation]:
        """Return what is decided, with what the other planes name, and what it was decided on."""
        snapshot = replace(self._snapshot(now), refused=refused)
        found = evaluate(snapshot, self._policy, now)
        if not self._together:
            return snapshot, found
        work = idle_work(snapshot, found)
        units = idle_units(work, self.joint)
        released = {} if self.joint is None else releases(snapshot, work, units, self.joint, now)
        taken = {uid for each in released.values() for uid in each.roots}
        free = [unit for unit in units if unit.root not in taken]
        mixed = mixtures(snapshot, found, work, free, self.placing, now)
        if not released and not mixed:
            return snapshot, found
        snapshot = replace(snapshot, released=released, mixed=mixed)
        return snapshot, evaluate(snapshot, self._policy, now)

    def _refusal(self, plan: Plan, now: Nanos) -> str:
        """Return why the scheduling plane refuses a plan; empty where it does not."""
        if not self._together or not plan.placement or is_mixed(plan):
            return ""
        assert plan.preemptor is not None, "only demands are placed"
        victims = [_key(victim.root) for victim in plan.victims]
        gone = [pod.uid for key in victims for pod in self.placing.pods_of(key)]
        return self.placing.refusal(_key(plan.preemptor), gone, self._due_pods(now), now)

    def _idle_pods(self) -> frozenset[Uid]:
        return frozenset(pod.uid for key in self._idle for pod in self.placing.pods_of(key))

    def _due_pods(self, now: Nanos) -> frozenset[Uid]:
        """Return the pods of what has been idle for its grace period."""
        due = [key for key in self._idle if self._is_due(key, now)]
        return frozenset(pod.uid for key in due for pod in self.placing.pods_of(key))

    def _note_going(self) -> None:
        """Notify the other planes for which demands idle work is evicted."""
        going: dict[str, set[Uid]] = {}
        for key, root in self._claimed.items():
            whom = self._claims[root]
            if whom and self.placing.is_placed(key):
                going.setdefault(whom, set()).update(p.uid for p in self.placing.pods_of(key))
        self._answers.going = {whom: frozenset(pods) for whom, pods in going.items()}

    def _committed(self, plan: Plan, now: Nanos) -> Reclaim:
        """Mark the victims, and have them end."""
        demand = "" if plan.preemptor is None else _key(plan.preemptor)
        victims = []
        for victim in plan.victims:
            key = _key(victim.root)
            held = self._held[key]
            held.status = marked(held.status, demand.partition("/")[2], victim.reason)
            self._idle.discard(key)
            self._claims[victim.root.uid] = GpuWorkloadKey(demand) if demand else None
            self._claimed[key] = victim.root.uid
            if self.joint is not None:
                self.joint.evicted(held.job)
            else:
                self.placing.stopped(held.job)
            victims.append((key, victim.rule, victim.reason))
        if self._together:
            self._note_going()
            if is_mixed(plan):
                self._answers.beside.add(demand)
            devices = {key: self._devices[key] for key, *_ in victims}
            self._chains.displaced(now, demand, devices, asked=True)
        return Reclaim(demand, tuple(victims), plan.proof)

    def _snapshot(self, now: Nanos) -> IdleSnapshot:
        self._revision += 1
        self._retries.clear()
        pods = {
            key_of(job): idle_pods(job, rows, self._nodes[1])
            for job, _, rows in self.placing.placed()
        }
        rows, most = [], self._nodes[0] * self._nodes[1]
        for key, held in self._held.items():
            if held.status.phase in _PART:
                if held.status.phase is Phase.IDLE:
                    held.status = self._looked_at(held, pods[key], now)
                job, own = held.job, self._precedence(held.job)
                queued = own if self.joint is not None and self._together else None
                given = (self._settings, held.status, pods[key], own, queued)
                rows.append(idle_workload(job, held.number, *given))
            else:
                most -= held.job.devices  # what neither is free, nor idle, nor on its way
        demands = list(self._delays.demands(self._demand_rows(most, now), self._since, now))
        self._retries.update(each.preempts_from for each in demands if each.preempts_from > now)
        owned: dict[GpuWorkloadKey, Plane] = {}
        debts: dict[GpuWorkloadKey, Debt | None] = {}
        for demand in demands if self._together else ():
            if self.joint is not None and self.joint.waits_for_quota(demand.key):
                owned[demand.key] = Plane.QUOTA
            if self._chains.was_displaced(demand.key, now):
                debts[demand.key] = self._chains.debt(demand.key, now)
        return IdleSnapshot(
            self._revision,
            (*rows, *demands),
            free_rows(self._nodes, (each for of in pods.values() for each in of)),
            dict(self._claims),
            served=frozenset(each for each in self._claims.values() if each in self._held),
            owned=owned,
            displaced=frozenset(debts),
            debts={key: owed for key, owed in debts.items() if owed is not None},
            holds=self._holds(rows, demands, now),
        )

    def _waiting(self) -> Iterator[Job]:
        """Yield who waits for nodes, or for quota."""
        for job, *_ in self.placing.waiting():
            yield job
        for job, _ in self.joint.queued() if self.joint is not None else ():
            yield job

    def _demand_rows(self, most: int, now: Nanos) -> Iterator[Workload]:
        """Yield who waits for nodes, unless it is in vain for want of devices."""
        for job, number, pods in self.placing.waiting():
            if job.devices > most and not self._preempts:
                continue
            known = self._demands.get(key_of(job))
            if known is None or known[0] is not pods:
                waiting = idle_pods(job, pods, self._nodes[1])
                row = idle_workload(job, number, self._settings, Status(), waiting)
                status = stepped(row, self._policy, now)
                row = idle_workload(
                    job, number, self._settings, status, waiting, self._precedence(job)
                )
                known = self._demands[key_of(job)] = pods, row
            if known[1].status.phase is Phase.PENDING_GPU:
                yield known[1]
        for job, number in self.joint.queued() if self.joint is not None else ():
            if job.devices <= most or self._preempts:
                row = idle_workload(job, number, self._settings, Status(Phase.PENDING_OTHER), ())
                status = stepped(row, self._policy, now, quota_short=True)
                yield idle_workload(job, number, self._settings, status, (), self._precedence(job))

    def _precedence(self, job: Job) -> int:
        return (job.priority or 0) if self._together else 0


def _key(of: Reference) -> str:
    return f"{of.namespace}/{of.name}"

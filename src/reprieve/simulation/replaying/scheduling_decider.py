"""Deciding by the scheduling engine: jobs as gangs on nodes, and gangs that are preempted for them.

1. Who waits is tried in the order of priority, and then since when it waits, as in the plane's
   queue, by the engine's own attempts over one snapshot (`engine.scheduling.session`).
2. Who is placed holds its nodes at once. For whom victims were found, these hold theirs until they
   have left, and the nodes are kept for the preemptor as nominations, which others respect.
3. Every plan passes the proof that the plane runs before it carries one out.

A gang that was refused is tried again when a job has left, as nothing else frees capacity. Of those
that wait and are alike in width and priority only the first is tried until then: the others get the
same answer. There is no backoff, which a cluster has to spare its scheduler.

Beside the idle plane (`idle_decider`) it preempts no work before that has answered, waits for pods
that leave already, and states whether it would place a gang without the idle work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, Gone, GroupRow, Kind, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.harm_budgets.budget import HarmSide
from reprieve.engine.mixed import IdlePods, Mixture
from reprieve.engine.placement.reasons import Code
from reprieve.engine.quota.entries import Entry
from reprieve.engine.scheduling.confirming import MOST_AHEAD, refusal
from reprieve.engine.scheduling.mixtures import mixture
from reprieve.engine.scheduling.nodes.leaving import NONE_DEFERRED, Delayed, left_out
from reprieve.engine.scheduling.outcome import Attempt, Nominate, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.simulation.domains import NO_DOMAINS, Domains
from reprieve.simulation.policy import SCHEDULING, PolicySpec
from reprieve.simulation.replaying.deciding import Placements
from reprieve.simulation.replaying.delays import Delays
from reprieve.simulation.replaying.harm import Candidates, NodeHarm, governor_of
from reprieve.simulation.replaying.joint_answers import Answers
from reprieve.simulation.replaying.node_cluster import (
    group_of,
    node_rows,
    notice_name,
    notice_row,
    pods_of,
)
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.work import Saved
from reprieve.simulation.trace import Job
from reprieve.units.errors import ReprieveError
from reprieve.units.ids import Uid
from reprieve.wording.kube_scheduler import explanation_text

__all__ = ["PlacingFault", "SchedulingDecider"]


Holds = Mapping[Unit, Mapping[Uid, Hold]]
_NO_HOLDS: Final[Holds] = MappingProxyType({})


class PlacingFault(ReprieveError):
    """The engine failed to decide, or what it decided does not pass its proof."""


@dataclass(slots=True)
class _Gang:
    job: Job
    number: int
    group: GroupRow
    pods: list[PodRow]
    since: int
    claims: bool = False  # its victims are leaving

    @property
    def order(self) -> tuple[int, int, int]:
        return (-self.group.priority, self.since, self.number)

    @property
    def unit(self) -> Unit:
        return Unit(tuple(pod.uid for pod in self.pods), self.group.key)

    @property
    def shape(self) -> tuple[int, int, str]:
        return (self.job.devices, self.group.priority, self.group.topology_key)

    @property
    def side(self) -> HarmSide:
        return NodeHarm.side(self.job, self.number)


class SchedulingDecider:
    """The scheduling engine on nodes that are all alike."""

    def __init__(
        self,
        policy: PolicySpec,
        nodes: tuple[int, int],
        saved: Callable[[str, Nanos], Saved],
        governor: Governor | None = None,
        domains: Domains = NO_DOMAINS,
    ) -> None:
        """`nodes`: how many, and the devices of each; `saved` returns what a job saved by then.

        `governor`: that of all planes, None where this one decides alone.
        """
        self.governor = governor or governor_of(policy)
        self._harm = NodeHarm(self.governor, SCHEDULING, saved)
        count, self._node_devices = nodes
        self._name, self._preempts = policy.name, policy.preempts
        self._delays = Delays(policy.node_delay, policy.governor.emergency_priority)
        together = len(policy.planes) > 1
        self._policy = policy.placing.beside_others() if together else policy.placing
        self._scheduler = self._policy.profiles[0].scheduler_name
        self._saved = saved
        self._cluster = Cluster()
        self._cluster.apply(node_rows(count, self._node_devices, domains))
        self._free = count * self._node_devices
        self._waiting: dict[str, _Gang] = {}
        self._running: dict[str, _Gang] = {}
        self._widths: Counter[int] = Counter()  # of those that wait
        self.waiting_devices = 0  # that those request who wait
        self._times: Counter[str] = Counter()  # how often each has waited
        self._ready: set[str] = set()  # who is to be tried
        self._going: set[str] = set()  # who is preempted and has not left
        self.answers: Answers | None = None  # of the idle plane, where it decides beside this one
        self._fruitless: dict[str, tuple[object, ...]] = {}
        self._let_go: set[str] = set()  # whose nodes are no longer kept, as they do not suffice
        self._version = 0

    @property
    def stranded(self) -> int:
        """Return the devices that are free while a job waits that requests no more than that."""
        return self._free if self._widths and min(self._widths) <= self._free else 0

    def waits(self, job: Job, number: int, now: Nanos) -> None:
        """Queue a job; `number` is its place in the order of arrivals."""
        key = key_of(job)
        again = self._times[key]
        self._times[key] += 1
        pods = pods_of(job, number, again, self._node_devices, self._scheduler, self._preempts)
        group = group_of(job, number, len(pods), self._next(), self._preempts)
        self._cluster.apply([group, *pods])
        self._waiting[key] = _Gang(job, number, group, pods, now)
        self._widths[job.devices] += 1
        self.waiting_devices += job.devices
        self._ready.add(key)

    def left(self, job: Job) -> None:
        """Remove a job from its nodes; waiting ones may fit now."""
        self._forget(self._running.pop(key_of(job)))
        self._going.discard(key_of(job))
        self._free += job.devices

    def stopped(self, job: Job) -> None:
        """Delete the pods of a job: those that run end in their time, the others at once."""
        gang = self._running.get(key_of(job))
        if gang is None:
            self._forget(self._waiting.pop(key_of(job)))
            self._ready.discard(key_of(job))
            self._ends_waiting(key_of(job))
            self._waits_no_more(job.devices)
        elif key_of(job) not in self._going:
            self._going.add(key_of(job))
            gang.pods = [replace(pod, version=self._next(), deleting=True) for pod in gang.pods]
            self._cluster.apply(gang.pods)

    def waiting(self) -> Iterator[tuple[Job, int, list[PodRow]]]:
        """Yield who waits for nodes: the job, its place in the order of arrivals, its pods."""
        for gang in self._waiting.values():
            yield gang.job, gang.number, gang.pods

    def placed(self) -> Iterator[tuple[Job, int, list[PodRow]]]:
        """Yield who is on nodes, also while it leaves them, likewise."""
        for gang in self._running.values():
            yield gang.job, gang.number, gang.pods

    def pods_by_job(self) -> dict[str, list[Uid]]:
        """Return the pods of all jobs that are on nodes, or wait for them."""
        gangs = {**self._waiting, **self._running}
        return {key: [pod.uid for pod in gang.pods] for key, gang in gangs.items()}

    def pods_of(self, key: str) -> list[PodRow]:
        """Return the pods of a job that is on nodes."""
        return self._running[key].pods

    def is_placed(self, key: str) -> bool:
        """Return whether a job is on nodes, also while it leaves them."""
        return key in self._running

    def retry(self, tenant: str) -> None:
        """Try all again: a harm budget does not spare a job any more."""
        self._ready.update(self._waiting)

    def activate(self, jobs: Collection[str]) -> None:
        """Try these jobs again, those of them that wait for nodes."""
        self._ready.update(self._waiting.keys() & set(jobs))

    def snapshot(self) -> Snapshot:
        """Return nodes and pods as they are now."""
        return self._cluster.snapshot()

    def refusal(self, job: str, gone: Collection[Uid], idle: Collection[Uid], now: Nanos) -> str:
        """Return why a job would not be placed without others; empty if it would.

        Where fewer of the pods of idle work are to be evicted by priority, only those may be.
        """
        ahead = self._ahead_of(self._waiting[job])
        why, fewer = refusal(
            self.snapshot(),
            self._policy,
            [self._waiting[job].unit],
            frozenset(gone),
            frozenset(idle) | frozenset(gone),
            frozenset(),
            now // SECOND,
            {},
            ahead,
            by_priority=self._preempts,
            preempting=ahead if self._preempts else (),
        )
        if fewer and self.answers is not None:
            self.answers.among[job] = fewer
        return why

    def _ahead_of(self, gang: _Gang) -> list[Unit]:
        """Return the first gangs of higher priority that wait as well."""
        higher = (
            each for each in self._waiting.values() if each.group.priority > gang.group.priority
        )
        return [each.unit for each in sorted(higher, key=lambda each: each.order)[:MOST_AHEAD]]

    def mixture(
        self, job: str, idle: Sequence[IdlePods], now: Nanos, most: int = 0
    ) -> Mixture | None:
        """Return which idle work to evict for a job beside victims by priority, if that helps."""
        progress = self._cluster.progress
        asked = (progress.helped, progress.joined, tuple(idle), most)
        if job not in self._waiting or self._fruitless.get(job) == asked:
            return None
        snapshot = self.snapshot()
        begin = partial(self._began, snapshot, now // SECOND)
        found = mixture(snapshot, [self._waiting[job].unit], idle, begin, most)
        if found is None and not self._policy.timed:
            self._fruitless[job] = asked
        return found

    def _began(
        self, snapshot: Snapshot, seconds: int, waits: Delayed, holds: Holds = _NO_HOLDS
    ) -> Session:
        return Session(snapshot, self._policy, now=seconds, waits=waits, holds=holds)

    def borrows(self, entry: Entry) -> bool:
        """Report that none does: there are no quotas."""
        return False

    def has_heads(self) -> bool:
        """Return whether any job is to be tried."""
        return bool(self._ready)

    def decide(self, now: Nanos) -> Iterator[Placements]:
        """Try those that are ready, the first first, until none is."""
        if self._policy.harm_order:
            self._note_saves(now)
        self._let_go.clear()
        while self._ready:
            queue = sorted((self._waiting[key] for key in self._ready), key=lambda gang: gang.order)
            self._ready.clear()
            refused: set[tuple[object, ...]] = set()
            while queue:
                found, queue = self._session(now, queue, refused)
                if found.started or found.preempted or found.retries:
                    yield found

    def _session(
        self, now: Nanos, queue: list[_Gang], refused: set[tuple[object, ...]]
    ) -> tuple[Placements, list[_Gang]]:
        """Try gangs over one snapshot; return what was decided, and who needs another one."""
        snapshot, seconds = self._cluster.snapshot(), now // SECOND
        waits, again = self._delays.added(
            self._delay({key_of(gang.job): gang.unit for gang in queue}),
            ((gang.unit, gang.since, gang.group.priority) for gang in queue),
            now,
        )
        jobs = self._candidates(now)
        session = self._began(snapshot, seconds, waits, self._holds(queue, jobs, now))
        started, preempted, done, retries = [], [], [], set[Nanos]()
        for place, gang in enumerate(queue):
            if self._shape(gang) in refused and not gang.claims and not waits.concerns(gang.unit):
                continue
            attempt = session.attempt(gang.unit)
            if attempt is None:
                rest = queue[place:]
                break
            self._prove(session, attempt, seconds)
            if not self._counts(gang, attempt, jobs, now):
                rest = queue[place:]
                break
            done.append((gang, attempt))
            if attempt.held is not None and attempt.plan is None:
                retries.add(attempt.held.until)
            if attempt.code is not Code.SUCCESS and gang.unit in again:
                retries.add(again[gang.unit])
            if attempt.code is Code.SUCCESS:
                started.append((key_of(gang.job), tuple(each.bind for each in attempt.members)))
            elif attempt.plan is not None:
                found = self._preemption(gang, attempt)
                if found[1]:
                    preempted.append(found)
            elif not waits.concerns(gang.unit):
                refused.add(self._shape(gang))
        else:
            rest = []
        for gang, attempt in done:
            nominated = any(pod.nominated for pod in gang.pods)
            self._note(gang, attempt, seconds)
            self._note_answer(gang, attempt)
            if nominated and not gang.claims and attempt.code is not Code.SUCCESS:
                self._note_let_go(key_of(gang.job))
        return Placements(tuple(started), tuple(preempted), frozenset(retries)), rest

    def _shape(self, gang: _Gang) -> tuple[object, ...]:
        """Return what makes gangs alike; budgets may answer tenants differently."""
        return (*gang.shape, gang.job.tenant) if self._harm else gang.shape

    def _candidates(self, now: Nanos) -> Candidates:
        """Return who is on nodes and does not leave, as budgets know them."""
        if not self._harm:
            return {}
        return {
            key: (gang.side, partial(self._lost, gang, now))
            for key, gang in self._running.items()
            if key not in self._going
        }

    def _lost(self, gang: _Gang, now: Nanos) -> int:
        return self._harm.lost(key_of(gang.job), gang.job, gang.pods[0].start, now)

    def _holds(self, queue: Sequence[_Gang], jobs: Candidates, now: Nanos) -> Holds:
        """Return which pods budgets spare from each of these gangs."""
        found: dict[Unit, Mapping[Uid, Hold]] = {}
        for gang in queue if jobs else ():
            lower = {
                key: each
                for key, each in jobs.items()
                if self._running[key].group.priority < gang.group.priority
            }
            held = self._harm.held(key_of(gang.job), gang.side, lower, now)
            if held:
                found[gang.unit] = {
                    pod.uid: hold for key, hold in held.items() for pod in self._running[key].pods
                }
        return found

    def _counts(self, gang: _Gang, attempt: Attempt, jobs: Candidates, now: Nanos) -> bool:
        """Count who is preempted, unless budgets do not allow all of them together."""
        if attempt.plan is None or not self._harm:
            return True
        rules: dict[str, str] = {}
        for victim in attempt.plan.victims:
            if victim.unit in jobs and victim.unit not in self._going:
                rules.setdefault(victim.unit, victim.rule)
        return self._harm.counts(key_of(gang.job), gang.side, tuple(rules.items()), jobs, now)

    def _delay(self, units: Mapping[str, Unit]) -> Delayed:
        return NONE_DEFERRED if self.answers is None else self.answers.waits(units)

    def _note_answer(self, gang: _Gang, attempt: Attempt) -> None:
        """Forget what the idle plane stated of a gang once it is placed, or has its victims."""
        key, answers = key_of(gang.job), self.answers
        if answers is None:
            return
        if attempt.code is Code.SUCCESS or attempt.plan is not None:
            self._ends_waiting(key)
        elif key in answers.among:
            # They do not help any more: the next attempt is as always.
            del answers.among[key]
            self._ready.add(key)

    def _note_let_go(self, key: str) -> None:
        """Try others again, since what was kept for a gang is kept no longer."""
        if self.answers is not None and key not in self._let_go:
            self._let_go.add(key)
            self._ready.update(self._waiting.keys() - {key})

    def _ends_waiting(self, key: str) -> None:
        self._fruitless.pop(key, None)
        if self.answers is not None:
            self.answers.forget(key)

    def _prove(self, session: Session, attempt: Attempt, now: int) -> None:
        if attempt.code is Code.ERROR:
            said = "; ".join(explanation_text(each) for each in attempt.status)
            raise PlacingFault(f"policy {self._name}: {attempt.unit.group}: {said}")
        if attempt.plan is None:
            return
        beside = frozenset[Uid]()
        if self.answers is not None:
            beside = self.answers.pods_beside(attempt.unit.group)
        snapshot = left_out(session.snapshot, beside)
        faults = faults_of(snapshot, self._policy, attempt, now, session.nominations)
        if faults:
            raise PlacingFault(f"policy {self._name}: {attempt.unit.group}: {faults[0]}")

    def _preemption(
        self, gang: _Gang, attempt: Attempt
    ) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """Return the preemptor, its victims with their rules, and what is stated about it."""
        assert attempt.plan is not None
        assert attempt.preemption is not None
        rules: dict[str, str] = {}
        for victim in attempt.plan.victims:
            if victim.unit not in self._going:  # else it is preempted for another job already
                rules.setdefault(victim.unit, victim.rule)
        self._going.update(rules)
        why = explanation_text(attempt.preemption.explanation)
        return key_of(gang.job), tuple(rules.items()), why

    def _note(self, gang: _Gang, attempt: Attempt, now: int) -> None:
        """Make what was decided about a gang the state of the cluster."""
        key = key_of(gang.job)
        if attempt.code is Code.SUCCESS:
            nodes = {each.uid: each.bind for each in attempt.members}
            gang.pods = [
                replace(pod, version=self._next(), node=nodes[pod.uid], nominated="", start=now)
                for pod in gang.pods
            ]
            gang.claims = False
            del self._waiting[key]
            # Another gang's answer may have had it tried again within the same instant.
            self._ready.discard(key)
            self._running[key] = gang
            self._free -= gang.job.devices
            self._waits_no_more(gang.job.devices)
        else:
            named = {each.uid: each.nominate for each in attempt.members}
            gang.pods = [self._nominated(pod, named.get(pod.uid)) for pod in gang.pods]
            gang.claims = attempt.plan is not None or any(pod.nominated for pod in gang.pods)
        changed = list(gang.pods)
        for victim in sorted({each.unit for each in attempt.plan.victims} if attempt.plan else ()):
            going = self._running[victim]
            going.pods = [
                replace(pod, version=self._next(), deleting=True, preempted=True)
                for pod in going.pods
            ]
            changed += going.pods
        self._cluster.apply(changed)

    def _nominated(self, pod: PodRow, named: str | Nominate | None) -> PodRow:
        if named is None or named is Nominate.KEEP:
            return pod
        node = named if isinstance(named, str) else ""
        return replace(pod, version=self._next(), nominated=node)

    def _forget(self, gang: _Gang) -> None:
        """Remove pods and group from the cluster; others may fit where they were, or would be."""
        group = gang.group
        self._cluster.apply(
            [
                *(Gone(Kind.POD, pod.uid, pod.namespace, pod.name) for pod in gang.pods),
                *(Gone(Kind.NOTICE, *notice_name(pod)) for pod in gang.pods if gang.job.notice),
                Gone(Kind.GROUP, group.uid, group.namespace, group.name),
            ]
        )
        self._ready.update(self._waiting)

    def _waits_no_more(self, devices: int) -> None:
        self.waiting_devices -= devices
        self._widths[devices] -= 1
        if not self._widths[devices]:
            del self._widths[devices]

    def _note_saves(self, now: Nanos) -> None:
        """Have jobs state up to when they are saved, as by an annotation of the group."""
        changed: list[Change] = []
        for key, gang in self._running.items():
            saved = self._saved(key, now)
            if saved.terms.time:
                changed += (notice_row(pod, saved.terms) for pod in gang.pods)
            found = saved.at
            said = 0 if found is None else found // SECOND
            if said != gang.group.checkpoint:
                gang.group = replace(gang.group, version=self._next(), checkpoint=said)
                changed.append(gang.group)
        if changed:
            self._cluster.apply(changed)

    def _next(self) -> int:
        self._version += 1
        return self._version

"""The cycle of a gang group: all its pending pods one after the other, then Permit.

1. Each pod is placed on its nominated node or the best one; it then waits for its siblings.
2. As soon as every gang of the group has its minimum, all that wait are bound: the cycle is over.
3. The first pod that does not fit ends the cycle. With `placement: search` all pods are first
   placed again by search, without victims; then the whole job preempts, once per cycle.
4. If no pod failed and the minimum is not reached, those with a node wait in Permit, each for the
   time of its own gang; so do all when the one that did not fit is of a NonStrict gang, unless
   preemption has thrown them out.

Pods of a gang never preempt one by one. Source: specification of gang jobs, sections 5 to 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.cheapest import placed_exactly
from reprieve.engine.scheduling.gangs.job import (
    Job,
    JobOptions,
    JobPreemption,
    JobReason,
    Placement,
)
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job
from reprieve.engine.scheduling.gangs.records import MatchPolicy
from reprieve.engine.scheduling.gangs.search import search
from reprieve.engine.scheduling.nodes.placing import Choose, Placing, place_members
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    GangCycle,
    Member,
    Nominate,
    Preemption,
    Sentence,
    Unit,
    UnitVictim,
)
from reprieve.engine.scheduling.plans import plan_of
from reprieve.units.ids import Uid

__all__ = ["GANG_KEY", "GangGroup", "GangState", "schedule_alone", "schedule_gang"]

GANG_KEY: Final = "gang:"  # before a group's id in keys of queue entries and units

_KEPT: Final = frozenset(
    {
        JobReason.ALREADY_ATTEMPTED,
        JobReason.NO_PENDING_PODS,
        JobReason.POLICY_NEVER,
        JobReason.TERMINATING,
        JobReason.NO_NODES,
    }
)


@dataclass(frozen=True, slots=True)
class GangState:
    """One gang of a group as it stands before a cycle. `waiting`: in Permit, with their node.

    `tolerated`: percent of the minimum that may be missing before a strict gang gives nodes back;
    None: it does so whenever a member does not fit.
    """

    id: str
    minimum: int
    policy: str = MatchPolicy.ONCE_SATISFIED
    strict: bool = True
    waiting: tuple[tuple[Uid, str], ...] = ()
    bound: int = 0
    wait: int = 0  # nanoseconds
    tolerated: int | None = None


@dataclass(frozen=True, slots=True)
class GangGroup:
    """The gangs that are scheduled together. `others`: bound pods of all other gangs, by gang."""

    id: str
    gangs: tuple[GangState, ...]
    satisfied: bool = False
    others: tuple[tuple[Uid, ...], ...] = ()

    @property
    def waiting(self) -> tuple[tuple[Uid, str], ...]:
        """Return all members that wait in Permit."""
        return tuple(each for gang in self.gangs for each in gang.waiting)


class _Permit:
    """Counts those who wait until all gangs have their minimum."""

    def __init__(self, group: GangGroup) -> None:
        self._group = group
        self._waiting = {gang.id: len(gang.waiting) for gang in group.gangs}

    def admit(self, gang: str) -> bool:
        """Count one more; return whether all may be bound."""
        self._waiting[gang] = self._waiting.get(gang, 0) + 1
        return all(self._enough(each) for each in self._group.gangs)

    def _enough(self, gang: GangState) -> bool:
        waiting = self._waiting[gang.id]
        if gang.policy == MatchPolicy.ONLY_WAITING:
            return waiting >= gang.minimum
        if gang.policy == MatchPolicy.WAITING_AND_RUNNING:
            return waiting + gang.bound >= gang.minimum
        return waiting >= gang.minimum or self._group.satisfied


def schedule_gang(
    simulation: Simulation,
    unit: Unit,
    group: GangGroup,
    queued: Sequence[Pending],
    options: JobOptions,
    choose: Choose,
) -> Attempt:
    """Return the end of the group's cycle; pods that got a node stay in the simulation."""
    permit = _Permit(group)
    placed: list[Placed] = []
    for number, pending in enumerate(queued):
        placing, own = place_members(simulation, [pending], 0, 1, choose)
        if not own:
            return _failed(simulation, unit, group, queued, placed, number, placing, options)
        placed += own
        if permit.admit(pending.row.gang):
            return _bound(simulation, unit, group, queued, placed)
    return _parked(simulation, unit, group, queued, placed)


def schedule_alone(
    simulation: Simulation, unit: Unit, pending: Pending, options: JobOptions, choose: Choose
) -> Attempt:
    """Return the end of the cycle of a pod that preempts as a job of one, or never."""
    placing, _ = place_members(simulation, [pending], 0, 1, choose)
    row = pending.row
    if placing.nodes[0] >= 0:
        return Attempt(unit, Code.SUCCESS, (Member(row.uid, _name(simulation, placing)),))
    member = Member(row.uid, diagnosis=placing.diagnoses[0])
    if placing.error:
        member = replace(member, nominate=Nominate.CLEAR)
        return Attempt(unit, Code.ERROR, (member,), scheduler_error=True)
    if not options.enabled:
        return Attempt(unit, Code.UNSCHEDULABLE, (member,))
    key = f"{row.namespace}/{row.name}"
    others = tuple(uids for gang, uids in options.gangs if gang != row.gang)
    job = Job(key, pending, (pending,), gangs=others)
    found = preempt_for_job(simulation, job, options.policy)
    cycle = GangCycle(key, row.uid, found, pods=1)
    return _preempted(simulation.snapshot, unit, [pending], [], {row.uid: member}, found, cycle)


# How cycles end.


def _bound(
    simulation: Simulation,
    unit: Unit,
    group: GangGroup,
    queued: Sequence[Pending],
    placed: Sequence[Placed],
) -> Attempt:
    nodes = _nodes(simulation.snapshot, placed)
    members = tuple(Member(p.row.uid, bind=nodes.get(p.row.uid, "")) for p in queued)
    before = group.waiting
    total = len(queued) + len(before)
    cycle = GangCycle(group.id, bound_before=before, waiting=len(nodes) + len(before), pods=total)
    return Attempt(unit, Code.SUCCESS, members, gang=cycle)


def _parked(
    simulation: Simulation,
    unit: Unit,
    group: GangGroup,
    queued: Sequence[Pending],
    placed: Sequence[Placed],
) -> Attempt:
    nodes = _nodes(simulation.snapshot, placed)
    members = tuple(Member(pending.row.uid) for pending in queued)
    waiting = len(nodes) + len(group.waiting)
    cycle = GangCycle(
        group.id,
        parked=tuple(nodes.items()),
        waits=_waits(group, placed),
        waiting=waiting,
        pods=len(queued) + len(group.waiting),
    )
    return Attempt(unit, Code.UNSCHEDULABLE, members, gang=cycle)


def _failed(
    simulation: Simulation,
    unit: Unit,
    group: GangGroup,
    queued: Sequence[Pending],
    placed: list[Placed],
    number: int,
    placing: Placing,
    options: JobOptions,
) -> Attempt:
    snapshot = simulation.snapshot
    trigger = queued[number]
    members = {p.row.uid: Member(p.row.uid) for p in queued}
    members[trigger.row.uid] = Member(trigger.row.uid, diagnosis=placing.diagnoses[0])
    before = group.waiting
    cycle = GangCycle(
        group.id,
        trigger.row.uid,
        waiting=len(placed) + len(before),
        pods=len(queued) + len(before),
        surplus=_surplus(group, len(queued)),
    )
    if placing.error:
        _unplace(simulation, placed)
        failed = tuple(members.values())
        return Attempt(unit, Code.ERROR, failed, scheduler_error=True, gang=cycle)
    nodes, waits = _nodes(snapshot, placed), _waits(group, placed)
    siblings = sum(p.pending is not None and p.pending.row.gang == trigger.row.gang for p in placed)
    gives_back = _gives_back(group, trigger.row.gang, siblings)
    searching = options.policy.placement is Placement.SEARCH
    if searching:
        _unplace(simulation, placed)
        found = _without_victims(simulation, queued)
        if found is not None:
            return _bound(simulation, unit, group, queued, found)
    if not options.enabled:
        _unplace(simulation, placed)
        cycle = _kept_or_rejected(group, cycle, nodes, waits, gives_back=gives_back)
        return Attempt(unit, Code.UNSCHEDULABLE, tuple(members.values()), gang=cycle)
    job = Job(
        group.id,
        trigger,
        tuple(queued) if searching else tuple(p for p in queued if p.row.uid not in nodes),
        before if searching else (*before, *nodes.items()),
        gangs=group.others,
    )
    preemption = preempt_for_job(simulation, job, options.policy)
    _unplace(simulation, placed)
    cycle = replace(cycle, job=preemption)
    if preemption.reason in _KEPT:
        cycle = _kept_or_rejected(group, cycle, nodes, waits, gives_back=gives_back)
        return Attempt(unit, Code.UNSCHEDULABLE, tuple(members.values()), gang=cycle)
    cycle = replace(cycle, rejected=tuple(uid for uid, _ in before))
    waiting = [] if searching else list(nodes.items())
    return _preempted(snapshot, unit, queued, [*before, *waiting], members, preemption, cycle)


def _surplus(group: GangGroup, queued: int) -> int:
    """Return how many pods of a group are beyond the minimums of its gangs."""
    have = queued + sum(len(gang.waiting) + gang.bound for gang in group.gangs)
    return max(0, have - sum(gang.minimum for gang in group.gangs))


def _preempted(
    snapshot: Snapshot,
    unit: Unit,
    queued: Sequence[Pending],
    waiting: Sequence[tuple[Uid, str]],
    members: dict[Uid, Member],
    found: JobPreemption,
    cycle: GangCycle,
) -> Attempt:
    """Return the attempt with nominations made or cleared, and the plan of the victims."""
    if found.reason is not JobReason.SUCCESS:
        nominate = Nominate.KEEP if found.reason in _KEPT else Nominate.CLEAR
        cleared = tuple(replace(member, nominate=nominate) for member in members.values())
        return Attempt(unit, Code.UNSCHEDULABLE, cleared, gang=cycle)
    nodes = {**dict(waiting), **dict(found.nominated)}
    nominated = tuple(
        replace(member, nominate=nodes.get(member.uid, Nominate.KEEP))
        for member in members.values()
    )
    preemption = Preemption(
        Code.SUCCESS,
        Explanation(Sentence.FOUND_GROUP, (len(found.slots),)),
        victims=_units(snapshot, found),
        nominated=found.nominated,
        violating=found.violating,
        reprieved=found.reprieved,
        gap=found.gap,
    )
    trigger = next(pending for pending in queued if pending.row.uid == cycle.trigger)
    plan = plan_of(snapshot, trigger, queued, preemption, cycle.key, best=found.best)
    return Attempt(
        unit, Code.UNSCHEDULABLE, nominated, preemption=preemption, plan=plan, gang=cycle
    )


def _units(snapshot: Snapshot, found: JobPreemption) -> tuple[UnitVictim, ...]:
    """Return the victims: single pods in the order of decision, then gangs evicted as a whole."""
    together = {slot for gang in found.gangs for slot in gang}
    alone = ((slot,) for slot in found.slots if slot not in together)
    priority = snapshot.pod_priority
    return (
        *(UnitVictim(pods, int(priority[pods[0]])) for pods in alone),
        *(
            UnitVictim(pods, int(priority[list(pods)].max()), whole_group=True)
            for pods in found.gangs
        ),
    )


def _kept_or_rejected(
    group: GangGroup,
    cycle: GangCycle,
    nodes: dict[Uid, str],
    waits: tuple[int, ...],
    *,
    gives_back: bool,
) -> GangCycle:
    """A strict gang gives back every node of its group when its member does not fit."""
    if gives_back:
        rejected = tuple(uid for uid, _ in group.waiting)
        return replace(cycle, rejected=rejected, gave_back=True)
    return replace(cycle, parked=tuple(nodes.items()), waits=waits)


def _gives_back(group: GangGroup, id: str, placed: int) -> bool:
    """Whether the gang of the member that does not fit rejects all; `placed`: its members."""
    gang = next((gang for gang in group.gangs if gang.id == id), None)
    if gang is None or (gang.strict and gang.tolerated is None):
        return True
    if gang.tolerated is None or not gang.strict:
        return False
    missing = gang.minimum - gang.bound - len(gang.waiting) - placed
    return missing * 100 > gang.tolerated * gang.minimum


def _without_victims(simulation: Simulation, queued: Sequence[Pending]) -> list[Placed] | None:
    size = len(simulation.snapshot.nodes)
    found = search(simulation, queued, np.arange(size), np.ones(size, np.bool_))
    if found is None and simulation.policy.best:
        found = placed_exactly(simulation, queued, np.ones(size, np.bool_))
    if found is None:
        return None
    return [simulation.place(pending, node) for pending, node in zip(queued, found, strict=True)]


def _unplace(simulation: Simulation, placed: list[Placed]) -> None:
    for pod in reversed(placed):
        simulation.unplace(pod)
    placed.clear()


def _waits(group: GangGroup, placed: Sequence[Placed]) -> tuple[int, ...]:
    of_gang = {gang.id: gang.wait for gang in group.gangs}
    return tuple(of_gang.get(p.pending.row.gang, 0) for p in placed if p.pending is not None)


def _nodes(snapshot: Snapshot, placed: Sequence[Placed]) -> dict[Uid, str]:
    return {
        pod.pending.row.uid: snapshot.nodes[pod.node].name
        for pod in placed
        if pod.pending is not None
    }


def _name(simulation: Simulation, placing: Placing) -> str:
    return simulation.snapshot.nodes[placing.nodes[0]].name

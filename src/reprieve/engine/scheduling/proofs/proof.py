"""An independent look at a decision before it is carried out, and once more if things changed.

An attempt is held against a snapshot, the one it was decided on or a newer one: are the victims of
its plan there, of a lower priority, beyond their minimum runtime, not held by the governor of
disruptions, and complete where a group is evicted as a whole; and do all pods that it binds or
nominates pass all filters on their nodes, beside each other, once exactly these victims are removed
and the nominations of others are respected? On the snapshot that it was decided on it is also
checked whether a victim could stay (`irreducible`), and where the least costly victims were
searched for whether there are better ones (`dearer`); what was deleted meanwhile is no reason to
drop a plan. Nothing of the search for victims is used, only filters compiled anew. The executor
refuses an attempt with faults. Source: promises "Feasible" and "Irreducible" of the design;
specification 7.3 and 7.7.

What comes back as one: a group that is evicted as a whole; where `nonUniformGroups` is on also a
group with a floor or a leader, if the plan names it as one; of older gangs, which the snapshot does
not know, what the plan names as one where `victimGangs` is All; else each pod by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Nomination, Pending, Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.scheduling.gangs.job import Budgets, JobPolicy, VictimGangs
from reprieve.engine.scheduling.gangs.possible import protected_labels
from reprieve.engine.scheduling.nodes.nominations import kept_for_others, nominations_of
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.engine.scheduling.proofs.dearer import (
    beats_bound,
    costs_more_than_plain,
    fits_below,
    is_checked,
    promised,
)
from reprieve.engine.scheduling.proofs.irreducible import Going, could_stay
from reprieve.engine.scheduling.victims.floors import torn_groups
from reprieve.engine.scheduling.victims.held import held_until
from reprieve.engine.scheduling.victims.hierarchy import (
    as_preemptor,
    effective_priority,
    members_of,
    whole_groups,
)
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from reprieve.engine.scheduling.victims.planned_victims import slots_of_plan, units_of_plan
from reprieve.units.ids import Uid

__all__ = ["Fault", "faults_of", "feasibility_faults_of"]


_NOBODY_HELD: Final[Mapping[Uid, Hold]] = MappingProxyType({})


class Fault(StrEnum):
    """What is wrong with a decision."""

    UNKNOWN_VICTIM = "the victim is not there"
    NAMED_TWICE = "the victim is named twice"
    NOT_LOWER = "the victim's priority is not below the preemptor's"
    TORN_GROUP = "a group that is evicted as a whole is not named as a whole"
    UNKNOWN_MEMBER = "the pod does not wait"
    UNKNOWN_NODE = "the node is not there"
    UNKNOWN_PROFILE = "no profile has the scheduler name"
    NOT_FEASIBLE = "the pod does not pass on its node without the victims"
    SHORT = "fewer members have a node than the group needs"
    PROTECTED = "the victim is within its minimum runtime"
    HELD = "the governor holds the victim from the preemptor"
    REDUCIBLE = "the victim could stay"
    TOO_HIGH = "the pod fits without the victims of lower priorities alone"
    ABOVE_BOUND = "the victim could stay with fewer pods, or less work, lost than the plan states"
    DEARER = "a plain choice of victims costs less than the plan states as possible"
    BELOW_FLOOR = "a group loses too many pods, or pods of a whole group are named in part"


def faults_of(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    now: int = 0,
    nominations: Iterable[Nomination] | None = None,
    victim_gangs: VictimGangs = VictimGangs.ALL,
    holds: Mapping[Uid, Hold] = _NOBODY_HELD,
    overdue: Collection[Uid] = (),
    jobs: JobPolicy | None = None,
) -> tuple[PlanFault, ...]:
    """Return what is wrong with an attempt decided on this snapshot; nothing for a good one.

    `now`: Unix seconds, for a policy that is `timed`. `nominations`: those in force when it was
    decided, where there are others than the snapshot's. `victim_gangs`: whether older gangs may be
    evicted as one. `holds`: which work was held from the unit. `overdue`: earlier victims that
    should have ended, and that a group is evicted without. `jobs`: the options of older gangs;
    without them it is not checked whether one's victims are the least costly.
    """
    found = (
        *_faults(snapshot, policy, attempt, now, nominations, victim_gangs, overdue),
        *_held(snapshot, policy, attempt, holds),
    )
    if found or attempt.plan is None or attempt.plan.proof.profile != VictimChoice.BEST:
        return found
    allowed, budgets = None, True
    if attempt.gang is not None:
        allowed = _allowed(snapshot, attempt, jobs)
        if allowed is None:
            return found
        budgets = jobs is None or jobs.budgets is not Budgets.IGNORE
    return _dearer(
        snapshot, policy, attempt, now, nominations, holds, overdue, allowed, budgets=budgets
    )


def feasibility_faults_of(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    now: int = 0,
    overdue: Collection[Uid] = (),
    gone: Collection[Uid] = (),
) -> tuple[PlanFault, ...]:
    """Return why an attempt may not be carried out on a snapshot other than its own.

    `gone`: pods that leave beside its victims.
    """
    return _faults(snapshot, policy, attempt, now, None, None, overdue, gone)


def _faults(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    now: int,
    nominations: Iterable[Nomination] | None,
    victim_gangs: VictimGangs | None,
    overdue: Collection[Uid],
    gone: Collection[Uid] = (),
) -> tuple[PlanFault, ...]:
    """Return what is wrong; whether a victim could stay is left out without `victim_gangs`."""
    placed = _placed(snapshot, attempt)
    pods = [snapshot.pending.get(uid) for uid, _ in placed]
    faults = [*_unknown(snapshot, placed, pods)]
    group = _group(snapshot, policy, attempt)
    slots = slots_of_plan(snapshot, attempt)
    # Older gangs know pods and no groups of the API.
    grouped = attempt.plan is not None and attempt.gang is None and policy.gates.generic_workload
    together = _together(snapshot, policy) if grouped else None
    if attempt.plan is not None:
        faults += _victims(snapshot, policy, attempt, group, slots, together, overdue)
        faults += _protected(snapshot, policy, attempt, slots, now)
        if group is not None and group.composite:
            waiting_pods = [pending for pending in pods if pending is not None]
            if not waiting_pods or not _tree_reached(snapshot, group, waiting_pods):
                faults.append(PlanFault(Fault.SHORT, "", group.key))
        elif len(placed) < (needed := _needed(snapshot, attempt, group)):
            faults.append(PlanFault(Fault.SHORT, "", f"{len(placed)}/{needed}"))
    if faults or not placed:
        return tuple(faults)
    members = [
        (pending, snapshot.node_index[node])
        for pending, (_, node) in zip(pods, placed, strict=True)
        if pending is not None
    ]
    entry = snapshot.classes[members[0][0].pod_class]
    assert entry is not None, "a pod's class is never free"
    profile = policy.profile(entry.scheduler_name)
    if profile is None:
        return (PlanFault(Fault.UNKNOWN_PROFILE, "", entry.scheduler_name),)
    simulation = Simulation(snapshot, policy, profile)
    simulation.remove(_with(slots, snapshot, gone))
    if nominations is None:
        nominations = nominations_of(snapshot, policy)
    simulation.respect(_kept(snapshot, attempt, group, nominations))
    unplaceable = _unplaceable(simulation, members)
    if unplaceable or victim_gangs is None or not len(slots):
        return unplaceable
    going = Going(slots, units_of_plan(snapshot, policy, attempt, slots, together, victim_gangs))
    tried_again = policy.second_reprieve_pass and (group is not None or attempt.gang is not None)
    return tuple(
        PlanFault(Fault.REDUCIBLE, snapshot.pod_keys[int(pods[0])], f"{len(pods)}")
        for pods in could_stay(simulation, members, going, tried_again=tried_again)
    )


def _with(slots: I64, snapshot: Snapshot, gone: Collection[Uid]) -> I64:
    """Return the victims with the pods that leave beside them, each once."""
    if not gone:
        return slots
    nodes = snapshot.pod_node.tolist()
    others = [at for at, uid in enumerate(snapshot.pod_uids) if uid in gone and nodes[at] >= 0]
    return np.union1d(slots, np.array(others, np.int64))


def _dearer(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    now: int,
    nominations: Iterable[Nomination] | None,
    holds: Mapping[Uid, Hold],
    overdue: Collection[Uid],
    allowed: Mask | None,
    *,
    budgets: bool,
) -> tuple[PlanFault, ...]:
    """Return what is wrong with victims that are stated to be the least costly ones.

    `allowed`: (slots,) which pods may be victims of an older gang, None for other preemptors.
    `budgets`: they count.
    """
    assert attempt.plan is not None
    slots = slots_of_plan(snapshot, attempt)
    if not len(slots):
        return ()
    group = _group(snapshot, policy, attempt)
    evictable = _evictable(snapshot, policy, now, holds, overdue)
    priority = effective_priority(snapshot, policy)
    if allowed is not None:
        # Older gangs compare the pods' own priorities, whatever groups of the API they are in.
        evictable, priority = evictable & allowed, snapshot.pod_priority
    members = [snapshot.pending[uid] for uid, _ in attempt.plan.placement]
    entry = snapshot.classes[members[0].pod_class]
    assert entry is not None, "a pod's class is never free"
    profile = policy.profile(entry.scheduler_name)
    assert profile is not None, "its members were placed"
    simulation = Simulation(snapshot, policy, profile)
    if nominations is None:
        nominations = nominations_of(snapshot, policy)
    simulation.respect(_kept(snapshot, attempt, group, nominations))
    faults = []
    nodes = [snapshot.node_index[node] for _, node in attempt.plan.placement]
    placed = list(zip(members, nodes, strict=True))
    rest, least = (slots, evictable, priority), attempt.plan.proof.gap == 0
    if least:
        victim = beats_bound(simulation, placed, *rest, now, budgets=budgets)
        if victim is not None:
            faults.append(PlanFault(Fault.ABOVE_BOUND, snapshot.pod_keys[victim]))
    if not is_checked(policy, group):
        return tuple(faults)
    if least and costs_more_than_plain(simulation, placed, *rest, now, budgets=budgets):
        faults.append(PlanFault(Fault.DEARER, str(members[0].row.uid), f"{len(slots)}"))
    if (least or promised(simulation, members)) and fits_below(simulation, members, *rest):
        faults.append(PlanFault(Fault.TOO_HIGH, str(members[0].row.uid), f"{len(members)}"))
    return tuple(faults)


def _evictable(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    holds: Mapping[Uid, Hold],
    overdue: Collection[Uid],
) -> Mask:
    """Return whose end makes capacity, (slots,): who neither ends already nor must stay."""
    evictable: Mask = snapshot.pod_node >= 0
    for until in (
        protected_until(snapshot, policy, now, []),
        held_until(snapshot, policy, holds, []) if holds else None,
    ):
        if until is not None:
            evictable &= until == 0
    if overdue:
        evictable &= np.array([uid not in overdue for uid in snapshot.pod_uids], np.bool_)
    return evictable


def _allowed(snapshot: Snapshot, attempt: Attempt, jobs: JobPolicy | None) -> Mask | None:
    """Return which pods an older gang may evict, (slots,); None where that is not known here.

    It is not where gangs are evicted as a whole, budgets may not be broken, or members have a node
    already.
    """
    if jobs is None or jobs.victim_gangs is not VictimGangs.POD or jobs.budgets is Budgets.REQUIRE:
        return None
    if attempt.gang is None or attempt.gang.waiting:
        return None
    return ~protected_labels(snapshot, jobs)[snapshot.pod_labels]


def _unknown(
    snapshot: Snapshot, placed: Sequence[tuple[Uid, str]], pods: Sequence[Pending | None]
) -> Iterator[PlanFault]:
    """Yield the pods and nodes of the plan that are not there."""
    for (uid, _), pending in zip(placed, pods, strict=True):
        if pending is None or pending.row.deleting:
            yield PlanFault(Fault.UNKNOWN_MEMBER, str(uid))
    for uid, node in placed:
        if node not in snapshot.node_index:
            yield PlanFault(Fault.UNKNOWN_NODE, str(uid), node)


def _placed(snapshot: Snapshot, attempt: Attempt) -> list[tuple[Uid, str]]:
    """Return the pods that are to get a node, with its name, in the order of placement."""
    if attempt.plan is None:
        return [(member.uid, member.bind) for member in attempt.members if member.bind]
    planned = dict(attempt.plan.placement)
    # Members of a gang that fit without victims keep the node that they were given, before all.
    fitting = {
        member.uid: member.nominate
        for member in attempt.members
        if isinstance(member.nominate, str)
        and member.uid in snapshot.pending
        and member.uid not in planned
    }
    return list({**fitting, **planned}.items())


def _group(snapshot: Snapshot, policy: Policy, attempt: Attempt) -> GroupRow | None:
    """Return the preemptor's group, with the priority at which it preempts."""
    if attempt.gang is not None:
        return None
    index = snapshot.group_index.get(attempt.unit.group, -1)
    row = snapshot.group_rows[index] if index >= 0 else None
    if row is None:
        return None
    waiting = [snapshot.pending[uid] for uid in attempt.unit.pods if uid in snapshot.pending]
    return as_preemptor(snapshot, policy, row, waiting)


def _priority(snapshot: Snapshot, attempt: Attempt, group: GroupRow | None) -> int:
    """Return the preemptor's priority: the group's, or the pod's; of a gang its trigger's."""
    if group is not None:
        return group.priority
    uid = attempt.unit.pods[0]
    if attempt.gang is not None and attempt.gang.trigger is not None:
        uid = attempt.gang.trigger
    pending = snapshot.pending.get(uid)
    return pending.row.priority if pending is not None else 0


def _needed(snapshot: Snapshot, attempt: Attempt, group: GroupRow | None) -> int:
    """Return how many waiting pods need a node in this plan: of a gang all of them."""
    if attempt.gang is not None:
        return sum(uid in snapshot.pending for uid in attempt.unit.pods)
    if group is None or group.min_count is None:
        return 1
    return max(1, group.min_count - len(members_of(snapshot, group)))


def _victims(
    snapshot: Snapshot,
    policy: Policy,
    attempt: Attempt,
    group: GroupRow | None,
    slots: I64,
    together: I32 | None,
    overdue: Collection[Uid],
) -> list[PlanFault]:
    assert attempt.plan is not None
    there = (slots >= 0) & (snapshot.pod_node[slots] >= 0)
    gone = [attempt.plan.victims[at].root for at in np.flatnonzero(~there).tolist()]
    found = [PlanFault(Fault.UNKNOWN_VICTIM, f"{ref.namespace}/{ref.name}") for ref in gone]
    slots = slots[there]
    effective = snapshot.pod_priority
    if together is not None:
        effective = effective_priority(snapshot, policy)
    priority = _priority(snapshot, attempt, group)
    keys = snapshot.pod_keys
    found += [
        PlanFault(Fault.NOT_LOWER, keys[slot], str(effective[slot]))
        for slot in slots[effective[slots] >= priority].tolist()
    ]
    unique, counts = np.unique(slots, return_counts=True)
    found += [PlanFault(Fault.NAMED_TWICE, keys[slot]) for slot in unique[counts > 1].tolist()]
    if together is not None:
        found += _torn(snapshot, together, slots, overdue)
        found += [
            PlanFault(Fault.BELOW_FLOOR, snapshot.group_keys[group])
            for group in sorted(torn_groups(snapshot, policy, slots))
        ]
    return found


def _protected(
    snapshot: Snapshot, policy: Policy, attempt: Attempt, slots: I64, now: int
) -> list[PlanFault]:
    assert attempt.plan is not None
    until = protected_until(snapshot, policy, now, _older_gangs(attempt, slots))
    return [] if until is None else _not_yet(snapshot, slots, until, Fault.PROTECTED)


def _held(
    snapshot: Snapshot, policy: Policy, attempt: Attempt, holds: Mapping[Uid, Hold]
) -> list[PlanFault]:
    if attempt.plan is None or not holds:
        return []
    slots = slots_of_plan(snapshot, attempt)
    until = held_until(snapshot, policy, holds, _older_gangs(attempt, slots))
    return [] if until is None else _not_yet(snapshot, slots, until, Fault.HELD)


def _older_gangs(attempt: Attempt, slots: I64) -> list[I64]:
    """Return the slots of victims that are evicted as one and are in no group of the API."""
    whole: dict[str, list[int]] = {}
    if attempt.gang is not None and attempt.plan is not None:
        for victim, slot in zip(attempt.plan.victims, slots.tolist(), strict=True):
            if victim.unit and slot >= 0:
                whole.setdefault(victim.unit, []).append(slot)
    return [np.array(gang, np.int64) for gang in whole.values()]


def _not_yet(snapshot: Snapshot, slots: I64, until: I64, fault: Fault) -> list[PlanFault]:
    return [
        PlanFault(fault, snapshot.pod_keys[slot], str(until[slot]))
        for slot in slots[(slots >= 0) & (until[slots] > 0)].tolist()
    ]


def _together(snapshot: Snapshot, policy: Policy) -> I32:
    """Return the group with which each pod is evicted as a whole, -1 for none: (slots,)."""
    return whole_groups(snapshot, policy)[snapshot.pod_group.astype(np.intp)]


def _torn(
    snapshot: Snapshot, together: I32, slots: I64, overdue: Collection[Uid]
) -> list[PlanFault]:
    """Search torn groups; `together`: (slots,) the group each pod is evicted with, or -1."""
    size = len(snapshot.group_rows) + 1
    # A pod that is being deleted counts as evicted with the others without being named: no unit may
    # wait for it.
    stays = (snapshot.pod_node >= 0) & (snapshot.pod_flags & Flag.DELETING == 0)
    if overdue:
        stays &= np.array([uid not in overdue for uid in snapshot.pod_uids], np.bool_)
    stays[slots] = True
    # Those that are evicted alone count as the group 0.
    named = np.bincount(together[slots] + 1, minlength=size)[1:]
    there = np.bincount((together + 1)[stays], minlength=size)[1:]
    return [
        PlanFault(Fault.TORN_GROUP, snapshot.group_keys[group], f"{named[group]}/{there[group]}")
        for group in np.flatnonzero((named > 0) & (named != there)).tolist()
    ]


def _tree_reached(snapshot: Snapshot, group: GroupRow, waiting: list[Pending]) -> bool:
    """Return whether a group has its minimum with these pods, and those that run already."""
    index = snapshot.group_index[group.key]
    if not group.composite:
        got = len(members_of(snapshot, group)) + sum(
            f"{pending.row.namespace}/{pending.row.group}" == group.key for pending in waiting
        )
    else:
        children = (snapshot.group_rows[c] for c in snapshot.trees.children.get(index, ()))
        got = sum(c is not None and _tree_reached(snapshot, c, waiting) for c in children)
    return got >= (1 if group.min_count is None else group.min_count)


def _kept(
    snapshot: Snapshot,
    attempt: Attempt,
    group: GroupRow | None,
    nominations: Iterable[Nomination],
) -> dict[int, tuple[Pending, ...]]:
    """Return what the members have to fit beside: no member may use what is kept above it."""
    queued = [snapshot.pending[uid].row for uid in attempt.unit.pods if uid in snapshot.pending]
    queued = [row for row in queued if not row.deleting]
    own = frozenset(row.uid for row in queued)
    priority = (
        group.priority if group is not None else min((row.priority for row in queued), default=0)
    )
    return kept_for_others(snapshot, nominations, own, attempt.unit.group, priority)


def _unplaceable(
    simulation: Simulation, waiting: list[tuple[Pending, int]]
) -> tuple[PlanFault, ...]:
    """Place the members; return those that do not pass, if any."""
    while waiting:
        # One may need another beside it that comes later.
        later = []
        for pending, node in waiting:
            if simulation.code_at(pending, node):
                later.append((pending, node))
            else:
                simulation.place(pending, node)
        if len(later) == len(waiting):
            names = simulation.snapshot.nodes
            return tuple(
                PlanFault(Fault.NOT_FEASIBLE, str(pending.row.uid), names[node].name)
                for pending, node in waiting
            )
        waiting = later
    return ()

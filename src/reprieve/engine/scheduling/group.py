"""One scheduling cycle of a pod group or a tree of them: place what fits, else look for victims.

1. pods that are being deleted or have a node already are dropped;
2. the pods must agree with each other and with the group (`uniformity`);
3. the queued pods are placed; when the minimum is met, what fits is bound and no work is evicted;
   the rest keeps the capacity that was made for the group;
4. otherwise the profile's PodGroupPostFilter plugins run in order until one succeeds or states that
   nothing helps.

Source: specification, sections 4 to 6, 9.5 and 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.nodes.tree_placing import place_unit, statuses_below
from reprieve.engine.scheduling.nodes.uniformity import disagreement
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    GroupStatus,
    Member,
    Nominate,
    Preemption,
    Sentence,
    Unit,
)
from reprieve.engine.scheduling.plugins import PostFilter, run_post_filters
from reprieve.units.ids import Uid

__all__ = ["endless_tree", "missing_group", "schedule_group"]


def schedule_group(
    simulation: Simulation,
    unit: Unit,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    post_filters: Sequence[tuple[str, PostFilter]],
) -> Attempt:
    """Return the end of the group's cycle; placed members stay in the simulation on success.

    `group`: with the priority at which it preempts. The pods of a tree are in placement order.
    """
    snapshot = simulation.snapshot
    odd = disagreement(snapshot, group, queued, policy)
    if odd is not None:
        failed = _failed(unit, queued, (odd,), scheduler_error=True)
        return _with_parts(failed, queued, statuses_below(snapshot, group, odd))
    placing = place_unit(simulation, group, queued, policy, choose)
    attempt = _after(simulation, unit, group, queued, policy, choose, post_filters, placing)
    return _with_parts(replace(attempt, placements=placing.placements), queued, placing.parts)


def _with_parts(
    attempt: Attempt, queued: Sequence[Pending], parts: tuple[GroupStatus, ...]
) -> Attempt:
    """Return the attempt with the statuses of a tree's groups, if it is one."""
    if not parts:
        return attempt
    groups = {p.row.uid: f"{p.row.namespace}/{p.row.group}" for p in queued}
    members = tuple(replace(member, group=groups[member.uid]) for member in attempt.members)
    return replace(attempt, members=members, parts=parts)


def _after(
    simulation: Simulation,
    unit: Unit,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    post_filters: Sequence[tuple[str, PostFilter]],
    placing: GroupPlacing,
) -> Attempt:
    """Return what follows from the placement: bindings, an error, or a search for victims."""
    if placing.error:
        status = (placing.failure,) if placing.failure is not None else ()
        return _failed(unit, queued, status, scheduler_error=True, placing=placing)
    if placing.failure is None:
        return _placed(simulation, unit, queued, placing)
    found = run_post_filters(post_filters, simulation, group, queued, policy, choose, placing)
    said: tuple[Explanation, ...] = (placing.failure, *found.explanations)
    if found.error:
        return _failed(unit, queued, said, scheduler_error=True, preemption=found.preemption)
    return _waiting(unit, queued, placing, said, found.preemption)


def _placed(
    simulation: Simulation, unit: Unit, queued: Sequence[Pending], placing: GroupPlacing
) -> Attempt:
    names = simulation.snapshot.nodes
    handed_on = _handed_on(simulation.snapshot, queued, placing.nodes)
    members = tuple(
        Member(pending.row.uid, bind=names[node].name, nominate=Nominate.KEEP)
        if node >= 0
        else Member(
            pending.row.uid,
            nominate=handed_on.get(pending.row.uid, Nominate.KEEP),
            diagnosis=diagnosis,
        )
        for pending, node, diagnosis in zip(queued, placing.nodes, placing.diagnoses, strict=True)
    )
    return Attempt(unit, Code.SUCCESS, members)


def _handed_on(
    snapshot: Snapshot, queued: Sequence[Pending], nodes: Sequence[int]
) -> dict[Uid, str]:
    """Return new nominated nodes of members without a node whose own ones siblings use.

    A sibling that is placed where another one was nominated leaves the capacity that was freed for
    it; the other members get that capacity, since otherwise it would be lost to others and victims
    would be searched for again.
    """
    made = [snapshot.node_index.get(pending.row.nominated, -1) for pending in queued]
    left = [index for index, node in enumerate(made) if node >= 0 and nodes[index] != node]
    for index, node in enumerate(nodes):
        if node >= 0 and node != made[index]:
            chosen = next((other for other in left if made[other] == node), None)
            if chosen is not None:
                left.remove(chosen)
    waiting = [index for index, node in enumerate(nodes) if node < 0]
    wanting = [index for index in waiting if made[index] >= 0 and index not in left]
    left = [index for index in left if index not in waiting]
    found = {}
    for index in wanting:
        room = next((o for o in left if _covers(snapshot, queued[o], queued[index])), None)
        if room is not None:
            left.remove(room)
            found[queued[index].row.uid] = queued[room].row.nominated
    return found


def _covers(snapshot: Snapshot, one: Pending, other: Pending) -> bool:
    """Whether the capacity of one pod is enough for another."""
    first, second = snapshot.classes[one.pod_class], snapshot.classes[other.pod_class]
    assert first is not None and second is not None, "a pod's class is never free"
    room = dict(first.requests)
    return all(room.get(name, 0) >= amount for name, amount in second.requests)


def _waiting(
    unit: Unit,
    queued: Sequence[Pending],
    placing: GroupPlacing,
    status: tuple[Explanation, ...],
    preemption: Preemption | None,
) -> Attempt:
    """Nominations of 9.5: as preemption has them; else members that had fitted lose theirs."""
    nominated = dict(preemption.nominated) if preemption is not None else {}
    succeeded = preemption is not None and preemption.code is Code.SUCCESS
    members = []
    for pending, node, diagnosis in zip(queued, placing.nodes, placing.diagnoses, strict=True):
        nominate: str | Nominate = nominated.get(pending.row.uid, Nominate.KEEP)
        if not succeeded and node >= 0:
            nominate = Nominate.CLEAR
        members.append(Member(pending.row.uid, nominate=nominate, diagnosis=diagnosis))
    return Attempt(
        unit,
        Code.UNSCHEDULABLE,
        tuple(members),
        status,
        preemption=preemption,
        elsewhere=placing.elsewhere,
    )


def _failed(
    unit: Unit,
    queued: Sequence[Pending],
    status: tuple[Explanation, ...],
    *,
    scheduler_error: bool,
    placing: GroupPlacing | None = None,
    preemption: Preemption | None = None,
) -> Attempt:
    diagnoses = (None,) * len(queued) if placing is None else placing.diagnoses
    members = tuple(
        Member(pending.row.uid, nominate=Nominate.CLEAR, diagnosis=diagnosis)
        for pending, diagnosis in zip(queued, diagnoses, strict=True)
    )
    return Attempt(unit, Code.ERROR, members, status, scheduler_error, preemption)


def missing_group(unit: Unit) -> Attempt:
    """Return the end of a cycle of a group without object: its pods wait for it."""
    return Attempt(
        unit,
        Code.UNRESOLVABLE,
        tuple(Member(uid) for uid in unit.pods),
        (Explanation(Sentence.NO_GROUP, (unit.group.partition("/")[2],)),),
    )


def endless_tree(unit: Unit, levels: int) -> Attempt:
    """Return the end of a cycle of a group with too many levels above it: nothing is tried."""
    name = unit.group.partition("/")[2]
    members = tuple(Member(uid) for uid in unit.pods)
    status = (Explanation(Sentence.TOO_MANY_LEVELS, (name, levels)),)
    return Attempt(unit, Code.ERROR, members, status, scheduler_error=True)

"""An independent look at a scheduling plan before it is carried out.

The plan is held against a snapshot, the one it was decided on or a newer one: are its victims
there, of a lower priority and complete where a group goes as a whole; and do all members that it
nominates pass all filters on their nodes, in order, once exactly these victims are gone? Nothing of
the search for victims is used, only filters compiled anew. Whoever carries out a plan refuses one
with faults. Source: promise "Feasible" of the design; specification 7.3 and 7.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from reprieve.engine.cluster.snapshot import I64, Pending, Snapshot
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import UnitVictim
from reprieve.units.ids import Uid

__all__ = ["Fault", "PlanFault", "prove"]


class Fault(StrEnum):
    """What is wrong with a scheduling plan."""

    UNKNOWN_VICTIM = "the victim is not there"
    NAMED_TWICE = "the victim is named twice"
    NOT_LOWER = "the victim's priority is not below the preemptor's"
    TORN_GROUP = "a group that goes as a whole is not named as a whole"
    UNKNOWN_MEMBER = "the pod is not pending"
    UNKNOWN_NODE = "the node is not there"
    NOT_FEASIBLE = "the pod does not pass on its node with the victims gone"
    SHORT = "fewer members have a node than the group needs"


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One fault; `subject` is the pod concerned, `detail` a node, a number or a filter."""

    fault: Fault
    subject: str
    detail: str = ""


def prove(
    snapshot: Snapshot,
    policy: Policy,
    profile: Profile,
    *,
    priority: int,
    minimum: int,
    victims: Sequence[UnitVictim],
    nominated: Sequence[tuple[Uid, str]],
    order: Sequence[Uid],
) -> tuple[PlanFault, ...]:
    """Return what is wrong with a plan; nothing for one that may be carried out.

    `priority`: the preemptor's. `minimum`: how many of its pods need a node in this plan. `order`:
    the preemptor's pods in placement order.
    """
    slots = np.array([slot for unit in victims for slot in unit.pods], np.int64)
    faults = [
        *_victims(snapshot, policy, priority, victims, slots),
        *_members(snapshot, dict(nominated), minimum),
    ]
    if faults:
        return tuple(faults)
    simulation = Simulation(snapshot, policy, profile)
    simulation.remove(slots)
    nodes = dict(nominated)
    for pending in _in_order(snapshot, order, nodes):
        name = nodes[pending.row.uid]
        node = snapshot.node_index[name]
        if simulation.code_at(pending, node):
            return (PlanFault(Fault.NOT_FEASIBLE, str(pending.row.uid), name),)
        simulation.place(pending, node)
    return ()


def _in_order(snapshot: Snapshot, order: Sequence[Uid], nodes: dict[Uid, str]) -> list[Pending]:
    return [snapshot.pending[uid] for uid in order if uid in nodes]


def _victims(
    snapshot: Snapshot, policy: Policy, priority: int, victims: Sequence[UnitVictim], slots: I64
) -> list[PlanFault]:
    keys = snapshot.pod_keys
    if len(slots) and int(slots.max()) >= len(snapshot.pod_node):
        return [PlanFault(Fault.UNKNOWN_VICTIM, "")]
    effective = snapshot.effective_priority(policy.gates.generic_workload)
    found = [
        PlanFault(Fault.UNKNOWN_VICTIM, keys[slot])
        for slot in slots[snapshot.pod_node[slots] < 0].tolist()
    ]
    found += [
        PlanFault(Fault.NOT_LOWER, keys[slot], str(effective[slot]))
        for slot in slots[effective[slots] >= priority].tolist()
    ]
    unique, counts = np.unique(slots, return_counts=True)
    found += [PlanFault(Fault.NAMED_TWICE, keys[slot]) for slot in unique[counts > 1].tolist()]
    if not policy.gates.generic_workload:
        return found
    whole = np.array([r is not None and r.all_or_nothing for r in snapshot.group_rows], np.bool_)
    groups = snapshot.pod_group[slots]
    named = np.bincount(groups[groups >= 0], minlength=len(whole))
    placed = snapshot.pod_group[(snapshot.pod_group >= 0) & (snapshot.pod_node >= 0)]
    there = np.bincount(placed, minlength=len(whole))
    found += [
        PlanFault(Fault.TORN_GROUP, snapshot.group_keys[group], f"{named[group]}/{there[group]}")
        for group in np.flatnonzero(whole & (named > 0) & (named != there)).tolist()
    ]
    return found


def _members(snapshot: Snapshot, nominated: dict[Uid, str], minimum: int) -> list[PlanFault]:
    found = []
    for uid, node in nominated.items():
        if uid not in snapshot.pending:
            found.append(PlanFault(Fault.UNKNOWN_MEMBER, str(uid)))
        if node not in snapshot.node_index:
            found.append(PlanFault(Fault.UNKNOWN_NODE, str(uid), node))
    if len(nominated) < minimum:
        found.append(PlanFault(Fault.SHORT, "", f"{len(nominated)}/{minimum}"))
    return found

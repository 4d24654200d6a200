"""Capacity that is being freed: pods that end already, and others about to be evicted.

A unit whose minimum fits once the pods that end have ended waits for that capacity, and no other
pod is evicted for it; it is nominated to these nodes, so that the capacity is kept. Where the idle
plane evicts idle pods for a unit and leaves the rest to priority (`mixtures`), victims are searched
for as if these were evicted. Only where several planes decide together: kube-scheduler waits for
its own victims alone. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.nominations import Saving
from reprieve.engine.scheduling.nodes.placing import Choose, place_members
from reprieve.engine.scheduling.nodes.tree_placing import place_unit
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    Nominate,
    Preemption,
    Sentence,
    Unit,
)
from reprieve.units.ids import Uid

__all__ = [
    "DEFERRED",
    "NONE_DEFERRED",
    "Delayed",
    "are_named",
    "leaving_slots",
    "left_out",
    "room_on_its_way",
    "with_gone",
    "without_room",
]


@dataclass(frozen=True, slots=True)
class Delayed:
    """Which of some units wait before any pod is evicted for them.

    `deferred`: another plane has not answered, or evicts for them. `patient`: they wait for pods
    that end already, where those suffice. `until`: monotonic, when that ends by itself. `among`:
    the only pods that may be victims of a unit; `without`: pods that another plane evicts for a
    unit, which needs more capacity than they leave. `slots`: of all these pods, where known.
    `delayed`: units that preempt from then on, Unix nanoseconds. `saving`: the plans whose
    victims save, the oldest first.
    """

    deferred: frozenset[Unit] = frozenset()
    patient: frozenset[Unit] = frozenset()
    until: Mapping[Unit, int] = field(default_factory=dict)
    among: Mapping[Unit, frozenset[Uid]] = field(default_factory=dict)
    without: Mapping[Unit, frozenset[Uid]] = field(default_factory=dict)
    slots: Mapping[Uid, int] | None = None
    delayed: Mapping[Unit, Nanos] = field(default_factory=dict)
    saving: Sequence[Saving] = ()

    def holds(self, unit: Unit) -> bool:
        """Whether nothing is evicted for the unit yet."""
        return unit in self.deferred or unit in self.delayed

    def concerns(self, unit: Unit) -> bool:
        """Whether what is stated of the unit changes how its attempt ends."""
        return self.holds(unit) or unit in self.among or unit in self.without


#: Where one plane decides alone.
NONE_DEFERRED: Final = Delayed()
#: The end of a search for victims that another plane has not answered yet.
DEFERRED: Final = Preemption(
    Code.UNSCHEDULABLE, Explanation(Sentence.SILENT), evaluated=False, keep_nominations=True
)


def leaving_slots(
    simulation: Simulation, gone: Collection[Uid] = (), known: Mapping[Uid, int] | None = None
) -> I64:
    """Return the slots of pods that end, and of `gone`: (pods,). `known`: see `are_named`.

    Pods that should have ended by now (`evictable`) are not waited for.
    """
    snapshot = simulation.snapshot
    there = simulation.present & simulation.evictable
    leaves = (snapshot.pod_flags & Flag.DELETING) > 0
    if gone:
        leaves |= are_named(snapshot, gone, known)
    return np.flatnonzero(there & leaves)


def are_named(
    snapshot: Snapshot, uids: Collection[Uid], known: Mapping[Uid, int] | None = None
) -> NDArray[np.bool_]:
    """Return which slots are pods of these uids: (slots,).

    `known`: slots of all pods that are ever queried; a scan of all texts costs more than placing a
    gang.
    """
    slots = snapshot.pod_uids
    if known is None:
        named = frozenset(uids)
        return np.fromiter(map(named.__contains__, slots), np.bool_, len(slots))
    found = np.zeros(len(slots), np.bool_)
    found[[known[uid] for uid in uids if uid in known]] = True
    return found


def left_out(snapshot: Snapshot, uids: Collection[Uid]) -> Snapshot:
    """Return the snapshot as it is without the pods of these uids."""
    slots = np.flatnonzero(are_named(snapshot, uids) & (snapshot.pod_node >= 0)) if uids else ()
    if not len(slots):
        return snapshot
    nodes, used = snapshot.pod_node.copy(), snapshot.used.copy()
    scored = snapshot.scored.copy()
    for slot in slots:
        entry = snapshot.classes[snapshot.pod_class[slot]]
        assert entry is not None, "a pod's class is never free"
        used[nodes[slot]] -= snapshot.pod_requests[slot]
        scored[nodes[slot]] -= (entry.scored_cpu, entry.scored_memory)
        nodes[slot] = -1
    for each in (nodes, used, scored):
        each.setflags(write=False)
    return replace(snapshot, pod_node=nodes, used=used, scored=scored)


def _places_without(
    simulation: Simulation,
    slots: I64,
    group: GroupRow | None,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
) -> tuple[tuple[Uid, str], ...]:
    """Return a node for each pod that has one without the pods of `slots`; empty below the minimum.

    Without a group each of the pods has to have one. The simulation is left as it was.
    """
    before = simulation.checkpoint()
    simulation.remove(slots)
    try:
        if group is None:
            found, _ = place_members(simulation, queued, 0, len(queued), choose)
            nodes, failed = found.nodes, found.failure is not None or found.error
        else:
            placing = place_unit(simulation, group, queued, policy, choose)
            nodes, failed = placing.nodes, placing.failure is not None or placing.error
    finally:
        simulation.rollback(before)
    if failed:
        return ()
    names = simulation.snapshot.nodes
    return tuple(
        (pending.row.uid, names[node].name)
        for pending, node in zip(queued, nodes, strict=True)
        if node >= 0
    )


def with_gone(
    gone: frozenset[Uid],
    known: Mapping[Uid, int] | None,
    preempt: Callable[..., Preemption],
    simulation: Simulation,
    *given: Any,
) -> Preemption:
    """Search for victims without these pods; the simulation is left as it was."""
    if not gone:
        return preempt(simulation, *given)
    before = simulation.checkpoint()
    there = simulation.present & are_named(simulation.snapshot, gone, known)
    simulation.remove(np.flatnonzero(there))
    try:
        return preempt(simulation, *given)
    finally:
        simulation.rollback(before)


def without_room(attempt: Attempt) -> Attempt:
    """Remove the nominated nodes of all members of a rejected unit, also those not tried now.

    Otherwise the other members would keep capacity that is of no use: the unit does not fit with it
    any more.
    """
    found = attempt.preemption
    lacks = attempt.code is Code.UNSCHEDULABLE and attempt.plan is None
    if not lacks or found is None or not found.evaluated or found.nominated:
        return attempt
    cleared = (replace(each, nominate=Nominate.CLEAR) for each in attempt.members)
    return replace(attempt, members=tuple(cleared))


def room_on_its_way(
    simulation: Simulation,
    group: GroupRow | None,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    planned: Collection[Uid] = (),
    known: Mapping[Uid, int] | None = None,
) -> Preemption | None:
    """Return that the unit waits for pods that end already; None where they do not suffice.

    `planned`: victims of plans that are about to be carried out.
    """
    slots = leaving_slots(simulation, planned, known)
    if not len(slots):
        return None
    placed = _places_without(simulation, slots, group, queued, policy, choose)
    if not placed:
        return None
    return Preemption(
        Code.SUCCESS,
        Explanation(Sentence.ONGOING),
        nominated=placed,
        evaluated=False,
        keep_nominations=True,
    )

"""By option, no quota is preempted for what would still not fit on nodes.

Quota is a sum, nodes are not: four GPUs that come free on four nodes are no node of four. Before
any eviction the whole preemptor is placed, in a copy of the nodes in which the pods of its victims
are removed, as are those that leave anyway. Capacity is kept for those that were promised it: pods
of other workloads that hold quota and have no node yet, nominated pods, and what this run has
admitted or preempted for before.

Pods are placed one after the other, the largest first, on the node with the least capacity left, so
that a preemptor whose pods are not all alike may be refused although some arrangement exists.
Checked are the filters that need nothing but the pod's template: node selector and affinity,
taints, ports, resources, hard topology spread and required pod affinity. Volumes and devices are
left to the scheduler, since claims are made for pods that exist.

Source: issue contract of the quota plane ("beyond the reference").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.cluster.snapshot import Snapshot as Nodes
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.profile import FilterName, Policy, Profile
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.placed import placing_keys
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.made_places import (
    ByRules,
    Leaver,
    MayGo,
    nodes_planned,
    places_made,
)
from reprieve.engine.quota.model import ResourceFlavor, Workload
from reprieve.engine.quota.proofs.making_room import Leaving, pods_to_evict
from reprieve.engine.quota.proofs.pod_uses import PodUses
from reprieve.engine.quota.proofs.pods_wanted import (
    PodsWanted,
    Template,
    admitted_sets,
    assigned_sets,
)
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.targets.with_others import places_of_both
from reprieve.engine.topology.places import NodeUse
from reprieve.units.ids import Uid

__all__ = ["NodeProof"]

FILTERS: Final = (
    FilterName.NODE_UNSCHEDULABLE,
    FilterName.TAINT_TOLERATION,
    FilterName.NODE_AFFINITY,
    FilterName.NODE_PORTS,
    FilterName.NODE_RESOURCES_FIT,
    FilterName.POD_TOPOLOGY_SPREAD,
    FilterName.INTER_POD_AFFINITY,
)
#: How long capacity is kept for a workload that has quota and no pods yet.
STARTING: Final = MINUTE


class NodeProof:
    """Places the preemptors of one run, on the nodes as they were at its start.

    Args:
        nodes: the cluster.
        pods: uids of pods that have not finished, by the key of their workload.
        templates: of the pods of a workload, by the name of their pod set.
        now: the instant of the run.
        scheduler_preempts: the scheduler of this process may preempt pods of lower priority for
            the preemptor's once it has its quota; who fits after that is not refused.
        reclaimable: pods of idle work, which may be evicted for those of them that have `opted` in.
        moves: what fits gets another flavor where nodes have more capacity for it.
    """

    def __init__(
        self,
        nodes: Nodes,
        pods: Mapping[str, Collection[Uid]],
        templates: Callable[[Workload], Mapping[str, Template]],
        now: Nanos,
        *,
        scheduler_preempts: bool = False,
        reclaimable: Collection[Uid] = (),
        moves: bool = False,
        opted: Callable[[Workload], bool] = lambda workload: True,
    ) -> None:
        self._opted = opted
        self._moves = moves
        self._scheduler_preempts = scheduler_preempts
        self._reclaimable = reclaimable
        self._nodes = nodes
        self._pods = pods
        self._templates = templates
        self._now = now
        self._simulation: Simulation | None = None
        self._promised: list[Entry] = []
        self._waiting: list[Pending] = []
        self._uses = PodUses(nodes)
        self._made: PodsWanted | None = None
        # Pods that other planes evict beside the targets of a workload, by its key.
        self._beside: dict[str, Leaver] = {}

    def refusal(
        self,
        entry: Entry,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> str:
        """Return why an entry's targets are not preempted; empty if all of its pods find a node.

        Then the entry counts as proven, its pods keep their nodes, and the targets' pods leave.
        """
        simulation = self._ready(holders, flavors)
        targets = {target.holder.key for target in entry.targets}
        before = self._let_go(targets)
        others = self._beside.get(entry.workload.key) if entry.made else None
        leaving = self._there((*self._uids_of(targets), *(others.pods if others else ())))
        simulation.remove(leaving)
        # Those who wait for a node already come first.
        staying = [each for each in self._waiting if each.row.workload not in targets]
        placed, waiting = self._place(staying)
        wanted = self._wanted(entry, flavors)
        found, without = self._place(wanted)
        placed += found
        if not without:
            self._waiting = waiting
            entry.proven = True
            return ""
        for pod in reversed(placed):
            simulation.unplace(pod)
        enough = self._scheduler_preempts and self._fits_by_priority(entry.workload, wanted)
        simulation.restore(leaving)
        if len(before) > len(simulation.simulated):
            self._occupy(before)
        if enough:
            return ""
        return f"Not preempted: {len(without)} of {len(wanted)} pod(s) would still fit on no node"

    def fits_without(
        self,
        workload: Workload,
        assignment: Assignment,
        gone: Collection[Uid],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        *,
        keep: bool = False,
        by_priority: bool = False,
    ) -> bool:
        """Whether all pods of a workload have a node without the victims.

        `keep`: they stay removed from now on, and the pods keep their nodes. `by_priority`: all
        pods that a scheduler may preempt for them, or that are idle, are removed as well.
        """
        simulation = self._ready(holders, flavors)
        leaving = self._there(gone)
        simulation.remove(leaving)
        placed, waiting = self._place(self._waiting)
        wanted = self._assigned(workload, assignment, flavors)
        found, without = self._place(wanted)
        if without and by_priority:
            for pod in reversed(found):
                simulation.unplace(pod)
            found, without = [], [] if self._fits_by_priority(workload, wanted) else without
        if keep:
            self._waiting = waiting
            return not without
        for pod in reversed([*placed, *found]):
            simulation.unplace(pod)
        simulation.restore(leaving)
        return not without

    def uses(self, pods: Collection[Uid], holders: Iterable[Holder]) -> tuple[NodeUse, ...]:
        """Return what these pods use of their nodes, but for those that hold places."""
        placing = {uid for key in placing_keys(holders) for uid in self._pods.get(key, ())}
        return self._uses.of(uid for uid in pods if uid not in placing)

    def ending(self) -> Collection[Uid]:
        """Return the pods that end already."""
        return self._uses.ending()

    def lower_than(self, workload: Workload) -> Collection[Uid]:
        """Return the pods that a scheduler may preempt for those of a workload."""
        slots = self._lower(workload) & (self._nodes.pod_node >= 0)
        return self._uses.uids(np.flatnonzero(slots))

    def room_made(
        self,
        entry: Entry,
        snapshot: Snapshot,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        by_rules: ByRules | None,
    ) -> tuple[NodeUse, ...]:
        """Return the victims that give an entry places; nothing where that does not help.

        Only where the scheduler of this process evicts for it once it has its quota. `by_rules`:
        victims of its queue's rules may be evicted as well.
        """
        if not (self._moves and self._scheduler_preempts):
            return ()
        known, workload = list(holders), entry.workload
        if entry.planned and workload.key in self._beside:
            entry.made_pods = tuple(self._beside[workload.key].pods)
            return self._beside[workload.key].uses  # its pods have their nodes here already
        self._ready(known, flavors)
        placing = self._uses.slots_of(self._uids_of(placing_keys(known)))
        slots = np.setdiff1d(self._may_go_for(workload), placing)

        def leaving(
            assignment: Assignment, within: Collection[str] | None, targets: Collection[Target]
        ) -> Leaver | None:
            wanted = self._assigned(workload, assignment, flavors, pinned=False)
            allowed = None if within is None else self._uses.nodes_named(within)
            with self._without(targets):
                by, found = self._leaving_for(workload, wanted, slots, allowed)
            if found is None:
                return None
            uids = self._uses.uids(found.slots)
            return Leaver(by, found.devices, self._uses.of(uids), uids)

        def fits(assignment: Assignment, leaver: Leaver, targets: Collection[Target]) -> bool:
            with self._without(targets):
                return self.fits_without(workload, assignment, leaver.pods, known, flavors)

        every = self._uses.of(self._uses.uids(slots))
        idle = self._uses.of(self._uses.uids(np.intersect1d(slots, self._idle_for(workload))))
        planned = nodes_planned(entry.planned, snapshot.places)
        asked = snapshot, workload, entry.queue, MayGo(every, idle, leaving, fits), planned
        still = self._uses.uids(np.intersect1d(slots, self._uses.slots_of(entry.planned_made)))
        first = Leaver(2, 0, self._uses.of(still), still) if still else None
        made = places_made(*asked, first)
        if made is None and by_rules is not None:
            made = places_of_both(*asked, by_rules)
        if made is None:
            return ()
        self._beside[workload.key], entry.made_pods = made, tuple(made.pods)
        return made.uses

    @contextmanager
    def _without(self, targets: Collection[Target]) -> Iterator[None]:
        """Remove the pods of targets meanwhile, and what is kept for them."""
        simulation = self._simulation
        assert simulation is not None
        keys = {target.holder.key for target in targets}
        before = self._let_go(keys)
        leaving = self._there(self._uids_of(keys))
        simulation.remove(leaving)
        try:
            yield
        finally:
            simulation.restore(leaving)
            if len(before) > len(simulation.simulated):
                self._occupy(before)

    def flavor_for(
        self,
        entry: Entry,
        others: Iterable[tuple[str, Assignment]],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> tuple[str, Assignment] | None:
        """Return the first other assignment whose pods nodes fit better; None: none.

        Capacity that is free, or on its way, is more than capacity that idle work could make, that
        is more than capacity that the scheduling plane could make as well, and that is more than
        none; of equals in this those that evict fewer devices. Else the entry keeps what it has.
        """
        if not self._moves or entry.assignment is None:
            return None
        self._ready(holders, flavors)
        least = self._effort(entry.workload, entry.assignment, flavors)
        best = None
        for flavor, other in others if least[0] else ():
            effort = self._effort(entry.workload, other, flavors)
            if effort < least:
                least, best = effort, (flavor, other)
            if not least[0]:
                break
        return best

    def _effort(
        self, workload: Workload, assignment: Assignment, flavors: Mapping[str, ResourceFlavor]
    ) -> tuple[int, int]:
        """Return how all pods get capacity, and how many devices are evicted for it.

        0: there is capacity now; 1: without idle work; 2: without lower priorities, too; 3: not.
        """
        simulation = self._simulation
        assert simulation is not None
        placed, _ = self._place(self._waiting)
        wanted = self._assigned(workload, assignment, flavors)
        found, without = self._place(wanted)
        for pod in reversed([*placed, *found]):
            simulation.unplace(pod)
        if not without:
            return 0, 0
        by, leaving = self._leaving_for(workload, wanted, self._may_go_for(workload))
        return by, 0 if leaving is None else leaving.devices

    def _leaving_for(
        self,
        workload: Workload,
        wanted: Sequence[Pending],
        slots: I64,
        within: Mask | None = None,
    ) -> tuple[int, Leaving | None]:
        """Return which of these are evicted for pods: 1: idle work; 2: lower priorities, too; 3."""
        simulation = self._simulation
        assert simulation is not None
        idle = np.intersect1d(slots, self._idle_for(workload))
        for by, chosen in ((1, idle), (2, slots)):
            leaving = pods_to_evict(simulation, wanted, chosen, within) if len(chosen) else None
            if leaving is not None:
                return by, leaving
        return 3, None

    def _fits_by_priority(self, workload: Workload, wanted: Sequence[Pending]) -> bool:
        """Whether the pods would fit without all pods that a scheduler may preempt for them.

        An upper bound: budgets and protections are the scheduler's, which searches for itself.
        """
        simulation = self._simulation
        assert simulation is not None
        slots = self._may_go_for(workload)
        simulation.remove(slots)
        placed, without = self._place(wanted)
        for pod in reversed(placed):
            simulation.unplace(pod)
        simulation.restore(slots)
        return not without

    def _may_go_for(self, workload: Workload) -> I64:
        """Return the pods that a workload's pods may evict: idle ones and lower priorities."""
        simulation, nodes = self._simulation, self._nodes
        assert simulation is not None
        lower = self._lower(workload)
        lower[list(self._idle_for(workload))] = True
        lower &= nodes.pod_node >= 0
        lower[nodes.pod_flags & Flag.DELETING != 0] = False
        slots = np.flatnonzero(lower[: len(nodes.pod_node)]).astype(np.int64)
        return slots[simulation.present[slots]]

    def _lower(self, workload: Workload) -> Mask:
        """Return which pods have a priority that those of a workload may preempt: (slots,)."""
        below = [each.preempts_below for each in self._templates(workload).values()]
        lower: Mask = self._nodes.pod_priority < max(below, default=0)
        return lower

    def _idle_for(self, workload: Workload) -> I64:
        return self._there(self._reclaimable if self._opted(workload) else ())

    def _let_go(self, targets: Collection[str]) -> list[Placed]:
        """Release what is kept for pods of targets; return what was kept for all."""
        assert self._simulation is not None
        before = list(self._simulation.simulated)
        others = [
            pod for pod in before if pod.pending is None or pod.pending.row.workload not in targets
        ]
        if len(others) < len(before):
            self._occupy(others)
        return before

    def _occupy(self, pods: Iterable[Placed]) -> None:
        """Keep capacity for these pods, each on its node, and for no others."""
        simulation = self._simulation
        assert simulation is not None
        for pod in reversed(tuple(simulation.simulated)):
            simulation.unplace(pod)
        for pod in pods:
            assert pod.pending is not None, "only pending pods are placed here"
            simulation.place(pod.pending, pod.node)

    def _there(self, uids: Iterable[Uid]) -> I64:
        found = self._uses.slots_of(uids)
        assert self._simulation is not None
        return found[self._simulation.present[found]]

    def claim(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Keep capacity for an entry that has its quota, or waits for victims on their way out."""
        if self._simulation is not None:
            self._promise(self._wanted(entry, flavors))
        elif entry.targets:
            # What gets its quota is among the holders at the next query.
            self._promised.append(entry)

    def delays(self, entry: Entry) -> str:
        """Nodes delay no workload."""
        return ""

    def _ready(
        self, holders: Iterable[Holder], flavors: Mapping[str, ResourceFlavor]
    ) -> Simulation:
        """Return the nodes without pods that leave, with capacity kept for its preemptors."""
        if self._simulation is not None:
            return self._simulation
        nodes = self._nodes
        self._simulation = simulation = Simulation(nodes, Policy(), Profile(filters=FILTERS))
        self._made = made = PodsWanted(simulation, self._templates)
        known = sorted(holders, key=lambda holder: holder.key)
        evicted = self._uses.slots_of(self._uids_of(e.key for e in known if e.evicted))
        leaving = np.union1d(evicted, np.flatnonzero(nodes.pod_flags & Flag.DELETING))
        simulation.remove(leaving[simulation.present[leaving]])
        staying = {holder.key: holder for holder in known if not holder.evicted}
        gated = self._gated(staying)
        for holder in gated.values():
            self._promise(made.of(holder.workload, admitted_sets(holder.workload), flavors))
        for pending in sorted(nodes.pending.values(), key=lambda each: each.row.uid):
            row = pending.row
            if row.workload not in gated and (row.workload in staying or row.nominated):
                self._promise((pending,), row.nominated)
        for holder in staying.values():
            reserved = holder.workload.reserved_at
            if holder.key not in self._pods and reserved and self._now - reserved < STARTING:
                sets = admitted_sets(holder.workload)
                self._promise(made.of(holder.workload, sets, flavors))
        for entry in self._promised:
            self._promise(self._wanted(entry, flavors))
        return simulation

    def _gated(self, holders: Mapping[str, Holder]) -> dict[str, Holder]:
        """Return those who hold places, and no pod of whom is on its way to them yet."""
        nodes, gates = self._nodes, dict[str, bool]()
        for pending in nodes.pending.values():
            key = pending.row.workload
            if key in holders and holders[key].placed:
                gates[key] = gates.get(key, True) and bool(pending.row.gates)
        return {
            key: holders[key]
            for key, all_gated in gates.items()
            if all_gated
            and not (nodes.pod_node[self._uses.slots_of(self._uids_of([key]))] >= 0).any()
        }

    def _wanted(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> Sequence[Pending]:
        assert entry.assignment is not None
        return self._assigned(entry.workload, entry.assignment, flavors)

    def _assigned(
        self,
        workload: Workload,
        assignment: Assignment,
        flavors: Mapping[str, ResourceFlavor],
        *,
        pinned: bool = True,
    ) -> Sequence[Pending]:
        assert self._made is not None
        return self._made.of(workload, assigned_sets(assignment), flavors, pinned=pinned)

    def _promise(self, pods: Sequence[Pending], nominated: str = "") -> None:
        """Keep capacity for pods: now, or of what is freed."""
        self._waiting += self._place(pods, nominated)[1]

    def _place(
        self, pods: Sequence[Pending], nominated: str = ""
    ) -> tuple[list[Placed], list[Pending]]:
        """Place pods in order; return those with a node, and those without."""
        simulation, placed = self._simulation, list[Placed]()
        assert simulation is not None
        without: list[Pending] = []
        for pending in pods:
            if without and pending is without[-1]:
                without.append(pending)  # one like it has found none
                continue
            preferred = simulation.snapshot.node_index.get(nominated, -1)
            if preferred >= 0 and simulation.code_at(pending, preferred) == 0:
                placed.append(simulation.place(pending, preferred))
                continue
            nodes = np.flatnonzero(simulation.codes(pending) == 0)
            if len(nodes):
                placed.append(simulation.place(pending, self._tightest(pending, nodes)))
            else:
                without.append(pending)
        return placed, without

    def _tightest(self, pending: Pending, nodes: I64) -> int:
        """Return the node with the least capacity left of what the pod requests, first by name."""
        simulation = self._simulation
        assert simulation is not None
        asked = np.flatnonzero(simulation.requests_of(pending.pod_class))
        offered = simulation.snapshot.allocatable[np.ix_(nodes, asked)]
        left = offered - simulation.used[np.ix_(nodes, asked)]
        return int(nodes[np.argmin((left / np.maximum(offered, 1)).sum(axis=1))])

    def _uids_of(self, keys: Iterable[str]) -> Iterator[Uid]:
        return (uid for key in keys for uid in self._pods.get(key, ()))

"""Which idle work is evicted so that a workload gets its quota, and a node for every pod.

Used where the idle plane and the quota plane decide together. Units of idle work, oldest first, are
removed from the snapshot of what holds quota until all pod sets of the workload get their flavors
without preemption and, where nodes are looked at, every pod has one. Units that are not needed are
reprieved, the youngest first. The same is done from the smallest unit to the largest, with each
unit alone, and with every set of up to seven units that holds fewer devices than the best so far;
the set with the fewest devices is the answer, that of the oldest among equals.

A set that passes one half of the proof is refused: `QuotaOnly` where not all pods would have a
node, `RoomOnly` where they would and quota lacks, with what lacks of it.

Where no set is enough, and the rules of its queue find no victims either, pods count as evicted
that the scheduling plane may preempt for it once it has its quota: the idle work is evicted beside
work of lower priority (`Release.mixed`). Budgets and protections are left out of account there.

What is released is not promised to the workload: others wait for the same quota. So the cycles that
follow are simulated, and where they do not admit the workload no work is evicted.

Workloads for which idle work is evicted already come first: their victims count as evicted, and
they hold what they request. While something that was evicted by quota still holds its own, nothing
is decided, unless its eviction is refused.

Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations, islice
from typing import Final, Protocol

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.cycle import cycle, cycles
from reprieve.engine.quota.entries import NodeCheck, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import ResourceFlavor, Workload
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.places import NodeUse
from reprieve.units.ids import Uid

__all__ = ["IdleUnit", "NodeTest", "PassedHalf", "Promise", "Release", "Standing", "release"]

#: How many of those that wait in the same cohort are simulated, by ClusterQueue.
_RIVALS: Final = 20
_MOST_RIVALS: Final = 200  # of all of them
#: How many units are tried alone.
_ALONE: Final = 100
#: Of how many units every set is tried, and how many sets at most.
_ALL_SETS: Final = 7
_MOST_SETS: Final = 64
_PREEMPTING: Final = Outcome.PREEMPTING


@dataclass(frozen=True, slots=True)
class IdleUnit:
    """Idle work that is evicted as a whole.

    `workloads`: keys of the Workloads whose quota is free once it is evicted; `pods`: uids of its
    pods; `devices`: how many it holds.
    """

    name: str
    workloads: tuple[str, ...] = ()
    pods: tuple[Uid, ...] = ()
    devices: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """A workload, by key, for which idle work is evicted already."""

    key: str
    workloads: tuple[str, ...] = ()
    pods: tuple[Uid, ...] = ()


class PassedHalf(StrEnum):
    """The half of the proof that all idle work together passes, where it fails the other one."""

    QUOTA = "QuotaOnly"
    ROOM = "RoomOnly"


@dataclass(frozen=True, slots=True)
class Release:
    """The answer. `units`: names, oldest first, empty with `why`; `waits`: query again later.

    `half`: of the proof that passes, where no work is evicted since the other one fails.

    `placed`: every pod of the workload has a node with these evicted; `mixed`: it has one once the
    scheduling plane has preempted others for it as well.
    """

    units: tuple[str, ...] = ()
    why: str = ""
    waits: bool = False
    placed: bool = False
    mixed: bool = False
    half: PassedHalf | None = None


class NodeTest(Protocol):
    """Whether pods of workloads find nodes; `node_proof` is the one that looks."""

    def uses(self, pods: Collection[Uid], holders: Iterable[Holder]) -> tuple[NodeUse, ...]:
        """Return what these pods use of their nodes, but for those that hold places."""
        ...

    def ending(self) -> Collection[Uid]:
        """Return the pods that end already."""
        ...

    def lower_than(self, workload: Workload) -> Collection[Uid]:
        """Return the pods that a scheduler may preempt for those of a workload."""
        ...

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
        """Whether all pods have a node without others; `keep`: they are, from now on.

        `by_priority`: all pods that a scheduler may preempt for them are evicted, too.
        """
        ...


@dataclass(slots=True)
class Standing:
    """What is decided about: who holds quota, what waits, and the nodes it runs on.

    `check`: what a cycle evaluates before it preempts by the rules of queues.
    `refused`: uids of workloads whose eviction is refused, which do not give their quota back.
    """

    holdings: Holdings
    queues: Queues
    nodes: NodeTest | None = None
    promised: Sequence[Promise] = ()
    check: NodeCheck | None = None
    refused: Collection[Uid] = field(default=(), kw_only=True)
    now: Nanos = field(kw_only=True)


def release(standing: Standing, key: str, units: Sequence[IdleUnit]) -> Release:
    """Return which of these units, oldest first, have to be evicted for a pending workload."""
    search = _Search.begin(standing, key)
    if isinstance(search, Release):
        return search
    if search.fits(()):
        return Release(why="what is free, or on its way, is enough for it", waits=True)
    useful = [unit for unit in units if search.is_useful(unit)]
    if not useful:
        return Release(why="no idle work holds what it lacks")
    found = _fewest(search, useful)
    if found is None and standing.nodes is not None and not search.preempts_by_rules():
        search.by_priority = True
        if search.places_are_made_by_others(useful):
            return Release(why="its quota is free, and others are preempted for its pods")
        found = _fewest(search, useful)
    if found is None:
        return search.refused(useful)
    other = search.first_served(found)
    if other:
        return Release(why=f"what comes free would be used by {other}, whose turn comes first")
    position = {unit.name: number for number, unit in enumerate(units)}
    names = sorted((unit.name for unit in found), key=lambda name: position[name])
    mixed = search.by_priority
    return Release(tuple(names), placed=standing.nodes is not None and not mixed, mixed=mixed)


def _fewest(search: _Search, useful: Sequence[IdleUnit]) -> tuple[IdleUnit, ...] | None:
    best = _in_order(search, useful)
    if best is None:
        return None
    smallest = sorted(useful, key=lambda unit: unit.devices)
    other = _in_order(search, smallest)
    if other is not None and _devices(other) < _devices(best):
        best = other
    for unit in smallest[:_ALONE]:
        if unit.devices >= _devices(best):
            break
        if search.fits((unit,)):
            best = (unit,)
            break
    return _smaller_set(search, useful, _devices(best)) or best


def _smaller_set(
    search: _Search, useful: Sequence[IdleUnit], most: int
) -> tuple[IdleUnit, ...] | None:
    """Return the set with the fewest devices below `most`; None without any, or of many units."""
    if len(useful) > _ALL_SETS:
        return None
    sets = [some for size in range(2, len(useful)) for some in combinations(useful, size)]
    smaller = sorted((some for some in sets if _devices(some) < most), key=_devices)
    return next((some for some in smaller[:_MOST_SETS] if search.fits(some)), None)


def _devices(units: Iterable[IdleUnit]) -> int:
    return sum(unit.devices for unit in units)


def _in_order(search: _Search, units: Sequence[IdleUnit]) -> tuple[IdleUnit, ...] | None:
    """Return the shortest beginning that is enough, without those that can be reprieved."""
    if not search.fits(units):
        return None
    fewer, enough = 0, len(units)
    while enough - fewer > 1:
        middle = (fewer + enough) // 2
        if search.fits(units[:middle]):
            enough = middle
        else:
            fewer = middle
    kept = list(units[:enough])
    for unit in reversed(units[:enough]):
        without = [each for each in kept if each is not unit]
        if search.fits(without):
            kept = without
    return tuple(kept)


@dataclass(slots=True)
class _Search:
    """One question: the workload, and the snapshot with all promises kept."""

    standing: Standing
    workload: Workload
    queue: int
    base: Snapshot
    root: int
    by_priority: bool = False
    # Pods that end already, and what they use, where places are given.
    ending: frozenset[Uid] = frozenset()
    leaving: tuple[NodeUse, ...] = ()

    @classmethod
    def begin(cls, standing: Standing, key: str) -> _Search | Release:
        """Return the search, or the answer where there is nothing to look for."""
        holdings, queues = standing.holdings, standing.queues
        workload = queues.workload(key)
        home = None if workload is None else queues.home(key)
        if workload is None or home is None or key in holdings.holders:
            return Release(why="it does not wait for quota any more", waits=True)
        base = holdings.snapshot()
        if home in base.tree.inactive or home not in base.tree.queues:
            return Release(why=f"ClusterQueue {home} is not active")
        queue = base.tree.queues[home]
        root = base.tree.root(queue)
        if any(
            holder.evicted
            and base.tree.root(holder.queue) == root
            and holder.workload.uid not in standing.refused
            for holder in holdings.holders.values()
        ):
            return Release(why="what was evicted in its cohort still ends", waits=True)
        search = cls(standing, workload, queue, base, root)
        search.count_ending()
        search.keep_promises()
        return search

    def count_ending(self) -> None:
        """Remove pods that end already from the nodes where places are given."""
        nodes, holdings = self.standing.nodes, self.standing.holdings
        if nodes is not None and self.base.places is not None:
            self.ending = frozenset(nodes.ending())
            self.leaving = nodes.uses(self.ending, holdings.holders.values())
            self.base.free(self.leaving)

    def keep_promises(self) -> None:
        """Remove the victims of earlier plans, and give their workloads what they request."""
        known = self.standing.holdings.holders
        for promise in self.standing.promised:
            gone = [known[each] for each in promise.workloads if each in known]
            self.base = self.base.without(gone)
            self.base.free(self.uses(promise.pods))
            workload = self.standing.queues.workload(promise.key)
            home = self.standing.queues.home(promise.key)
            if workload is None or home not in self.base.tree.queues:
                continue
            queue = self.base.tree.queues[home]
            assignment = _assignment(self.base, workload, queue)
            if assignment.mode is Mode.FIT:
                self.base.add_usage(queue, assignment.usage.items())
                self.base.place(assignment.placed(workload), 1)
                self._on_nodes(workload, assignment, promise.pods, keep=True)

    def is_useful(self, unit: IdleUnit) -> bool:
        """Whether it holds quota in the workload's cohort, or pods on nodes that are looked at."""
        known = self.standing.holdings.holders
        if self.standing.nodes is not None and unit.pods:
            return True
        return any(
            each in known and self.base.tree.root(known[each].queue) == self.root
            for each in unit.workloads
        )

    def fits(self, units: Iterable[IdleUnit]) -> bool:
        """Whether the workload gets its flavors, and its pods their nodes, without these."""
        gone = tuple(units)
        assignment = _assignment(self.without(gone), self.workload, self.queue)
        if assignment.mode is not Mode.FIT:
            return False
        pods = [uid for unit in gone for uid in unit.pods]
        return self._on_nodes(self.workload, assignment, pods)

    def refused(self, units: Iterable[IdleUnit]) -> Release:
        """Return the answer where not even all of these are enough, with the half that passes."""
        gone = tuple(units)
        why = "all idle work together is not enough for it"
        assignment = _assignment(self.without(gone), self.workload, self.queue)
        if assignment.mode is Mode.FIT:
            why += ": it would have its quota, but not all of its pods a node"
            return Release(why=why, half=PassedHalf.QUOTA)
        if self.standing.nodes is None:
            return Release(why=why)
        pods = [uid for unit in gone for uid in unit.pods]
        if not self._on_nodes(self.workload, assignment, pods):
            return Release(why=f"{why}: neither for its quota nor for its nodes")
        lacking = ", ".join(reason for each in assignment.pod_sets for reason in each.reasons)
        why += f": its pods would have nodes, but it lacks quota: {lacking}"
        return Release(why=why, half=PassedHalf.ROOM)

    def without(self, units: Iterable[IdleUnit]) -> Snapshot:
        """Return the snapshot with the quota of these free."""
        gone = tuple(units)
        known = self.standing.holdings.holders
        keys = dict.fromkeys(key for unit in gone for key in unit.workloads if key in known)
        without = self.base.without(known[key] for key in keys)
        without.free(self.uses(uid for unit in gone for uid in unit.pods))
        return without

    def uses(self, pods: Iterable[Uid]) -> tuple[NodeUse, ...]:
        """Return what pods that hold no places use of nodes, where places are given.

        But for those that end already. With `by_priority` those that a scheduler may preempt are
        among them.
        """
        nodes = self.standing.nodes
        if nodes is None or self.base.places is None:
            return ()
        lower = nodes.lower_than(self.workload) if self.by_priority else ()
        asked = frozenset((*pods, *lower)) - self.ending
        return nodes.uses(asked, self.standing.holdings.holders.values())

    def places_are_made_by_others(self, units: Iterable[IdleUnit]) -> bool:
        """Whether only places are lacking, which others make once the workload has its quota."""
        if self.base.places is None:
            return False
        beside = self.base.without(())
        beside.free(self.uses(uid for unit in units for uid in unit.pods))
        assignment = _assignment(beside, self.workload, self.queue)
        return assignment.mode is Mode.FIT and bool(assignment.placed(self.workload))

    def preempts_by_rules(self) -> bool:
        """Whether a cycle would preempt others for the workload by the rules of its queue."""
        holdings, queues = self._played(())
        queues.push(self.workload)
        standing = self.standing
        result = cycle(holdings, queues, standing.now, proof=standing.check)
        return any(entry.workload.key == self.workload.key for entry in result.of(_PREEMPTING))

    def _played(self, units: Sequence[IdleUnit]) -> tuple[Holdings, Queues]:
        """Return who holds quota in the cohort without these, and queues without holders."""
        holdings = Holdings(self.base.configuration)
        pods = [uid for unit in units for uid in unit.pods]
        pods += [uid for promise in self.standing.promised for uid in promise.pods]
        holdings.stand_beside(self.standing.holdings, (*self.leaving, *self.uses(pods)))
        gone = {key for unit in units for key in unit.workloads}
        gone.update(key for promise in self.standing.promised for key in promise.workloads)
        for key, holder in self.standing.holdings.holders.items():
            related = self.base.tree.root(holder.queue) == self.root or holder.placed
            if key not in gone and related:
                holdings.hold(holder.workload)
        return holdings, Queues(self.base.configuration)

    def first_served(self, units: Sequence[IdleUnit]) -> str:
        """Return who gets what these release instead of the workload; empty if it is the workload.

        Simulated: a scheduler continues with these evicted, and with the first of each ClusterQueue
        of the cohort waiting beside it.
        """
        holdings, queues = self._played(units)
        queues.push(self.workload)
        for rival in islice(self._rivals(), _MOST_RIVALS):
            queues.push(rival)
        served = [
            entry.workload.key
            for result in cycles(holdings, queues, self.standing.now, _MOST_RIVALS)
            for entry in result.of(Outcome.ADMITTED)
        ]
        return "" if self.workload.key in served else next(iter(served), "nobody")

    def _rivals(self) -> Iterable[Workload]:
        queues, tree = self.standing.queues, self.base.tree
        for name, queue in tree.queues.items():
            if not tree.path[queue] or tree.root(queue) != self.root or name in tree.inactive:
                continue
            before = self.workload.key if queue == self.queue else ""
            yield from (
                each for each in queues.first_of(name, _RIVALS, before) if each is not self.workload
            )

    def _on_nodes(
        self,
        workload: Workload,
        assignment: Assignment,
        gone: Collection[Uid],
        *,
        keep: bool = False,
    ) -> bool:
        nodes = self.standing.nodes
        if nodes is None:
            return True
        holders = self.standing.holdings.holders.values()
        flavors = self.base.configuration.flavors
        return nodes.fits_without(
            workload,
            assignment,
            gone,
            holders,
            flavors,
            keep=keep,
            by_priority=self.by_priority and workload is self.workload,
        )


def _assignment(snapshot: Snapshot, workload: Workload, queue: int) -> Assignment:
    return Assigner(snapshot, workload, queue, nobody).assign()

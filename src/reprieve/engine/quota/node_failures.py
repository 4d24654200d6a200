"""Workloads of whose places a node failed: other nodes for its pods, or an eviction.

They keep their flavors and their quota. With `profile: best` others may be preempted for their pods
(`replacement_victims`), else no work is preempted for them. A replacement that is not
found ends the workload, so that it is queued and placed as a whole again. A workload that is one
plain pod keeps what it has, since nothing would make that pod anew. One that lost a second node
while the first waited for another is evicted; with `profile: best` all are replaced at once.

Source: specification of topology-aware scheduling, sections 6.6, 7.1, 7.2 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kubeworld.units.instants import Nanos
from reprieve.engine.plan_faults import PlanRefused
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.assigning.topologies import wanted_of
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.evictions import Evictions
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.placed import placed_by
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Admission, Eviction, Workload
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.replacement_victims import (
    candidates_for,
    faults_of_replacement,
    fewest_for,
)
from reprieve.engine.quota.room import Room
from reprieve.engine.topology.model import Outcome as PlaceOutcome
from reprieve.engine.topology.places import Placed, Places
from reprieve.engine.topology.replacing import replace_node, replace_nodes
from reprieve.engine.victim_choice import VictimChoice

__all__ = [
    "NODE_FAILURES",
    "Marks",
    "NodeVictims",
    "evict_for_nodes",
    "marks_of",
    "replace_failed_nodes",
]

#: The reason of an eviction for want of a replacement.
NODE_FAILURES = "NodeFailures"

#: So many failed nodes a Workload can name.
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Marks:
    """What is to be written of a workload's failed nodes: their names, or why it is evicted."""

    nodes: tuple[str, ...]
    message: str = ""


def marks_of(workload: Workload, failed: Sequence[str], profile: VictimChoice) -> Marks | None:
    """Return what is to be written of the nodes that failed, None where it stands there already.

    Args:
        workload: holds places, and names the failed nodes that are known of it.
        failed: those of its nodes that have failed now.
        profile: with `best` several nodes are replaced together.
    """
    kept = [each for each in workload.unhealthy_nodes if each in failed]
    nodes = (*kept, *(each for each in failed if each not in kept))
    if nodes == workload.unhealthy_nodes:
        return None
    at_once = _MOST_NAMED if profile is VictimChoice.BEST else 1
    if len(nodes) <= max(at_once, len(kept)):
        return Marks(nodes)
    return Marks(
        nodes,
        "Workload eviction triggered due to multiple TAS assigned node failures, including: "
        + ", ".join(nodes),
    )


def replace_failed_nodes(holdings: Holdings, snapshot: Snapshot) -> tuple[list[Entry], list[Entry]]:
    """Return who gets other nodes, and who does not; holdings and snapshot are changed."""
    replaced: list[Entry] = []
    failed: list[Entry] = []
    if snapshot.places is None:
        return replaced, failed
    for key in holdings.unhealthy:
        holder = holdings.holders[key]
        workload = holder.workload
        if workload.admission is None or workload.finished or workload.evicted is not None:
            continue
        entry = Entry(workload, workload.admission.cluster_queue, holder.queue)
        outcomes = _outcomes(snapshot, entry, snapshot.places)
        lacking = [each.reason for each in outcomes.values() if each.assignment is None]
        if lacking:
            entry.message = lacking[0]
            failed.append(entry)
            continue
        entry.outcome = Outcome.NODE_REPLACED
        entry.admission = _with(workload.admission, outcomes)
        holdings.hold(replace(workload, admission=entry.admission, unhealthy_nodes=()))
        # Its old places are not free in this cycle: its pods are there yet, and the node failed.
        snapshot.place(_more(holder.placed, holdings.holders[key].placed), 1)
        replaced.append(entry)
    return replaced, failed


def _with(admission: Admission, outcomes: Mapping[str, PlaceOutcome]) -> Admission:
    """Return an admission with other places."""
    pod_sets = tuple(
        replace(each, topology=outcomes[each.name].assignment) if each.name in outcomes else each
        for each in admission.pod_sets
    )
    return Admission(admission.cluster_queue, pod_sets)


class NodeVictims:
    """Preempts others for pods whose node failed, in one cycle with profile `best`."""

    def __init__(
        self,
        holdings: Holdings,
        snapshot: Snapshot,
        nominations: Nominations,
        evictions: Evictions,
        room: Room,
    ) -> None:
        self._holdings = holdings
        self._snapshot = snapshot
        self._nominations = nominations
        self._evictions = evictions
        self._room = room

    def choose_victims(self, entry: Entry) -> bool:
        """Find who is preempted for a workload without a replacement; `issued` are the new victims.

        Return False where no workload is preempted, and none is waited for.

        Raises:
            PlanRefused: a fault of ours.
        """
        snapshot, workload = self._snapshot, entry.workload
        entry.queue = snapshot.tree.queues[entry.cluster_queue]
        leaving = [each for each in self._holdings.holders.values() if each.evicted]
        leaving += [each for each in self._room.leaving(entry) if not each.evicted]

        def fits(gone: Sequence[Holder]) -> bool:
            return self._planned(entry, [*leaving, *gone]) is not None

        if leaving and fits([]):
            self._keep(entry, leaving)
            return True
        rules = snapshot.configuration.cluster_queues[entry.cluster_queue].preemption
        who = self._nominations.preemptor(entry)
        candidates = candidates_for(
            who, rules.within_cluster_queue, self._holdings.holders.values()
        )
        entry.targets = fewest_for(candidates, fits)
        if not entry.targets or self._evictions.refused_by_budgets(entry):
            entry.targets = ()
            return False
        if faults := faults_of_replacement(who, entry.targets, fits):
            raise PlanRefused(faults)
        entry.assignment = Assignment((), {}, frozenset())
        entry.best, entry.outcome = True, Outcome.NODE_PREEMPTING
        nodes = ", ".join(workload.unhealthy_nodes)
        entry.message = (
            f"{len(entry.targets)} workload(s) are preempted for its pods of the failed node(s) "
            f"{nodes}"
        )
        self._evictions.issue(entry)
        self._room.designate(entry)
        self._keep(entry, [*leaving, *(target.holder for target in entry.targets)])
        return True

    def _planned(self, entry: Entry, gone: Iterable[Holder]) -> list[Placed] | None:
        """Return the places that a workload has without these, None where it has none."""
        places, admission = self._snapshot.places, entry.workload.admission
        assert places is not None and admission is not None
        left = places.copy()
        for holder in gone:
            left.change(holder.placed, -1)
        outcomes = _outcomes(self._snapshot, entry, left)
        if any(each.assignment is None for each in outcomes.values()):
            return None
        return placed_by(entry.workload, _with(admission, outcomes), places)

    def _keep(self, entry: Entry, gone: Iterable[Holder]) -> None:
        """Keep the places that it will have from others in this cycle."""
        planned = self._planned(entry, gone)
        assert planned is not None, "it has places without these"
        self._snapshot.place(_more(self._holdings.holders[entry.workload.key].placed, planned), 1)


def evict_for_nodes(holdings: Holdings, failed: Iterable[Entry], now: Nanos) -> list[Entry]:
    """Count those as evicted that have no replacement and are not evicted anyway."""
    found = []
    for entry in failed:
        holder = holdings.holders.get(entry.workload.key)
        if holder is None or holder.evicted:
            continue
        entry.outcome, entry.reason = Outcome.NODE_FAILED, NODE_FAILURES
        entry.message = (
            "Workload was evicted as there was no replacement for unhealthy node(s): "
            + ",".join(entry.workload.unhealthy_nodes)
        )
        gone = Eviction(NODE_FAILURES, now)
        holdings.hold(replace(holder.workload, evicted=gone, unhealthy_nodes=()))
        found.append(entry)
    return found


def _more(before: Sequence[Placed], after: Sequence[Placed]) -> list[Placed]:
    """Return the pods that are where none were before."""
    had: dict[tuple[str, int, tuple[str, ...]], int] = {}
    for position, (flavor, pods) in enumerate(before):
        for domain in pods.assignment.domains:
            had[flavor, position, domain.values] = domain.count
    found = []
    for position, (flavor, pods) in enumerate(after):
        more = tuple(
            replace(each, count=each.count - had.get((flavor, position, each.values), 0))
            for each in pods.assignment.domains
            if each.count > had.get((flavor, position, each.values), 0)
        )
        found.append((flavor, replace(pods, assignment=replace(pods.assignment, domains=more))))
    return found


def _outcomes(snapshot: Snapshot, entry: Entry, places: Places) -> dict[str, PlaceOutcome]:
    """Return by pod set what its pods on the failed node get."""
    workload = entry.workload
    assert workload.admission is not None
    admitted = {each.name: each for each in workload.admission.pod_sets}
    configuration = snapshot.configuration
    queue = configuration.cluster_queues[entry.cluster_queue]
    together = configuration.settings.profile is VictimChoice.BEST
    by_flavor: dict[str, list[str]] = {}
    for each in workload.admission.pod_sets:
        for flavor in sorted({*each.flavors.values()} & places.trees.keys()):
            by_flavor.setdefault(flavor, []).append(each.name)
    found: dict[str, PlaceOutcome] = {}
    for flavor, names in sorted(by_flavor.items()):
        wanted = wanted_of(workload, queue, configuration, {n: admitted[n].count for n in names})
        present = {name: admitted[name].topology for name in names}
        nodes, placing = workload.unhealthy_nodes, places.on(flavor)
        if together and len(nodes) > 1:
            found.update(replace_nodes(placing, wanted, present, nodes))
        else:
            found.update(replace_node(placing, wanted, present, nodes[0], workload.of_one_pod))
    return found

"""Workloads of whose places a node failed: other nodes for its pods, or an eviction.

They keep their flavors and their quota, and nobody is preempted for them. A replacement that is not
found ends the workload, so that it is queued and placed as a whole again. A workload that is one
plain pod keeps what it has, since nothing would make that pod anew. One that lost a second node
while the first waited for another is evicted; with `profile: best` all are replaced at once.

Source: specification of topology-aware scheduling, sections 6.6, 7.1, 7.2 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.topologies import wanted_of
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Admission, Eviction, Workload
from reprieve.engine.topology.model import Outcome as PlaceOutcome
from reprieve.engine.topology.places import Placed
from reprieve.engine.topology.replacing import replace_node, replace_nodes
from reprieve.engine.victim_choice import VictimChoice

__all__ = ["NODE_FAILURES", "Marks", "evict_for_nodes", "marks_of", "replace_failed_nodes"]

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
        outcomes = _outcomes(snapshot, entry)
        if any(each.assignment is None for each in outcomes.values()):
            failed.append(entry)
            continue
        entry.outcome = Outcome.NODE_REPLACED
        pod_sets = tuple(
            replace(each, topology=outcomes[each.name].assignment)
            if each.name in outcomes
            else each
            for each in workload.admission.pod_sets
        )
        entry.admission = Admission(workload.admission.cluster_queue, pod_sets)
        holdings.hold(replace(workload, admission=entry.admission, unhealthy_nodes=()))
        # What it leaves is nobody's in this cycle: its pods are there yet, and the node failed.
        snapshot.place(_more(holder.placed, holdings.holders[key].placed), 1)
        replaced.append(entry)
    return replaced, failed


def evict_for_nodes(holdings: Holdings, failed: Iterable[Entry], now: Nanos) -> list[Entry]:
    """Count those as evicted for which there is no replacement, and who do not go anyway."""
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


def _outcomes(snapshot: Snapshot, entry: Entry) -> dict[str, PlaceOutcome]:
    """Return by pod set what its pods on the failed node get."""
    workload, places = entry.workload, snapshot.places
    assert workload.admission is not None and places is not None
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

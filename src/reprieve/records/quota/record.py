"""The input of a preemption by quota, as it stands in a Preemption's `spec.input`.

The wrapping is that of `record`; beside it stand the displacements (`records.displacements`).
`data` holds a `QuotaInput`: the cohort tree of the preemptor's ClusterQueue as it was before the
cycle, with all that held quota in it and the heads that were popped. What happens in other trees
cannot change what is decided in this one. `restored` makes holdings and queues of it again, whose
next cycle decides alike. Source: promise "Explained" of the design.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

import reprieve
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Bookmark
from reprieve.engine.quota.displacements import Displacements, Uids
from reprieve.engine.quota.entries import OF_HOLDERS, CycleResult, Entry, Outcome
from reprieve.engine.quota.heads import LastScan, RequeueReason, shape
from reprieve.engine.quota.holdings.holders import effective_priority
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Cohort,
    Configuration,
    LocalQueue,
    ResourceFlavor,
    Settings,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import Topology, TopologyAssignment, TopologyNode
from reprieve.engine.topology.places import NodeUse
from reprieve.records.displacements import stored
from reprieve.records.harm import stored_harm
from reprieve.records.idle.record import packed
from reprieve.records.quota.nodes import counted_pods, grounds_of, node_rows, trees_with_places
from reprieve.units.counts import counted

__all__ = ["MOST_WORKLOADS", "Head", "QuotaInput", "inputs_of", "policy_text", "restored"]

log: Final = logging.getLogger("reprieve.quota")

#: Most workloads with quota in one tree: more would hold decisions up while they are written.
MOST_WORKLOADS: Final = 3_000
# Who is held back in a decision that is made again stands in its input; no other work is.
_MOST_TURNS: Final = 2**31


class Head(msgspec.Struct, frozen=True):
    """A workload that the cycle popped from its ClusterQueue.

    `scan`: where an earlier scan of its flavors had stopped, by pod set and resource. `preempts`:
    it was waiting for victims of its own. `refused`: why nodes would not have accepted it;
    `proven`: they would; `moved`: the flavor that it got in place of the first. `saves_since`: when
    it waited for a save of its victims for the first time. `planned`: the places that earlier
    victims were chosen for, by pod set, `plan_number` is larger for younger plans. `made`: what
    other planes were to evict so that it had places.
    """

    cluster_queue: str
    workload: Workload
    scan: dict[str, dict[str, int]] | None = None
    preempts: bool = False
    refused: str = ""
    proven: bool = False
    moved: str = ""
    saves_since: Nanos | None = None
    as_found: bool = False
    planned: dict[str, TopologyAssignment] | msgspec.UnsetType = msgspec.UNSET
    made: tuple[NodeUse, ...] | msgspec.UnsetType = msgspec.UNSET
    plan_number: int | msgspec.UnsetType = msgspec.UNSET


class QuotaInput(msgspec.Struct, frozen=True):
    """Everything that the cycle depends on in this tree; `program` is Reprieve's version then.

    `preemptor`: key of the head that the record is about. `usage`: of LocalQueues, as text, since
    it may be infinite. `refused`: who was held back from whom as one of a pair, by uids, and until
    when. `spared`: those of them that a harm budget spared, which has that name. `held`: such
    pairs, either way, in records that were written before there was `refused`. `nodes`, their
    `uses` and `topologies`: where flavors of these queues place pods (`nodes`).
    """

    preemptor: str
    now: Nanos
    settings: Settings
    cluster_queues: tuple[ClusterQueue, ...]
    cohorts: tuple[Cohort, ...]
    flavors: tuple[ResourceFlavor, ...]
    local_queues: tuple[LocalQueue, ...]
    namespaces: dict[str, dict[str, str]]
    holders: tuple[Workload, ...]
    heads: tuple[Head, ...]
    usage: dict[str, str] = {}
    held: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str, Nanos], ...] = ()
    spared: tuple[tuple[str, str, str], ...] | msgspec.UnsetType = msgspec.UNSET
    topologies: tuple[Topology, ...] | msgspec.UnsetType = msgspec.UNSET
    nodes: tuple[TopologyNode, ...] | msgspec.UnsetType = msgspec.UNSET
    uses: tuple[NodeUse, ...] | msgspec.UnsetType = msgspec.UNSET
    program: str = ""


def inputs_of(
    result: CycleResult,
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    ledger: Displacements | None = None,
    sampled: Callable[[], bool] = lambda: False,
) -> dict[str, dict[str, Any]]:
    """Return the inputs of a cycle's preemptions, for `spec.input`, by the key of the preemptor.

    `sampled` is called for each head that got no quota, and returns whether its input is wanted,
    too. To be called before the next cycle. One that cannot be made is left out, as what cannot be
    explained later is carried out all the same.
    """
    inputs = {}
    # Who preempts in one tree has the holders of that tree in common.
    known: dict[frozenset[str], tuple[Workload, ...]] = {}
    wanted = [
        entry for entry in result.entries if entry.issued or (_is_refused(entry) and sampled())
    ]
    refusals = {} if ledger is None else dict(ledger.refusals)
    spared = {} if ledger is None else dict(ledger.spared)
    for entry in wanted:
        try:
            names = trees_with_places(entry.cluster_queue, holdings)
            if names not in known:
                known[names] = tuple(_before(names, result, holdings))
            inputs[entry.workload.key] = _encoded(
                entry, result, holdings, queues, now, (refusals, spared), names, known[names]
            )
            if ledger is not None:
                reported = (ledger.recorded.get((entry.workload.uid, uid)) for uid in _uids(entry))
                rows = [row for row in reported if row is not None]
                inputs[entry.workload.key] |= stored(rows)
                if ledger.governor.harm:
                    harms = ledger.harms(entry.workload.uid, [row.uid for row in rows])
                    inputs[entry.workload.key] |= stored_harm(*harms)
        except Exception:
            log.exception("the input of %s's decision is not recorded", entry.workload.key)
    return inputs


def policy_text(configuration: Configuration, cluster_queue: str) -> str:
    """Return the text by which a plan's id separates policies."""
    return repr(configuration.cluster_queues.get(cluster_queue))


def restored(decided_on: QuotaInput) -> tuple[Holdings, Queues, Displacements | None]:
    """Return the state before the cycle.

    Raises:
        LookupError: a name leads nowhere, so that this was not written by `inputs_of`.
    """
    configuration = Configuration(
        cluster_queues={each.name: each for each in decided_on.cluster_queues},
        cohorts={each.name: each for each in decided_on.cohorts},
        flavors={each.name: each for each in decided_on.flavors},
        local_queues={each.key: each for each in decided_on.local_queues},
        namespaces=decided_on.namespaces,
        topologies={each.name: each for each in decided_on.topologies or ()},
        settings=decided_on.settings,
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    queues.local_queue_usage = {key: float(text) for key, text in decided_on.usage.items()}
    grounds = grounds_of(decided_on.nodes or (), decided_on.uses or ())
    if grounds is not None:
        holdings.stand_on(grounds)
    for workload in decided_on.holders:
        holdings.hold(workload)
    for head in decided_on.heads:
        queues.push(head.workload)
    queues.heads(decided_on.now)
    for head in decided_on.heads:
        scan = None
        if head.scan is not None:
            priority = effective_priority(head.workload, decided_on.settings)
            generation = holdings.generations[head.cluster_queue]
            scan = LastScan(head.scan, True, generation, 0, shape(head.workload, priority))
        preempts = RequeueReason.PENDING_PREEMPTION
        other = RequeueReason.FAILED_AFTER_NOMINATION
        queues.requeue(head.workload.key, preempts if head.preempts else other, scan)
        if head.saves_since is not None:
            queues.note_save_wait(head.workload.key, head.saves_since)
    for head in sorted(decided_on.heads, key=lambda each: each.plan_number or 0):
        if head.planned:
            queues.plans.note(head.workload.key, head.planned)
    ledger = None
    if decided_on.held or decided_on.refused:
        ledger = Displacements(limit=_MOST_TURNS)
        end = Nanos(decided_on.now + ledger.policy.loop_window)
        for one, second in decided_on.held:
            ledger.refuse(one, second, end)
            ledger.refuse(second, one, end)
        for preemptor, victim, until in decided_on.refused:
            ledger.refuse(preemptor, victim, until)
    return holdings, queues, ledger


def _is_refused(entry: Entry) -> bool:
    """Return whether a head was considered, and got no quota."""
    refused = entry.outcome not in (Outcome.ADMITTED, Outcome.FAULT, *OF_HOLDERS)
    return refused and entry.queue >= 0 and entry.assignment is not None


def _holds(entry: Entry) -> bool:
    """Return whether it is about places of a workload that runs."""
    return entry.outcome in OF_HOLDERS


def _uids(entry: Entry) -> list[str]:
    return [target.holder.workload.uid for target in entry.issued]


def _encoded(
    entry: Entry,
    result: CycleResult,
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    held_back: tuple[Mapping[Uids, Nanos], Mapping[Uids, str]],
    names: frozenset[str],
    holders: tuple[Workload, ...],
) -> dict[str, Any]:
    """Return the value for `spec.input`; the cycle is over, and its changes are undone.

    `names`: the ClusterQueues of the tree; `holders`: what held quota in them before. `held_back`:
    who is held back from whom until when, and by which harm budget.
    """
    refusals, spared = held_back
    tree, configuration = holdings.tree, holdings.configuration
    size = f"{counted(len(holders), 'workload')} with quota"
    if len(holders) > MOST_WORKLOADS:
        return packed(b"", size, leave_out=True)
    rows = [configuration.cluster_queues[name] for name in sorted(names)]
    heads = [
        each
        for each in result.entries
        if each.cluster_queue in names
        and each.queue >= 0
        and each.outcome not in (Outcome.FAULT, *OF_HOLDERS)
    ]
    uids = {entry.workload.uid, *(head.workload.uid for head in heads)}
    flavors = {f.flavor for row in rows for group in row.groups for f in group.flavors}
    doors = {w.queue for w in holders} | {head.workload.queue for head in heads}
    spaces = {head.workload.namespace for head in heads}
    nodes, uses = node_rows(holdings, names, (head.workload for head in heads))
    topologies = {row.topology for row in _present(configuration.flavors, flavors)}
    above = {tree.names[node] for name in names for node in tree.path[tree.queues[name]][1:]}
    decided_on = QuotaInput(
        preemptor=entry.workload.key,
        now=now,
        settings=configuration.settings,
        cluster_queues=tuple(rows),
        cohorts=tuple(_present(configuration.cohorts, _with_branches(configuration, above))),
        flavors=tuple(_present(configuration.flavors, flavors)),
        local_queues=tuple(_present(configuration.local_queues, doors)),
        namespaces={
            name: dict(configuration.namespaces[name])
            for name in sorted(spaces & configuration.namespaces.keys())
        },
        holders=holders,
        heads=tuple(_head(each) for each in sorted(heads, key=lambda e: e.cluster_queue)),
        usage={key: repr(queues.local_queue_usage.get(key, 0.0)) for key in sorted(doors)},
        refused=tuple(sorted((*pair, end) for pair, end in refusals.items() if pair[0] in uids)),
        spared=tuple(sorted((*pair, name) for pair, name in spared.items() if pair[0] in uids))
        or msgspec.UNSET,
        topologies=tuple(_present(configuration.topologies, topologies)) or msgspec.UNSET,
        nodes=nodes or msgspec.UNSET,
        uses=uses or msgspec.UNSET,
        program=reprieve.__version__,
    )
    return packed(msgspec.json.encode(decided_on), size)


def _before(names: frozenset[str], result: CycleResult, holdings: Holdings) -> Iterator[Workload]:
    """Yield what held quota in these ClusterQueues before the cycle, by namespace/name."""
    tree = holdings.tree
    admitted = {each.workload.key for each in result.of(Outcome.ADMITTED)}
    changed = {
        target.holder.key: target.holder for each in result.entries for target in each.issued
    }
    replaced = {
        each.replaced.key: each.replaced
        for each in result.of(Outcome.ADMITTED)
        if each.replaced is not None
    }
    holders = {**holdings.holders, **changed, **replaced}
    moved = {each.workload.key: each.workload for each in result.entries if _holds(each)}
    for key in sorted(holders.keys() - admitted):
        holder = holders[key]
        if tree.names[holder.queue] in names:
            yield counted_pods(moved.get(key, holder.workload))


def _head(entry: Entry) -> Head:
    scan: Bookmark | None = entry.resumed
    plain = None if scan is None else {name: dict(tried) for name, tried in scan.items()}
    refused = ""
    if entry.outcome in (Outcome.UNPROVEN, Outcome.DEFERRED) and entry.assignment is not None:
        refused = entry.message.removeprefix(f"{entry.assignment.message}. ")
    workload = replace(entry.workload, participant=None)
    return Head(
        entry.cluster_queue,
        workload,
        plain,
        entry.preempts,
        refused,
        entry.proven,
        entry.moved,
        entry.saves_since,
        entry.as_found,
        {**entry.planned} or msgspec.UNSET,
        entry.made or msgspec.UNSET,
        entry.plan_number or msgspec.UNSET,
    )


def _with_branches(configuration: Configuration, above: set[str]) -> set[str]:
    """Return these cohorts and all below them, which may lend though no queue hangs on them."""
    found, more = set(above), True
    while more:
        below = {c.name for c in configuration.cohorts.values() if c.parent in found} - found
        found |= below
        more = bool(below)
    return found


def _present(rows: Mapping[str, Any], names: Iterable[str]) -> Iterator[Any]:
    for name in sorted(names):
        if name in rows:
            yield rows[name]

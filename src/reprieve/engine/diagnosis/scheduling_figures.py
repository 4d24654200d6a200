"""What a waiting pod or group lacks, who holds it, and which rules keep those from being preempted.

Computed on request, over the snapshot as it is. Amounts are of resources alone, on the
nodes that the pods accept; what ports, volumes, devices of claims and rules about pods that are
together request is no amount.

* A pod lacks what is missing on the node where that is least: fewest resources, then the smallest
  part of its request, then the first by name.
* A group lacks what the pods request that do not fit beside the others, in the topology domain
  where most fit; only resources of which there is too little for the minimum count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import PODS, GroupRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.cluster.texts import texts_at
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Blocker, Diagnosis
from reprieve.engine.diagnosis.node_refusals import lasting_codes, node_refusals
from reprieve.engine.diagnosis.reasons import Reason, Trait, with_trait
from reprieve.engine.diagnosis.refusals import NodeRefusal
from reprieve.engine.diagnosis.scheduling import LEAVING, PRIORITY, PROTECTED, RUNTIME, STATIC
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.victims.hierarchy import effective_priority, members_of
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["with_figures"]

#: Rules by number; the first that holds.
_RULES: Final = ("", LEAVING, PRIORITY, PROTECTED, RUNTIME)
_MOST_BLOCKERS: Final = 8
_FULL: Final = with_trait(Trait.FULL_NODES)
_OF_ROOM: Final = _FULL | {
    Reason.NO_NODE_MATCHES,
    Reason.NOMINATED_WAITING,
    Reason.VICTIMS_LEAVING,
}
_OF_NODES: Final = _OF_ROOM | {Reason.SPREAD_OR_AFFINITY_BLOCKS}


@dataclass(frozen=True, slots=True)
class _Lack:
    """What is missing where, and the nodes (nodes,) on which capacity would help."""

    where: str
    amounts: dict[str, int]
    nodes: Mask


def with_figures(
    snapshot: Snapshot, policy: Policy, unit: Unit, found: Diagnosis, *, now: int = 0
) -> Diagnosis:
    """Return the diagnosis with deficit, blockers and refused candidates.

    Diagnoses with reasons other than capacity, and of deleted units, are returned unchanged. `now`:
    Unix seconds.
    """
    queued = [snapshot.pending[uid] for uid in unit.pods if uid in snapshot.pending]
    if found.reason not in _OF_NODES or not queued or not snapshot.nodes:
        return found
    entry = snapshot.classes[queued[0].pod_class]
    profile = policy.profile("" if entry is None else entry.scheduler_name)
    if profile is None:
        return found
    simulation = Simulation(snapshot, policy, profile)
    if found.reason in _FULL and all(
        _wrong(simulation, each).all() for each in _one_of_each(queued)
    ):
        # The attempt counts each node by its first refusal, as kube-scheduler does.
        found = replace(found, reason=Reason.NO_NODE_MATCHES, values={}, others=(), refused={})
    found = replace(found, nodes=_refusals(simulation, found.reason, queued))
    if found.reason not in _OF_ROOM:
        return found
    index = snapshot.group_index.get(unit.group, -1)
    group = snapshot.group_rows[index] if index >= 0 else None
    if len(queued) == 1 and (group is None or not group.topology_key):
        lack = _of_pod(simulation, queued[0])
    else:
        lack = _of_group(simulation, group, queued)
    if not lack.amounts:
        return found
    larger = _larger_than_cluster(simulation, group, queued)
    if larger is not None:
        return replace(found, reason=Reason.NO_NODE_MATCHES, others=(), refused={}, **larger)
    deficit = {(lack.where, name): amount for name, amount in lack.amounts.items()}
    if found.reason is Reason.NO_NODE_MATCHES:
        return replace(found, deficit=deficit)  # even an empty node would not do: no pod blocks it
    priority = queued[0].row.priority if group is None else group.priority
    rules = _rules(snapshot, policy, priority, now)  # (slots,)
    columns = [snapshot.resources.index(name) for name in lack.amounts]
    holding = (snapshot.pod_node >= 0) & (snapshot.pod_requests[:, columns] > 0).any(axis=1)
    holding &= np.append(lack.nodes, False)[snapshot.pod_node.astype(np.intp)]
    slots = np.flatnonzero(holding)
    counts = np.bincount(rules[slots], minlength=len(_RULES)).tolist()
    refused = {word: n for word, n in zip(_RULES, counts, strict=True) if word and n}
    return replace(
        found,
        deficit=deficit,
        blockers=tuple(_blockers(snapshot, slots, list(lack.amounts), columns, rules)),
        refused={**found.refused, **refused},
    )


def _refusals(
    simulation: Simulation, reason: Reason, queued: Sequence[Pending]
) -> tuple[NodeRefusal, ...]:
    """Return by what nodes refuse the pods: the first of them, or the first that fits nowhere."""
    pods = _one_of_each(queued)
    reported = pods[0]
    if reason is Reason.NO_NODE_MATCHES:
        nowhere = (each for each in pods if _wrong(simulation, each).all())
        reported = next(nowhere, reported)
    return node_refusals(simulation, reported)


def _accepting(simulation: Simulation, pending: Pending) -> Mask:
    """Return the nodes (nodes,) that are of the right kind, all of them where none is."""
    right: Mask = ~_wrong(simulation, pending)
    return right if right.any() else np.ones(len(right), np.bool_)


def _wrong(simulation: Simulation, pending: Pending) -> Mask:
    """Return the nodes (nodes,) that would not accept a pod, however empty."""
    wrong: Mask = np.isin(lasting_codes(simulation, pending), np.array([*STATIC], np.uint8))
    return wrong


def _of_pod(simulation: Simulation, pending: Pending) -> _Lack:
    snapshot = simulation.snapshot
    accepting = _accepting(simulation, pending)
    need = simulation.requests_of(pending.pod_class)
    columns = np.flatnonzero(need > 0)
    nodes = np.flatnonzero(accepting)
    free = snapshot.allocatable[nodes][:, columns] - simulation.used[nodes][:, columns]
    lacking = np.clip(need[columns] - free, 0, None)
    part = (lacking / need[columns]).max(axis=1)
    best = int(np.lexsort((part, (lacking > 0).sum(axis=1)))[0])
    amounts = _named(snapshot, columns, lacking[best])
    return _Lack(snapshot.nodes[int(nodes[best])].name, amounts, accepting)


def _of_group(simulation: Simulation, group: GroupRow | None, queued: Sequence[Pending]) -> _Lack:
    """Return what the pods of a group lack that are still wanted for its minimum."""
    snapshot = simulation.snapshot
    accepting = np.logical_or.reduce(
        [_accepting(simulation, pending) for pending in _one_of_each(queued)]
    )
    need = np.max([simulation.requests_of(each.pod_class) for each in queued], axis=0)
    columns = np.flatnonzero(need > 0)
    wanted = len(queued)
    if group is not None and not group.composite:
        there = len(members_of(snapshot, group))
        wanted = min(wanted, max(1, (group.min_count or 1) - there))
    free = np.clip(snapshot.allocatable - simulation.used, 0, None)[:, columns]
    each = free // need[columns]  # (nodes, resources): pods that fit by one resource alone
    best: tuple[int, str, Mask] | None = None
    for where, inside in _domains(snapshot, group, accepting):
        fits = int(each[inside].min(axis=1).sum()) if inside.any() else 0
        if best is None or fits > best[0]:
            best = fits, where, inside
    if best is None or best[0] >= wanted:
        return _Lack("", {}, accepting)
    fits, where, inside = best
    alone = each[inside].sum(axis=0)
    short = alone < wanted
    if not short.any():  # every resource would do by itself, but not on the same nodes
        short = alone == alone.min()
    lacking = np.where(short, need[columns] * (wanted - fits), 0)
    return _Lack(where, _named(snapshot, columns, lacking), inside)


def _larger_than_cluster(
    simulation: Simulation, group: GroupRow | None, queued: Sequence[Pending]
) -> dict[str, Any] | None:
    """Return what is reported of a group whose minimum no domain would hold, however empty.

    None where that is not known: it is of pods of one class alone, which fit by resources.
    """
    if group is None or group.composite or len(_one_of_each(queued)) != 1:
        return None
    snapshot = simulation.snapshot
    accepting = _accepting(simulation, queued[0])
    need = simulation.requests_of(queued[0].pod_class)
    columns = np.flatnonzero(need > 0)
    each = snapshot.allocatable[:, columns] // need[columns]
    minimum, most, place = group.min_count or 1, 0, ""
    for where, inside in _domains(snapshot, group, accepting):
        fits = int(each[inside].min(axis=1).sum()) if inside.any() else 0
        if fits > most:
            most, place = fits, where
    if not 0 < most < minimum:
        return None  # reported as a pod that no node accepts
    inside = dict(_domains(snapshot, group, accepting))[place]
    alone = each[inside].sum(axis=0)
    short = (alone < minimum) if (alone < minimum).any() else alone == alone.min()
    lacking = np.where(short, need[columns] * (minimum - most), 0)
    amounts = _named(snapshot, columns, lacking)
    why = f"of the {minimum:,} that its group needs {most:,} at most would fit"
    return {
        "deficit": {(place, name): amount for name, amount in amounts.items()},
        "values": {CAUSE: Cause.TOO_MANY_PODS, "why": why},
    }


def _one_of_each(queued: Sequence[Pending]) -> list[Pending]:
    """Return one pod of each class."""
    return list({pending.pod_class: pending for pending in queued}.values())


def _domains(
    snapshot: Snapshot, group: GroupRow | None, accepting: Mask
) -> Iterator[tuple[str, Mask]]:
    key = "" if group is None else group.topology_key
    if not key:
        yield "", accepting
        return
    values = np.array([node.labels.get(key, "") for node in snapshot.nodes])
    for value in sorted({*values[accepting].tolist()} - {""}):
        yield f"{key}={value}", accepting & (values == value)


def _named(snapshot: Snapshot, columns: I64, amounts: I64) -> dict[str, int]:
    found = {
        snapshot.resources[column]: amount
        for column, amount in zip(columns.tolist(), amounts.tolist(), strict=True)
        if amount > 0
    }
    # That nodes have no more capacity for pods is reported only where nothing else is missing.
    return {name: n for name, n in found.items() if name != PODS} or found


def _rules(snapshot: Snapshot, policy: Policy, priority: int, now: int) -> I64:
    """Return which of `_RULES` keeps each pod from being preempted: (slots,)."""
    plain = replace(policy, protection=None)
    own = effective_priority(snapshot, plain) >= priority
    raised = effective_priority(snapshot, policy) >= priority
    until = protected_until(snapshot, policy, now)
    spared = np.zeros(len(own), np.bool_) if until is None else until > 0
    leaving = (snapshot.pod_flags & Flag.DELETING) > 0
    found: I64 = np.select([leaving, own, raised, spared], [1, 2, 3, 4], default=0)
    return found


def _blockers(
    snapshot: Snapshot, slots: I64, names: list[str], columns: list[int], rules: I64
) -> Iterator[Blocker]:
    """Yield who holds these resources, groups as a whole, those with most of the first first."""
    groups = snapshot.pod_group[slots].astype(np.int64)
    holder = np.where(groups >= 0, groups, len(snapshot.group_keys) + slots)
    numbers, first, of_slot = np.unique(holder, return_index=True, return_inverse=True)
    sums = np.zeros((len(numbers), len(columns)), np.int64)
    np.add.at(sums, of_slot, snapshot.pod_requests[slots][:, columns])
    largest = sums[:, 0]
    if len(numbers) > _MOST_BLOCKERS:
        least = np.partition(largest, -_MOST_BLOCKERS)[-_MOST_BLOCKERS]
        chosen = np.flatnonzero(largest >= least)
    else:
        chosen = np.arange(len(numbers))
    # In a cluster of equal pods all of them hold as much as the last that is reported.
    keys = texts_at(snapshot.pod_keys, slots[first[chosen]].tolist())
    ordered = zip((-largest[chosen]).tolist(), keys, chosen.tolist(), strict=True)
    for *_, each in nsmallest(_MOST_BLOCKERS, ordered):
        slot = slots[first[each]].item()
        amounts = dict(zip(names, sums[each].tolist(), strict=True))
        yield Blocker(_holder(snapshot, slot), amounts, _RULES[rules[slot]])


def _holder(snapshot: Snapshot, slot: int) -> Reference:
    group = int(snapshot.pod_group[slot])
    if group < 0:
        namespace, _, name = snapshot.pod_keys[slot].partition("/")
        return Reference("v1", "Pod", namespace, name, snapshot.pod_uids[slot])
    row = snapshot.group_rows[group]
    namespace, _, name = snapshot.group_keys[group].partition("/")
    uid = Uid("") if row is None else row.uid
    return Reference("scheduling.k8s.io/v1beta1", "PodGroup", namespace, name, uid)

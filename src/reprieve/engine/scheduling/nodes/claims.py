"""What a unit that could not be placed gives back of its device claims.

The claims that keep it on nodes it cannot use, and that no other work uses, are deallocated; claims
that were made for extended resources in an earlier attempt are deleted. Source: specification,
sections 6 and 21.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.devices import Consumer, ResourceClaimRow
from reprieve.engine.cluster.rows import GroupRow, Kind
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.filters.reach import node_sets_of
from reprieve.engine.placement.reasons import Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Deallocation, Explanation, Preemption, Sentence
from reprieve.units.ids import Uid

__all__ = ["deallocate_claims", "deallocations"]

_STALE: Final = "claims of extended resources"


def deallocations(simulation: Simulation, pods: Sequence[Pending]) -> tuple[Deallocation, ...]:
    """Return the claims of failed pods that are in the way, each once, in the order of the pods.

    A claim is in the way when a node that passes all earlier filters is refused because the claim
    is allocated elsewhere, and it is reserved for no work but the pod (or its group) itself.
    """
    snapshot = simulation.snapshot
    rows = snapshot.tables.get(Kind.RESOURCE_CLAIM, {})
    stale = _made_before(snapshot, rows)
    found: dict[tuple[str, str], Deallocation] = {}
    sets = node_sets_of(simulation)
    for pending in pods:
        made: ResourceClaimRow | None = stale.get(pending.row.uid)
        if made is not None:
            key = (made.namespace, made.name)
            found[key] = Deallocation(*key, made.uid, delete=True)
        names = [(pending.row.namespace, name or "") for _, name in pending.row.claims]
        claims: list[ResourceClaimRow] = [rows[name] for name in names if name in rows]
        given = [(row, row.allocation) for row in claims if row.allocation and not row.in_flight]
        if not given:
            continue
        refused = np.flatnonzero(simulation.codes(pending) == Rejection.DEVICES_NOT_HERE)
        own = _own_consumers(snapshot, pending)
        for row, allocation in given:
            away = ~np.isin(refused, sets.of(allocation.terms))
            if away.any() and _unused(row.reserved_for, own):
                key = (row.namespace, row.name)
                found.setdefault(key, Deallocation(*key, row.uid))
    return tuple(found.values())


def _made_before(
    snapshot: Snapshot, rows: Mapping[tuple[str, str], ResourceClaimRow]
) -> Mapping[Uid | None, ResourceClaimRow]:
    """Return the claims that were made for extended resources, by the pod for which they were."""
    derived = snapshot.derived

    def read() -> Mapping[Uid | None, ResourceClaimRow]:
        return {row.owner: row for row in rows.values() if _stale(row)}

    def same(
        known: Mapping[Uid | None, ResourceClaimRow], tables: tuple[Any, ...]
    ) -> Mapping[Uid | None, ResourceClaimRow] | None:
        gone, new = derived.between(Kind.RESOURCE_CLAIM, tables[0], rows)
        return None if any(map(_stale, gone)) or any(map(_stale, new)) else known

    return derived.of(_STALE, (rows,), read, same)


def _stale(row: ResourceClaimRow) -> bool:
    return row.extended and not row.in_flight


def _own_consumers(snapshot: Snapshot, pending: Pending) -> frozenset[Uid]:
    index = snapshot.group_index.get(f"{pending.row.namespace}/{pending.row.group}", -1)
    group = snapshot.group_rows[index] if pending.row.group and index >= 0 else None
    return frozenset((pending.row.uid,) if group is None else (pending.row.uid, group.uid))


def _unused(consumers: tuple[Consumer, ...], own: frozenset[Uid]) -> bool:
    return len(consumers) <= 1 and all(each.uid in own for each in consumers)


def deallocate_claims(
    simulation: Simulation, group: GroupRow, queued: Sequence[Pending], *_: object
) -> Preemption:
    """The DynamicResources plugin of PodGroupPostFilter: it never evicts by itself.

    What is to be written is `deallocations`; the sentence is the same when that is nothing. Of a
    tree it states nothing, as in release 1.37.
    """
    sentence = Sentence.SILENT if group.composite else Sentence.CLAIMS_DEALLOCATED
    return Preemption(Code.UNSCHEDULABLE, Explanation(sentence), evaluated=False)

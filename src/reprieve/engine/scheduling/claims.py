"""What becomes of claims: what placed pods have reserved, and what a failed unit gives back.

`reservations_of` is what has to be written before a pod is bound (PreBind); `assumed` turns it into
rows, so that the next snapshot knows of it before the API has it. After a failure, the claims that
keep a unit on nodes it cannot use, and that nobody else uses, are deallocated; claims that were
made for extended resources in an earlier attempt are deleted. Source: specification, section 6,
21.5 and 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reprieve.engine.cluster.devices import Consumer, ResourceClaimRow
from reprieve.engine.cluster.rows import Entry, GroupRow, Kind
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.storage import ClaimRow, VolumeRow
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.device_state import ClaimAllocation, device_state_of
from reprieve.engine.placement.filters.reach import node_sets_of
from reprieve.engine.placement.filters.volume_binding import VolumeAssignment, volume_ledger_of
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence
from reprieve.units.ids import Uid

__all__ = [
    "Deallocation",
    "Reservations",
    "assumed",
    "deallocate_claims",
    "deallocations",
    "reservations_of",
]


@dataclass(frozen=True, slots=True)
class Reservations:
    """What has to be written before a pod is bound, in order."""

    volumes: tuple[VolumeAssignment, ...] = ()
    claims: tuple[ClaimAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deallocation:
    """A ResourceClaim whose allocation is to be cleared, or that is to be deleted."""

    namespace: str
    name: str
    uid: Uid
    delete: bool = False


def reservations_of(view: View, uid: Uid) -> Reservations:
    """Return what a pod that the view has placed reserves."""
    volumes: tuple[VolumeAssignment, ...] = ()
    claims: tuple[ClaimAllocation, ...] = ()
    if FilterName.VOLUME_BINDING in view.shared:
        volumes = volume_ledger_of(view).made.get(uid, ())
    if FilterName.DYNAMIC_RESOURCES in view.shared:
        claims = device_state_of(view).made.get(uid, ())
    return Reservations(volumes, claims)


def assumed(snapshot: Snapshot, reservations: Iterable[Reservations]) -> tuple[Entry, ...]:
    """Return the rows of claims and volumes as they will be once the reservations are written.

    Several reservations of one object give one row.
    """
    found: dict[tuple[Kind, str, str], ClaimRow | VolumeRow | ResourceClaimRow] = {}
    for each in reservations:
        for volume in each.volumes:
            _assume_volume(snapshot, volume, found)
        for claim in each.claims:
            _assume_claim(snapshot, claim, found)
    return tuple(
        Entry(kind, row.uid, namespace, name, row.version, row)
        for (kind, namespace, name), row in sorted(found.items(), key=lambda item: item[0])
    )


def _assume_volume(
    snapshot: Snapshot,
    made: VolumeAssignment,
    found: dict[tuple[Kind, str, str], ClaimRow | VolumeRow | ResourceClaimRow],
) -> None:
    claims = snapshot.tables.get(Kind.CLAIM, {})
    row: ClaimRow | None = claims.get((made.namespace, made.claim))
    if row is None:
        return
    if not made.volume:
        found[Kind.CLAIM, made.namespace, made.claim] = replace(row, selected_node=made.node)
        return
    volume: VolumeRow = snapshot.tables[Kind.VOLUME]["", made.volume]
    reserved = (made.namespace, made.claim, row.uid)
    found[Kind.VOLUME, "", made.volume] = replace(volume, claim=reserved)


def _assume_claim(
    snapshot: Snapshot,
    made: ClaimAllocation,
    found: dict[tuple[Kind, str, str], ClaimRow | VolumeRow | ResourceClaimRow],
) -> None:
    key = (Kind.RESOURCE_CLAIM, made.namespace, made.name)
    row = found.get(key) or snapshot.tables.get(Kind.RESOURCE_CLAIM, {}).get(key[1:])
    if row is None and made.extended:
        # The uid of a claim that is yet to be made is its owner's.
        owner = made.consumer.uid
        row = ResourceClaimRow(owner, made.namespace, made.name, 0, owner=owner, extended=True)
    if not isinstance(row, ResourceClaimRow):
        return
    consumers = row.reserved_for
    if all(each.uid != made.consumer.uid for each in consumers):
        consumers = (*consumers, made.consumer)
    fresh = made.allocation is not None
    found[key] = replace(
        row,
        allocation=made.allocation if fresh else row.allocation,
        in_flight=fresh or row.in_flight,
        reserved_for=consumers,
    )


def deallocations(simulation: Simulation, pods: Sequence[Pending]) -> tuple[Deallocation, ...]:
    """Return the claims of failed pods that are in the way, each once, in the order of the pods.

    A claim is in the way when a node that passes all earlier filters is refused because the claim
    is allocated elsewhere, and it is reserved for nobody but the pod (or its group) itself.
    """
    snapshot = simulation.snapshot
    rows = snapshot.tables.get(Kind.RESOURCE_CLAIM, {})
    stale = {row.owner: row for row in rows.values() if row.extended and not row.in_flight}
    found: dict[tuple[str, str], Deallocation] = {}
    sets = node_sets_of(simulation)
    for pending in pods:
        made: ResourceClaimRow | None = stale.get(pending.row.uid)
        if made is not None:
            key = (made.namespace, made.name)
            found[key] = Deallocation(*key, made.uid, delete=True)
        if not pending.row.claims:
            continue
        refused = np.flatnonzero(simulation.codes(pending) == Rejection.DEVICES_NOT_HERE)
        own = _own_consumers(snapshot, pending)
        for _, name in pending.row.claims:
            row: ResourceClaimRow | None = rows.get((pending.row.namespace, name or ""))
            if row is None or row.allocation is None or row.in_flight:
                continue
            away = ~np.isin(refused, sets.of(row.allocation.terms))
            if away.any() and _unused(row.reserved_for, own):
                key = (row.namespace, row.name)
                found.setdefault(key, Deallocation(*key, row.uid))
    return tuple(found.values())


def _own_consumers(snapshot: Snapshot, pending: Pending) -> frozenset[Uid]:
    index = snapshot.group_index.get(f"{pending.row.namespace}/{pending.row.group}", -1)
    group = snapshot.group_rows[index] if pending.row.group and index >= 0 else None
    return frozenset((pending.row.uid,) if group is None else (pending.row.uid, group.uid))


def _unused(consumers: tuple[Consumer, ...], own: frozenset[Uid]) -> bool:
    return len(consumers) <= 1 and all(each.uid in own for each in consumers)


def deallocate_claims(
    simulation: Simulation, group: GroupRow, queued: Sequence[Pending], *_: object
) -> Preemption:
    """The DynamicResources plugin of PodGroupPostFilter: it never makes room by itself.

    What is to be written is `deallocations`; the sentence is the same when that is nothing.
    """
    return Preemption(Code.UNSCHEDULABLE, Explanation(Sentence.CLAIMS_DEALLOCATED), evaluated=False)

"""How a claim without volume can be served: by which volumes, and where by provisioning one.

A volume that is reserved for the claim precedes all others; else those of the claim's class that
are free, large enough and of its modes, smallest first. To provision needs a provisioner, the
class's topologies, and reported capacity where the driver reports any. Source: specification 21.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.storage import (
    NO_PROVISIONER,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    StorageClassRow,
    VolumeRow,
)
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.reach import node_sets_of
from reprieve.engine.placement.filters.selection import selection_of, spread_over
from reprieve.engine.placement.filters.volume_ledger import (
    Candidates,
    Provision,
    VolumeLedger,
    volume_ledger_of,
)
from reprieve.engine.selectors import requirement_holds, selects

__all__ = ["candidates_of", "provision_of"]

_FEW: Final = 32  # nodes that reach a local volume, at most


def candidates_of(view: View, claim: ClaimRow) -> Candidates:
    """Return the volumes that serve a claim: the one reserved for it, else by size and name."""
    ledger = volume_ledger_of(view)
    _read_volumes(view, ledger)
    for volume in ledger.reserved.get((claim.namespace, claim.name), ()):
        same_class = volume.storage_class == claim.storage_class
        if same_class and _is_for(volume, claim) and _is_fit(volume, claim):
            return _ordered(view, (volume,))
    key = (
        claim.storage_class,
        claim.request,
        claim.block,
        claim.access_modes,
        claim.attributes_class,
        claim.selector,
    )
    known = ledger.candidates.get(key)
    if known is None:
        modes = frozenset(claim.access_modes)
        free = (
            v
            for v in ledger.by_class.get(claim.storage_class, ())
            if v.available
            and v.claim is None
            and _is_fit(v, claim)
            and modes <= frozenset(v.access_modes)
            and v.attributes_class == claim.attributes_class
            and selects(claim.selector, dict(v.labels))
        )
        found = tuple(sorted(free, key=lambda v: (v.capacity, v.name)))
        known = ledger.candidates[key] = _ordered(view, found)
    return known


def _is_fit(volume: VolumeRow, claim: ClaimRow) -> bool:
    large = volume.capacity >= claim.request
    return large and not volume.deleting and volume.block == claim.block


def _is_for(volume: VolumeRow, claim: ClaimRow) -> bool:
    return volume.claim is not None and volume.claim[2] in ("", claim.uid)


def _read_volumes(view: View, ledger: VolumeLedger) -> None:
    if ledger.by_class:
        return
    rows: Iterable[VolumeRow] = view.snapshot.tables.get(Kind.VOLUME, {}).values()
    for volume in sorted(rows, key=lambda v: v.name):
        ledger.by_class.setdefault(volume.storage_class, []).append(volume)
        if volume.claim is not None:
            ledger.reserved.setdefault(volume.claim[:2], []).append(volume)


def _ordered(view: View, volumes: tuple[VolumeRow, ...]) -> Candidates:
    ledger, sets = volume_ledger_of(view), node_sets_of(view)
    ids = [ledger.ids.setdefault(volume.name, len(ledger.ids)) for volume in volumes]
    blocks: list[tuple[I64, I32]] = []
    piece: list[tuple[I64, I32]] = []
    for number, volume in enumerate(volumes):
        nodes = sets.of(volume.node_affinity)
        part = (nodes, np.full(len(nodes), number, np.int32))
        if len(nodes) > _FEW:
            blocks += [*_joined(piece), part]
            piece = []
        else:
            piece.append(part)
    return Candidates(volumes, np.array(ids, np.int64), (*blocks, *_joined(piece)))


def _joined(parts: list[tuple[I64, I32]]) -> list[tuple[I64, I32]]:
    if not parts:
        return []
    nodes, numbers = zip(*parts, strict=True)
    return [(np.concatenate(nodes), np.concatenate(numbers))]


def provision_of(view: View, claim: ClaimRow, storage_class: StorageClassRow) -> Provision:
    """Return where a claim of this class can be provisioned in its size."""
    known = volume_ledger_of(view).provisions
    key = (storage_class.name, claim.request)
    if key not in known:
        known[key] = _provided(view, claim.request, storage_class)
    return known[key]


def _provided(view: View, request: int, storage_class: StorageClassRow) -> Provision:
    count = len(view.snapshot.nodes)
    nothing = np.zeros(count, np.bool_)
    room = np.full(count, -1, np.int64)
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return Provision(nothing, nothing, room)
    terms = storage_class.allowed_topologies
    allowed = node_sets_of(view).mask(terms or None)
    drivers = view.snapshot.tables.get(Kind.CSI_DRIVER, {})
    driver: CsiDriverRow | None = drivers.get(("", storage_class.provisioner))
    if driver is None or not driver.storage_capacity:
        return Provision(allowed, np.ones(count, np.bool_), room)
    enough = np.zeros(count, np.bool_)
    selection = selection_of(view)
    row: CapacityRow
    for _, row in sorted(view.snapshot.tables.get(Kind.CSI_CAPACITY, {}).items()):
        limit = row.capacity if row.maximum is None else row.maximum
        if row.storage_class != storage_class.name or row.nodes is None:
            continue
        if limit is None or limit < request:
            continue
        here = np.ones(count, np.bool_)
        for requirement in row.nodes:
            column = selection.domains(requirement.key)
            here &= spread_over(
                column, partial(requirement_holds, requirement.operator, requirement.values)
            )
        room[here & ~enough] = -1 if row.capacity is None else row.capacity
        enough |= here
    return Provision(allowed, enough, room)

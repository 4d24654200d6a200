"""VolumeBinding: which nodes reach a pod's bound volumes and can get the ones it still lacks.

What is wrong with the claims themselves refuses every node. On a node, bound volumes must be
reachable; then claims that wait for their first consumer get, in the order of their size, the
smallest volume that serves them (one volume never twice), and the rest must be provisionable: the
class has a provisioner, its topologies allow the node, and where the driver reports capacity there
is enough. Answers do not depend on pods, only on what placed members have reserved: their volumes
are taken, and a claim that one of them reserved is bound for all that share it.

The whole answer is one pass over candidate volumes, each with the few nodes that reach it. Source:
specification 21.5; the order of a node's reasons is the real plugin's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import I32, I64, U8, Mask, Pending, Snapshot
from reprieve.engine.cluster.storage import (
    NO_PROVISIONER,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    StorageClassRow,
    VolumeRow,
    claim_name,
)
from reprieve.engine.placement.filtering import Placed, Reach, Refusal, View
from reprieve.engine.placement.filters.presence import uid_of
from reprieve.engine.placement.filters.reach import NodeSets, node_sets_of
from reprieve.engine.placement.filters.selection import (
    requirement_holds,
    selection_of,
    selects,
    spread_over,
)
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.units.ids import Uid

__all__ = [
    "Candidates",
    "Provision",
    "VolumeAssignment",
    "VolumeBinding",
    "VolumeLedger",
    "compile_volume_binding",
    "volume_ledger_of",
]

_FEW: Final = 32  # nodes that reach a local volume, at most
_ORDER: Final = (
    Rejection.VOLUME_AFFINITY,
    Rejection.NO_VOLUME,
    Rejection.NO_STORAGE,
    Rejection.VOLUME_MISSING,
)


@dataclass(frozen=True, slots=True)
class VolumeAssignment:
    """What is to be written for a claim before its pod is bound.

    `volume`: the one that gets this claim as claimRef; empty: the claim gets the annotation
    selected-node, and the provisioner makes a volume.
    """

    namespace: str
    claim: str
    node: str
    volume: str = ""


@dataclass(frozen=True, slots=True)
class Provision:
    """Where a claim can be provisioned: (nodes,) each.

    `room`: the largest reported capacity among the objects that suffice, -1 where none is known.
    """

    allowed: Mask
    enough: Mask
    room: I64


@dataclass(frozen=True, slots=True)
class Candidates:
    """Volumes that serve a claim, in the order in which they are tried.

    `blocks`: (node, number of a candidate) in the same order, in pieces that can be judged at once:
    a volume that many nodes reach is a piece of its own.
    """

    volumes: tuple[VolumeRow, ...]
    ids: I64  # (volumes,) of the ledger
    blocks: tuple[tuple[I64, I32], ...]


@dataclass(slots=True)
class VolumeLedger:
    """What placed pods have reserved, and what all pods look up; shared by their filters."""

    made: dict[Uid, tuple[VolumeAssignment, ...]] = field(default_factory=dict)
    claims: dict[tuple[str, str], VolumeAssignment] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    revision: int = 0
    by_class: dict[str, list[VolumeRow]] = field(default_factory=dict)
    provisions: dict[tuple[str, int], Provision] = field(default_factory=dict)
    reserved: dict[tuple[str, str], list[VolumeRow]] = field(default_factory=dict)  # by claim
    candidates: dict[tuple[object, ...], Candidates] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def reserve(self, uid: Uid, assignments: tuple[VolumeAssignment, ...]) -> None:
        """A pod was placed and takes these."""
        if not assignments:
            return
        self.made[uid] = assignments
        for each in assignments:
            self.claims[each.namespace, each.claim] = each
            if each.volume:
                self.volumes.add(each.volume)
        self.revision += 1

    def release(self, uid: Uid) -> None:
        """The pod was taken back; nothing happens when it had reserved nothing."""
        for each in self.made.pop(uid, ()):
            del self.claims[each.namespace, each.claim]
            self.volumes.discard(each.volume)
            self.revision += 1

    def follow(self, view: View) -> None:
        """Release what belongs to pods that the view has not placed."""
        there = {uid_of(view.snapshot, pod) for pod in view.simulated}
        for uid in [uid for uid in self.made if uid not in there]:
            self.release(uid)


def volume_ledger_of(view: View) -> VolumeLedger:
    """Return the ledger of a view, made once."""
    known = view.shared.get(FilterName.VOLUME_BINDING)
    if not isinstance(known, VolumeLedger):
        known = view.shared[FilterName.VOLUME_BINDING] = VolumeLedger()
    return known


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A claim without volume: `candidates` serve it, the first that a node reaches is taken."""

    claim: ClaimRow
    candidates: Candidates
    provision: Provision
    selected: int | None  # index of the selected node, -1 when it is unknown


class VolumeBinding:
    """The answers for one pending pod."""

    name = FilterName.VOLUME_BINDING

    def __init__(
        self,
        snapshot: Snapshot,
        sets: NodeSets,
        ledger: VolumeLedger,
        bound: tuple[VolumeRow, ...],
        missing: bool,
        lacking: tuple[_Lacking, ...],
    ) -> None:
        """`bound`: volumes; `missing`: one of them does not exist; `lacking`: by size."""
        self._snapshot = snapshot
        self._sets = sets
        self._ledger = ledger
        self._missing = missing
        self._lacking = lacking
        self._unreached: Mask = np.zeros(len(snapshot.nodes), np.bool_)
        for volume in bound:
            self._unreached |= ~sets.mask(volume.node_affinity)
        self._seen = -1
        self._bits: U8 = np.zeros(0, np.uint8)  # (nodes,) 1 << place in _ORDER
        self._codes: U8 = self._bits
        self._chosen: tuple[I32, ...] = ()  # per lacking claim (nodes,) of candidates, -1 none

    @property
    def lacking(self) -> tuple[ClaimRow, ...]:
        """Return the claims that still lack a volume, by size."""
        return tuple(each.claim for each in self._lacking)

    def codes(self) -> U8:
        self._refresh()
        return self._codes

    def code_at(self, node: int) -> int:
        self._refresh()
        return self._codes.item(node)

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        self._refresh()
        bits = self._bits.item(node)
        return tuple(Reason(code) for place, code in enumerate(_ORDER) if bits >> place & 1)

    def add(self, pod: Placed) -> Reach:
        return self._reach(pod)

    def remove(self, pod: Placed) -> Reach:
        return self._reach(pod)

    def _reach(self, pod: Placed) -> Reach:
        if not self._lacking or pod.pending is None:
            return Reach.NOTHING
        return Reach.DOMAINS if pod.pending.row.uid in self._ledger.made else Reach.NOTHING

    def reserve(self, pending: Pending, node: int) -> None:
        """Take what the pod gets on this node; nothing where the node refuses it."""
        if self.code_at(node):
            return
        name = self._snapshot.nodes[node].name
        found = []
        for each, chosen in zip(self._lacking, self._chosen, strict=True):
            claim = each.claim
            if (claim.namespace, claim.name) not in self._ledger.claims:
                number = chosen.item(node)
                volume = each.candidates.volumes[number].name if number >= 0 else ""
                found.append(VolumeAssignment(claim.namespace, claim.name, name, volume))
        self._ledger.reserve(pending.row.uid, tuple(found))

    def release(self, pending: Pending, node: int) -> None:
        """Give it back."""
        self._ledger.release(pending.row.uid)

    def sizes(self, nodes: I64) -> list[tuple[str, int, I64, Mask]]:
        """Return (class, request, capacity of what serves it, static) per claim and node.

        Capacity (nodes,) is -1 where none is known.
        """
        self._refresh()
        found = []
        for each, chosen in zip(self._lacking, self._chosen, strict=True):
            sizes = np.array([*(v.capacity for v in each.candidates.volumes), -1], np.int64)
            static = chosen[nodes] >= 0
            capacity = np.where(static, sizes[chosen[nodes]], each.provision.room[nodes])
            found.append((each.claim.storage_class, each.claim.request, capacity, static))
        return found

    def _refresh(self) -> None:
        if self._seen == self._ledger.revision:
            return
        self._seen = self._ledger.revision
        count = len(self._snapshot.nodes)
        no_volume = np.zeros(count, np.bool_)
        no_storage = np.zeros(count, np.bool_)
        taken: list[I64] = []  # (nodes,) of ids, -1 for none
        chosen_numbers: list[I32] = []
        to_provision: list[tuple[_Lacking, Mask]] = []
        for each in self._lacking:
            chosen = np.full(count, -1, np.int32)
            selected = each.selected
            kept = self._ledger.claims.get((each.claim.namespace, each.claim.name))
            if kept is not None and not kept.volume:
                selected = self._snapshot.node_index[kept.node]
            if selected is not None:
                here = np.zeros(count, np.bool_)
                here[[selected] if selected >= 0 else []] = True
                no_volume |= ~here
                if kept is None:
                    to_provision.append((each, here))
            else:
                volume = "" if kept is None else kept.volume
                self._match(each.candidates, volume, chosen, taken)
                if kept is None:
                    to_provision.append((each, chosen < 0))
                else:
                    no_volume |= chosen < 0
            taken.append(np.append(each.candidates.ids, -1)[chosen])
            chosen_numbers.append(chosen)
        refused = no_volume.copy()
        for each, where in to_provision:
            lacks = where & ~each.provision.allowed & ~refused
            no_volume |= lacks
            scarce = where & each.provision.allowed & ~each.provision.enough & ~refused
            no_storage |= scarce
            refused |= lacks | scarce
        self._chosen = tuple(chosen_numbers)
        self._note(no_volume, no_storage)

    def _match(self, candidates: Candidates, only: str, chosen: I32, taken: list[I64]) -> None:
        ledger = self._ledger
        if only:
            usable = candidates.ids == ledger.ids.get(only, -1)
        else:
            usable = ~np.isin(candidates.ids, [ledger.ids[name] for name in ledger.volumes])
        for nodes, numbers in candidates.blocks:
            free = usable[numbers] & (chosen[nodes] < 0)
            for theirs in taken:
                free &= theirs[nodes] != candidates.ids[numbers]
            found, first = np.unique(nodes[free], return_index=True)
            chosen[found] = numbers[free][first]
            if (chosen >= 0).all():
                return

    def _note(self, no_volume: Mask, no_storage: Mask) -> None:
        bits = np.zeros(len(no_volume), np.uint8)
        codes = np.zeros(len(no_volume), np.uint8)
        missing = np.full(len(no_volume), self._missing, np.bool_)
        masks = (self._unreached, no_volume, no_storage, missing)
        for place, (code, mask) in reversed(list(enumerate(zip(_ORDER, masks, strict=True)))):
            bits[mask] |= 1 << place
            codes[mask] = code
        self._bits, self._codes = bits, codes


def compile_volume_binding(view: View, pending: Pending) -> VolumeBinding | Refusal | None:
    """Return the filter of a pod that mounts claims, or what is wrong with one of them."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    if not entry.volumes:
        return None
    namespace = pending.row.namespace
    rows = view.snapshot.tables.get(Kind.CLAIM, {})
    claims: list[ClaimRow] = []
    for use in entry.volumes:
        name = claim_name(use, pending.row.name)
        row: ClaimRow | None = rows.get((namespace, name))
        if use.ephemeral and (row is None or row.owner != pending.row.uid):
            return Refusal(Reason(Rejection.CLAIM_NOT_MADE, name))
        if row is None:
            return Refusal(Reason(Rejection.CLAIM_MISSING, name))
        if row.lost:
            return Refusal(Reason(Rejection.CLAIM_LOST, f"{name}/{row.volume}"))
        if row.deleting:
            return Refusal(Reason(Rejection.CLAIM_DELETED, name))
        if row not in claims:
            claims.append(row)
    classes = view.snapshot.tables.get(Kind.STORAGE_CLASS, {})
    volumes = view.snapshot.tables.get(Kind.VOLUME, {})
    bound: list[VolumeRow] = []
    missing = False
    lacking: list[tuple[ClaimRow, StorageClassRow]] = []
    for claim in claims:
        storage_class: StorageClassRow | None = classes.get(("", claim.storage_class))
        if claim.bound:
            volume: VolumeRow | None = volumes.get(("", claim.volume))
            missing |= volume is None
            if volume is not None:
                bound.append(volume)
        elif claim.volume or storage_class is None or not storage_class.wait:
            return Refusal(Reason(Rejection.CLAIM_UNBOUND))
        else:
            lacking.append((claim, storage_class))
    lacking.sort(key=lambda pair: pair[0].request)
    ledger = volume_ledger_of(view)
    ledger.follow(view)
    wanted = tuple(_lacking(view, *pair) for pair in lacking)
    return VolumeBinding(view.snapshot, node_sets_of(view), ledger, tuple(bound), missing, wanted)


def _lacking(view: View, claim: ClaimRow, storage_class: StorageClassRow) -> _Lacking:
    selected = None
    if claim.selected_node:
        selected = view.snapshot.node_index.get(claim.selected_node, -1)
    return _Lacking(
        claim, _candidates(view, claim), _provision(view, claim, storage_class), selected
    )


def _candidates(view: View, claim: ClaimRow) -> Candidates:
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


def _provision(view: View, claim: ClaimRow, storage_class: StorageClassRow) -> Provision:
    known = volume_ledger_of(view).provisions
    key = (storage_class.name, claim.request)
    if key not in known:
        known[key] = _provision_of(view, claim.request, storage_class)
    return known[key]


def _provision_of(view: View, request: int, storage_class: StorageClassRow) -> Provision:
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
            here &= spread_over(column, partial(requirement_holds, requirement))
        room[here & ~enough] = -1 if row.capacity is None else row.capacity
        enough |= here
    return Provision(allowed, enough, room)

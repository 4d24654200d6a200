"""VolumeBinding: which nodes reach a pod's bound volumes and can get the ones it still lacks.

What is wrong with the claims themselves refuses every node. On a node, bound volumes must be
reachable; then claims that wait for their first consumer get, in the order of their size, the
smallest volume that serves them (one volume never twice), and the rest must be provisionable: the
class has a provisioner, its topologies allow the node, and where the driver reports capacity there
is enough. Answers do not depend on pods, only on what placed members have reserved: their volumes
are in use, and a claim that one of them reserved is bound for all that share it.

The whole answer is one pass over candidate volumes, each with the few nodes that reach it. Source:
specification 21.5; the order of a node's reasons is the real plugin's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, U8, Mask
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.storage import ClaimRow, StorageClassRow, VolumeRow, claim_name
from reprieve.engine.placement.filtering import Placed, Reach, Refusal, View
from reprieve.engine.placement.filters.reach import NodeSets, node_sets_of
from reprieve.engine.placement.filters.volume_ledger import (
    Candidates,
    Provision,
    VolumeAssignment,
    VolumeLedger,
    volume_ledger_of,
)
from reprieve.engine.placement.filters.volume_supply import candidates_of, provision_of
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["VolumeBinding", "compile_volume_binding"]

_ORDER: Final = (
    Rejection.VOLUME_AFFINITY,
    Rejection.NO_VOLUME,
    Rejection.NO_STORAGE,
    Rejection.VOLUME_MISSING,
)


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A claim without volume: `candidates` serve it, the first that a node reaches is used."""

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
        """Reserve what the pod gets on this node; nothing where the node refuses it."""
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
        used: list[I64] = []  # (nodes,) of ids, -1 for none
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
                self._match(each.candidates, volume, chosen, used)
                if kept is None:
                    to_provision.append((each, chosen < 0))
                else:
                    no_volume |= chosen < 0
            used.append(np.append(each.candidates.ids, -1)[chosen])
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

    def _match(self, candidates: Candidates, only: str, chosen: I32, used: list[I64]) -> None:
        ledger = self._ledger
        if only:
            usable = candidates.ids == ledger.ids.get(only, -1)
        else:
            usable = ~np.isin(candidates.ids, [ledger.ids[name] for name in ledger.volumes])
        for nodes, numbers in candidates.blocks:
            free = usable[numbers] & (chosen[nodes] < 0)
            for theirs in used:
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
            absent = claim.storage_class if storage_class is None else ""
            subject = f"{claim.name}/{absent}" if absent else claim.name
            return Refusal(Reason(Rejection.CLAIM_UNBOUND, subject))
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
        claim, candidates_of(view, claim), provision_of(view, claim, storage_class), selected
    )

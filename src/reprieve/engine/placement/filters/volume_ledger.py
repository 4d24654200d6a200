"""What placed pods have reserved of the volumes, and what all pods of a view look up about them.

A claim that waits for its first consumer is reserved with the pod that is placed first: with a
volume, or with the node on which it is to be provisioned. The reservation is what is written
before the pod is bound. Source: specification 21.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.storage import VolumeRow
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.presence import uid_of
from reprieve.engine.placement.profile import FilterName
from reprieve.units.ids import Uid

__all__ = ["Candidates", "Provision", "VolumeAssignment", "VolumeLedger", "volume_ledger_of"]


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
        """A pod was placed and uses these."""
        if not assignments:
            return
        self.made[uid] = assignments
        for each in assignments:
            self.claims[each.namespace, each.claim] = each
            if each.volume:
                self.volumes.add(each.volume)
        self.revision += 1

    def release(self, uid: Uid) -> None:
        """The pod was removed again; nothing happens when it had reserved nothing."""
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

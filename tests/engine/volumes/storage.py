"""Small builders of claims, volumes and what they are made of; names serve as uids."""

from __future__ import annotations

import itertools
from typing import Any

from reprieve.engine.cluster.rows import Entry, Kind, NodeTerm, Operator, Requirement, VolumeUse
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.cluster.storage import (
    AttachmentRow,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageClassRow,
    VolumeRow,
)
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.units.ids import Uid
from tests.engine.builders import matching, pending_of

GIB = 2**30
ZONE = "topology.kubernetes.io/zone"

_versions = itertools.count(1)


def claim(name: str = "c", *, namespace: str = "default", **facts: Any) -> Entry:
    """A PersistentVolumeClaim; `volume` binds it on both sides unless `bind_completed` is False."""
    facts.setdefault("bind_completed", bool(facts.get("volume")))
    row = ClaimRow(Uid(f"pvc-{name}"), namespace, name, next(_versions), **facts)
    return Entry(Kind.CLAIM, row.uid, namespace, name, row.version, row)


def volume(
    name: str = "v", *, on: str = "", labels: dict[str, str] | None = None, **facts: Any
) -> Entry:
    """A PersistentVolume that is available; `on`: the only node that reaches it."""
    facts.setdefault("available", facts.get("claim") is None)
    if on:
        facts["node_affinity"] = (at(on),)
    facts["labels"] = tuple(sorted((labels or {}).items()))
    row = VolumeRow(Uid(f"pv-{name}"), name, next(_versions), **facts)
    return Entry(Kind.VOLUME, row.uid, "", name, row.version, row)


def storage_class(name: str = "sc", **facts: Any) -> Entry:
    """A StorageClass that waits for the first consumer and provisions with `csi.example.com`."""
    facts = {"wait": True, "provisioner": "csi.example.com", **facts}
    row = StorageClassRow(Uid(f"sc-{name}"), name, next(_versions), **facts)
    return Entry(Kind.STORAGE_CLASS, row.uid, "", name, row.version, row)


def csi_node(name: str, **drivers: int | None) -> Entry:
    """A CSINode; in the names of drivers `_` stands for a dot."""
    found = tuple(sorted((d.replace("_", "."), limit) for d, limit in drivers.items()))
    row = CsiNodeRow(Uid(f"csinode-{name}"), name, next(_versions), found)
    return Entry(Kind.CSI_NODE, row.uid, "", name, row.version, row)


def csi_driver(name: str = "csi.example.com", **facts: Any) -> Entry:
    """A CSIDriver."""
    row = CsiDriverRow(Uid(f"csidriver-{name}"), name, next(_versions), **facts)
    return Entry(Kind.CSI_DRIVER, row.uid, "", name, row.version, row)


def capacity(name: str, *, zone: str, storage_class: str = "sc", **facts: Any) -> Entry:
    """A CSIStorageCapacity of the nodes in a zone."""
    nodes = matching({ZONE: zone})
    row = CapacityRow(
        Uid(f"capacity-{name}"), "kube-system", name, next(_versions), storage_class, nodes, **facts
    )
    return Entry(Kind.CSI_CAPACITY, row.uid, "kube-system", name, row.version, row)


def attachment(volume: str, node: str, attacher: str = "csi.example.com") -> Entry:
    """A VolumeAttachment of a PersistentVolume."""
    name = f"{volume}-{node}"
    row = AttachmentRow(Uid(f"va-{name}"), name, next(_versions), attacher, node, volume)
    return Entry(Kind.ATTACHMENT, row.uid, "", name, row.version, row)


def at(node: str) -> NodeTerm:
    """The term of a local volume."""
    return NodeTerm((Requirement("kubernetes.io/hostname", Operator.IN, (node,)),))


def uses(*claims: str) -> tuple[VolumeUse, ...]:
    """Mounts of these claims."""
    return tuple(VolumeUse(name) for name in claims)


def simulation_of(snapshot: Snapshot, **policy: Any) -> Simulation:
    """A simulation with the default profile."""
    return Simulation(snapshot, Policy(**policy), Profile())


def refusals(simulation: Simulation, name: str = "p") -> list[str]:
    """What each node says, in the order of their names: `` or reasons joined by +.

    Every way of asking has to give the same answer.
    """
    pending = pending_of(simulation.snapshot, name)
    codes = simulation.codes(pending).tolist()
    said = []
    for index in range(len(simulation.snapshot.nodes)):
        status = simulation.status_at(pending, index)
        assert simulation.code_at(pending, index) == codes[index]
        assert (codes[index] == 0) == (not status.reasons)
        if status.reasons:
            assert Rejection(codes[index]) == status.reasons[0].rejection
        parts = (f"{r.rejection.name} {r.subject}".strip() for r in status.reasons)
        said.append(" + ".join(parts))
    return said

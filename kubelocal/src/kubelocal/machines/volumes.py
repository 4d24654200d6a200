"""Claims and volumes find each other: binding, provisioning and reclaiming.

A claim is bound to the volume that is reserved for it, else to the smallest free one that will do,
else, where its class has a provisioner, to one made for it. A class with WaitForFirstConsumer waits
for the annotation `volume.kubernetes.io/selected-node`, which the scheduler sets. A volume whose
claim is deleted is Released, or deleted if it was made for that claim. Source: the persistent
volume controller; provisioning stands for that of CSI drivers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.quantities import parse_quantity

__all__ = ["VolumeController"]

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_CLASSES: Final = "storageclasses.storage.k8s.io"
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class VolumeController:
    """Binds claims, and states of volumes whether they are free."""

    name = "volumes"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        del before
        obj = change.object
        if change.resource == _CLAIMS:
            yield key_of(_CLAIMS, obj)
            volume = obj["spec"].get("volumeName")
            if volume:
                yield Key(_VOLUMES, "", volume)
        elif change.resource == _VOLUMES and change.type is not ChangeType.DELETED:
            yield key_of(_VOLUMES, obj)
        if change.resource in (_VOLUMES, _CLASSES):
            for claim in self._informer.all(_CLAIMS):
                if not _is_bound(claim):
                    yield key_of(_CLAIMS, claim)

    async def reconcile(self, key: Key) -> None:
        obj = self._informer.at(key)
        if obj is None:
            return
        if key.resource == _VOLUMES:
            await self._volume(obj)
        elif not obj["metadata"].get("deletionTimestamp") and not _is_bound(obj):
            volume = self._reserved(obj) or self._free(obj) or await self._provisioned(obj)
            if volume is not None:
                await self._bind(obj, volume)

    async def _volume(self, volume: Object) -> None:
        reference = volume["spec"].get("claimRef")
        phase = "Available"
        if reference is not None and reference.get("uid"):
            found = self._informer.by_uid(reference["uid"])
            phase = "Bound" if found is not None else "Released"
            if found is None:
                key = Key(_CLAIMS, reference["namespace"], reference["name"])
                now = await self._informer.objects.get(*key)
                if now is not None and now["metadata"]["uid"] == reference["uid"]:
                    return
        if phase == "Released" and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self._informer.delete(_VOLUMES, volume)
        elif (volume.get("status") or {}).get("phase") != phase:
            status = {**(volume.get("status") or {}), "phase": phase}
            await self._informer.update(
                _VOLUMES, {**volume, "status": status}, subresource="status"
            )

    def _reserved(self, claim: Object) -> Object | None:
        """Return the volume that the claim names, or that is reserved for it."""
        named = claim["spec"].get("volumeName")
        if named:
            volume = self._informer.get(_VOLUMES, "", named)
            return volume if volume is not None and _may_have(volume, claim) else None
        for volume in self._informer.all(_VOLUMES):
            if volume["spec"].get("claimRef") and _may_have(volume, claim):
                return volume
        return None

    def _free(self, claim: Object) -> Object | None:
        if claim["spec"].get("volumeName") or self._waits(claim):
            return None
        fitting = [
            volume
            for volume in self._informer.all(_VOLUMES)
            if not volume["spec"].get("claimRef") and _fits(volume, claim)
        ]
        return min(fitting, key=lambda one: (_size(one), one["metadata"]["name"]), default=None)

    def _waits(self, claim: Object) -> bool:
        """Whether the claim is bound when a pod that uses it has been given a node."""
        storage_class = self._class(claim)
        return (
            storage_class is not None
            and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        )

    def _class(self, claim: Object) -> Object | None:
        return self._informer.get(_CLASSES, "", claim["spec"].get("storageClassName") or "")

    async def _provisioned(self, claim: Object) -> Object | None:
        """Return a new volume for the claim, None where none is provisioned, or not yet."""
        storage_class, spec = self._class(claim), claim["spec"]
        selected = (claim["metadata"].get("annotations") or {}).get(_SELECTED)
        if (
            storage_class is None
            or spec.get("volumeName")
            or storage_class["provisioner"] == _NO_PROVISIONER
            or (self._waits(claim) and not selected)
        ):
            return None
        name, driver = f"pvc-{claim['metadata']['uid']}", storage_class["provisioner"]
        volume: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {_PROVISIONED_BY: driver}},
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "claimRef": _reference(claim),
                "csi": {"driver": driver, "volumeHandle": name},
                "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
                "storageClassName": storage_class["metadata"]["name"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
            },
        }
        affinity = self._reach(storage_class, selected)
        if affinity is not None:
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [affinity]}}
        held = self._informer.get(_VOLUMES, "", name)
        return held if held is not None else await self._informer.create(_VOLUMES, volume)

    def _reach(self, storage_class: Object, selected: str | None) -> dict[str, Any] | None:
        """Return from where the volume can be used: the keys of the class, as the node has them."""
        keys = [
            one["key"]
            for term in storage_class.get("allowedTopologies") or ()
            for one in term.get("matchLabelExpressions") or ()
        ]
        node = self._informer.get("nodes", "", selected or "")
        labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
        wanted = [
            {"key": key, "operator": "In", "values": [labels[key]]} for key in keys if key in labels
        ]
        return {"matchExpressions": wanted} if wanted else None

    async def _bind(self, claim: Object, volume: Object) -> None:
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("uid") != claim["metadata"]["uid"]:
            spec = {**volume["spec"], "claimRef": _reference(claim)}
            volume = await self._informer.update(_VOLUMES, {**volume, "spec": spec})
        bound = copy.deepcopy(claim)
        notes = bound["metadata"].setdefault("annotations", {})
        notes[_COMPLETED] = "yes"
        if not claim["spec"].get("volumeName"):
            notes[_BOUND_BY] = "yes"
        bound["spec"]["volumeName"] = volume["metadata"]["name"]
        bound = await self._informer.update(_CLAIMS, bound)
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
        }
        await self._informer.update(_CLAIMS, {**bound, "status": status}, subresource="status")


def _is_bound(claim: Object) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def _reference(claim: Object) -> dict[str, Any]:
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _may_have(volume: Object, claim: Object) -> bool:
    """Whether the volume is reserved for this claim, or for none."""
    reference, metadata = volume["spec"].get("claimRef"), claim["metadata"]
    return not reference or (
        (reference.get("namespace"), reference.get("name"))
        == (metadata["namespace"], metadata["name"])
        and reference.get("uid") in (None, "", metadata["uid"])
    )


def _fits(volume: Object, claim: Object) -> bool:
    spec, asked = volume["spec"], claim["spec"]
    selector = asked.get("selector")
    return (
        not volume["metadata"].get("deletionTimestamp")
        and (spec.get("storageClassName") or "") == (asked.get("storageClassName") or "")
        and spec.get("volumeMode", "Filesystem") == asked.get("volumeMode", "Filesystem")
        and set(asked.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _size(volume) >= parse_quantity(asked["resources"]["requests"]["storage"])
        and (not selector or matches_labels(selector, volume["metadata"].get("labels")))
    )


def _size(volume: Object) -> int:
    return parse_quantity((volume["spec"].get("capacity") or {}).get("storage", "0"))

"""Claims of pods: made from templates, and given back when the pod has ended.

Claims for devices and for generic ephemeral volumes are made for each pod that requests them by
template, and are deleted with it (garbage collection by owner); a device claim of a pod group is
made once for the group. A pod that has ended, or is deleted, is removed from the `reservedFor` of
its device claims; a claim that no pod uses any more is deallocated and loses the finalizer that the
scheduler gave it. Source: the resourceclaim and ephemeral-volume controllers of Kubernetes 1.37.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.controllers.claims import (
    CLAIM_TITLE,
    asked_of,
    claim_of,
    claims_used_by,
    group_of,
    shared_claim,
    status_with_claims,
    status_without,
    without_protection,
)
from kubeworld.objects.owners import child, controller_of, suffix
from kubeworld.objects.pods import is_over

__all__ = ["ClaimsController", "ReservationsController"]

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_GROUPS: Final = "podgroups.scheduling.k8s.io"


class ClaimsController:
    """Makes the claims that pods and pod groups request by template."""

    name = "claims"

    def __init__(self, informer: Informer, generator: random.Random) -> None:
        self._informer = informer
        self._generator = generator

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        obj = change.object
        if change.resource == _TEMPLATES and change.type is ChangeType.ADDED:
            name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
            for resource in ("pods", _GROUPS):
                for user in self._informer.all(resource):
                    if user["metadata"]["namespace"] == namespace and any(
                        one.get("resourceClaimTemplateName") == name for one in asked_of(user)
                    ):
                        yield key_of(resource, user)
        elif change.type is not ChangeType.DELETED:
            volumes = change.resource == "pods" and obj["spec"].get("volumes")
            if (change.resource in ("pods", _GROUPS) and asked_of(obj)) or (
                volumes and any("ephemeral" in volume for volume in volumes)
            ):
                yield key_of(change.resource, obj)
            if change.resource == _GROUPS and (obj.get("status") or {}).get(
                "resourceClaimStatuses"
            ):
                yield from (key_of("pods", pod) for pod in self._members(obj))

    async def reconcile(self, key: Key) -> None:
        user = self._informer.at(key)
        if user is None or user["metadata"].get("deletionTimestamp") or is_over(user):
            return
        await self._device_claims(key, user)
        for volume in user["spec"].get("volumes") or () if key.resource == "pods" else ():
            if "ephemeral" in volume:
                await self._volume_claim(user, volume)

    async def _device_claims(self, key: Key, user: Object) -> None:
        made = dict[str, Object]()
        status = status_with_claims(user, lambda asked: self._claim(user, asked, made))
        for claim in made.values():
            await self._informer.create(_CLAIMS, claim)
        if status is not None:
            await self._informer.update(
                key.resource, {**user, "status": status}, subresource="status"
            )

    def _claim(self, user: Object, asked: Object, made: dict[str, Object]) -> str | None:
        """Return the name of the claim for the request of `user`; a missing one is in `made`."""
        namespace, title = user["metadata"]["namespace"], asked["name"]
        group = self._informer.get(_GROUPS, namespace, group_of(user))
        shared = shared_claim(group, asked)
        if shared is not None:
            return shared
        for claim in self._informer.controlled(user["metadata"]["uid"], _CLAIMS):
            if (claim["metadata"].get("annotations") or {}).get(CLAIM_TITLE) == title:
                return str(claim["metadata"]["name"])
        source = self._informer.get(_TEMPLATES, namespace, asked["resourceClaimTemplateName"])
        if source is None:
            return None
        name = f"{user['metadata']['name']}-{title}-{suffix(self._generator)}"
        made[name] = claim_of(user, title, source, name)
        return name

    def _members(self, group: Object) -> Iterable[Object]:
        namespace, name = group["metadata"]["namespace"], group["metadata"]["name"]
        for pod in self._informer.all("pods"):
            if (
                group_of(pod) == name
                and pod["metadata"]["namespace"] == namespace
                and asked_of(pod)
            ):
                yield pod

    async def _volume_claim(self, pod: Object, volume: dict[str, Any]) -> None:
        name = f"{pod['metadata']['name']}-{volume['name']}"
        if self._informer.get("persistentvolumeclaims", pod["metadata"]["namespace"], name) is None:
            template = volume["ephemeral"]["volumeClaimTemplate"]
            made = child(pod, "v1", "PersistentVolumeClaim", name, template)
            await self._informer.create("persistentvolumeclaims", made)


class ReservationsController:
    """Removes pods and groups that have ended from their device claims."""

    name = "reservations"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        del before
        obj = change.object
        if change.resource == _CLAIMS and change.type is not ChangeType.DELETED:
            yield key_of(_CLAIMS, obj)
        elif change.resource in ("pods", _GROUPS) and asked_of(obj):
            if change.type is not ChangeType.DELETED and not is_over(obj):
                return
            namespace = obj["metadata"]["namespace"]
            yield from (Key(_CLAIMS, namespace, name) for name in claims_used_by(obj))

    async def reconcile(self, key: Key) -> None:
        claim = self._informer.at(key)
        if claim is None:
            return
        if not claim["metadata"].get("deletionTimestamp") and self._owner_ended(claim):
            await self._informer.delete(_CLAIMS, claim)
            claim = self._informer.at(key)
        if claim is None:
            return
        users = (claim.get("status") or {}).get("reservedFor") or []
        left = [user for user in users if await self._still_uses(key.namespace, user)]
        going = bool(claim["metadata"].get("deletionTimestamp"))
        if left == users and not (going and not left):
            return
        status = status_without(claim, left)
        if status != (claim.get("status") or {}):
            changed = {**claim, "status": status}
            claim = await self._informer.update(_CLAIMS, changed, subresource="status")
        if not left and (free := without_protection(claim)) is not claim:
            await self._informer.update(_CLAIMS, free)

    async def _still_uses(self, namespace: str, user: dict[str, Any]) -> bool:
        resource = {"pods": "pods", "podgroups": _GROUPS}.get(str(user.get("resource")))
        if resource is None:
            return True
        found = self._informer.by_uid(user["uid"])
        # A user that is not known may be newer than what has been seen.
        now = (
            found[1]
            if found
            else await self._informer.objects.get(resource, namespace, user["name"])
        )
        return now is not None and now["metadata"]["uid"] == user["uid"] and not is_over(now)

    def _owner_ended(self, claim: Object) -> bool:
        owner = controller_of(claim)
        found = None if owner is None else self._informer.by_uid(owner["uid"])
        return found is not None and found[0].resource == "pods" and is_over(found[1])

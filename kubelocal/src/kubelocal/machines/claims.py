"""Claims of pods: made from templates, and given back when the pod has ended.

Claims for devices and for generic ephemeral volumes are made for each pod that asks by template,
and go with it (garbage collection by owner); a device claim of a pod group is made once for the
group. A pod that has ended, or is gone, leaves the `reservedFor` of its device claims; what nobody
uses any more is deallocated and loses the finalizer that the scheduler gave it. Source: the
resourceclaim and ephemeral-volume controllers of Kubernetes 1.37.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.objects.owners import child, controller_of, suffix
from kubeworld.objects.pods import is_over

__all__ = ["ClaimsController", "ReservationsController"]

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_GROUPS: Final = "podgroups.scheduling.k8s.io"
_FOR: Final = "resource.kubernetes.io/pod-claim-name"
_PROTECTION: Final = "resource.kubernetes.io/delete-protection"


class ClaimsController:
    """Makes the claims that pods and pod groups ask for by template."""

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
                        one.get("resourceClaimTemplateName") == name for one in _asked(user)
                    ):
                        yield key_of(resource, user)
        elif change.type is not ChangeType.DELETED:
            volumes = change.resource == "pods" and obj["spec"].get("volumes")
            if (change.resource in ("pods", _GROUPS) and _asked(obj)) or (
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
        status = user.get("status") or {}
        known = {one["name"]: one for one in status.get("resourceClaimStatuses") or ()}
        for asked in _asked(user):
            template = asked.get("resourceClaimTemplateName")
            if template is None or asked["name"] in known:
                continue
            name = await self._claim(user, asked["name"], template)
            if name is not None:
                known[asked["name"]] = {"name": asked["name"], "resourceClaimName": name}
        if list(known.values()) != (status.get("resourceClaimStatuses") or []):
            statuses = {**status, "resourceClaimStatuses": list(known.values())}
            await self._informer.update(
                key.resource, {**user, "status": statuses}, subresource="status"
            )

    async def _claim(self, user: Object, title: str, template: str) -> str | None:
        """Return the name of the claim for what `user` calls `title`, made if it is missing."""
        namespace = user["metadata"]["namespace"]
        shared = self._of_group(user, title, template)
        if shared is not None:
            return shared or None
        for claim in self._informer.controlled(user["metadata"]["uid"], _CLAIMS):
            if (claim["metadata"].get("annotations") or {}).get(_FOR) == title:
                return str(claim["metadata"]["name"])
        source = self._informer.get(_TEMPLATES, namespace, template)
        if source is None:
            return None
        name = f"{user['metadata']['name']}-{title}-{suffix(self._generator)}"
        body, note = source["spec"], {_FOR: title}
        made = child(user, "resource.k8s.io/v1", "ResourceClaim", name, body, annotations=note)
        await self._informer.create(_CLAIMS, made)
        return name

    def _of_group(self, user: Object, title: str, template: str) -> str | None:
        """Return the claim that a pod shares with its group: None for none, "" for not yet."""
        group_name = (user["spec"].get("schedulingGroup") or {}).get("podGroupName")
        group = self._informer.get(_GROUPS, user["metadata"]["namespace"], group_name or "")
        wanted = {"name": title, "resourceClaimTemplateName": template}
        if group is None or wanted not in _asked(group):
            return None
        for one in (group.get("status") or {}).get("resourceClaimStatuses") or ():
            if one["name"] == title:
                return str(one.get("resourceClaimName") or "")
        return ""

    def _members(self, group: Object) -> Iterable[Object]:
        namespace, name = group["metadata"]["namespace"], group["metadata"]["name"]
        for pod in self._informer.all("pods"):
            named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
            if named == name and pod["metadata"]["namespace"] == namespace and _asked(pod):
                yield pod

    async def _volume_claim(self, pod: Object, volume: dict[str, Any]) -> None:
        name = f"{pod['metadata']['name']}-{volume['name']}"
        if self._informer.get("persistentvolumeclaims", pod["metadata"]["namespace"], name) is None:
            template = volume["ephemeral"]["volumeClaimTemplate"]
            made = child(pod, "v1", "PersistentVolumeClaim", name, template)
            await self._informer.create("persistentvolumeclaims", made)


class ReservationsController:
    """Takes pods and groups that have ended out of their device claims."""

    name = "reservations"

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        del before
        obj = change.object
        if change.resource == _CLAIMS and change.type is not ChangeType.DELETED:
            yield key_of(_CLAIMS, obj)
        elif change.resource in ("pods", _GROUPS) and _asked(obj):
            if change.type is not ChangeType.DELETED and not is_over(obj):
                return
            names = {one.get("resourceClaimName") for one in _asked(obj)}
            statuses = (obj.get("status") or {}).get("resourceClaimStatuses") or ()
            names |= {one.get("resourceClaimName") for one in statuses}
            namespace = obj["metadata"]["namespace"]
            yield from (Key(_CLAIMS, namespace, name) for name in names if name)

    async def reconcile(self, key: Key) -> None:
        claim = self._informer.at(key)
        if claim is None:
            return
        if not claim["metadata"].get("deletionTimestamp") and self._owner_ended(claim):
            await self._informer.delete(_CLAIMS, claim)
            claim = self._informer.at(key)
        if claim is None:
            return
        status: dict[str, Any] = copy.deepcopy(claim.get("status") or {})
        users = status.get("reservedFor") or []
        left = [user for user in users if await self._still_uses(key.namespace, user)]
        going = bool(claim["metadata"].get("deletionTimestamp"))
        if left == users and not (going and not left):
            return
        status["reservedFor"] = left
        if not left:
            status.pop("reservedFor")
            status.pop("allocation", None)
            status.pop("devices", None)
        if status != (claim.get("status") or {}):
            changed = {**claim, "status": status}
            claim = await self._informer.update(_CLAIMS, changed, subresource="status")
        if not left:
            await self._unprotect(claim)

    async def _unprotect(self, claim: Object) -> None:
        metadata = claim["metadata"]
        finalizers = metadata.get("finalizers") or []
        if _PROTECTION in finalizers:
            kept = [each for each in finalizers if each != _PROTECTION]
            changed = {**claim, "metadata": {**metadata, "finalizers": kept}}
            await self._informer.update(_CLAIMS, changed)

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


def _asked(user: Object) -> list[dict[str, Any]]:
    return list((user.get("spec") or {}).get("resourceClaims") or ())

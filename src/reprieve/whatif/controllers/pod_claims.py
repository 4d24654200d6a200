"""Device claims of pods: made from templates, and given back when who used them is gone.

1. A pod, or a PodGroup of Kubernetes, that asks by template gets a claim of its own, and its status
   says which; what a group asks for its members share.
2. Who is gone or over uses a claim no more; one that nobody uses is allocated no more, and can go
   with its owner.

Which devices a claim gets is the scheduling plane's decision. Source: the resourceclaim controller
of Kubernetes 1.37; `resource.k8s.io` v1.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from kubeworld.objects.owners import owner_reference
from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from reprieve.kube.resource import DEVICE_TEMPLATES, PODS, Resource
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["PodClaims"]

_CLAIMS: Final = ("resource.k8s.io", "resourceclaims")
_GROUPS: Final = ("scheduling.k8s.io", "podgroups")
_FOR: Final = "resource.kubernetes.io/pod-claim-name"
_PROTECTION: Final = "resource.kubernetes.io/delete-protection"


class PodClaims:
    """Makes claims and gives them back, where the cluster has claims of devices."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def create_pod(self, pod: Json) -> None:
        """Create a pod with its claims, so that it can be placed before the next one comes."""
        made = self._overlay.create(PODS, pod)
        self.changed(PODS, None, made)

    def changed(self, resource: Resource, old: Json | None, new: Json | None) -> None:
        """A pod or a group came, changed or went."""
        user = new if new is not None else old
        kind = (resource.group, resource.plural)
        if user is None or kind not in ((PODS.group, PODS.plural), _GROUPS) or not _asked(user):
            return
        claims = self._overlay.table(*_CLAIMS)
        if claims is None:
            return
        if new is None or is_over(new):
            self._give_back(claims, user)
            return
        # As it is by now: what changed may have changed again.
        metadata = new["metadata"]
        now = self._overlay.get(resource, metadata.get("namespace", ""), metadata["name"])
        if now is None or now["metadata"].get("deletionTimestamp"):
            return
        self._make(resource, claims, now)
        for pod in self._members(now) if kind == _GROUPS else ():
            self._make(PODS, claims, pod)

    def _make(self, resource: Resource, claims: Resource, user: Json) -> None:
        """Make what is asked for by template and is not there, and say so in the user's status."""
        status = user.get("status") or {}
        known = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
        before = len(known)
        for asked in _asked(user):
            template = asked.get("resourceClaimTemplateName")
            if template is None or asked["name"] in known:
                continue
            name = self._shared(user, asked)
            if name is None:
                name = self._claim(claims, user, asked["name"], template)
            if name:
                known[asked["name"]] = {"name": asked["name"], "resourceClaimName": name}
        if len(known) > before:
            said = {**status, "resourceClaimStatuses": list(known.values())}
            self._overlay.change(resource, {**user, "status": said})

    def _claim(self, claims: Resource, user: Json, title: str, template: str) -> str:
        """Return the name of a claim that is made of a template, empty where there is none."""
        metadata = user["metadata"]
        namespace = metadata.get("namespace", "")
        source = self._overlay.get(DEVICE_TEMPLATES, namespace, template)
        if source is None:
            return ""
        stem = f"{metadata['name']}-{title}-"
        given = copy.deepcopy(first(source, "spec.metadata") or {})
        made = {
            "metadata": {
                **given,
                "name": stem + self._overlay.suffix(claims, namespace, stem),
                "namespace": namespace,
                "annotations": {**(given.get("annotations") or {}), _FOR: title},
                "ownerReferences": [owner_reference(user)],
            },
            "spec": copy.deepcopy(first(source, "spec.spec") or {}),
        }
        return str(self._overlay.create(claims, made)["metadata"]["name"])

    def _shared(self, pod: Json, asked: Json) -> str | None:
        """Return the claim that a pod shares with its group: None for none, empty for not yet."""
        name = first(pod, "spec.schedulingGroup.podGroupName")
        groups = self._overlay.table(*_GROUPS)
        if not name or groups is None:
            return None
        group = self._overlay.get(groups, pod["metadata"].get("namespace", ""), str(name))
        if group is None or asked not in _asked(group):
            return None
        for each in first(group, "status.resourceClaimStatuses") or ():
            if each["name"] == asked["name"]:
                return str(each.get("resourceClaimName") or "")
        return ""

    def _members(self, group: Json) -> Iterator[Json]:
        metadata = group["metadata"]
        for pod in self._overlay.all(PODS):
            if pod["metadata"].get("namespace", "") == metadata.get("namespace", "") and (
                first(pod, "spec.schedulingGroup.podGroupName") == metadata["name"]
            ):
                yield pod

    def _give_back(self, claims: Resource, user: Json) -> None:
        names = {each.get("resourceClaimName") for each in _asked(user)}
        said = first(user, "status.resourceClaimStatuses") or ()
        names |= {each.get("resourceClaimName") for each in said}
        for name in sorted(str(each) for each in names if each):
            claim = self._overlay.get(claims, user["metadata"].get("namespace", ""), name)
            if claim is not None:
                self._without(claims, claim, user["metadata"]["uid"])

    def _without(self, claims: Resource, claim: Json, uid: str) -> None:
        """Take a user out of a claim; one that nobody uses gives its devices back."""
        status = dict(claim.get("status") or {})
        left = [each for each in status.get("reservedFor") or () if each.get("uid") != uid]
        status["reservedFor"] = left
        metadata = claim["metadata"]
        if not left:
            for given in ("reservedFor", "allocation", "devices"):
                status.pop(given, None)
            kept = [each for each in metadata.get("finalizers") or () if each != _PROTECTION]
            metadata = {**metadata, "finalizers": kept}
        if (status, metadata) != (claim.get("status") or {}, claim["metadata"]):
            self._overlay.change(claims, {**claim, "metadata": metadata, "status": status})


def _asked(user: Json) -> list[Json]:
    return list(first(user, "spec.resourceClaims") or ())

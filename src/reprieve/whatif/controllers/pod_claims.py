"""Device claims of pods: made from templates, and released when their user is deleted.

Which devices a claim gets is the scheduling plane's decision. Source:
`kubeworld.controllers.claims`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeworld.controllers.claims import (
    asked_of,
    claim_of,
    claims_used_by,
    group_of,
    shared_claim,
    status_with_claims,
    status_without,
    without_protection,
)
from kubeworld.objects.paths import Json
from kubeworld.objects.pods import is_over
from reprieve.kube.resource import DEVICE_TEMPLATES, PODS, Resource
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["PodClaims"]

_CLAIMS: Final = ("resource.k8s.io", "resourceclaims")
_GROUPS: Final = ("scheduling.k8s.io", "podgroups")


class PodClaims:
    """Makes claims and gives them back, where the cluster has claims of devices."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def create_pod(self, pod: Json) -> None:
        """Create a pod with its claims, so that it can be placed before the next one comes."""
        made = self._overlay.create(PODS, pod)
        self.changed(PODS, None, made)

    def changed(self, resource: Resource, old: Json | None, new: Json | None) -> None:
        """A pod or a group was created, changed or deleted."""
        user = new if new is not None else old
        kind = (resource.group, resource.plural)
        if user is None or kind not in ((PODS.group, PODS.plural), _GROUPS) or not asked_of(user):
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
        """Make what is requested by template and is missing, and state so in the user's status."""
        status = status_with_claims(user, lambda asked: self._claim(claims, user, asked))
        if status is not None:
            self._overlay.change(resource, {**user, "status": status})

    def _claim(self, claims: Resource, user: Json, asked: Json) -> str:
        """Return the claim of what is requested, shared or made; empty where there is none yet."""
        metadata, groups = user["metadata"], self._overlay.table(*_GROUPS)
        namespace, title, group = metadata.get("namespace", ""), asked["name"], group_of(user)
        if group and groups is not None:
            shared = shared_claim(self._overlay.get(groups, namespace, group), asked)
            if shared is not None:
                return shared
        template = asked["resourceClaimTemplateName"]
        source = self._overlay.get(DEVICE_TEMPLATES, namespace, template)
        if source is None:
            return ""
        stem = f"{metadata['name']}-{title}-"
        name = stem + self._overlay.suffix(claims, namespace, stem)
        made = self._overlay.create(claims, claim_of(user, title, source, name))
        return str(made["metadata"]["name"])

    def _members(self, group: Json) -> Iterator[Json]:
        metadata = group["metadata"]
        for pod in self._overlay.all(PODS):
            if pod["metadata"].get("namespace", "") == metadata.get("namespace", "") and (
                group_of(pod) == metadata["name"]
            ):
                yield pod

    def _give_back(self, claims: Resource, user: Json) -> None:
        for name in claims_used_by(user):
            claim = self._overlay.get(claims, user["metadata"].get("namespace", ""), name)
            if claim is not None:
                self._without(claims, claim, user["metadata"]["uid"])

    def _without(self, claims: Resource, claim: Json, uid: str) -> None:
        """Remove a user from a claim; one without users frees its devices."""
        users = (claim.get("status") or {}).get("reservedFor") or ()
        left = [each for each in users if each.get("uid") != uid]
        free = {**claim, "status": status_without(claim, left)}
        if not left:
            free = without_protection(free)
        if free != claim:
            self._overlay.change(claims, free)

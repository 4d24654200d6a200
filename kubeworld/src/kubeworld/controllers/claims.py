"""Device claims of pods and of PodGroups: made from templates, and given back.

1. A pod, or a PodGroup, that requests by template gets a claim of its own, and its status states
   which; the members of a group share what it requests.
2. A pod that is deleted or has ended no longer uses a claim. A claim that no work uses is
   deallocated, and loses the finalizer that its scheduler gave it, so that it can be deleted with
   its owner.

Source: the resourceclaim controller of Kubernetes 1.37; `resource.k8s.io` v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubeworld.objects.owners import child

__all__ = [
    "CLAIM_TITLE",
    "asked_of",
    "claim_of",
    "claims_used_by",
    "group_of",
    "shared_claim",
    "status_with_claims",
    "status_without",
    "without_protection",
]

Object = dict[str, Any]

#: The annotation of a claim: what the pod calls it.
CLAIM_TITLE: Final = "resource.kubernetes.io/pod-claim-name"
_PROTECTION: Final = "resource.kubernetes.io/delete-protection"


def asked_of(user: Mapping[str, Any]) -> list[Object]:
    """Return what a pod or a group requests."""
    return list((user.get("spec") or {}).get("resourceClaims") or ())


def group_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the PodGroup of a pod, empty without one."""
    return ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""


def claim_of(user: Object, title: str, template: Object, name: str) -> Object:
    """Return the claim that is made of a ResourceClaimTemplate for what `user` calls `title`."""
    body, note = template.get("spec") or {}, {CLAIM_TITLE: title}
    return child(user, "resource.k8s.io/v1", "ResourceClaim", name, body, annotations=note)


def shared_claim(group: Mapping[str, Any] | None, asked: Object) -> str | None:
    """Return the claim that a pod shares with its group: None for none, empty for not yet."""
    if group is None or asked not in asked_of(group):
        return None
    return next((name for title, name in _stated(group) if title == asked["name"]), "")


def status_with_claims(
    user: Mapping[str, Any], make: Callable[[Object], str | None]
) -> Object | None:
    """Return the status of a user that states which claims it has; None where it states so already.

    `make` returns the name of the claim for what is requested by template and has none; it may make
    it.
    """
    status = user.get("status") or {}
    known = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
    before = len(known)
    for asked in asked_of(user):
        if asked.get("resourceClaimTemplateName") is None or asked["name"] in known:
            continue
        if name := make(asked):
            known[asked["name"]] = {"name": asked["name"], "resourceClaimName": name}
    if len(known) == before:
        return None
    return {**status, "resourceClaimStatuses": list(known.values())}


def claims_used_by(user: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a pod or a group uses."""
    names = {str(each.get("resourceClaimName") or "") for each in asked_of(user)}
    return sorted((names | {name for _, name in _stated(user)}) - {""})


def status_without(claim: Mapping[str, Any], left: Sequence[Object]) -> Object:
    """Return the status of a claim that is used by those alone that are left."""
    status = {**(claim.get("status") or {}), "reservedFor": list(left)}
    if not left:
        for given in ("reservedFor", "allocation", "devices"):
            status.pop(given, None)
    return status


def without_protection(claim: Object) -> Object:
    """Return a claim without the finalizer of its scheduler; itself where it has none."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if _PROTECTION not in finalizers:
        return claim
    kept = [each for each in finalizers if each != _PROTECTION]
    return {**claim, "metadata": {**metadata, "finalizers": kept}}


def _stated(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    statuses = (user.get("status") or {}).get("resourceClaimStatuses") or ()
    return [(each["name"], str(each.get("resourceClaimName") or "")) for each in statuses]

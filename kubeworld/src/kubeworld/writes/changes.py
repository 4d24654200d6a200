"""What becomes of an object by a write: replaced, patched, bound, deleted.

Each function receives the object as it is and what was sent, changes neither, and returns the
object as it is to be stored, without its next version.

* No client writes names, uids, versions, generations or instants of creation and deletion.
* Where a kind has the status subresource, the status and the rest are written apart.
* A pod on a node has its grace period to end, anything else none.

Source: the API conventions of Kubernetes; the generic registry and the strategies of pods, 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeworld.objects.pods import is_over
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.writes.merging import BY_NAME, Structure, merge_patch, strategic_merge
from kubeworld.writes.refusals import bad_request, conflict, invalid

__all__ = [
    "bound",
    "check",
    "deleted",
    "generation_of",
    "grace_of",
    "is_gone",
    "patched",
    "replaced",
    "with_condition",
]

Object = dict[str, Any]

_DEFAULT_GRACE: Final = 30
_FIXED: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)
#: Finalizers that stand for what becomes of the dependents of an object that is deleted.
_BY_PROPAGATION: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def check(old: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Check that a write is about this object, and about this version of it.

    Raises:
        Refused: 409, it is about another one.
    """
    for name, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        given, found = wanted.get(name), old["metadata"].get(name)
        if given and given != found:
            raise conflict(
                f"Precondition failed: {title} in precondition: {given}, "
                f"{title} in object meta: {found}"
            )


def replaced(old: Object, sent: Object, part: str = "", *, with_status: bool) -> Object:
    """Return the object once it, or its status, was replaced.

    Raises:
        Refused: 409, another object or version was meant.
    """
    check(old, sent.get("metadata") or {})
    if part == "status":
        return {**old, "status": sent.get("status") or {}}
    new = {**sent, "metadata": _kept(old, sent.get("metadata") or {})}
    if with_status and "status" in old:
        new["status"] = old["status"]
    return new


def patched(
    old: Object,
    sent: Object,
    part: str = "",
    *,
    strategic: bool,
    with_status: bool,
    structure: Structure = BY_NAME,
) -> Object:
    """Return the object once it, its status or its scale was patched.

    Args:
        old: the object.
        sent: the patch.
        part: the subresource: status, scale or none.
        strategic: whether it is a strategic merge patch, else a JSON merge patch.
        with_status: whether the kind has the status subresource.
        structure: of the kind, for strategic merge patches.

    Raises:
        Refused: 400 another name, 409 another version, 422 another uid.
    """
    given, metadata = sent.get("metadata") or {}, old["metadata"]
    if given.get("name", metadata["name"]) != metadata["name"]:
        raise bad_request(
            f"the name of the object ({given['name']}) "
            f"does not match the name on the URL ({metadata['name']})"
        )
    if given.get("uid", metadata.get("uid")) != metadata.get("uid"):
        raise invalid(f'metadata.uid: Invalid value: "{given["uid"]}": field is immutable')
    check(old, given)
    if part == "scale":
        replicas = (sent.get("spec") or {}).get("replicas")
        return {**old, "spec": {**(old.get("spec") or {}), "replicas": replicas}}
    if part == "status":
        sent = {"status": sent.get("status")}
    elif with_status and "status" in sent:
        sent = {name: value for name, value in sent.items() if name != "status"}
    new = strategic_merge(structure, old, sent) if strategic else merge_patch(old, sent)
    return {**new, "metadata": _kept(old, new.get("metadata") or {})}


def bound(old: Object, sent: Mapping[str, Any], now: Nanos) -> Object:
    """Return a pod once it was bound to the node that a Binding names.

    Raises:
        Refused: 409, another pod was meant, or it is bound already, leaves or is gated.
    """
    given, metadata, name = sent.get("metadata") or {}, old["metadata"], old["metadata"]["name"]
    check(old, {"uid": given.get("uid")})
    if "deletionTimestamp" in metadata:
        raise conflict(f"pod {name} is being deleted, cannot be assigned to a host")
    if old["spec"].get("nodeName"):
        raise conflict(f'pod {name} is already assigned to node "{old["spec"]["nodeName"]}"')
    if old["spec"].get("schedulingGates"):
        raise conflict(f"pod {name} has non-empty .spec.schedulingGates")
    more = {
        part: {**(metadata.get(part) or {}), **given[part]}
        for part in ("annotations", "labels")
        if given.get(part)
    }
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": format_instant(now),
    }
    new = {
        **old,
        "metadata": {**metadata, **more},
        "spec": {**old["spec"], "nodeName": sent["target"]["name"]},
    }
    new["status"] = with_condition(old.get("status") or {}, condition)
    # A node that was kept for the pod needs not be kept any longer.
    new["status"].pop("nominatedNodeName", None)
    return new


def with_condition(status: Mapping[str, Any], condition: Mapping[str, Any]) -> Object:
    """Return a status with this condition in place of the one of its type, at the end."""
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    return {**status, "conditions": [*others, dict(condition)]}


def grace_of(pod: Mapping[str, Any], seconds: int | None = None) -> int:
    """Return the seconds that a pod that is deleted has to end, of those that were requested.

    One that is on no node, or over, has none.
    """
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or is_over(pod):
        return 0
    own: int = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    given = own if seconds is None else seconds
    return 1 if given < 0 else given


def deleted(old: Object, now: Nanos, *, seconds: int = 0, propagation: str | None = None) -> Object:
    """Return an object once it was deleted: marked, or with less grace than before.

    What `is_gone` is true of afterwards is to be removed. The object itself is returned where
    nothing changes.

    Args:
        old: the object.
        now: by the wall clock.
        seconds: that it has to end.
        propagation: what becomes of its dependents; None leaves what was stated before.
    """
    metadata = old["metadata"]
    marks: Object = {}
    if propagation is not None:
        kept = [
            name
            for name in metadata.get("finalizers") or ()
            if name not in _BY_PROPAGATION.values()
        ]
        if propagation in _BY_PROPAGATION:
            kept.append(_BY_PROPAGATION[propagation])
        if kept != list(metadata.get("finalizers") or ()):
            marks["finalizers"] = kept
    leaves = "deletionTimestamp" in metadata
    if not leaves or seconds < metadata.get("deletionGracePeriodSeconds", 0):
        marks["deletionTimestamp"] = format_instant(Nanos(now + seconds * SECOND))
        marks["deletionGracePeriodSeconds"] = seconds
        if not leaves and metadata.get("generation"):
            marks["generation"] = metadata["generation"] + 1
    if not marks:
        return old
    new = {**metadata, **marks}
    if not new.get("finalizers"):
        new.pop("finalizers", None)
    return {**old, "metadata": new}


def is_gone(obj: Mapping[str, Any]) -> bool:
    """Return whether nothing keeps an object that is being deleted."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def generation_of(old: Object, new: Object) -> Object:
    """Return an object in its place, of the next generation where its spec is another."""
    if new.get("spec") == old.get("spec"):
        return new
    generation = old["metadata"].get("generation", 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def _kept(old: Object, metadata: Object) -> Object:
    """Return metadata with what no user can write."""
    kept = {name: old["metadata"][name] for name in _FIXED if name in old["metadata"]}
    return {**{name: value for name, value in metadata.items() if name not in _FIXED}, **kept}

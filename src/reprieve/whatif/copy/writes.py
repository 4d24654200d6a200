"""What an API server makes of a write: the object as it is to be stored, or a refusal.

Each function takes the object as it is and what was sent, and changes neither.
`whatif.copy.overlay` stores what comes of it.

* Nobody writes names, uids, versions, generations or instants of creation and deletion.
* Where a kind has the status subresource, the status and the rest are written apart.
* A pod on a node has its grace period to end, anything else none.

Source: the API conventions of Kubernetes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from kubeworld.objects.pods import is_over
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.kube.bodies import Json
from reprieve.kube.resource import PODS
from reprieve.whatif.copy.patches import merged, strategically_merged
from reprieve.whatif.snapshots.snapshot import KindKey

__all__ = ["Refused", "bound", "check", "generation_of", "grace", "leaving", "patched", "replaced"]

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


class Refused(Exception):
    """A request that an API server refuses, with its code, reason and message."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.code, self.reason, self.message = code, reason, message or reason


def check(old: Json, wanted: Mapping[str, Any]) -> None:
    """Refuse a write that is about another object, or about an older version.

    Raises:
        Refused: it is.
    """
    for name in ("uid", "resourceVersion"):
        given = wanted.get(name)
        if given and given != old["metadata"].get(name):
            text = f"{name} is {old['metadata'].get(name)}, not {given}"
            raise Refused(409, "Conflict", text)


def replaced(old: Json, sent: Json, part: str, *, with_status: bool) -> Json:
    """Return the object once it, or its status, was replaced.

    Raises:
        Refused: another object or version was meant.
    """
    check(old, sent.get("metadata") or {})
    if part == "status":
        return {**old, "status": sent.get("status") or {}}
    new = {**sent, "metadata": _kept(old, sent.get("metadata") or {})}
    if with_status and "status" in old:
        new["status"] = old["status"]
    return new


def patched(old: Json, sent: Json, part: str, *, strategic: bool, with_status: bool) -> Json:
    """Return the object once it, its status or its scale was patched.

    Raises:
        Refused: another object or version was meant.
    """
    check(old, sent.get("metadata") or {})
    if part == "scale":
        replicas = (sent.get("spec") or {}).get("replicas")
        return {**old, "spec": {**(old.get("spec") or {}), "replicas": replicas}}
    if part == "status":
        sent = {"status": sent.get("status")}
    elif with_status and "status" in sent:
        sent = {name: value for name, value in sent.items() if name != "status"}
    new: Json = strategically_merged(old, sent) if strategic else merged(old, sent)
    new["metadata"] = _kept(old, new.get("metadata") or {})
    return new


def bound(old: Json, sent: Json, now: Nanos) -> Json:
    """Return a pod once it was bound to a node.

    Raises:
        Refused: another pod was meant, or it is bound already or leaves.
    """
    metadata = sent.get("metadata") or {}
    check(old, {"uid": metadata.get("uid")})
    if old["spec"].get("nodeName") or old["metadata"].get("deletionTimestamp"):
        raise Refused(409, "Conflict", f"pod {old['metadata']['name']} is bound or leaves")
    new = copy.deepcopy(old)
    new["spec"]["nodeName"] = sent["target"]["name"]
    annotations = {**(new["metadata"].get("annotations") or {})}
    new["metadata"]["annotations"] = annotations | (metadata.get("annotations") or {})
    conditions = (new.get("status") or {}).get("conditions") or []
    others = [each for each in conditions if each["type"] != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": format_instant(now),
    }
    new["status"] = {**(new.get("status") or {}), "conditions": [*others, scheduled]}
    return new


def leaving(old: Json, seconds: int, now: Nanos) -> Json | None:
    """Return an object that is deleted and has so long to end; None where it leaves as soon."""
    metadata = old["metadata"]
    known = metadata.get("deletionGracePeriodSeconds", 0)
    if metadata.get("deletionTimestamp") and seconds >= known:
        return None
    marks = {
        "deletionTimestamp": format_instant(Nanos(now + seconds * SECOND)),
        "deletionGracePeriodSeconds": seconds,
    }
    return {**old, "metadata": {**metadata, **marks}}


def grace(kind: KindKey, obj: Json, options: Json) -> int:
    """Return the seconds that a pod on a node has to end; nothing else has any."""
    if kind != (PODS.group, PODS.plural) or not (obj.get("spec") or {}).get("nodeName"):
        return 0
    if is_over(obj):
        return 0
    given = options.get("gracePeriodSeconds")
    own = obj["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    return int(own if given is None else given)


def generation_of(old: Json, new: Json) -> Json:
    """Return an object in its place, of the next generation where its spec is another."""
    if new.get("spec") == old.get("spec"):
        return new
    generation = old["metadata"].get("generation", 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def _kept(old: Json, metadata: Json) -> Json:
    """Return metadata with what nobody can write."""
    kept = {name: old["metadata"][name] for name in _FIXED if name in old["metadata"]}
    return {**{name: value for name, value in metadata.items() if name not in _FIXED}, **kept}

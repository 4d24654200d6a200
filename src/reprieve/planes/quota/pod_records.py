"""What is kept of pods: those that are queued whole, of all others the name.

Queued are pods that were taken in at their creation, and those below a kind whose pods are gated.
They are found by their group, by the set that they stand below, and by what makes them again.
Source: specification of the quota plane, section 10.4; the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from reprieve.jobs.model import JobKind, PassesOn
from reprieve.jobs.paths import Json, first
from reprieve.jobs.pods import (
    PARENT,
    annotations_of,
    controller_of,
    group_of,
    is_managed,
    labels_of,
)

__all__ = ["CONTROLLER", "GROUP", "SET", "owner_name", "pod_indexes", "set_key", "slim"]

#: Names of the indexes of the cache of pods.
GROUP: Final = "group"
SET: Final = "set"
CONTROLLER: Final = "controller"
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")


def slim(pod: Json) -> Json:
    """Return a pod that is queued as it is, and the name of any other."""
    if is_managed(pod) or PARENT in annotations_of(pod):
        return pod
    metadata = pod["metadata"]
    return {"metadata": {name: metadata[name] for name in _KEPT if name in metadata}}


def owner_name(passes_on: PassesOn, pod: Json) -> str:
    """Return the name of the set that a pod stands below."""
    if passes_on.set_label:
        return labels_of(pod).get(passes_on.set_label, "")
    for owner in first(pod, "metadata.ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["name"])
    return ""


def set_key(kind: JobKind, namespace: str, name: str) -> str:
    """Return the key of a set in its index."""
    return f"{kind.framework}|{namespace}/{name}"


def pod_indexes(kinds: Sequence[JobKind]) -> Mapping[str, Callable[[Any], Iterable[str]]]:
    """Return the indexes of the cache of pods, for records that hold one as `object`."""
    parents = {kind.framework: kind for kind in kinds if kind.passes_on and kind.passes_on.total}

    def groups(record: Any) -> Iterable[str]:
        pod: Json = record.object
        name = group_of(pod) if is_managed(pod) else ""
        return (f"{record.namespace}/{name}",) if name else ()

    def sets(record: Any) -> Iterable[str]:
        pod: Json = record.object
        kind = parents.get(annotations_of(pod).get(PARENT, ""))
        if kind is None or kind.passes_on is None:
            return ()
        return (set_key(kind, record.namespace, owner_name(kind.passes_on, pod)),)

    def controllers(record: Any) -> Iterable[str]:
        uid = controller_of(record.object)
        return (uid,) if uid else ()

    return {GROUP: groups, SET: sets, CONTROLLER: controllers}

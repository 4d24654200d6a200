"""What is read and kept of pods: those that are queued whole, of all others the name.

Queued are pods that were accepted at their creation, and those below a kind whose pods are gated.
They are found by their group, by the set that they stand below, and by what makes them again.
Source: specification of the quota plane, section 10.4; the design's "State that can be trusted".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kubeworld.objects.paths import Json, first
from reprieve.api.core import Pod
from reprieve.jobs.model import JobKind, PassesOn
from reprieve.jobs.pods import (
    MANAGED,
    PARENT,
    annotations_of,
    controller_of,
    group_of,
    is_managed,
    labels_of,
)

__all__ = [
    "CONTROLLER",
    "GROUP",
    "SET",
    "is_queued",
    "name_alone",
    "owner_name",
    "pod_indexes",
    "set_key",
]

#: Names of the indexes of the cache of pods.
GROUP: Final = "group"
SET: Final = "set"
CONTROLLER: Final = "controller"


def is_queued(pod: Pod) -> bool:
    """Return whether a pod is wanted whole."""
    metadata = pod.metadata
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    return labels.get(MANAGED) == "true" or PARENT in annotations


def name_alone(namespace: str, name: str, uid: str) -> Json:
    """Return what is kept of a pod that is not queued."""
    return {"metadata": {"namespace": sys.intern(namespace), "name": name, "uid": uid}}


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

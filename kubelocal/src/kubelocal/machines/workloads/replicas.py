"""What the controllers of replicated pods have in common: whose pods, which go first, hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, ChangeType, Object
from kubeworld.objects.conditions import condition
from kubeworld.objects.owners import controller_of
from kubeworld.objects.pods import is_ready
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant

__all__ = [
    "availability",
    "by_controller",
    "in_order_of_removal",
    "matching",
    "replicas_of",
    "same_status",
]


def by_controller(change: Change, resource: str, kind: str, below: str) -> Iterable[Key]:
    """Return the key of the object to look at: itself, or the controller of a child `below`."""
    if change.resource == resource:
        gone = change.type is ChangeType.DELETED
        return [] if gone else [key_of(resource, change.object)]
    if change.resource == below:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == kind:
            return [Key(resource, change.object["metadata"].get("namespace", ""), owner["name"])]
    return []


def matching(informer: Informer, owner: Object, resource: str) -> list[Object]:
    """Return what the owner controls and its selector matches; anything else is left alone."""
    selector = owner["spec"].get("selector")
    return [
        obj
        for obj in informer.controlled(owner["metadata"]["uid"], resource)
        if matches_labels(selector, obj["metadata"].get("labels"))
    ]


def replicas_of(obj: Object) -> int:
    """Return the wanted number of replicas, 1 unless it is given."""
    count = obj["spec"].get("replicas")
    return 1 if count is None else int(count)


def in_order_of_removal(pods: Iterable[Object]) -> list[Object]:
    """Return the pods in the order in which a scale-down takes them.

    (1) without a node, (2) not running, (3) not ready, (4) newer, (5) by name.
    """

    def criteria(pod: Object) -> tuple[bool, bool, bool, list[int], str]:
        created = pod["metadata"].get("creationTimestamp", "")
        return (
            bool(pod["spec"].get("nodeName")),
            (pod.get("status") or {}).get("phase") == "Running",
            is_ready(pod),
            [-ord(letter) for letter in created],
            pod["metadata"]["name"],
        )

    return sorted(pods, key=criteria)


def availability(
    pods: Sequence[Object], min_ready_seconds: int, wall: int
) -> tuple[int, int, int | None]:
    """Return how many are ready, how many available, and the nanoseconds until one more is."""
    ready = available = 0
    waits = []
    for pod in pods:
        found = condition(pod, "Ready")
        if found is None or found["status"] != "True":
            continue
        ready += 1
        since = parse_instant(found["lastTransitionTime"]) if min_ready_seconds else 0
        rest = since + min_ready_seconds * SECOND - wall if min_ready_seconds else 0
        if rest > 0:
            waits.append(rest)
        else:
            available += 1
    return ready, available, min(waits, default=None)


def same_status(obj: Object, status: dict[str, Any]) -> bool:
    """Whether this status says what the object's own says; absent and zero are the same."""

    def said(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value not in (0, None, "", [])}

    return said(obj.get("status") or {}) == said(status)

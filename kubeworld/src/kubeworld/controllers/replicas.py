"""What the controllers of replicated pods have in common: numbers, order of deletion, statuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeworld.controllers.acts import Act, Object, Status
from kubeworld.objects.conditions import condition
from kubeworld.objects.pods import is_ready
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant

__all__ = ["availability", "in_order_of_removal", "replicas_of", "revision_of", "with_status"]


def replicas_of(obj: Mapping[str, Any]) -> int:
    """Return the wanted number of replicas, 1 unless it is given."""
    count = (obj.get("spec") or {}).get("replicas")
    return 1 if count is None else int(count)


def revision_of(pod: Mapping[str, Any]) -> str:
    """Return of which template a pod is, as its label states."""
    return str((pod["metadata"].get("labels") or {}).get("controller-revision-hash", ""))


def in_order_of_removal(pods: Iterable[Object]) -> list[Object]:
    """Return the pods in the order in which a scale-down deletes them.

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


def availability(owner: Object, pods: Sequence[Object], now: Nanos) -> tuple[int, int, int | None]:
    """Return how many are ready, how many available, and the nanoseconds until one more is."""
    patience = int(owner["spec"].get("minReadySeconds") or 0) * SECOND
    ready = available = 0
    waits = []
    for pod in pods:
        found = condition(pod, "Ready")
        if found is None or found["status"] != "True":
            continue
        ready += 1
        rest = parse_instant(found["lastTransitionTime"]) + patience - now if patience else 0
        if rest > 0:
            waits.append(rest)
        else:
            available += 1
    return ready, available, min(waits, default=None)


def with_status(acts: list[Act], owner: Object, changed: Mapping[str, Any]) -> list[Act]:
    """Return the acts, and the owner's status with what changed in it if that states anything new.

    Absent and zero are the same; None removes a field.
    """
    before = owner.get("status") or {}
    status = {name: value for name, value in {**before, **changed}.items() if value is not None}
    return acts if _stated(before) == _stated(status) else [*acts, Status(status)]


def _stated(fields: Mapping[str, Any]) -> Object:
    return {name: value for name, value in fields.items() if value not in (0, None, "", [])}

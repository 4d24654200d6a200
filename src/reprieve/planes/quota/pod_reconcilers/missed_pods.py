"""Pods that run without quota, since no webhook saw their creation: they are reclaimed.

What runs beyond its admission is reported, and ended after a grace of a minute. The webhook of pods
gates what a queued set makes in its place, also where the set's template does not state it, so that
nothing is ended in a loop; should no webhook answer again, what is made again waits for a pause
that grows (`deletion_pace`). Nothing is ended while it is not known that the webhook is registered.

Pods whose template named no queue are not kept in the cache. They are listed by their set's
selector: once for each generation of the set, and again while the template states nothing.

Source: specification of the quota plane, section 10.4; the rule is Reprieve's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.durations import MINUTE
from reprieve.jobs.model import JobKind
from reprieve.jobs.passing_on import name_of_set
from reprieve.jobs.pods import PARENT, annotations_of, is_gated, is_missed
from reprieve.kube.resource import PODS
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.job_reconciler.job_lookup import job_key
from reprieve.units.ids import Uid

__all__ = ["GRACE", "Graces", "MissedPods", "selector_text"]

GRACE: Final = MINUTE
_MOST: Final = 10_000


class Graces:
    """Since when this process has known of pods; instants are monotonic."""

    def __init__(self) -> None:
        self._since: dict[Uid, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def left(self, uid: str, now: int) -> int:
        """Return how long a pod still has, from the first time that it is checked."""
        since = self._since.setdefault(Uid(uid), now)
        while len(self._since) > _MOST:
            del self._since[next(iter(self._since))]
        return max(0, since + GRACE - now)


class MissedPods:
    """Finds the pods of a set that were never gated. `names_queue`: whether its template does."""

    def __init__(self, context: QuotaContext, names_queue: Callable[[JobKind, Json], bool]) -> None:
        self._context = context
        self._names_queue = names_queue
        self._none_at: dict[str, tuple[str, str]] = {}  # by key of the set, where none was found

    async def of(self, kind: JobKind, obj: Json, gate: str) -> list[Json]:
        """Return the pods of a set that run and were never gated.

        Raises:
            ApiError: the pods cannot be listed.
        """
        metadata = obj["metadata"]
        key = job_key(kind, metadata["namespace"], metadata["name"])
        version = "" if self._names_queue(kind, obj) else str(metadata.get("resourceVersion"))
        stand = f"{metadata['uid']}/{metadata.get('generation')}", version
        if not self._context.gates_pods or self._none_at.get(key) == stand:
            return []
        found = [pod for pod in await self._listed(kind, obj) if _is_missed(pod, gate)]
        self._none_at.pop(key, None)
        if not found:
            self._none_at[key] = stand
            while len(self._none_at) > _MOST:
                del self._none_at[next(iter(self._none_at))]
        return found

    async def _listed(self, kind: JobKind, obj: Json) -> list[Json]:
        passes_on, metadata = kind.passes_on, obj["metadata"]
        assert passes_on is not None
        text = selector_text(first(obj, "spec.selector"))
        if passes_on.set_label:
            text = f"{passes_on.set_label}={metadata['name']}"
        if not text:
            return []
        page = await self._context.client.list(
            PODS, dict[str, Any], namespace=metadata["namespace"], label_selector=text
        )
        name = metadata["name"]
        return [
            pod for pod in page.items if name_of_set(kind.group, kind.kind, passes_on, pod) == name
        ]


def selector_text(selector: object) -> str:
    """Return a label selector as a list accepts it; empty where it requests nothing."""
    if not isinstance(selector, dict):
        return ""
    labels = selector.get("matchLabels") or {}
    parts = [f"{name}={value}" for name, value in sorted(labels.items())]
    for each in selector.get("matchExpressions") or ():
        key, values = each.get("key", ""), ",".join(sorted(each.get("values") or ()))
        match each.get("operator"):
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(str(key))
            case "DoesNotExist":
                parts.append(f"!{key}")
    return ",".join(parts)


def _is_missed(pod: Json, gate: str) -> bool:
    if first(pod, "metadata.deletionTimestamp") or is_over(pod) or is_gated(pod, gate):
        return False
    return PARENT not in annotations_of(pod) or is_missed(pod, gate)

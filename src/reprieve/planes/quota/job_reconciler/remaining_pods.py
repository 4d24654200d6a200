"""Whether a stopped job still has pods, beyond what its status states.

The status of many kinds tells that they are stopped, or not ready yet, while their pods still run
down: a RayCluster's state, a JobSet's count of active jobs. The quota of a victim is free only when
its pods are gone, so that the pods themselves are asked for, by the labels that the kind's own
controller gives them (`JobKind.pods`).

Source: specification of the quota plane, section 10.1, "a victim holds its quota until its pods are
gone".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubeworld.objects.paths import Json, first, values
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.jobs.model import JobKind
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS

__all__ = ["has_remaining_pods"]

_LONGEST_VALUE: Final = 63
_CONTROLLER: Final = "batch.kubernetes.io/controller-uid"  # on pods of Jobs


async def has_remaining_pods(
    client: Reader, kind: JobKind, job: Json, before: Nanos | None = None
) -> bool:
    """Return whether a pod of the job is still there and has not ended.

    `before`: only of those that were created by then, of kinds that are asked about by status, too.

    Raises:
        ApiError: the pods cannot be listed.
    """
    namespace = str(job["metadata"].get("namespace") or "")
    selected = list(_selected(kind, job))
    if before is not None and not kind.pods:
        selected = [(_CONTROLLER, str(job["metadata"]["uid"]))]
    for label, value in selected:
        page = await client.list(
            PODS, dict[str, Any], namespace=namespace, label_selector=f"{label}={value}"
        )
        for pod in page.items:
            # Copies of a cluster do not select by labels.
            labels = first(pod, "metadata.labels") or {}
            if before is not None and _created(pod) > before:
                continue
            if labels.get(label) == value and not is_over(pod):
                return True
    return False


def _created(pod: Json) -> Nanos:
    created = first(pod, "metadata.creationTimestamp")
    return (instant_or_none(created) if isinstance(created, str) else None) or Nanos(0)


def _selected(kind: JobKind, job: Json) -> Iterator[tuple[str, str]]:
    for each in kind.pods:
        for path in each.names:
            for value in values(job, path):
                # A longer name is in no label.
                if isinstance(value, str) and 0 < len(value) <= _LONGEST_VALUE:
                    yield each.label, value

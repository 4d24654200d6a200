"""Whether a stopped job still has pods, beyond what its status states.

The status of many kinds states that they are stopped, or not ready yet, while their pods still run
down: a RayCluster's state, a JobSet's count of active jobs. The quota of a victim is free only when
its pods have ended, so that the pods themselves are read:

1. By the labels that the kind's own controller gives them (`JobKind.pods`).
2. By what admission gave their templates (`JobKind.marked`): KubeRay clears the name of its cluster
   from the status of a RayJob once the cluster is deleted, while its pods are not; and the pods of
   the Job that submits have no label of the cluster.

Source: specification of the quota plane, section 10.1, "a victim holds its quota until its pods are
gone".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from kubeworld.objects.paths import Json, first, values
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.kueue import Workload
from reprieve.jobs.model import JobKind
from reprieve.jobs.writing import WORKLOAD
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS
from reprieve.planes.quota.job_reconciler.injections import mark_of

__all__ = ["has_remaining_pods", "remaining_pods"]

_LONGEST_VALUE: Final = 63
_CONTROLLER: Final = "batch.kubernetes.io/controller-uid"  # on pods of Jobs


async def has_remaining_pods(
    client: Reader, kind: JobKind, job: Json, workload: Workload, before: Nanos | None = None
) -> bool:
    """Return whether a pod of the job is still there and has not ended.

    Args:
        client: that lists pods.
        kind: of the job.
        job: as JSON.
        workload: of the job, whose admission marked the pods.
        before: only of those that were created by then, of kinds that are judged by status,
            too.

    Raises:
        ApiError: the pods cannot be listed.
    """
    by_uid = before is not None
    async for pod in _of(client, kind, job, workload, by_uid=by_uid):
        if before is None or _created(pod) <= before:
            return True
    return False


async def remaining_pods(
    client: Reader, kind: JobKind, job: Json, workload: Workload | None
) -> list[Json]:
    """Return the pods of the job that are still there and have not ended.

    Without its Workload only those that labels of its controller name.

    Raises:
        ApiError: the pods cannot be listed.
    """
    found = [pod async for pod in _of(client, kind, job, workload, by_uid=True)]
    return list({pod["metadata"]["uid"]: pod for pod in found}.values())


async def _of(
    client: Reader, kind: JobKind, job: Json, workload: Workload | None, *, by_uid: bool
) -> AsyncIterator[Json]:
    """Yield pods that have not ended; `by_uid`: also of kinds without labels of their own."""
    namespace = str(job["metadata"].get("namespace") or "")
    selected = list(_selected(kind, job))
    if by_uid and not kind.pods:
        selected = [(_CONTROLLER, str(job["metadata"]["uid"]))]
    for label, value in selected:
        for pod in await _live(client, namespace, label, value):
            if (first(pod, "metadata.labels") or {}).get(label) == value:
                yield pod
    if not kind.marked or workload is None:
        return
    label, value = mark_of(workload)
    for pod in await _live(client, namespace, label, value):
        if (first(pod, "metadata.annotations") or {}).get(WORKLOAD) == workload.metadata.name:
            yield pod


async def _live(client: Reader, namespace: str, label: str, value: str) -> list[Json]:
    """Return the pods of a label that have not ended; any value where it is empty.

    Copies of a cluster do not select by labels.
    """
    selector = f"{label}={value}" if value else label
    page = await client.list(PODS, dict[str, Any], namespace=namespace, label_selector=selector)
    return [pod for pod in page.items if not is_over(pod)]


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

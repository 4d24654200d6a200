"""Writes to others' jobs: suspend, start, restore templates, delete what is kept no longer.

Each reads the job first and judges it again after a conflict, so that one that was created again
under the same name, or that another client has stopped or started, is left alone. Every write is
fenced. Source: the design's "Intent log and executor"; specification of the quota plane, sections
10.1 and 10.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeworld.objects.paths import Json, first, set_at
from reprieve.execution.fence import Fence
from reprieve.jobs.model import JobKind
from reprieve.jobs.reading import is_suspended
from reprieve.jobs.writing import Injection, injected_runtime, restored, started, stopped
from reprieve.kube.bodies import merge_changes
from reprieve.kube.client import Client
from reprieve.kube.errors import Conflict, NotFound
from reprieve.kube.resource import Resource
from reprieve.kube.retry import retried
from reprieve.kube.writes import Priority

__all__ = ["JobWriter", "resource_of"]


def resource_of(kind: JobKind) -> Resource:
    """Return where jobs of a kind are kept."""
    group, _, version = kind.api_version.rpartition("/")
    return Resource(group, version, kind.plural, kind.kind)


class JobWriter:
    """Stops and starts jobs. Each write returns whether anything was written.

    All raise `Deposed` where the fence is closed, and `ApiError` where the API server refused.
    """

    def __init__(self, client: Client, fence: Fence) -> None:
        self._client = client
        self._fence = fence

    async def start(self, kind: JobKind, job: Json, injected: Mapping[str, Injection]) -> bool:
        """Start a suspended job with what its pods get.

        Raises:
            Conflicting: an injected value contradicts one that is there.
        """
        runtime = kind.runtime
        if runtime is not None:
            # Patches are accepted while the job is suspended.
            await self._modify(
                kind,
                job,
                lambda current: (
                    injected_runtime(runtime, current, injected)
                    if is_suspended(kind, current)
                    else None
                ),
            )
        return await self._modify(
            kind,
            job,
            lambda current: (
                started(kind, current, injected) if is_suspended(kind, current) else None
            ),
        )

    async def stop(self, kind: JobKind, job: Json) -> bool:
        """Suspend a job that runs; its own controller deletes its pods.

        A user who patches the job all the time delays this by a few conflicts at most: the job is
        read and judged again, and what makes it stop is patched by its uid alone.
        """

        def change(current: Json) -> Json | None:
            return None if is_suspended(kind, current) else stopped(kind, current)

        try:
            return await self._modify(kind, job, change, Priority.EVICT)
        except Conflict:
            return await self._stop_by_uid(kind, job, change)

    async def _stop_by_uid(
        self, kind: JobKind, job: Json, change: Callable[[Json], Json | None]
    ) -> bool:
        metadata, resource = job["metadata"], resource_of(kind)
        writer = self._fenced(Priority.EVICT)

        async def once() -> bool:
            current: Json = await writer.get(
                resource, metadata["namespace"], metadata["name"], dict
            )
            if current["metadata"]["uid"] != metadata["uid"]:
                return False
            wanted = change(current)
            if wanted is None:
                return False
            patch = merge_changes(current, wanted)
            patch["metadata"] = {**patch.get("metadata", {}), "uid": metadata["uid"]}
            await writer.patch(resource, metadata["namespace"], metadata["name"], patch, dict)
            return True

        try:
            return await retried(once, self._client.transport.pause, (Conflict,))
        except NotFound:
            return False

    async def restore(self, kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> bool:
        """Restore the templates of a suspended job to those of its Workload."""
        metadata = job["metadata"]
        if kind.clear_status and first(job, kind.clear_status) is not None:
            # The API refuses another template for a job that has a start time.
            patch: dict[str, Any] = {"metadata": {"uid": metadata["uid"]}}
            set_at(patch, kind.clear_status, None)
            await self._fenced(Priority.STATUS).patch(
                resource_of(kind),
                metadata["namespace"],
                metadata["name"],
                patch,
                dict,
                subresource="status",
            )
        return await self._modify(
            kind,
            job,
            lambda current: (
                restored(kind, current, pod_sets) if is_suspended(kind, current) else None
            ),
        )

    async def delete(self, kind: JobKind, namespace: str, name: str, uid: str) -> bool:
        """Delete a job whose Workload was deactivated and kept for as long as it should be."""
        try:
            await self._fenced(Priority.EVICT).delete(resource_of(kind), namespace, name, uid=uid)
        except NotFound:
            return False
        return True

    async def _modify(
        self,
        kind: JobKind,
        job: Json,
        change: Callable[[Json], Json | None],
        priority: Priority = Priority.STATUS,
    ) -> bool:
        metadata = job["metadata"]

        def same(current: Json) -> Json | None:
            return change(current) if current["metadata"]["uid"] == metadata["uid"] else None

        try:
            written = await self._fenced(priority).modify(
                resource_of(kind), metadata["namespace"], metadata["name"], same
            )
        except NotFound:
            return False
        return written is not None

    def _fenced(self, priority: Priority) -> Client:
        return self._client.at(priority, self._fence.check, timeout=self._fence.request_timeout)

"""Workloads deleted while their job is there, as far as the cache knows: is it, really?

A watch of jobs can stand still: a right was removed, a connection is half open. A job that only the
cache has would get a Workload, the garbage collector would delete that for want of an owner, and
the job would get the next one, several times a second and for as long as the watch stands still. So
a job that has lost a Workload gets another one only once the API server has shown the job. A job
that has not lost one is not read anew: a crowd of new jobs costs no call more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeworld.objects.paths import Json
from reprieve.execution.writes.jobs import resource_of
from reprieve.jobs.model import JobKind
from reprieve.kube.errors import NotFound
from reprieve.kube.objects import PartialObject
from reprieve.kube.reader import Reader
from reprieve.planes.quota.context import log

__all__ = ["LostWorkloads"]

_KEPT: Final = 4_096


class LostWorkloads:
    """Remembers the latest losses, by the key of the Workload."""

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._lost: dict[str, None] = {}

    def record(self, at: str) -> None:
        """A Workload was deleted whose job is there, as far as is known."""
        if at not in self._lost and len(self._lost) >= _KEPT:
            del self._lost[next(iter(self._lost))]
        self._lost[at] = None

    def made(self, at: str) -> None:
        """It was made again."""
        self._lost.pop(at, None)

    async def in_vain(self, kind: JobKind, at: str, obj: Json) -> bool:
        """Whether to make this Workload is in vain, since there is no owner.

        Raises:
            ApiError: the API server does not state.
        """
        if at not in self._lost or await self._owned(kind, obj["metadata"]):
            return False
        log.info(
            "Workload %s is not created again: the API server has no %s, the watch is stale",
            at,
            kind.kind,
        )
        return True

    async def _owned(self, kind: JobKind, metadata: Json) -> bool:
        """Whether one of its jobs is there; owners of another kind are none of them."""
        owners: Sequence[Json] = metadata["ownerReferences"]
        for owner in owners:
            if (owner["apiVersion"], owner["kind"]) != (kind.api_version, kind.kind):
                continue
            try:
                found = await self._client.get(
                    resource_of(kind), metadata["namespace"], owner["name"], PartialObject
                )
            except NotFound:
                continue
            if found.metadata.uid == owner["uid"] and not found.metadata.deletion_timestamp:
                return True
        return False

"""Who is queued: namespaces that are managed, and jobs that stand above others.

Owners are followed upwards while their kind is known: one of the table, listed or not, one of the
external frameworks, or a ReplicaSet. The ancestor is the topmost of those that are queued: of a
listed or external kind, with a queue name of its own. A job with an ancestor is not queued itself,
and runs only while the ancestor's Workload is admitted.

Source: specification of the quota plane, sections 10.1 and 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.jobs.model import JobKind
from reprieve.jobs.naming import workload_name
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.errors import Forbidden, NotFound
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.job_reconciler.composing import Composer
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup, queue_name, workload_key
from reprieve.planes.quota.watches import Watches
from reprieve.wording.events import EventText

__all__ = ["Ancestor", "Ancestry"]

_UNMANAGED: Final = ("kube-system",)
_DEEPEST: Final = 10
_REPLICA_SET: Final = ("apps", "ReplicaSet")


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A queued job above others; `workload` is the key of its Workload."""

    job: Json
    workload: str


class Ancestry:
    """Follows owners. `namespace`: the operator's own, whose jobs are left alone."""

    def __init__(
        self,
        context: QuotaContext,
        watches: Watches,
        jobs: JobLookup,
        composer: Composer,
        namespace: str,
    ) -> None:
        self._context = context
        self._watches = watches
        self._jobs = jobs
        self._composer = composer
        self._mapper = RestMapper(context.client, context.clock)
        self._unmanaged = (*_UNMANAGED, namespace)
        self._listed = {(kind.group, kind.kind): kind for kind in jobs.kinds.values()}
        external = (each.split(".", 2) for each in context.options.external)
        self._external = {(group, kind) for kind, _, group in external}
        self._known = {(kind.group, kind.kind) for kind in BUILT_IN} | {_REPLICA_SET}
        self._known |= self._external | self._listed.keys()

    def manages(self, namespace: str) -> bool:
        """Return whether jobs of a namespace are queued."""
        selector = self._context.options.selector
        if selector is None:
            return namespace not in self._unmanaged
        held = self._watches.namespaces.cache.named("", namespace)
        labels = {} if held is None else held.object.metadata.labels or {}
        return selector.matches(labels)

    def queues(self, job: Json) -> bool:
        """Return whether a job without an ancestor is queued."""
        return bool(queue_name(job)) or self._context.options.without_queue_name

    async def of(self, kind: JobKind, job: Json) -> Ancestor | None:
        """Return the topmost queued job above this one.

        Raises:
            ApiError: an owner could not be read.
        """
        found, current = None, job
        for _ in range(_DEEPEST):
            owner = next(
                (
                    o
                    for o in first(current, "metadata.ownerReferences") or ()
                    if o.get("controller")
                ),
                None,
            )
            if owner is None:
                return found
            place = (str(owner["apiVersion"]).rpartition("/")[0], str(owner["kind"]))
            above = await self._read(place, owner, job) if place in self._known else None
            if above is None:
                return found
            if self.queues(above) and (place in self._listed or place in self._external):
                found = self._ancestor(place, above)
            current = above
        text = f"more than {_DEEPEST} owners stand above this job; it is queued by itself"
        self._composer.announce(kind, job, EventText("Warning", "JobNestingTooDeep", text))
        return found

    def _ancestor(self, place: tuple[str, str], job: Json) -> Ancestor:
        kind, metadata = self._listed.get(place), job["metadata"]
        if kind is not None:
            return Ancestor(job, workload_key(kind, job))
        group, name = place
        made = workload_name(name, group, metadata["name"], metadata["uid"])
        return Ancestor(job, f"{metadata['namespace']}/{made}")

    async def _read(self, place: tuple[str, str], owner: Json, below: Json) -> Json | None:
        kind = self._listed.get(place)
        if kind is not None and not kind.gate:
            held = self._watches.jobs[kind.key].cache.get(owner["uid"])
            return None if held is None else held.object
        try:
            resource = await self._mapper.resource_for(owner["apiVersion"], owner["kind"])
            found: Json = await self._context.client.get(
                resource, below["metadata"]["namespace"], owner["name"], dict
            )
        except (NotFound, NotServed):
            return None
        except Forbidden as refusal:
            log.warning("owner %s is not followed: %s", owner["kind"], refusal)
            return None
        return found if found["metadata"]["uid"] == owner["uid"] else None

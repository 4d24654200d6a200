"""Jobs by identity: which job a Workload is of, which Workload a job has, who stands above a job.

Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

from typing import Final

from reprieve.api.kueue import Workload
from reprieve.controllers.quota.watches import Held, Watches
from reprieve.jobs.model import JobKind
from reprieve.jobs.naming import workload_name
from reprieve.jobs.paths import Json, first
from reprieve.jobs.reading import is_active, is_suspended

__all__ = ["QUEUE_NAME", "JobLookup", "job_key", "queue_name", "workload_key"]

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
_PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
_DEEPEST: Final = 10


def job_key(kind: JobKind, namespace: str, name: str) -> str:
    """Return the key under which a job is looked at."""
    return f"{kind.key}|{namespace}/{name}"


def queue_name(job: Json) -> str:
    """Return the LocalQueue that a job names."""
    labels = first(job, "metadata.labels") or {}
    return str(labels.get(QUEUE_NAME, ""))


def workload_key(kind: JobKind, job: Json) -> str:
    """Return the key of the Workload of a job."""
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    prebuilt = annotations.get(_PREBUILT) or labels.get(_PREBUILT)
    name = prebuilt or workload_name(kind.kind, kind.group, metadata["name"], metadata["uid"])
    return f"{metadata['namespace']}/{name}"


class JobLookup:
    """Reads the caches of jobs."""

    def __init__(self, watches: Watches, kinds: tuple[JobKind, ...]) -> None:
        self._watches = watches
        self.kinds = {kind.key: kind for kind in kinds}
        self._by_owner = {(kind.group, kind.kind): kind for kind in kinds}

    def split(self, key: str) -> tuple[JobKind, Held[Json] | None]:
        """Return the kind and, where it exists, the job of a key."""
        kind, _, name = key.partition("|")
        namespace, _, name = name.partition("/")
        return self.kinds[kind], self._watches.jobs[kind].cache.named(namespace, name)

    def owner_of(self, workload: Workload) -> tuple[JobKind, Held[Json]] | None:
        """Return the job that a Workload is of, None if there is none of a known kind."""
        for owner in workload.metadata.owner_references or ():
            kind = self._by_owner.get((owner.api_version.rpartition("/")[0], owner.kind))
            if kind is not None:
                held = self._watches.jobs[kind.key].cache.get(owner.uid)
                if held is not None:
                    return kind, held
        return None

    def key_of_owner(self, workload: Workload) -> str:
        """Return the key of the job of a Workload, also of one that is gone; empty without."""
        for owner in workload.metadata.owner_references or ():
            kind = self._by_owner.get((owner.api_version.rpartition("/")[0], owner.kind))
            if kind is not None:
                return job_key(kind, workload.metadata.namespace, owner.name)
        return ""

    def has_pods(self, workload: Workload) -> bool:
        """Tell whether the job of a Workload still runs or has pods."""
        found = self.owner_of(workload)
        if found is None:
            return False
        kind, held = found
        if first(held.object, "metadata.deletionTimestamp"):
            return False
        return is_active(kind, held.object) and not is_suspended(kind, held.object)

    def ancestor(self, job: Json) -> tuple[JobKind, Held[Json]] | None:
        """Return the topmost job above this one that has a queue name."""
        found = None
        for _ in range(_DEEPEST):
            owner = next(
                (o for o in first(job, "metadata.ownerReferences") or () if o.get("controller")),
                None,
            )
            if owner is None:
                break
            group = owner["apiVersion"].rpartition("/")[0]
            kind = self._by_owner.get((group, owner["kind"]))
            held = None if kind is None else self._watches.jobs[kind.key].cache.get(owner["uid"])
            if kind is None or held is None:
                break
            job = held.object
            if queue_name(job):
                found = kind, held
        return found

"""Jobs by identity: which job a Workload is of, which Workload a job has, who stands above a job.

Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.jobs.model import JobKind
from reprieve.jobs.naming import workload_name
from reprieve.jobs.passing_on import name_of_set
from reprieve.jobs.pods import (
    IS_GROUP,
    gone_at,
    group_of,
    is_gated,
    is_managed,
    next_gone_at,
    prebuilt_of,
    still_runs,
)
from reprieve.jobs.reading import is_active, is_suspended
from reprieve.jobs.training import RUNTIME
from reprieve.planes.quota.pod_reconcilers.pod_lookup import GROUP_PREFIX, PodLookup, group_key
from reprieve.planes.quota.watches import PREBUILT, Held, Watches

__all__ = [
    "QUEUE_NAME",
    "JobLookup",
    "is_of_one_pod",
    "is_of_pods",
    "job_key",
    "queue_name",
    "set_workload_keys",
    "workload_key",
]

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
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
    name = prebuilt_of(job) or workload_name(
        kind.kind, kind.group, metadata["name"], metadata["uid"]
    )
    return f"{metadata['namespace']}/{name}"


def set_workload_keys(
    kind: JobKind, obj: Json, known: Callable[[str], object]
) -> tuple[list[str], list[str]]:
    """Return the keys of the Workloads of a set's groups, and of those that are one too many.

    `known` returns whether there is a Workload.
    """
    metadata, passes_on = obj["metadata"], kind.passes_on
    assert passes_on is not None
    if not passes_on.groups:
        return [workload_key(kind, obj)], []

    def key(index: int) -> str:
        stem = f"{metadata['name']}-{index}"
        name = workload_name(kind.kind, kind.group, stem, metadata["uid"])
        return f"{metadata['namespace']}/{name}"

    count = first(obj, passes_on.groups)
    count = count if isinstance(count, int) else 1
    surplus: list[str] = []
    while known(key(count + len(surplus))) is not None:
        surplus.append(key(count + len(surplus)))
    return [key(index) for index in range(count)], surplus


def is_of_one_pod(workload: Workload) -> bool:
    """Return whether a Workload belongs to a pod that is no member of a group."""
    owners = workload.metadata.owner_references or ()
    alone = len(owners) == 1 and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
    return alone and not _is_group(workload)


def is_of_pods(workload: Workload) -> bool:
    """Return whether a Workload belongs to pods that are queued by themselves, or by their set."""
    owners = {each.kind for each in workload.metadata.owner_references or ()}
    return _is_group(workload) or owners == {"Pod"}


class JobLookup:
    """Reads the caches of jobs. `without_queue_name`: those without one are queued too."""

    def __init__(
        self, watches: Watches, kinds: tuple[JobKind, ...], *, without_queue_name: bool = False
    ) -> None:
        self._without_queue_name = without_queue_name
        self._watches = watches
        self.kinds = {kind.key: kind for kind in kinds}
        self.pods = PodLookup(watches, kinds)
        self._by_owner = {(kind.group, kind.kind): kind for kind in kinds}
        # Workloads of jobs that are deleted, by the key of the job.
        self._left: dict[str, str] = {}

    def split(self, key: str) -> tuple[JobKind, Held[Json] | None]:
        """Return the kind and, where it exists, the job of a key."""
        kind, _, name = key.partition("|")
        namespace, _, name = name.partition("/")
        return self.kinds[kind], self._watches.jobs[kind].cache.named(namespace, name)

    def workloads_of(self, key: str) -> list[str]:
        """Return the keys of the Workloads of a job, or of a group of pods, that is there."""
        if key.startswith(GROUP_PREFIX):
            return [key.removeprefix(GROUP_PREFIX)]
        kind, held = self.split(key)
        if held is None or kind.passes_on is not None:
            return []
        return [workload_key(kind, held.object)]

    def is_there(self, key: str) -> bool:
        """Return whether there is a job, or a member of a group, as far as caches know."""
        if key.startswith(GROUP_PREFIX):
            return bool(self.pods.members(key.removeprefix(GROUP_PREFIX)))
        return self.split(key)[1] is not None

    def resolved(self, kind: JobKind, job: Json) -> Json:
        """Return a job with the runtime that describes its pods, where its kind has one."""
        if kind.runtime is None:
            return job
        chosen = first(job, kind.runtime.kind) or kind.runtime.kinds[0][0]
        watch = self._watches.runtimes.get(str(chosen))
        namespaced = any(each[3] for each in kind.runtime.kinds if each[0] == chosen)
        namespace = job["metadata"].get("namespace", "") if namespaced else ""
        name = str(first(job, kind.runtime.name) or "")
        held = None if watch is None else watch.cache.named(namespace, name)
        return job if held is None else {**job, RUNTIME: held.object.get("spec") or {}}

    def keys(self, kind: JobKind, held: Held[Json]) -> Iterator[str]:
        """Yield the keys to look at when an object of a kind has changed."""
        if not kind.gate:
            yield job_key(kind, held.namespace, held.name)
            return
        for found, name in self.pods.keys(held):
            if found is None:
                yield group_key(held.namespace, name)
            else:
                yield job_key(found, held.namespace, name)

    def note_gone(self, kind: JobKind, held: Held[Json]) -> None:
        """Remember which Workload a deleted object has left behind."""
        queued = not kind.passes_on and (not kind.gate or _is_lone(held.object))
        if queued:
            self._left[job_key(kind, held.namespace, held.name)] = workload_key(kind, held.object)

    def left_behind(self, key: str) -> str:
        """Return the key of the Workload of a deleted job, until it is forgotten."""
        return self._left.get(key, "")

    def forget_left(self, key: str) -> None:
        """Record that the Workload of a deleted job was seen to."""
        self._left.pop(key, None)

    def owner_of(self, workload: Workload) -> tuple[JobKind, Held[Json]] | None:
        """Return the job that a Workload is of, None if there is none of a known kind."""
        for owner in workload.metadata.owner_references or ():
            kind = self._by_owner.get((owner.api_version.rpartition("/")[0], owner.kind))
            if kind is not None:
                held = self._watches.jobs[kind.key].cache.get(owner.uid)
                if held is not None:
                    return kind, held
        return None

    def keys_of_owners(self, workload: Workload) -> Iterator[str]:
        """Yield what to look at when a Workload has changed, also of deleted owners."""
        namespace, members = workload.metadata.namespace, _is_group(workload)
        if members:
            yield group_key(namespace, workload.metadata.name)
        for owner in workload.metadata.owner_references or ():
            kind = self._by_owner.get((owner.api_version.rpartition("/")[0], owner.kind))
            if kind is not None and not (members and kind.gate):
                yield job_key(kind, namespace, owner.name)
                return
        if not workload.metadata.owner_references:
            yield from self._keys_of_those_who_name(f"{namespace}/{workload.metadata.name}")

    def _keys_of_those_who_name(self, at: str) -> Iterator[str]:
        """Yield what to look at since a Workload is there that another client has made."""
        namespace, _, name = at.partition("/")
        if self.pods.members(at):
            yield group_key(namespace, name)
        for kind in self.kinds.values():
            if not kind.gate:
                for held in self._watches.jobs[kind.key].cache.by(PREBUILT, at):
                    yield job_key(kind, namespace, held.name)

    def has_pods(self, workload: Workload, now: Nanos) -> bool:
        """Return whether the job of a Workload still runs or has pods, as far as caches know.

        The status of many kinds states that they are stopped while their pods still run down.
        """
        if _is_group(workload):
            at = f"{workload.metadata.namespace}/{workload.metadata.name}"
            return any(self._runs(pod, now) for pod in self.pods.members(at))
        found = self.owner_of(workload)
        if found is None:
            # The Workload of a pod that is deleted is declared finished first.
            return f"{workload.metadata.namespace}/{workload.metadata.name}" in self._left.values()
        kind, held = found
        if kind.gate:
            return not is_over(held.object) and self._stays(held.object, now)
        if first(held.object, "metadata.deletionTimestamp"):
            return False
        return is_active(kind, held.object) and not is_suspended(kind, held.object)

    def next_gone_at(self, workload: Workload, now: Nanos) -> Nanos | None:
        """Return when the next pod of a Workload of pods is past its grace period."""
        at, found = f"{workload.metadata.namespace}/{workload.metadata.name}", None
        pods = self.pods.members(at) if _is_group(workload) else []
        if not pods and (found := self.owner_of(workload)) is not None and found[0].gate:
            pods = [found[1].object]
        return next_gone_at(pods, now)

    def set_above(self, namespace: str, pod: Json) -> tuple[JobKind, Json] | None:
        """Return the set with a queue that makes a pod, and its kind, as far as caches know."""
        for kind in self.kinds.values():
            if kind.passes_on is None:
                continue
            name = name_of_set(kind.group, kind.kind, kind.passes_on, pod)
            held = self._watches.jobs[kind.key].cache.named(namespace, name) if name else None
            if held is not None and queue_name(held.object):
                return kind, held.object
        return None

    def ancestor(self, job: Json) -> tuple[JobKind, Held[Json]] | None:
        """Return the topmost job above this one that is queued, as far as caches know."""
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
            if queue_name(job) or self._without_queue_name:
                found = kind, held
        return found

    def _runs(self, pod: Json, now: Nanos) -> bool:
        """Return whether a pod was released and has not ended, nor is past its grace period."""
        gate = self.pods.kind.gate if self.pods.kind is not None else ""
        return not is_gated(pod, gate) and not is_over(pod) and self._stays(pod, now)

    @staticmethod
    def _stays(pod: Json, now: Nanos) -> bool:
        """Return whether a pod is not deleted, or runs within its grace period."""
        return gone_at(pod) is None or still_runs(pod, now)


def _is_group(workload: Workload) -> bool:
    return (workload.metadata.annotations or {}).get(IS_GROUP) == "true"


def _is_lone(pod: Json) -> bool:
    return is_managed(pod) and not group_of(pod)

"""Work that states how long it runs at most: when that ends, and a cluster without it.

1. a Job with `activeDeadlineSeconds` that no controller makes anew, counted from its start
2. a Workload of a queue with `maximumExecutionTimeSeconds`, counted from its admission, less what
   it ran before
3. a pod with `activeDeadlineSeconds` that no controller makes anew, counted from its start

What ends so has its pods' grace period on top.

Source: the APIs of Job and Pod; Kueue's Workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kubeworld.objects.pods import OVER
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.kube.resource import PODS
from reprieve.whatif.snapshots.partial import Condition, Metadata, Owned, Partial
from reprieve.whatif.snapshots.snapshot import KindKey, Snapshot

__all__ = ["End", "declared_ends", "without", "without_objects"]

_JOBS: Final[KindKey] = ("batch", "jobs")
_WORKLOADS: Final[KindKey] = ("kueue.x-k8s.io", "workloads")
_PODS: Final[KindKey] = (PODS.group, PODS.plural)
_DEFAULT_GRACE: Final = 30
_MAKES_ONCE: Final = ("CronJob",)
_DEADLINE: Final = "activeDeadlineSeconds"
_EXECUTION_TIME: Final = "maximumExecutionTimeSeconds"


@dataclass(frozen=True, slots=True)
class End:
    """When something has ended at the latest, by which of its fields; `uids`: what ends then."""

    at: Nanos
    holder: str
    field: str
    uids: frozenset[str]


class _Spec(Partial, frozen=True):
    active_deadline_seconds: int | None = None
    maximum_execution_time_seconds: int | None = None
    suspend: bool | None = None
    termination_grace_period_seconds: int | None = None


class _Status(Partial, frozen=True):
    start_time: str | None = None
    conditions: list[Condition] | None = None
    accumulated_past_execution_time_seconds: int | None = None
    phase: str = ""


class _Object(Partial, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_OBJECT: Final = msgspec.json.Decoder(_Object, strict=False)
_OWNED: Final = msgspec.json.Decoder(Owned, strict=False)


def declared_ends(snapshot: Snapshot) -> list[End]:
    """Return who ends when at the latest, the first end first."""
    found = [*_of_jobs(snapshot), *_of_workloads(snapshot), *_of_pods(snapshot)]
    if not found:
        return []
    graces = _graces(snapshot)
    below = _below(snapshot)
    ends = []
    for end in found:
        every = _with_all_below(end.uids, below)
        grace = max((graces.get(uid, 0) for uid in every), default=0)
        at = max(end.at, snapshot.at) + grace * SECOND
        ends.append(replace(end, at=Nanos(at), uids=every))
    return sorted(ends, key=lambda each: (each.at, each.holder))


def without(snapshot: Snapshot, ends: Iterable[End]) -> Snapshot:
    """Return the cluster once these have ended."""
    return without_objects(snapshot, {uid for end in ends for uid in end.uids})


def without_objects(snapshot: Snapshot, gone: Collection[str]) -> Snapshot:
    """Return the cluster without the objects of these uids, and what they own."""
    kinds = {
        key: replace(
            listed,
            objects={name: raw for name, raw in listed.objects.items() if not _is_of(raw, gone)},
        )
        for key, listed in snapshot.kinds.items()
    }
    return replace(snapshot, kinds=kinds)


def _of_jobs(snapshot: Snapshot) -> Iterator[End]:
    for job in _objects(snapshot, _JOBS, _DEADLINE):
        start = instant_or_none(job.status.start_time)
        seconds, over = job.spec.active_deadline_seconds, _holds(job, "Complete", "Failed")
        if seconds is None or start is None or over or job.spec.suspend or _made_anew(job):
            continue
        yield _end(start + seconds * SECOND, f"Job {_name(job)}", _DEADLINE, job)


def _of_workloads(snapshot: Snapshot) -> Iterator[End]:
    for workload in _objects(snapshot, _WORKLOADS, _EXECUTION_TIME):
        seconds = workload.spec.maximum_execution_time_seconds
        admitted = next(
            (
                each
                for each in workload.status.conditions or ()
                if each.type == "Admitted" and each.status == "True"
            ),
            None,
        )
        start = instant_or_none(None if admitted is None else admitted.last_transition_time)
        if seconds is None or start is None or _holds(workload, "Finished"):
            continue
        seconds -= workload.status.accumulated_past_execution_time_seconds or 0
        owners = workload.metadata.owner_references or ()
        owner = next((each for each in owners if each.controller), None)
        label = f"Workload {_name(workload)}"
        if owner is not None:
            label = f"{owner.kind} {workload.metadata.namespace}/{owner.name}"
        end = _end(start + max(0, seconds) * SECOND, label, _EXECUTION_TIME, workload)
        yield replace(end, uids=end.uids | {each.uid for each in owners})


def _of_pods(snapshot: Snapshot) -> Iterator[End]:
    for pod in _objects(snapshot, _PODS, _DEADLINE):
        start, seconds = instant_or_none(pod.status.start_time), pod.spec.active_deadline_seconds
        over = pod.status.phase in OVER
        if seconds is None or start is None or over or _controlled(pod):
            continue
        yield _end(start + seconds * SECOND, f"Pod {_name(pod)}", _DEADLINE, pod)


def _end(at: int, holder: str, field: str, found: _Object) -> End:
    return End(Nanos(at), holder, field, frozenset((found.metadata.uid,)))


def _objects(snapshot: Snapshot, key: KindKey, field: str = "") -> Iterator[_Object]:
    """Yield the objects of a kind; those that name a field, where one is given."""
    listed, word = snapshot.kinds.get(key), field.encode()
    for raw in () if listed is None else listed.objects.values():
        if word not in raw:
            continue  # looking for the word is a tenth of the work of reading the object
        try:
            yield _OBJECT.decode(raw)
        except msgspec.MsgspecError:
            continue  # it is no such object: nothing can be learnt of it


def _holds(found: _Object, *types: str) -> bool:
    return any(
        each.type in types and each.status == "True" for each in found.status.conditions or ()
    )


def _controlled(found: _Object) -> bool:
    return any(each.controller for each in found.metadata.owner_references or ())


def _made_anew(job: _Object) -> bool:
    owners = job.metadata.owner_references or ()
    return any(each.controller and each.kind not in _MAKES_ONCE for each in owners)


def _name(found: _Object) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


def _graces(snapshot: Snapshot) -> dict[str, int]:
    """Return the grace period of each pod by its uid, in seconds."""
    found = {}
    for pod in _objects(snapshot, _PODS):
        grace = pod.spec.termination_grace_period_seconds
        found[pod.metadata.uid] = _DEFAULT_GRACE if grace is None else grace
    return found


def _below(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the uids of what each object owns, by its uid."""
    found: dict[str, list[str]] = defaultdict(list)
    for listed in snapshot.kinds.values():
        for raw in listed.objects.values():
            metadata = _metadata(raw)
            if metadata is not None:
                for owner in metadata.owner_references or ():
                    found[owner.uid].append(metadata.uid)
    return found


def _with_all_below(uids: Collection[str], below: dict[str, list[str]]) -> frozenset[str]:
    found, left = set(uids), list(uids)
    while left:
        for uid in below.get(left.pop(), ()):
            if uid not in found:
                found.add(uid)
                left.append(uid)
    return frozenset(found)


def _is_of(raw: bytes, gone: Collection[str]) -> bool:
    metadata = _metadata(raw)
    return metadata is not None and metadata.uid in gone


def _metadata(raw: bytes) -> Metadata | None:
    try:
        return _OWNED.decode(raw).metadata
    except msgspec.MsgspecError:
        return None

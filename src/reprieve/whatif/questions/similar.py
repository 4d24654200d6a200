"""How long similar work waited, by the objects of a cluster.

Similar is:

* for quota: a Workload of the same ClusterQueue and priority, of the same size class; it waited
  from its creation until its condition QuotaReserved became True
* on nodes: a pod, or a group as a whole, of the same scheduler and priority and of the same size
  class; it waited from its creation until the last condition PodScheduled became True. Pods of one
  owner are one case, the longest, as they wait for one another.

Of one size class are amounts of the same resource (devices, else cpu) between the same powers of
two. Left out is whose first wait cannot be read any more: Workloads that were evicted, pods that a
queue held back, and pods of every node. What is deleted from the cluster is not known.

Source: Kueue's and Kubernetes' conditions; specification of explain and plan, start estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubeworld.units.instants import instant_or_none
from reprieve.engine.diagnosis.estimates import Case
from reprieve.engine.lost_work import is_device
from reprieve.kube.resource import PODS
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.snapshots.partial import Condition, Metadata, Partial
from reprieve.whatif.snapshots.snapshot import KindKey, Snapshot

T = TypeVar("T")

__all__ = ["Alike", "pod_cases", "size_class", "workload_cases"]

_WORKLOADS: Final[KindKey] = ("kueue.x-k8s.io", "workloads")
_LOCAL_QUEUES: Final[KindKey] = ("kueue.x-k8s.io", "localqueues")
_PODS: Final[KindKey] = (PODS.group, PODS.plural)
_QUEUED: Final = "kueue.x-k8s.io/managed"
_OF_EVERY_NODE: Final = ("DaemonSet", "Node")

#: Resource and power of two.
SizeClass = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Alike:
    """What similar work has in common; `place`: a ClusterQueue, or a scheduler's name.

    `but`: uids that are not counted, of the queried work.
    """

    place: str
    priority: int
    size: SizeClass | None
    but: frozenset[str] = frozenset()


class _Metadata(Metadata, frozen=True):
    labels: dict[str, str] | None = None


class _Template(Partial, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _PodSet(Partial, frozen=True):
    template: _Template
    count: int = 1


class _WorkloadSpec(Partial, frozen=True):
    queue_name: str = ""
    priority: int | None = None
    pod_sets: msgspec.Raw = msgspec.Raw(b"[]")
    active: bool = True


class _Admission(Partial, frozen=True):
    cluster_queue: str = ""


class _WorkloadStatus(Partial, frozen=True):
    conditions: list[Condition] | None = None
    admission: _Admission | None = None


class _Workload(Partial, frozen=True):
    metadata: _Metadata
    spec: _WorkloadSpec
    status: _WorkloadStatus = _WorkloadStatus()


class _QueueSpec(Partial, frozen=True):
    cluster_queue: str = ""


class _LocalQueue(Partial, frozen=True):
    spec: _QueueSpec


class _SchedulingGroup(Partial, frozen=True):
    pod_group_name: str = ""


class _PodSpec(Partial, frozen=True):
    """A part of a spec, `Raw` what is parsed of few pods, or of one of a template."""

    scheduler_name: str = ""
    priority: int | None = None
    node_name: str = ""
    scheduling_gates: list[Any] | None = None
    scheduling_group: _SchedulingGroup | None = None
    containers: msgspec.Raw = msgspec.Raw()
    init_containers: msgspec.Raw = msgspec.Raw()
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()


class _PodStatus(Partial, frozen=True):
    conditions: list[Condition] | None = None


class _Listed(Partial, frozen=True):
    metadata: _Metadata
    spec: _PodSpec
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Pod(NamedTuple):
    """A pod that may be similar; `raw`: all of it."""

    metadata: _Metadata
    spec: _PodSpec
    status: msgspec.Raw
    raw: bytes


class _Whole(Partial, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_WORKLOAD: Final = msgspec.json.Decoder(_Workload, strict=False)
_PRIORITY: Final = b'"priority":'
_DIGITS: Final = tuple(b"%d" % digit for digit in range(10))
_POD_SETS: Final = msgspec.json.Decoder(list[_PodSet], strict=False)
_QUEUE: Final = msgspec.json.Decoder(_LocalQueue, strict=False)
_POD: Final = msgspec.json.Decoder(_Listed, strict=False)
_STATUS: Final = msgspec.json.Decoder(_PodStatus, strict=False)
_WHOLE: Final = msgspec.json.Decoder(_Whole, strict=False)


def size_class(total: Mapping[str, int]) -> SizeClass | None:
    """Return the size class of what is requested in base units, None where that is nothing."""
    devices = {name: amount for name, amount in total.items() if is_device(name) and amount > 0}
    if devices:
        name = min(devices, key=lambda each: (-devices[each], each))
        return name, devices[name].bit_length()
    cpu = -(-total.get("cpu", 0) // 1_000)
    return ("cpu", cpu.bit_length()) if cpu else None


def workload_cases(snapshot: Snapshot, alike: Alike) -> Iterator[Case]:
    """Yield how long similar Workloads waited for their quota, or have waited until now."""
    queues = {
        key: found.spec.cluster_queue
        for key, found in _decoded(snapshot, _LOCAL_QUEUES, _QUEUE.decode)
    }
    for _, found in _decoded(snapshot, _WORKLOADS, _WORKLOAD.decode):
        spec, status = found.spec, found.status
        place = queues.get((found.metadata.namespace, spec.queue_name), "")
        if status.admission is not None:
            place = status.admission.cluster_queue
        conditions = {each.type: each for each in status.conditions or ()}
        if place != alike.place or (spec.priority or 0) != alike.priority or not spec.active:
            continue
        if found.metadata.uid in alike.but or "Evicted" in conditions:
            continue
        if size_class(_total(spec.pod_sets)) != alike.size:
            continue
        reserved = conditions.get("QuotaReserved")
        ended = reserved is not None and reserved.status == "True"
        if not ended and "Finished" in conditions:
            continue
        until = reserved.last_transition_time if ended and reserved is not None else ""
        case = _case(snapshot, found.metadata.creation_timestamp, until, over=ended)
        if case is not None:
            yield case


def pod_cases(snapshot: Snapshot, alike: Alike) -> Iterator[Case]:
    """Yield how long similar pods and groups waited for nodes, or have waited until now."""
    units: dict[tuple[str, str], list[_Pod]] = {}
    listed = snapshot.kinds.get(_PODS)
    priority = str(alike.priority).encode()
    for raw in () if listed is None else listed.objects.values():
        if _of_another_priority(raw, priority):
            continue  # most pods of a large cluster: of these nothing is read
        pod = _candidate(raw, alike)
        if pod is None:
            continue
        metadata, spec = pod.metadata, pod.spec
        group = "" if spec.scheduling_group is None else spec.scheduling_group.pod_group_name
        key = (metadata.namespace, group) if group else ("", _above(metadata))
        units.setdefault(key, []).append(pod)
    requests = _Requests()
    for (namespace, _), members in units.items():
        case = _of_pods(snapshot, members, alike, requests, whole=bool(namespace))
        if case is not None:
            yield case


def _of_another_priority(raw: bytes, priority: bytes) -> bool:
    """Return whether a pod certainly has another priority, by a search for it alone.

    No other field of a pod has this name and a number; in texts the quotes are escaped.
    """
    at = raw.find(_PRIORITY) + len(_PRIORITY)
    if at < len(_PRIORITY) or raw.startswith(priority, at):
        return False
    return raw[at : at + 1] in _DIGITS


def _candidate(raw: bytes, alike: Alike) -> _Pod | None:
    """Return a pod of this place and priority whose first wait can be read, else None."""
    listed = _read(_POD.decode, raw)
    if listed is None:
        return None
    spec = listed.spec
    if spec.scheduler_name != alike.place or (spec.priority or 0) != alike.priority:
        return None
    metadata = listed.metadata
    if metadata.uid in alike.but:
        return None
    if spec.scheduling_gates or _QUEUED in (metadata.labels or {}):
        return None
    if any(owner.kind in _OF_EVERY_NODE for owner in metadata.owner_references or ()):
        return None
    return _Pod(metadata, spec, listed.status, raw)


def _above(metadata: _Metadata) -> str:
    owners = metadata.owner_references or ()
    return owners[0].uid if owners else metadata.uid


class _Requests:
    """What pods request; those of one template are parsed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], dict[str, int]] = {}

    def of(self, pod: _Pod) -> dict[str, int]:
        """Return the requests of a pod in base units."""
        spec = pod.spec
        parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        key = tuple(map(bytes, parts))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = requests_of_spec(_WHOLE.decode(pod.raw).spec)
        return found


def _of_pods(
    snapshot: Snapshot, members: list[_Pod], alike: Alike, requests: _Requests, *, whole: bool
) -> Case | None:
    """Return the longest wait among the pods of a group, or of an owner, None if not similar."""
    total: dict[str, int] = {}
    for pod in members if whole else members[:1]:
        for name, amount in requests.of(pod).items():
            total[name] = total.get(name, 0) + amount
    if size_class(total) != alike.size:
        return None
    found = []
    for pod in members:
        status = _read(_STATUS.decode, pod.status)
        if status is None:
            continue  # it cannot be read: nothing can be learnt of it
        scheduled = next(
            (each for each in status.conditions or () if each.type == "PodScheduled"), None
        )
        over = scheduled is not None and scheduled.status == "True"
        if not over and pod.spec.node_name:
            return None  # it has a node, and nothing states since when
        until = scheduled.last_transition_time if over and scheduled is not None else ""
        case = _case(snapshot, pod.metadata.creation_timestamp, until, over=over)
        if case is None:
            return None
        found.append(case)
    return max(found, key=lambda each: (not each.over, each.wait), default=None)


def _total(raw: msgspec.Raw) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in _read(_POD_SETS.decode, raw) or ():
        for name, amount in requests_of_spec(each.template.spec).items():
            total[name] = total.get(name, 0) + each.count * amount
    return total


def _case(snapshot: Snapshot, created: str, until: str, *, over: bool) -> Case | None:
    begun, ended = instant_or_none(created), instant_or_none(until) if over else snapshot.at
    if begun is None or ended is None or ended < begun:
        return None
    return Case(begun, ended - begun, over)


def _decoded(
    snapshot: Snapshot, key: KindKey, decode: Callable[[bytes], T]
) -> Iterator[tuple[tuple[str, str], T]]:
    listed = snapshot.kinds.get(key)
    for name, raw in () if listed is None else listed.objects.items():
        found = _read(decode, raw)
        if found is not None:
            yield name, found


def _read(decode: Callable[[Any], T], raw: bytes | msgspec.Raw) -> T | None:
    try:
        return decode(raw)
    except msgspec.MsgspecError:
        return None  # it is no such object: nothing can be learnt of it

"""What a queried object belongs to: owners, pods, group, Workload, GpuWorkload.

The walk follows the controllers' ownerReferences up to the root, at most ten objects, and down to
the pods. A query about a pod of a group is answered for the group: its members start together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reprieve.answers.announced import announced
from reprieve.answers.kept_nodes import kept_nodes
from reprieve.answers.kinds import LOCAL_QUEUES, POD_GROUPS, WORKLOADS, job_kind_of
from reprieve.answers.sources import Json, Reading
from reprieve.api import kueue
from reprieve.api.kueue_validation_jobs import QUEUE_NAME
from reprieve.engine.idle.discovery import MAXIMUM_DEPTH
from reprieve.intake.gangs import gang_name
from reprieve.intake.lineage import lineage_label
from reprieve.kube.resource import GPU_WORKLOADS, PODS

__all__ = ["Unit", "group_of", "manifests_of", "name_of", "namespace_of", "uid_of", "unit_of"]

_POD_GROUP_LABEL: Final = f"{kueue.GROUP}/pod-group-name"


@dataclass(frozen=True, slots=True)
class Unit:
    """One object with what belongs to it.

    Attributes:
        asked: the queried object.
        owners: above it, the nearest first.
        pods: its pods; of a member of a group, the pods of the group.
        group_name: of the group that its pods name, empty without one.
        members: all pods of that group, which may be of several jobs.
        group: the PodGroup, where there is one that can be read.
        workload: its Workload.
        gpu_workload: its GpuWorkload.
        cluster_queue: the one that its Workload's LocalQueue leads to, where that can be read.
        kept_nodes: on which capacity is kept for its pods, by name, as far as they can be read.
        announced: why its Workload waits, as an event on it states where no condition does.
        ignored_queue: the LocalQueue that a label names although no Workload stands for it.
    """

    asked: Json
    owners: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    group_name: str = ""
    members: tuple[Json, ...] = ()
    group: Json | None = None
    workload: Json | None = None
    gpu_workload: Json | None = None
    cluster_queue: str = ""
    kept_nodes: Mapping[str, Json] = field(default_factory=dict)
    announced: str = ""
    ignored_queue: str = ""

    @property
    def root(self) -> Json:
        """The last of the owners, or the object itself."""
        return self.owners[-1] if self.owners else self.asked

    @property
    def parts(self) -> tuple[Json, ...]:
        """Everything that it consists of."""
        rest = (self.group, self.workload, self.gpu_workload)
        return (self.asked, *self.owners, *self.pods, *(each for each in rest if each is not None))

    @property
    def uids(self) -> frozenset[str]:
        """The uids of all of its parts."""
        return frozenset(filter(None, map(uid_of, self.parts)))

    @property
    def lineage(self) -> str:
        """The lineage that a label names, empty without one."""
        return next(filter(None, map(lineage_label, self.parts)), "")


async def unit_of(reading: Reading, asked: Json) -> Unit:
    """Return an object with all that belongs to it, as far as it may be read."""
    namespace = namespace_of(asked)
    pods = await reading.listed((PODS,), namespace)
    owners = await _owners(reading, asked)
    chain = (asked, *owners)
    match asked["kind"]:
        case "Pod":
            own = [asked]
        case "PodGroup":
            own = [pod for pod in pods if group_of(pod) == name_of(asked)]
        case "Workload":
            own = _of_pod_group(pods, name_of(asked)) or await _below(reading, pods, owners)
        case "GpuWorkload":
            root = await reading.owner(asked["spec"]["workloadRef"], namespace)
            chain = (asked,) if root is None else (asked, root)
            own = await _below(reading, pods, chain[1:])
        case _:
            own = await _below(reading, pods, (asked,))
    group_name = next(filter(None, map(group_of, own)), "")
    group: Json | None
    if asked["kind"] == "PodGroup":
        group_name, group = name_of(asked), asked
    else:
        group = await _group(reading, namespace, group_name)
    members = [pod for pod in pods if group_of(pod) == group_name] if group_name else []
    if asked["kind"] == "Pod":
        own = members or own
    above = chain if own or asked["kind"] != "PodGroup" else (asked,)
    if own and asked["kind"] == "PodGroup":
        above = (asked, *await _owners(reading, own[0]))
    if asked["kind"] == "Workload":
        workload: Json | None = asked
    else:
        workload = await _workload(reading, above, own)
    return Unit(
        asked=asked,
        owners=above[1:],
        pods=tuple(sorted(own, key=name_of)),
        group_name=group_name,
        members=tuple(sorted(members, key=name_of)),
        group=group,
        workload=workload,
        cluster_queue=await _cluster_queue(reading, workload),
        kept_nodes=await kept_nodes(reading, own),
        announced=await announced(reading, workload),
        ignored_queue="" if workload is not None else _ignored_queue(reading, (*above, *own)),
        gpu_workload=asked
        if asked["kind"] == "GpuWorkload"
        else await _gpu_workload(reading, above, own),
    )


def manifests_of(unit: Unit) -> list[Json]:
    """Return the object that a user wrote: the job, or the group with its pods, or the pod."""
    for each in reversed((unit.asked, *unit.owners)):
        if job_kind_of(each) is not None:
            return [each]
    group = unit.asked if unit.asked["kind"] == "PodGroup" else unit.group
    return [unit.asked] if group is None else [group, *unit.pods]


def name_of(obj: Json) -> str:
    """Return an object's name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Json) -> str:
    """Return an object's namespace, empty for one without."""
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Json) -> str:
    """Return an object's uid."""
    return str(obj["metadata"].get("uid", ""))


def group_of(pod: Json) -> str:
    """Return the name of the group that a pod is in, by any of the ways to state it."""
    named = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    metadata = pod["metadata"]
    return str(named or gang_name(metadata.get("labels") or {}, metadata.get("annotations") or {}))


async def _owners(reading: Reading, obj: Json) -> tuple[Json, ...]:
    owners: list[Json] = []
    current: Json | None = obj
    while current is not None and len(owners) < MAXIMUM_DEPTH:
        current = await _controller(reading, current)
        if current is not None:
            owners.append(current)
    return tuple(owners)


async def _controller(reading: Reading, obj: Json) -> Json | None:
    # A Workload of a group of pods has them for owners, none of which controls it.
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return await reading.owner(reference, namespace_of(obj))
    return None


async def _below(reading: Reading, pods: Sequence[Json], chain: Sequence[Json]) -> list[Json]:
    """Return the pods above which one of the objects stands."""
    wanted = set(map(uid_of, chain))
    found = []
    for pod in pods:
        current: Json | None = pod
        for _ in range(MAXIMUM_DEPTH):
            if current is None or uid_of(current) in wanted:
                break
            current = await _controller(reading, current)
        if current is not None and uid_of(current) in wanted:
            found.append(pod)
    return found


def _of_pod_group(pods: Sequence[Json], name: str) -> list[Json]:
    return [
        pod for pod in pods if (pod["metadata"].get("labels") or {}).get(_POD_GROUP_LABEL) == name
    ]


async def _group(reading: Reading, namespace: str, name: str) -> Json | None:
    if not name:
        return None
    groups = await reading.list_all(POD_GROUPS, namespace)
    return next((each for each in groups if name_of(each) == name), None)


async def _workload(reading: Reading, chain: Sequence[Json], pods: Sequence[Json]) -> Json | None:
    """Return the newest Workload of one of the objects, or of their pods.

    Where pods have a Workload each, that of a pod without a node comes first.
    """
    unbound = {uid_of(pod) for pod in pods if not pod["spec"].get("nodeName")}
    uids = {*map(uid_of, chain), *map(uid_of, pods)}
    names = {(pod["metadata"].get("labels") or {}).get(_POD_GROUP_LABEL) for pod in pods}
    if not chain:
        return None
    found = [
        each
        for each in await reading.listed(WORKLOADS, namespace_of(chain[0]))
        if name_of(each) in names
        or any(owner.get("uid") in uids for owner in each["metadata"].get("ownerReferences") or ())
    ]

    def first(workload: Json) -> tuple[bool, tuple[str, str]]:
        owners = workload["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") in unbound for owner in owners), _made(workload)

    return max(found, key=first, default=None)


def _ignored_queue(reading: Reading, objects: Sequence[Json]) -> str:
    namespace = namespace_of(objects[0])
    kinds = {kind.qualified for kind in WORKLOADS}
    if any(kind in kinds and space in ("", namespace) for kind, space in reading.refused):
        return ""
    labels = ((each["metadata"].get("labels") or {}).get(QUEUE_NAME) for each in objects)
    return next(filter(None, labels), "")


async def _cluster_queue(reading: Reading, workload: Json | None) -> str:
    if workload is None:
        return ""
    for each in await reading.listed(LOCAL_QUEUES, namespace_of(workload), quietly=True):
        if name_of(each) == workload["spec"].get("queueName"):
            return str(each["spec"].get("clusterQueue", ""))
    return ""


async def _gpu_workload(
    reading: Reading, chain: Sequence[Json], pods: Sequence[Json]
) -> Json | None:
    uids = {*map(uid_of, chain), *map(uid_of, pods)}
    found = [
        each
        for each in await reading.listed((GPU_WORKLOADS,), namespace_of(chain[0]))
        if (each.get("spec") or {}).get("workloadRef", {}).get("uid") in uids
    ]
    return max(found, key=_made, default=None)


def _made(obj: Json) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp", "")), name_of(obj)

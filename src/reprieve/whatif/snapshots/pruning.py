"""What of an object the planes and the answers read: the rest never gets into a stored snapshot.

For kinds that are decoded into structs these are the structs' fields, for jobs the fields that
their row of the table names and those of a pod template. Nothing else passes: no environment, no
images, arguments or secrets, and of annotations only those that some code here reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from reprieve.api import gangs, kaiwo, kueue, pod_groups, scheduling
from reprieve.api.core import OwnerReference
from reprieve.api.devices import ResourceClaim
from reprieve.api.disruption import Disruption
from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS
from reprieve.api.harm_budget import HarmBudget
from reprieve.api.reprieve import Preemption, PreemptionPart
from reprieve.api.scheduling import PriorityClass
from reprieve.engine.placement.profile import Policy
from reprieve.intake.quota_limits import LimitRange
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.bodies import Json
from reprieve.planes.quota.watches import RuntimeClass
from reprieve.planes.scheduling.kinds import kinds

__all__ = ["READ_ANNOTATIONS", "field_names", "is_described", "pruned"]

#: Beginnings of the annotations that are read.
READ_ANNOTATIONS: Final = (
    "kaiwo.silogen.ai/",
    "reprieve.dev/",
    "kueue.x-k8s.io/",
    "gang.scheduling.koordinator.sh/",
    "scheduling.koordinator.sh/",
    "internal.scheduling.koordinator.sh/",
    "quota.scheduling.koordinator.sh/",
    "pod-group.scheduling.sigs.k8s.io/",
    "batch.kubernetes.io/",
    "resource.kubernetes.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/selected-node",
    "volume.beta.kubernetes.io/storage-class",
    "storageclass.kubernetes.io/is-default-class",
    "leaderworkerset.sigs.k8s.io/",
)
#: Never kept, whatever reads it: where users store secrets, and what weighs the most.
_NEVER: Final = frozenset(
    (
        "args",
        "binaryData",
        "command",
        "data",
        "env",
        "envFrom",
        "image",
        "images",
        "input",
        "inputParts",
        "kubectl.kubernetes.io/last-applied-configuration",
        "managedFields",
        "stringData",
    )
)
_SCALARS: Final = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class _Fields:
    """What is kept of a value: what has one of the `names`, `every` key, or the `whole`."""

    names: Mapping[str, _Fields] = field(default_factory=dict)
    every: _Fields | None = None
    whole: bool = False


_WHOLE: Final = _Fields(whole=True)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int = 0
    finalizers: list[str] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class _StandIns(msgspec.Struct, rename="camel"):
    """Fields of pods that the stand-ins for the kubelet and the answers read."""

    active_deadline_seconds: int = 0
    restart_policy: str = ""
    termination_grace_period_seconds: int = 0
    node_name: str = ""


class _PriorityClass(PriorityClass, rename="camel", frozen=True):
    """Fields of a priority class that stand-ins write into pods."""

    preemption_policy: str = ""


class _RuntimeScheduling(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] = {}
    tolerations: list[scheduling.Toleration] = []


class _RuntimeClass(RuntimeClass, rename="camel", frozen=True):
    """Fields of a runtime class that stand-ins write into pods."""

    scheduling: _RuntimeScheduling | None = None


class _ClaimTemplate(msgspec.Struct, rename="camel"):
    """What a stand-in makes claims of."""

    spec: ResourceClaim


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def _struct(type: Any) -> _Fields:
    return _of_type(inspect.type_info(type), ())


def _of_type(info: inspect.Type, above: tuple[type, ...]) -> _Fields:
    """Return what a type keeps; a struct within itself is kept as deep as it was declared once."""
    if isinstance(info, inspect.StructType):
        if info.cls in above:
            return _WHOLE
        return _Fields(
            {each.encode_name: _of_type(each.type, (*above, info.cls)) for each in info.fields}
        )
    if isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.SetType):
        return _of_type(info.item_type, above)
    if isinstance(info, inspect.DictType):
        return _Fields(every=_of_type(info.value_type, above))
    if isinstance(info, inspect.UnionType):
        found = _WHOLE
        for each in info.types:
            found = _both(found, _of_type(each, above))
        return found
    return _WHOLE


def _both(one: _Fields, other: _Fields) -> _Fields:
    """Return what either keeps; a scalar adds nothing to an object."""
    if one.whole or other.whole:
        return other if one.whole else one
    names = dict(one.names)
    for name, fields in other.names.items():
        mine = names.get(name)
        names[name] = fields if mine is None else _both(mine, fields)
    return _Fields(names, one.every or other.every)


def pruned(obj: Json) -> Json:
    """Return what is read of an object, with its apiVersion and kind."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    kept = _kept(group, str(obj.get("kind", "")))
    found: Json = {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")}
    for name, value in obj.items():
        if name in ("apiVersion", "kind"):
            continue
        if name == "metadata":
            found[name] = _metadata(value)
        elif isinstance(kept, frozenset):
            if name in kept:
                found[name] = _by_names(value, kept)
        elif name in kept.names:
            found[name] = _by_fields(value, kept.names[name])
    return found


def is_described(group: str, kind: str) -> bool:
    """Return whether more than the metadata of a kind is kept."""
    return _kept(group, kind) != _Fields()


@cache
def field_names() -> frozenset[str]:
    """Return the names of all fields that are kept, of whatever kind."""
    structs = (name for fields in _structs().values() for name in _names_in(fields))
    jobs = (name for row in BUILT_IN if row.kind != "Pod" for name in _names_of(row))
    return frozenset((*structs, *jobs, *_names_in(_METADATA), "apiVersion", "kind", "metadata"))


def _metadata(metadata: Any) -> Any:
    found = _by_fields(metadata, _METADATA)
    annotations = found.pop("annotations", None) if isinstance(found, dict) else None
    read = {
        name: value
        for name, value in (annotations or {}).items()
        if name.startswith(READ_ANNOTATIONS) and name not in _NEVER
    }
    return {**found, "annotations": read} if read else found


def _by_fields(value: Any, kept: _Fields) -> Any:
    if isinstance(value, list):
        return [_by_fields(each, kept) for each in value]
    if not isinstance(value, dict):
        return value
    if kept.whole:
        return {name: _by_fields(each, kept) for name, each in value.items() if name not in _NEVER}
    found = {}
    for name, each in value.items():
        if name == "metadata" and kept is not _METADATA:
            found[name] = _metadata(each)
        elif name in kept.names and name not in _NEVER:
            found[name] = _by_fields(each, kept.names[name])
        elif kept.every is not None:
            found[name] = _by_fields(each, kept.every)
    return found


def _by_names(value: Any, names: frozenset[str]) -> Any:
    """Return what of a job's value has a name that is read, wherever it stands."""
    if isinstance(value, list):
        return [_by_names(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, each in value.items():
        if name in _NEVER:
            continue
        if name == "metadata":
            found[name] = _metadata(each)
        elif name in _MAPS and isinstance(each, dict):
            found[name] = {key: item for key, item in each.items() if isinstance(item, _SCALARS)}
        elif name in names:
            found[name] = _by_names(each, names)
    return found


@cache
def _kept(group: str, kind: str) -> _Fields | frozenset[str]:
    for row in BUILT_IN:
        if (row.group, row.kind) == (group, kind) and kind != "Pod":
            return frozenset(_names_of(row))
    return _structs().get((group, kind), _Fields())


def _names_of(row: JobKind) -> Iterator[str]:
    """Yield every name on every path of a row, and those of pod templates."""
    for text in _texts(msgspec.to_builtins(row)):
        yield from text.split(".")
    yield from _POD_NAMES
    yield from _RUN_TIME
    yield from ("conditions", "selector", "matchLabels", "matchExpressions", "replicas", "active")
    if row.components is not None or row.runtime is not None:
        # What they wrap, or are a runtime of, is described by other rows.
        for other in BUILT_IN:
            if other is not row and other.components is None and other.runtime is None:
                yield from _names_of(other)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _names_in(fields: _Fields) -> Iterator[str]:
    for name, below in fields.names.items():
        yield name
        yield from _names_in(below)
    if fields.every is not None:
        yield from _names_in(fields.every)


_METADATA: Final = _struct(_Metadata)
_SPEC: Final = _both(_struct(scheduling.PodSpec), _both(_struct(kueue.PodSpec), _struct(_StandIns)))
_POD: Final = _both(
    _struct(scheduling.PodObject),
    _Fields({"spec": _SPEC, "status": _Fields({"conditions": _struct(_Condition)})}),
)
_POD_NAMES: Final = frozenset(
    (*_names_in(_SPEC), "spec", "template", *_names_in(_struct(_Condition)))
)
#: By which a job states how long it runs at most, and from when on.
_RUN_TIME: Final = ("activeDeadlineSeconds", "startTime")
_MAPS: Final = frozenset(
    ("labels", "matchLabels", "nodeSelector", "requests", "limits", "overhead", "podFixed")
)


#: Kinds of the quota and idle planes, of the older APIs, and our own.
_DECODED: Final[Mapping[tuple[str, str], type]] = {
    (kueue.GROUP, "Workload"): kueue.Workload,
    (kueue.GROUP, "ClusterQueue"): kueue.ClusterQueue,
    (kueue.GROUP, "Topology"): kueue.Topology,
    (kueue.GROUP, "LocalQueue"): kueue.LocalQueue,
    (kueue.GROUP, "Cohort"): kueue.Cohort,
    (kueue.GROUP, "ResourceFlavor"): kueue.ResourceFlavor,
    (kueue.GROUP, "WorkloadPriorityClass"): kueue.WorkloadPriorityClass,
    (kueue.GROUP, "AdmissionCheck"): kueue.AdmissionCheck,
    ("", "LimitRange"): LimitRange,
    ("resource.k8s.io", "ResourceClaimTemplate"): _ClaimTemplate,
    ("node.k8s.io", "RuntimeClass"): _RuntimeClass,
    ("kaiwo.silogen.ai", "GpuWorkload"): kaiwo.GpuWorkload,
    ("config.kaiwo.silogen.ai", "KaiwoConfig"): kaiwo.KaiwoConfig,
    (KOORDINATOR.api_version.partition("/")[0], "PodGroup"): gangs.PodGroup,
    (SCHEDULER_PLUGINS.api_version.partition("/")[0], "PodGroup"): gangs.PodGroup,
    ("reprieve.dev", "Disruption"): Disruption,
    ("reprieve.dev", "HarmBudget"): HarmBudget,
    ("reprieve.dev", "Preemption"): Preemption,
    ("reprieve.dev", "PreemptionPart"): PreemptionPart,
}


@cache
def _structs() -> Mapping[tuple[str, str], _Fields]:
    """Return what is kept by group and kind."""
    found = {key: _struct(type) for key, type in _DECODED.items()}
    for watched in kinds(Policy()):
        found[watched.resource.group, watched.resource.kind] = _struct(watched.type)
    found["scheduling.k8s.io", "PriorityClass"] = _struct(_PriorityClass)
    for name in ("PodGroup", "CompositePodGroup"):
        found["scheduling.k8s.io", name] = _struct(pod_groups.PodGroup)
    found["", "Pod"] = _POD
    return found

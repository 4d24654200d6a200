"""What a cluster did while it was recorded, as `kwokctl snapshot record` writes it.

The file is YAML of many documents, without anchors and tags. A `ResourcePatch` states what became
of one object so long after the beginning (`durationNanosecond`, `method`, `template`); documents
before them are objects that were there. Of these, pods are read:

1. pods of one PodGroup, else of one controller, are one job, and any other pod is one; a group or a
   pod that comes again under its name, once all of it has ended, is another job
2. it arrives when its first pod is made, and is as wide as its pods request at most at one time, in
   extended resources of all kinds together
3. its work is the time for which pods had a node, until they ended or were deleted, weighed by
   their devices; its length is that on its whole width
4. a job that never had a node, or whose pods have not all ended when the recording does, is left
   out and reported by the document in which its first pod was made

The namespace is the tenant. Source: kwok's `action.kwok.x-k8s.io/v1alpha1`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml

from kubeworld.objects.pods import OVER
from kubeworld.units.quantities import InvalidQuantity
from kubeworld.units.untrusted import INT32, LONGEST_NAME, Unreadable
from reprieve.api.core import PodSpec
from reprieve.engine.lost_work import devices_of
from reprieve.intake.cluster.requests import plain_requests
from reprieve.intake.gangs import gang_name
from reprieve.simulation.readers.columns import gathered, whole
from reprieve.simulation.readers.lines import MOST_DEVICES
from reprieve.simulation.trace import Job, Malformed, Trace
from reprieve.units.bounded_yaml import FastLoader, read_yaml_all
from reprieve.units.errors import UsageError

__all__ = ["read_kwok"]

_ACCEPTED: Final = "what kwokctl snapshot record writes"
_LONGEST: Final = 100 * 365 * 24 * 3_600 * 10**9
_DEEPEST: Final = 100

_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Common settings: camel case, unknown fields are passed over."""


class _Target(_Struct, frozen=True):
    name: _Name
    namespace: _Name = ""


class _Owner(_Struct, frozen=True):
    name: _Name
    kind: _Name = ""
    uid: _Name = ""
    controller: bool = False


class _Metadata(_Struct, frozen=True):
    name: _Name
    namespace: _Name = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Group(_Struct, frozen=True):
    pod_group_name: _Name = ""


class _Spec(_Struct, frozen=True):
    node_name: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=INT32[0], le=INT32[1])] | None = None
    scheduling_group: _Group | None = None


class _Status(_Struct, frozen=True):
    phase: str | None = None


class _Change(_Struct, frozen=True):
    """As much of a pod, or of a patch of one, as states its phase."""

    spec: _Spec | None = None
    status: _Status | None = None


class _Made(_Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


class _Resource(_Struct, frozen=True):
    resource: str
    group: str | None = None


class _Patch(_Struct, frozen=True):
    resource: _Resource
    target: _Target
    duration_nanosecond: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST)]
    method: str
    template: dict[str, Any] | None = None


@dataclass(slots=True)
class _Pod:
    """One pod of the recording; instants in nanoseconds since its beginning, None before them."""

    gang: _Gang
    devices: int
    bound: int | None = None
    ended: int | None = None


@dataclass(slots=True)
class _Gang:
    """The pods that are one job; `document`: in which the first was made."""

    job: str
    document: int
    arrival: int
    tenant: str
    priority: int | None
    pods: list[_Pod] = field(default_factory=list)
    wide: int = 0  # devices of the pods that are there now
    widest: int = 0

    @property
    def is_over(self) -> bool:
        """Whether all of it has ended so far."""
        return all(pod.ended is not None for pod in self.pods)


@dataclass(slots=True)
class _Recording:
    gangs: dict[int, _Gang] = field(default_factory=dict)  # by document
    newest: dict[tuple[str, ...], _Gang] = field(default_factory=dict)
    pods: dict[_Target, _Pod] = field(default_factory=dict)  # those that are there
    jobs: dict[str, int] = field(default_factory=dict)  # how often a name was given

    def made(self, number: int, at: int, document: Mapping[str, Any]) -> None:
        """A pod is there."""
        pod = msgspec.convert(document, _Made)
        name = _Target(pod.metadata.name, pod.metadata.namespace)
        devices = _devices(document["spec"])
        if name in self.pods:
            raise Unreadable(f"pod {_reported(name)} was there before")
        gang = self._gang(number, at, pod)
        found = self.pods[name] = _Pod(gang, devices)
        gang.pods.append(found)
        gang.wide += devices
        gang.widest = max(gang.widest, gang.wide)
        self.changed(name, at, _Change(pod.spec, pod.status))

    def changed(self, name: _Target, at: int, change: _Change) -> None:
        """A pod has these fields now."""
        found = self._there(name)
        if found.bound is None and change.spec is not None and change.spec.node_name:
            found.bound = at
        if found.ended is None and change.status is not None and change.status.phase in OVER:
            _end(found, at)

    def gone(self, name: _Target, at: int) -> None:
        """A pod is not there any more."""
        found = self._there(name)
        del self.pods[name]
        if found.ended is None:
            _end(found, at)

    def _there(self, name: _Target) -> _Pod:
        found = self.pods.get(name)
        if found is None:
            raise Unreadable(f"there is no pod {_reported(name)}")
        return found

    def _gang(self, number: int, at: int, pod: _Made) -> _Gang:
        """Return the job of a pod, a new one where it belongs to none that continues."""
        space, key = pod.metadata.namespace, _key(pod)
        known = self.newest.get(key)
        # A controller of one uid makes pods again; of other names that states nothing.
        if known is not None and (key[-1] or not known.is_over):
            return known
        name = f"{space}/{key[2]}"
        self.jobs[name] = self.jobs.get(name, 0) + 1
        job = name if self.jobs[name] == 1 else f"{name}#{self.jobs[name]}"
        gang = _Gang(job, number, at, space, pod.spec.priority)
        self.gangs[number] = self.newest[key] = gang
        return gang


def read_kwok(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it cannot be read, or has no objects.
    """
    recording, malformed = _Recording(), list[Malformed]()
    objects = 0
    for number, document in enumerate(_documents(path), 1):
        objects += isinstance(document, Mapping) and "kind" in document
        try:
            _follow(recording, number, document)
        except (Unreadable, InvalidQuantity, msgspec.ValidationError) as error:
            malformed.append(Malformed(number, str(error)))
    if not objects:
        raise UsageError(f"{path}: it has no objects; accepted: {_ACCEPTED}")
    made = recording.gangs
    trace = gathered(
        name, ((number, "job") for number in made), lambda _, number: _job(made[number])
    )
    reported = sorted((*malformed, *trace.malformed), key=lambda each: each.line)
    return Trace(name, trace.jobs, tuple(reported), trace.without)


def _documents(path: Path) -> Iterator[Any]:
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        _check(path, text)
        yield from read_yaml_all(text)
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{_line(error.problem_mark)}"
        raise UsageError(f"{where}: {error.problem}; accepted: {_ACCEPTED}") from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: {said}; accepted: {_ACCEPTED}") from None


def _check(path: Path, text: bytes) -> None:
    """Refuse what could end the process when it is parsed, or fill its memory.

    That is nesting without an end, anchors, which make much of little, and tags, which request
    values of types that their texts are not.
    """
    depth = 0
    for event in yaml.parse(text, Loader=FastLoader):
        odd = ""
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            odd = "an anchor"
        elif _tagged(event):
            odd = "a tag"
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            odd = f"nested more than {_DEEPEST} levels" if depth > _DEEPEST else ""
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if odd:
            raise UsageError(f"{path}:{_line(event.start_mark)}: {odd}; accepted: {_ACCEPTED}")


def _tagged(event: Any) -> bool:
    return getattr(event, "tag", None) is not None and event.implicit in (False, (False, False))


def _line(mark: Any) -> int:
    """Return the line of a place in the file, from 1 on."""
    return 1 if mark is None else int(mark.line) + 1


def _follow(recording: _Recording, number: int, document: Any) -> None:
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise Unreadable("no object")
    if document.get("kind") != "ResourcePatch":
        if (document.get("apiVersion"), document.get("kind")) == ("v1", "Pod"):
            recording.made(number, 0, document)
        return
    if not _is_of_pod(document.get("resource")):
        return
    patch = msgspec.convert(document, _Patch)
    at, name, template = patch.duration_nanosecond, patch.target, patch.template or {}
    match patch.method:
        case "create":
            recording.made(number, at, template)
        case "patch":
            recording.changed(name, at, msgspec.convert(template, _Change))
        case "delete":
            recording.gone(name, at)
        case _:
            raise Unreadable("an unknown method; accepted: create, patch, delete")


def _is_of_pod(resource: Any) -> bool:
    found = msgspec.convert(resource, _Resource)
    return (found.group or "", found.resource) == ("", "pods")


def _end(pod: _Pod, at: int) -> None:
    pod.ended = at
    pod.gang.wide -= pod.devices


def _job(gang: _Gang) -> Job | None:
    if not gang.widest:
        return None
    if gang.widest > MOST_DEVICES:
        raise Unreadable(f"too many devices; accepted: at most {MOST_DEVICES}")
    if not gang.is_over:
        raise Unreadable("it has not ended when the recording does")
    work = sum(
        pod.devices * (pod.ended - pod.bound)
        for pod in gang.pods
        if pod.bound is not None and pod.ended is not None
    )
    if not work:
        raise Unreadable("it never had a node")
    duration = whole(work // gang.widest)
    return Job(gang.job, gang.arrival, gang.widest, duration, "", gang.tenant, gang.priority)


def _key(pod: _Made) -> tuple[str, str, str, str]:
    """Return what the pods of a job have in common: kind, namespace and name, and a uid if any."""
    metadata, group = pod.metadata, pod.spec.scheduling_group
    space = metadata.namespace
    name = gang_name(metadata.labels or {}, metadata.annotations or {})
    if group is not None and group.pod_group_name:
        name = group.pod_group_name
    if name:
        return "PodGroup", space, name, ""
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner.kind, space, owner.name, owner.uid
    return "Pod", space, metadata.name, ""


def _devices(spec: Any) -> int:
    return devices_of(plain_requests(msgspec.convert(spec, PodSpec)).items())


def _reported(name: _Target) -> str:
    return f"{name.namespace}/{name.name}"

"""What a cluster did while it was recorded, as `kwokctl snapshot record` writes it.

The file is YAML of many documents. A `ResourcePatch` says what became of one object so long after
the beginning (`durationNanosecond`, `method`, `template`); documents before them are objects that
were there. Of these, pods are read:

1. pods of one PodGroup, else of one controller, are one job, and any other pod is one
2. it arrives when its first pod is made, and is as wide as its pods ask for at most at one time, in
   extended resources of all kinds together
3. its work is the time for which pods had a node, until they ended or went, weighed by their
   devices; its length is that on its whole width
4. a job that never had a node, or whose pods have not all ended when the recording does, is left
   out and told by the document in which its first pod was made

The namespace is the tenant. Source: kwok's `action.kwok.x-k8s.io/v1alpha1`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from reprieve.api.core import PodSpec
from reprieve.engine.lost_work import devices_of
from reprieve.intake.cluster.requests import plain_requests
from reprieve.intake.gangs import gang_name
from reprieve.simulation.readers.columns import gathered, whole
from reprieve.simulation.readers.lines import MOST_DEVICES
from reprieve.simulation.trace import Job, Malformed, Trace
from reprieve.units.errors import UsageError
from reprieve.units.quantities import InvalidQuantity
from reprieve.units.untrusted import INT32, LONGEST_NAME, Unreadable, bounded, shown

__all__ = ["read_kwok"]

_ACCEPTED: Final = "what kwokctl snapshot record writes"
_LONGEST: Final = 100 * 365 * 24 * 3_600 * 10**9
_DEEPEST: Final = 100
_OVER: Final = ("Succeeded", "Failed")
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Document = Mapping[str, Any]


@dataclass(slots=True)
class _Pod:
    """One pod of the recording; instants in nanoseconds since its beginning, None before them."""

    job: str
    devices: int
    bound: int | None = None
    ended: int | None = None


@dataclass(slots=True)
class _Gang:
    """The pods that are one job; `document`: in which the first was made."""

    document: int
    arrival: int
    tenant: str
    priority: int | None
    pods: list[_Pod] = field(default_factory=list)
    wide: int = 0  # devices of the pods that are there now
    widest: int = 0


@dataclass(slots=True)
class _Recording:
    gangs: dict[str, _Gang] = field(default_factory=dict)
    pods: dict[tuple[str, str], _Pod] = field(default_factory=dict)  # those that are there

    def made(self, number: int, at: int, pod: Document) -> None:
        """A pod is there."""
        metadata, spec = _mapping(pod, "metadata"), _mapping(pod, "spec")
        name, devices = _name(metadata), _devices(spec)
        if name in self.pods:
            raise Unreadable(f"pod {'/'.join(name)} was there before")
        job, priority = _job_of(metadata, spec), spec.get("priority")
        if priority is not None and not (
            type(priority) is int and INT32[0] <= priority <= INT32[1]
        ):
            raise Unreadable(f"priority {shown(priority)}; accepted: a whole number of 32 bits")
        gang = self.gangs.setdefault(job, _Gang(number, at, name[0], priority))
        found = self.pods[name] = _Pod(job, devices)
        gang.pods.append(found)
        gang.wide += devices
        gang.widest = max(gang.widest, gang.wide)
        self.changed(name, at, pod)

    def changed(self, name: tuple[str, str], at: int, change: Document) -> None:
        """A pod has these fields now."""
        found = self.pods.get(name)
        if found is None:
            raise Unreadable(f"there is no pod {'/'.join(name)}")
        if found.bound is None and (change.get("spec") or {}).get("nodeName"):
            found.bound = at
        if found.ended is None and (change.get("status") or {}).get("phase") in _OVER:
            self._end(found, at)

    def gone(self, name: tuple[str, str], at: int) -> None:
        """A pod is not there any more."""
        found = self.pods.pop(name, None)
        if found is None:
            raise Unreadable(f"there is no pod {'/'.join(name)}")
        if found.ended is None:
            self._end(found, at)

    def _end(self, pod: _Pod, at: int) -> None:
        pod.ended = at
        self.gangs[pod.job].wide -= pod.devices


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
    made = {gang.document: (job, gang) for job, gang in recording.gangs.items()}
    trace = gathered(
        name, ((number, "job") for number in sorted(made)), lambda _, number: _job(*made[number])
    )
    told = sorted((*malformed, *trace.malformed), key=lambda each: each.line)
    return Trace(name, trace.jobs, tuple(told), trace.without)


def _documents(path: Path) -> Iterator[Any]:
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        _check_depth(path, text)
        yield from yaml.load_all(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{_line(error.problem_mark)}"
        raise UsageError(f"{where}: {error.problem}; accepted: {_ACCEPTED}") from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: {said}; accepted: {_ACCEPTED}") from None


def _check_depth(path: Path, text: bytes) -> None:
    """Refuse what is nested so deeply that taking it apart could end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                where = f"{path}:{_line(event.start_mark)}"
                raise UsageError(
                    f"{where}: nested more than {_DEEPEST} levels; accepted: {_ACCEPTED}"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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
    resource, target = _mapping(document, "resource"), _mapping(document, "target")
    if (resource.get("group") or "", resource.get("resource")) != ("", "pods"):
        return
    at, name = document.get("durationNanosecond"), _name(target)
    if type(at) is not int or not 0 <= at <= _LONGEST:
        raise Unreadable(f"durationNanosecond {shown(at)}; accepted: nanoseconds of 100 years")
    match document.get("method"):
        case "create":
            recording.made(number, at, _mapping(document, "template"))
        case "patch":
            recording.changed(name, at, _mapping(document, "template"))
        case "delete":
            recording.gone(name, at)
        case other:
            raise Unreadable(f"method {shown(other)}; accepted: create, patch, delete")


def _job(job: str, gang: _Gang) -> Job | None:
    if not gang.widest:
        return None
    if gang.widest > MOST_DEVICES:
        raise Unreadable(f"{shown(gang.widest)} devices; accepted: at most {MOST_DEVICES}")
    if any(pod.ended is None for pod in gang.pods):
        raise Unreadable("it has not ended when the recording does")
    work = sum(
        pod.devices * (pod.ended - pod.bound)
        for pod in gang.pods
        if pod.bound is not None and pod.ended is not None
    )
    if not work:
        raise Unreadable("it never had a node")
    duration = whole(work // gang.widest)
    return Job(job, gang.arrival, gang.widest, duration, "", gang.tenant, gang.priority)


def _job_of(metadata: Document, spec: Document) -> str:
    """Return what the job of a pod is called: its group, its controller, or itself."""
    namespace, name = _name(metadata)
    labels, annotations = (_texts(metadata, part) for part in ("labels", "annotations"))
    group = _texts(spec, "schedulingGroup").get("podGroupName") or gang_name(labels, annotations)
    if group:
        return bounded(f"{namespace}/{group}", LONGEST_NAME)
    for owner in metadata.get("ownerReferences") or ():
        if isinstance(owner, Mapping) and owner.get("controller"):
            return bounded(f"{namespace}/{owner.get('name')}", LONGEST_NAME)
    return bounded(f"{namespace}/{name}", LONGEST_NAME)


def _devices(spec: Document) -> int:
    return devices_of(plain_requests(msgspec.convert(spec, PodSpec)).items())


def _name(given: Document) -> tuple[str, str]:
    namespace, name = (str(given.get(part) or "") for part in ("namespace", "name"))
    return bounded(namespace, LONGEST_NAME), bounded(name, LONGEST_NAME)


def _mapping(given: Document, part: str) -> Document:
    found = given.get(part)
    if not isinstance(found, Mapping):
        raise Unreadable(f"{part} is no mapping")
    return found


def _texts(given: Document, part: str) -> dict[str, str]:
    found = given.get(part)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}

"""Objects of `kueue.x-k8s.io` between v1beta1 and v1beta2, as plain JSON.

Both ways everything but the fields below stays as it is, known or unknown, null, empty or absent:

    ClusterQueue  spec.cohort                                  spec.cohortName
                  spec.admissionChecks: [x]                 -> spec.admissionChecksStrategy
                  Borrow, Preempt of flavorFungibility      -> MayStopSearch
    LocalQueue    status.flavorUsage                           status.flavorsUsage
    Workload      spec.priorityClassSource, priorityClassName  spec.priorityClassRef
                  status.accumulatedPastExexcutionTimeSeconds  ...ExecutionTimeSeconds
                  topologyAssignment.domains                   topologyAssignment.slices

Arrows point one way: read back as v1beta1, it is stated in the newer words. What one version has no
field for is kept in an annotation of the object while it is in that version, so that a client of
v1beta1 that writes back what it read loses nothing of v1beta2; the reference keeps no copy. What
only v1beta1's status had is dropped, as there: no client has written it for long. An annotation
that states nothing that could have been kept is dropped, too, since any client that may write the
object may have written it.

Source: specification of the quota plane, section 1.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeworld.units.untrusted import Unreadable, read_json
from reprieve.api.kueue import API_VERSION, OLD_API_VERSION

__all__ = ["KEPT", "TooManyDomains", "UnknownVersion", "bound_conversions", "convert"]

Json = dict[str, Any]

# What the version at hand has no field for, as a JSON object.
KEPT: Final = "reprieve.dev/kept-fields"
_LONGEST: Final = 256 * 1024  # all that the API accepts of annotations

_SOURCES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_REFERENCES: Final = {reference: source for source, reference in _SOURCES.items()}
_OLD_WORDS: Final = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
_OLD_SECONDS: Final = "accumulatedPastExexcutionTimeSeconds"
_SECONDS: Final = "accumulatedPastExecutionTimeSeconds"
_CONSTRAINTS: Final = "podsetSliceRequiredTopologyConstraints"

# What is stated once for many domains is written out for each: levels, as the schema has it, and
# characters of all objects of a review, of which etcd would not store so many in one.
_MOST_LEVELS: Final = 16
_MOST_CHARACTERS: Final = 4 * 2**20


class _Gate(msgspec.Struct, rename="camel"):
    name: str = ""
    position: str = ""
    last_transition_time: str | None = None


#: What may stand in the annotation, and in which form.
_FORMS: Final[Mapping[str, Any]] = {
    "concurrentAdmissionPolicy": dict[str, Any],
    "constraints": dict[str, list[dict[str, Any]]],
    "priorityClassName": str,
    "specGates": list[_Gate],
    "statusGates": list[_Gate],
}


class UnknownVersion(ValueError):
    """An object is requested in a version that is not served."""


class TooManyDomains(ValueError):
    """A topology assignment would be longer, written out, than an object can be."""


def convert(obj: Mapping[str, Any], version: str) -> Json:
    """Return a copy of `obj` in `version`, an apiVersion; `obj` stays as it is.

    Raises:
        UnknownVersion: either version is none of v1beta1 and v1beta2.
        TooManyDomains: it has too many levels; `bound_conversions` refuses the rest.
    """
    for each in (obj.get("apiVersion"), version):
        if each not in (API_VERSION, OLD_API_VERSION):
            known = f"{OLD_API_VERSION}, {API_VERSION}"
            raise UnknownVersion(f"{each} is not served; accepted: {known}")
    copy: Json = _copied(obj)
    if obj["apiVersion"] == version:
        return copy
    copy["apiVersion"] = version
    steps = _NEWER if version == API_VERSION else _OLDER
    step = steps.get(str(obj.get("kind")))
    if step is not None:
        kept: Json = {}
        step(copy, _popped(copy), kept)
        _keep(copy, kept)
    return copy


def bound_conversions(objects: list[Any], version: str) -> None:
    """Refuse objects that would be too long, all in all, in `version`.

    Raises:
        TooManyDomains: of Workloads.
    """
    characters = 0
    for obj in objects if version == OLD_API_VERSION else ():
        if isinstance(obj, dict):
            for assignment in _list(_part(obj, "status", "admission"), "podSetAssignments"):
                characters += _written_out(_list(_part(assignment, "topologyAssignment"), "slices"))
    if characters > _MOST_CHARACTERS:
        raise TooManyDomains(
            f"topology assignments of more than {_MOST_CHARACTERS} characters as v1beta1"
        )


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _part(obj: Json, *path: str) -> Json:
    """Return the object at `path`; one of its own where there is none, which changes nothing."""
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _list(obj: Json, name: str) -> list[Json]:
    found = obj.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _rename(part: Json, old: str, new: str) -> None:
    """Rename a field in its place, so that nothing else moves."""
    if old in part:
        items = [(new if key == old else key, value) for key, value in part.items() if key != new]
        part.clear()
        part.update(items)


def _popped(obj: Json) -> Json:
    """Return what was kept for the version to come, and remove the annotation."""
    metadata = _part(obj, "metadata")
    annotations = _part(metadata, "annotations")
    text = annotations.pop(KEPT, None)
    if text is None:
        return {}
    if not annotations:
        del metadata["annotations"]
    try:
        found = read_json(text, _LONGEST) if isinstance(text, str) else None
    except Unreadable:
        return {}
    kept = found if isinstance(found, dict) else {}
    return {name: value for name, value in kept.items() if _fits(name, value)}


def _fits(name: str, value: Any) -> bool:
    """Whether a field may come back: readers of the object expect it in this form."""
    try:
        msgspec.convert(value, _FORMS[name])
    except (KeyError, msgspec.ValidationError):
        return False
    return True


def _keep(obj: Json, kept: Json) -> None:
    if not kept or not isinstance(obj.get("metadata"), dict):
        return
    metadata = obj["metadata"]
    if not isinstance(metadata.get("annotations"), dict):
        metadata["annotations"] = {}
    metadata["annotations"][KEPT] = json.dumps(kept, separators=(",", ":"), sort_keys=True)


def _newer_cluster_queue(obj: Json, chosen: Json, kept: Json) -> None:
    spec = _part(obj, "spec")
    _rename(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
    fungibility = _part(spec, "flavorFungibility")
    for name in ("whenCanBorrow", "whenCanPreempt"):
        word = fungibility.get(name)
        if isinstance(word, str):
            fungibility[name] = _OLD_WORDS.get(word, word)
    status = _part(obj, "status")
    status.pop("pendingWorkloadsStatus", None)
    _newer_share(obj, chosen, kept)
    if "concurrentAdmissionPolicy" in chosen and isinstance(obj.get("spec"), dict):
        spec["concurrentAdmissionPolicy"] = chosen["concurrentAdmissionPolicy"]


def _older_cluster_queue(obj: Json, chosen: Json, kept: Json) -> None:
    spec = _part(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    if "concurrentAdmissionPolicy" in spec:
        kept["concurrentAdmissionPolicy"] = spec.pop("concurrentAdmissionPolicy")


def _newer_share(obj: Json, chosen: Json, kept: Json) -> None:
    _part(obj, "status", "fairSharing").pop("admissionFairSharingStatus", None)


def _newer_local_queue(obj: Json, chosen: Json, kept: Json) -> None:
    status = _part(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)


def _older_local_queue(obj: Json, chosen: Json, kept: Json) -> None:
    _rename(_part(obj, "status"), "flavorsUsage", "flavorUsage")


def _newer_workload(obj: Json, chosen: Json, kept: Json) -> None:
    spec, status = _part(obj, "spec"), _part(obj, "status")
    source, name = spec.pop("priorityClassSource", ""), spec.pop("priorityClassName", None)
    if isinstance(source, str) and source in _SOURCES and name:
        group, kind = _SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    elif name:
        kept["priorityClassName"] = name
    _rename(status, _OLD_SECONDS, _SECONDS)
    for assignment in _list(_part(status, "admission"), "podSetAssignments"):
        topology = _part(assignment, "topologyAssignment")
        if "domains" in topology:
            domains = _list(topology, "domains")
            del topology["domains"]
            topology["slices"] = _slices(topology.get("levels"), domains)
    for part, name in ((spec, "specGates"), (status, "statusGates")):
        if name in chosen and isinstance(obj.get(name.removesuffix("Gates")), dict):
            part["preemptionGates"] = chosen[name]
    constraints = _part(chosen, "constraints")
    for pod_set in _list(spec, "podSets"):
        name = str(pod_set.get("name", "main"))
        if name in constraints:
            request = pod_set.setdefault("topologyRequest", {})
            if isinstance(request, dict):
                request[_CONSTRAINTS] = constraints[name]


def _older_workload(obj: Json, chosen: Json, kept: Json) -> None:
    spec, status = _part(obj, "spec"), _part(obj, "status")
    reference = spec.get("priorityClassRef")
    if isinstance(reference, dict):
        source = _REFERENCES.get((str(reference.get("group")), str(reference.get("kind"))))
        if source is not None:
            del spec["priorityClassRef"]
            spec["priorityClassSource"] = source
            spec["priorityClassName"] = reference.get("name", "")
    elif "priorityClassName" in chosen and isinstance(obj.get("spec"), dict):
        spec["priorityClassName"] = chosen["priorityClassName"]
        # Its own rule wants a priority beside a name.
        spec.setdefault("priority", 0)
    _rename(status, _SECONDS, _OLD_SECONDS)
    for assignment in _list(_part(status, "admission"), "podSetAssignments"):
        topology = _part(assignment, "topologyAssignment")
        if "slices" in topology:
            slices = _list(topology, "slices")
            del topology["slices"]
            topology["domains"] = [each for piece in slices for each in _domains(piece)]
    for part, name in ((spec, "specGates"), (status, "statusGates")):
        if "preemptionGates" in part:
            kept[name] = part.pop("preemptionGates")
    constraints = {
        str(pod_set.get("name", "main")): pod_set["topologyRequest"].pop(_CONSTRAINTS)
        for pod_set in _list(spec, "podSets")
        if _CONSTRAINTS in _part(pod_set, "topologyRequest")
    }
    if constraints:
        kept["constraints"] = constraints


def _slices(levels: Any, domains: list[Json]) -> list[Json]:
    """Return domains as one slice: per level what values have in common is stated once."""
    if not domains:
        return []
    depth = len(levels) if isinstance(levels, list) else 0
    if depth > _MOST_LEVELS:
        raise TooManyDomains(f"{depth} levels of topology; accepted: {_MOST_LEVELS}")
    values = [
        [
            str(each["values"][level]) if level < len(each.get("values") or ()) else ""
            for each in domains
        ]
        for level in range(depth)
    ]
    counts = [each.get("count", 0) for each in domains]
    made: Json = {
        "domainCount": len(domains),
        "valuesPerLevel": [_level_values(each) for each in values],
    }
    same = len(set(counts)) == 1
    made["podCounts"] = {"universal": counts[0]} if same else {"individual": counts}
    return [made]


def _level_values(values: list[str]) -> Json:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common(values)
    rest = [value[len(prefix) :] for value in values]
    suffix = _common([value[::-1] for value in rest])[::-1]
    made: Json = {"roots": [value[: len(value) - len(suffix)] for value in rest]}
    if prefix:
        made["prefix"] = prefix
    if suffix:
        made["suffix"] = suffix
    return {"individual": made}


def _common(values: list[str]) -> str:
    first, last = min(values), max(values)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if length is None else length]


def _written_out(slices: list[Json]) -> int:
    """Return how many characters slices have domain by domain, without writing them out."""
    characters = 0
    for piece in slices:
        count = piece.get("domainCount", 0)
        levels = _list(piece, "valuesPerLevel")
        if not isinstance(count, int) or len(levels) > _MOST_LEVELS:
            raise TooManyDomains("a slice of a topology assignment that cannot be written out")
        # Quotes, names of fields and the number of pods; then what all values begin and end with.
        shared = sum(
            len(str(part.get(name, "")))
            for level in levels
            for part, name in (
                (level, "universal"),
                (_part(level, "individual"), "prefix"),
                (_part(level, "individual"), "suffix"),
            )
        )
        characters += max(count, 0) * (24 + shared)
    return characters


def _domains(piece: Json) -> list[Json]:
    count = piece.get("domainCount", 0)
    columns = []
    for level in _list(piece, "valuesPerLevel"):
        if "universal" in level:
            columns.append([level["universal"]] * count)
            continue
        each = _part(level, "individual")
        roots = [*(each.get("roots") or ()), *[""] * count][:count]
        prefix, suffix = each.get("prefix", ""), each.get("suffix", "")
        columns.append([f"{prefix}{root}{suffix}" for root in roots])
    reported = _part(piece, "podCounts")
    pods = reported.get("individual") or [reported.get("universal", 0)] * count
    pods = [*pods, *[0] * count][:count]
    return [
        {"values": [column[index] for column in columns], "count": pods[index]}
        for index in range(count)
    ]


_Step = Callable[[Json, Json, Json], None]
_NEWER: Final[Mapping[str, _Step]] = {
    "ClusterQueue": _newer_cluster_queue,
    "Cohort": _newer_share,
    "LocalQueue": _newer_local_queue,
    "Workload": _newer_workload,
}
_OLDER: Final[Mapping[str, _Step]] = {
    "ClusterQueue": _older_cluster_queue,
    "LocalQueue": _older_local_queue,
    "Workload": _older_workload,
}

"""What starting and stopping change in a job: the suspend field, and what its pods get.

What admission injects: node labels and tolerations of the flavors, what checks requested, and a
lower count. Stopping restores labels, annotations, node selector, tolerations and gates as the
Workload has them. Where the pods get it depends on the kind: in the template, beside it, in a list
of the component that wraps it, or in a patch of the runtime. All functions return a changed copy.
Source: specification of the quota plane, sections 10.1 to 10.3.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.objects.paths import Json, first, set_at, values
from reprieve.jobs.model import Components, JobKind, Runtime
from reprieve.jobs.pod_sets import Found, found_pod_sets
from reprieve.jobs.pods import TOPOLOGY_GATE
from reprieve.jobs.training import MANAGER, patch_of

__all__ = [
    "WORKLOAD",
    "Conflicting",
    "Injection",
    "injected_runtime",
    "is_injected",
    "is_restored",
    "restored",
    "started",
    "stopped",
    "ungated",
]

#: Annotation of pods: the Workload that they run for.
WORKLOAD: Final = "kueue.x-k8s.io/workload"
_SPEC: Final = ("nodeSelector", "tolerations", "schedulingGates")
_METADATA: Final = ("labels", "annotations")


class Conflicting(ValueError):
    """A flavor or a check requests a label that the pods have with another value."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What the pods of one pod set get; `count` None leaves the number as it is.

    `gates` are scheduling gates that hold a pod back until it has a place.
    """

    count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    gates: Sequence[str] = ()

    def as_json(self) -> Json:
        """Return all of it in one object, without what is empty."""
        said: Json = {
            "annotations": dict(self.annotations),
            "labels": dict(self.labels),
            "nodeSelector": dict(self.node_selector),
            "schedulingGates": [{"name": name} for name in self.gates],
            "tolerations": list(self.tolerations),
        }
        return {name: value for name, value in said.items() if value}


def started(kind: JobKind, job: Json, injected: Mapping[str, Injection]) -> Json:
    """Return the job as it runs; `injected` is by name of the pod set.

    Raises:
        Conflicting: an injected value contradicts one that is there.
    """
    changed = copy.deepcopy(job)
    set_at(changed, kind.suspend, False)
    if kind.components is not None:
        _report_components(kind, kind.components, changed, injected)
    elif kind.runtime is not None:
        changed = injected_runtime(kind.runtime, changed, injected)
    else:
        for found in found_pod_sets(kind, changed):
            injection = injected.get(found.name)
            if injection is None:
                continue
            spec, metadata = _places(found)
            _inject(spec, metadata, injection)
            if found.min_count is not None and injection.count is not None:
                _set_count(kind, changed, injection.count)
    return changed


def injected_runtime(runtime: Runtime, job: Json, injected: Mapping[str, Injection]) -> Json:
    """Return the job with our patch of its runtime; nothing to set is an empty patch."""
    changed = copy.deepcopy(job)
    parts = {}
    for name, injection in injected.items():
        said = injection.as_json()
        parts[name] = {
            part: inner
            for part, names in (("metadata", _METADATA), ("spec", _SPEC))
            if (inner := {key: said[key] for key in names if key in said})
        }
    patch = patch_of(parts)
    patches = [dict(each) for each in first(changed, runtime.patches) or ()]
    for index, each in enumerate(patches):
        if each.get("manager") == MANAGER:
            patches[index] = patch
            break
    else:
        patches.append(patch)
    set_at(changed, runtime.patches, patches)
    return changed


def ungated(pod: Json, gate: str, injection: Injection) -> Json:
    """Return a pod that may be scheduled.

    Raises:
        Conflicting: an injected value contradicts one that is there.
    """
    changed = copy.deepcopy(pod)
    spec, metadata = changed["spec"], changed["metadata"]
    gates = [
        each
        for each in spec.get("schedulingGates") or ()
        if each.get("name") != gate
        and (each.get("name") != TOPOLOGY_GATE or TOPOLOGY_GATE in injection.gates)
    ]
    spec.pop("schedulingGates", None)
    if gates:
        spec["schedulingGates"] = gates
    _inject(spec, metadata, injection)
    return changed


def stopped(kind: JobKind, job: Json) -> Json:
    """Return the job with its suspend field set, whatever began to stop it."""
    changed = copy.deepcopy(job)
    set_at(changed, kind.suspend, True)
    if kind.stopping:
        (first(changed, "metadata.annotations") or {}).pop(kind.stopping, None)
    return changed


def restored(kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> Json:
    """Return the job with what its pods get, and the count, of its Workload's pod sets."""
    changed = copy.deepcopy(job)
    if kind.components is not None:
        for component in values(changed, f"{kind.components.each}.*"):
            component.pop(kind.components.injected, None)
        return changed
    if kind.runtime is not None:
        return injected_runtime(kind.runtime, changed, {})
    given = {each["name"]: each for each in pod_sets}
    for found in found_pod_sets(kind, changed):
        pod_set = given.get(found.name)
        if pod_set is None:
            continue
        spec, metadata = _places(found)
        template = pod_set["template"]
        kept = {
            name: value
            for name, value in (metadata.get("labels") or {}).items()
            if name in kind.dropped_labels
        }
        _replace(spec, template.get("spec") or {}, _SPEC)
        _replace(metadata, template.get("metadata") or {}, _METADATA)
        if kept:
            metadata["labels"] = {**(metadata.get("labels") or {}), **kept}
        if found.flat is None and not metadata:
            found.template.pop("metadata", None)
        if kind.min_count and pod_set.get("minCount") is not None:
            _set_count(kind, changed, pod_set["count"])
    return changed


def is_injected(kind: JobKind, job: Json) -> bool:
    """Return whether the job's pods still get what an earlier start set."""
    if kind.components is not None:
        path = f"{kind.components.each}.*.{kind.components.injected}"
        return any(bool(each) for each in values(job, path))
    if kind.runtime is not None:
        return any(
            each.get("manager") == MANAGER and "trainingRuntimeSpec" in each
            for each in first(job, kind.runtime.patches) or ()
        )
    return any(
        WORKLOAD in (first(each.flat or each.template.get("metadata") or {}, "annotations") or {})
        for each in found_pod_sets(kind, job)
    )


def is_restored(kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> bool:
    """Return whether nothing of an earlier start is left in the job."""
    return restored(kind, job, pod_sets) == job


def _report_components(
    kind: JobKind, components: Components, job: Json, injected: Mapping[str, Injection]
) -> None:
    """Write what pods get into their components, in the order of the pod sets."""
    names = iter(found_pod_sets(kind, job))
    for component in values(job, f"{components.each}.*"):
        alone = {**job, "spec": {components.each.rpartition(".")[2]: [component]}}
        infos = []
        for _ in found_pod_sets(kind, alone):
            injection = injected.get(next(names).name)
            infos.append({} if injection is None else injection.as_json())
        if infos:
            component[components.injected] = infos


def _places(found: Found) -> tuple[Json, Json]:
    """Return where the pods' spec and their metadata stand."""
    if found.flat is not None:
        return found.flat, found.flat
    return found.template.setdefault("spec", {}), found.template.setdefault("metadata", {})


def _inject(spec: Json, metadata: Json, injection: Injection) -> None:
    _merge(spec, "nodeSelector", injection.node_selector)
    _merge(metadata, "labels", injection.labels)
    _merge(metadata, "annotations", injection.annotations)
    gates = [*(spec.get("schedulingGates") or ())]
    names = {each.get("name") for each in gates}
    gates += [{"name": name} for name in injection.gates if name not in names]
    if gates:
        spec["schedulingGates"] = gates
    have = spec.get("tolerations") or []
    more = [each for each in injection.tolerations if each not in have]
    if more:
        spec["tolerations"] = [*have, *more]


def _merge(obj: Json, name: str, more: Mapping[str, str]) -> None:
    have: dict[str, Any] = dict(obj.get(name) or {})
    for key, value in more.items():
        if have.setdefault(key, value) != value:
            raise Conflicting(
                f"invalid admission check PodSetUpdate: conflict for {name}: conflict for "
                f"key={key}, value1={have[key]}, value2={value}"
            )
    if have:
        obj[name] = have


def _replace(obj: Json, wanted: Json, names: Sequence[str]) -> None:
    for name in names:
        if wanted.get(name):
            obj[name] = copy.deepcopy(wanted[name])
        else:
            obj.pop(name, None)


def _set_count(kind: JobKind, job: Json, count: int) -> None:
    spec = job["spec"]
    annotations = job["metadata"].get("annotations") or {}
    spec["parallelism"] = count
    if annotations.get(kind.equal_count) == "true":
        spec["completions"] = count

"""What starting and stopping change in a job: the suspend field, and what its pods are told.

What admission injects: node labels and tolerations of the flavors, what checks asked for, and a
lower count. Stopping puts the templates back as the Workload has them. All functions return a
changed copy. Source: specification of the quota plane, sections 10.1 and 10.3.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprieve.jobs.model import JobKind
from reprieve.jobs.paths import Json, put
from reprieve.jobs.reading import found_pod_sets, stripped

__all__ = ["Conflicting", "Injection", "is_restored", "restored", "started", "stopped"]


class Conflicting(ValueError):
    """A flavor or a check asks for a label that the pods have with another value."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What the pods of one pod set are told; `count` None leaves the number as it is."""

    count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def started(kind: JobKind, job: Json, told: Mapping[str, Injection]) -> Json:
    """Return the job as it runs; `told` is by name of the pod set.

    Raises:
        Conflicting: an injected value contradicts one that is there.
    """
    changed = copy.deepcopy(job)
    put(changed, kind.suspend, False)
    for found in found_pod_sets(kind, changed):
        injection = told.get(found.name)
        if injection is None:
            continue
        spec = found.template.setdefault("spec", {})
        metadata = found.template.setdefault("metadata", {})
        _merge(spec, "nodeSelector", injection.node_selector)
        _merge(metadata, "labels", injection.labels)
        _merge(metadata, "annotations", injection.annotations)
        have = spec.get("tolerations") or []
        more = [each for each in injection.tolerations if each not in have]
        if more:
            spec["tolerations"] = [*have, *more]
        if found.min_count is not None and injection.count is not None:
            _set_count(kind, changed, injection.count)
    return changed


def stopped(kind: JobKind, job: Json) -> Json:
    """Return the job with its suspend field set."""
    changed = copy.deepcopy(job)
    put(changed, kind.suspend, True)
    return changed


def restored(kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> Json:
    """Return the job with the templates and the count of its Workload's pod sets."""
    changed = copy.deepcopy(job)
    given = {each["name"]: each for each in pod_sets}
    for found in found_pod_sets(kind, changed):
        pod_set = given.get(found.name)
        if pod_set is None:
            continue
        wanted = copy.deepcopy(pod_set["template"])
        kept = {
            name: value
            for name, value in ((found.template.get("metadata") or {}).get("labels") or {}).items()
            if name in kind.dropped_labels
        }
        if kept:
            wanted.setdefault("metadata", {}).setdefault("labels", {}).update(kept)
        found.template.clear()
        found.template.update(wanted)
        if kind.min_count and pod_set.get("minCount") is not None:
            _set_count(kind, changed, pod_set["count"])
    return changed


def is_restored(kind: JobKind, job: Json, pod_sets: Sequence[Json]) -> bool:
    """Tell whether nothing of an earlier start is left in the job."""
    given = {each["name"]: each for each in pod_sets}
    for found in found_pod_sets(kind, job):
        pod_set = given.get(found.name)
        if pod_set is None:
            continue
        have, wanted = stripped(kind, found.template), stripped(kind, pod_set["template"])
        if _injected(have) != _injected(wanted):
            return False
        if kind.min_count and pod_set.get("minCount") and found.count != pod_set["count"]:
            return False
    return True


def _injected(template: Json) -> list[object]:
    """Return what a start may have changed."""
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    return [
        spec.get("nodeSelector") or {},
        spec.get("tolerations") or [],
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
    ]


def _merge(obj: Json, name: str, more: Mapping[str, str]) -> None:
    have: dict[str, Any] = dict(obj.get(name) or {})
    for key, value in more.items():
        if have.setdefault(key, value) != value:
            raise Conflicting(f"{name} {key} is {have[key]!r} and should be {value!r}")
    if have:
        obj[name] = have


def _set_count(kind: JobKind, job: Json, count: int) -> None:
    spec = job["spec"]
    annotations = job["metadata"].get("annotations") or {}
    spec["parallelism"] = count
    if annotations.get(kind.equal_count) == "true":
        spec["completions"] = count

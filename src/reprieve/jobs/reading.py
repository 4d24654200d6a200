"""What a job says, by its row of the table.

Source: specification of the quota plane, sections 10.1 to 10.3.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprieve.jobs.model import JobKind, PodSetSource, Test
from reprieve.jobs.paths import Json, first, total, values

__all__ = [
    "End",
    "Found",
    "digest",
    "end",
    "found_pod_sets",
    "holds",
    "is_active",
    "is_ready",
    "is_suspended",
    "pod_count",
    "reclaimable",
    "stripped",
]


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class Found:
    """Pods of one shape: `template` is the one in the object itself, not a copy."""

    name: str
    count: int
    template: Json
    min_count: int | None = None


def is_suspended(kind: JobKind, job: Json) -> bool:
    """Tell whether the job is stopped, or about to be."""
    return first(job, kind.suspend) is True


def is_active(kind: JobKind, job: Json) -> bool:
    """Tell whether the job still has pods."""
    return any(holds(test, job) for test in kind.active)


def is_ready(kind: JobKind, job: Json) -> bool:
    """Tell whether all pods are ready or have succeeded."""
    return any(holds(test, job, pod_count(kind, job)) for test in kind.ready)


def end(kind: JobKind, job: Json) -> End | None:
    """Return how the job ended, None while it has not."""
    for succeeded, tests in ((True, kind.succeeded), (False, kind.failed)):
        for test in tests:
            if holds(test, job):
                return End(succeeded, _message(kind, test, job))
    return None


def found_pod_sets(kind: JobKind, job: Json) -> list[Found]:
    """Return the pods that the job describes."""
    found = []
    for source in kind.pod_sets:
        for item in values(job, f"{source.each}.*") if source.each else (job,):
            template = first(item, source.template)
            if isinstance(template, dict):
                name = first(item, source.name_from) if source.name_from else source.name
                found.append(
                    Found(str(name or source.name).lower(), _count(source, item), template)
                )
    annotations = first(job, "metadata.annotations") or {}
    least = annotations.get(kind.min_count, "") if kind.min_count else ""
    if least.isdigit() and found and int(least) < found[0].count:
        found[0] = Found(found[0].name, found[0].count, found[0].template, int(least))
    return found


def pod_count(kind: JobKind, job: Json) -> int:
    """Return the number of pods that the job describes."""
    return sum(each.count for each in found_pod_sets(kind, job))


def holds(test: Test, job: Json, pods: int = 0) -> bool:
    """Tell whether every part of a test holds; `pods` is what counts are to reach."""
    if test.condition:
        condition = _condition(job, test.condition)
        if condition is None or condition.get("status") != "True":
            return False
    if test.field:
        value = first(job, test.field)
        text = "" if value is None else str(value)
        if (test.values and text not in test.values) or (test.without and text in test.without):
            return False
    if test.positive and not any(total(job, path) > 0 for path in test.positive):
        return False
    if test.reaches is not None:
        wanted = sum(total(job, path) for path in test.reaches.of) if test.reaches.of else pods
        if sum(total(job, path) for path in test.reaches.sum) < wanted:
            return False
    return True


def reclaimable(kind: JobKind, job: Json) -> int:
    """Return how many pods of the first pod set will not be started any more.

    For kinds whose pods run up to `parallelism` at a time until `completions` have succeeded.
    """
    parallelism, completions = first(job, "spec.parallelism"), first(job, "spec.completions")
    if not kind.min_count or not isinstance(parallelism, int) or not isinstance(completions, int):
        return 0
    done = total(job, "status.succeeded")
    if first(job, "spec.completionMode") == "Indexed":
        done = len(
            {
                index
                for path in ("status.completedIndexes", "status.failedIndexes")
                for index in _indexes(str(first(job, path) or ""))
                if index < completions
            }
        )
    left = completions - done
    return parallelism - left if parallelism > 1 and done > 0 and left < parallelism else 0


def digest(pod_sets: Sequence[Json]) -> str:
    """Return what tells a changed job from the one that a Workload was made of."""
    said = [
        (
            each.get("count"),
            each.get("minCount"),
            (each["template"].get("spec") or {}).get("containers"),
            (each["template"].get("spec") or {}).get("initContainers"),
        )
        for each in pod_sets
    ]
    text = json.dumps(said, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def stripped(kind: JobKind, template: Json) -> Json:
    """Return a copy of a template as a Workload has it, without its controller's own labels."""
    kept = copy.deepcopy(template)
    metadata = kept.get("metadata") or {}
    metadata.pop("creationTimestamp", None)
    labels = metadata.get("labels")
    for name in kind.dropped_labels:
        if labels is not None:
            labels.pop(name, None)
    if labels is not None and not labels:
        del metadata["labels"]
    return kept


def _count(source: PodSetSource, item: Json) -> int:
    def factor(paths: list[str]) -> int:
        given = [value for path in paths if isinstance(value := first(item, path), int)]
        return min(given, default=source.default)

    return math.prod(factor(paths) for paths in source.counts)


def _indexes(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        start, _, end = part.partition("-")
        yield from range(int(start), int(end or start) + 1)


def _message(kind: JobKind, test: Test, job: Json) -> str:
    if test.condition:
        condition = _condition(job, test.condition) or {}
        return str(condition.get("message") or "")
    return str(first(job, kind.message) or "") if kind.message else ""


def _condition(job: Json, name: str) -> Json | None:
    for condition in first(job, "status.conditions") or ():
        if condition.get("type") == name:
            return dict(condition)
    return None

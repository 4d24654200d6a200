"""What a job states, by its row of the table: stopped, active, ready, over, needed no more.

Source: specification of the quota plane, sections 10.1 to 10.3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubeworld.objects.paths import Json, first, total, values
from kubeworld.objects.pods import is_over
from kubeworld.units.untrusted import Unreadable, read_integer
from reprieve.jobs.evaluation import condition_of, holds
from reprieve.jobs.model import JobKind, Test
from reprieve.jobs.pod_sets import found_pod_sets, pod_count
from reprieve.jobs.pods import is_gated

__all__ = [
    "End",
    "digest",
    "end",
    "is_active",
    "is_managed",
    "is_on_hold",
    "is_ready",
    "is_suspended",
    "reclaimable",
]


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended."""

    succeeded: bool
    message: str


def is_suspended(kind: JobKind, job: Json) -> bool:
    """Return whether the job is stopped, or about to be; pods that are over count as stopped."""
    if kind.gate:
        return is_gated(job, kind.gate) or is_over(job)
    if not kind.suspend or first(job, kind.suspend) is not True:
        return False
    annotations = first(job, "metadata.annotations") or {}
    return not kind.stopping or annotations.get(kind.stopping) != "true"


def is_active(kind: JobKind, job: Json) -> bool:
    """Return whether the job still has pods."""
    return any(holds(test, job) for test in kind.active)


def is_ready(kind: JobKind, job: Json) -> bool:
    """Return whether all pods are ready or have succeeded."""
    return any(holds(test, job, pod_count(kind, job)) for test in kind.ready)


def is_on_hold(kind: JobKind, job: Json) -> bool:
    """Return whether the job will not start, and needs no quota."""
    return any(holds(test, job) for test in kind.on_hold)


def is_managed(kind: JobKind, job: Json) -> bool:
    """Return whether a job of the kind can be queued at all."""
    return not any(holds(test, job) for test in kind.unmanaged)


def end(kind: JobKind, job: Json) -> End | None:
    """Return how the job ended, None while it has not."""
    for succeeded, tests in ((True, kind.succeeded), (False, kind.failed)):
        for test in tests:
            if holds(test, job):
                return End(succeeded, _message(kind, test, job))
    return None


def reclaimable(
    kind: JobKind, job: Json, counts: Mapping[str, int] | None = None
) -> list[tuple[str, int]]:
    """Return how many pods of each pod set will not be started any more, where there are some.

    Kinds whose pods run up to `parallelism` at a time need fewer at the end; others state how many
    replicas have succeeded.

    Args:
        kind: of the job.
        job: as JSON.
        counts: pods of each pod set in its Workload. A job that was admitted with fewer pods has a
            lower `parallelism`, and what it does not start any more is counted from the Workload's.
    """
    found = found_pod_sets(kind, job)
    if kind.min_count and found:
        name = found[0].name
        surplus = _surplus(job, (counts or {}).get(name, 0))
        return [(name, surplus)] if surplus else []
    if kind.progress is None:
        return []
    done = {
        str(first(item, kind.progress.name)).lower(): total(item, kind.progress.succeeded)
        for item in values(job, f"{kind.progress.each}.*")
    }
    return [
        (each.name, min(each.count, done[each.name] * each.each))
        for each in found
        if done.get(each.name, 0) > 0
    ]


def digest(pod_sets: Sequence[Json], *, tolerations: bool = False) -> str:
    """Return what separates a changed job from the one that a Workload was made of.

    Args:
        pod_sets: as JSON.
        tolerations: count too; not for a job that runs, since admission adds some.
    """
    said: list[object] = []
    for each in pod_sets:
        spec = each["template"].get("spec") or {}
        said.append(
            (
                each.get("count"),
                each.get("minCount"),
                spec.get("containers"),
                spec.get("initContainers") or None,
                (spec.get("tolerations") or []) if tolerations else None,
            )
        )
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _surplus(job: Json, count: int) -> int:
    parallelism, completions = first(job, "spec.parallelism"), first(job, "spec.completions")
    if not isinstance(parallelism, int) or not isinstance(completions, int):
        return 0
    done = total(job, "status.succeeded")
    if first(job, "spec.completionMode") == "Indexed":
        done = _covered(
            (
                each
                for path in ("status.completedIndexes", "status.failedIndexes")
                for each in _ranges(str(first(job, path) or ""))
            ),
            completions,
        )
    left = completions - done
    if parallelism <= 1 or done <= 0 or left >= parallelism:
        return 0
    return max(count, parallelism) - left


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a list such as `0-3,7`: first and last; what is none is left out."""
    for part in filter(None, text.split(",")):
        start, _, end = part.partition("-")
        try:
            yield read_integer(start), read_integer(end or start)
        except Unreadable:
            continue


def _covered(ranges: Iterable[tuple[int, int]], below: int) -> int:
    """Return how many whole numbers from 0 to `below` are in at least one of the ranges."""
    found, reached = 0, 0
    for start, end in sorted(ranges):
        after = min(end + 1, below)
        found += max(0, after - max(start, reached))
        reached = max(reached, after)
    return found


def _message(kind: JobKind, test: Test, job: Json) -> str:
    if test.message:
        return test.message
    if test.condition:
        condition = condition_of(job, test.condition) or {}
        return str(condition.get("message") or "")
    return str(first(job, kind.message) or "") if kind.message else ""

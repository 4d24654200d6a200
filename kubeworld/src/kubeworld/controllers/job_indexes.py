"""Completion indexes of Indexed Jobs: who has which, which are done, how the status writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from kubeworld.controllers.acts import Object
from kubeworld.controllers.job_failures import judge
from kubeworld.objects.pods import is_active
from kubeworld.units.untrusted import integer_or_none

__all__ = [
    "FAILURES",
    "INDEX",
    "completed_indexes",
    "failed_indexes",
    "failures_so_far",
    "format_ranges",
    "free_indexes",
    "met_rule",
    "parse_ranges",
]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod."""
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: how often its index had failed before."""


def completed_indexes(status: dict[str, Any], pods: Iterable[Object]) -> set[int]:
    """Return what the status states is done and what has succeeded since."""
    done = parse_ranges(status.get("completedIndexes", ""))
    for pod in pods:
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            done |= _index(pod)
    return done


def free_indexes(
    spec: dict[str, Any], status: dict[str, Any], pods: Sequence[Object], most: int
) -> list[int]:
    """Return up to `most` indexes that are neither done, failed nor worked on, lowest first."""
    chosen = completed_indexes(status, pods) | failed_indexes(spec, status, pods)
    for pod in pods:
        if is_active(pod):
            chosen |= _index(pod)
    free = (index for index in range(spec.get("completions") or 0) if index not in chosen)
    return list(islice(free, most))


def failed_indexes(
    spec: dict[str, Any], status: dict[str, Any], pods: Sequence[Object]
) -> set[int]:
    """Return the indexes that may not be tried again: over their limit, or failed by the policy."""
    limit, failed = (
        spec.get("backoffLimitPerIndex"),
        parse_ranges(status.get("failedIndexes") or ""),
    )
    if limit is None:
        return failed
    for pod in pods:
        if (pod.get("status") or {}).get("phase") == "Failed":
            action, _ = judge(spec.get("podFailurePolicy"), pod)
            if action == "FailIndex" or (action == "Count" and _failures(pod) >= limit):
                failed |= _index(pod)
    return failed - completed_indexes(status, pods)


def failures_so_far(index: int, spec: dict[str, Any], pods: Sequence[Object]) -> int:
    """Return how often pods of this index have failed, as far as that counts."""
    counts = [
        _failures(pod) + (judge(spec.get("podFailurePolicy"), pod)[0] != "Ignore")
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Failed" and index in _index(pod)
    ]
    return max(counts, default=0)


def met_rule(policy: dict[str, Any] | None, completed: set[int]) -> int | None:
    """Return the place of the first rule of a successPolicy that the done indexes meet."""
    for place, rule in enumerate((policy or {}).get("rules") or ()):
        among = completed
        if rule.get("succeededIndexes") is not None:
            asked = parse_ranges(rule["succeededIndexes"])
            among = completed & asked
            if rule.get("succeededCount") is None and among == asked:
                return place
        if rule.get("succeededCount") is not None and len(among) >= rule["succeededCount"]:
            return place
    return None


def _failures(pod: Object) -> int:
    return integer_or_none((pod["metadata"].get("annotations") or {}).get(FAILURES), least=0) or 0


def _index(pod: Object) -> set[int]:
    index = integer_or_none((pod["metadata"].get("annotations") or {}).get(INDEX), least=0)
    return set() if index is None else {index}


def format_ranges(numbers: set[int]) -> str:
    """Return `0-2,5` for 0, 1, 2 and 5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_ranges(text: str) -> set[int]:
    """Return 0, 1, 2 and 5 for `0-2,5`."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        start, end = integer_or_none(first, least=0), integer_or_none(last or first, least=0)
        if start is not None and end is not None:
            numbers |= set(range(start, end + 1))
    return numbers

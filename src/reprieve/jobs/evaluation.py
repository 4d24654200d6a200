"""Whether a test of the table holds for an object.

Source: specification of the quota plane, section 10.2.
"""

from __future__ import annotations

from kubeworld.objects.paths import Json, first, total, values
from reprieve.jobs.model import Reaches, Test

__all__ = ["condition_of", "holds"]


def holds(test: Test, job: Json, pods: int = 0) -> bool:
    """Return whether every part of a test holds; `pods` is what counts are to reach."""
    if test.condition and not _is_true(job, test.condition):
        return False
    if test.lacks and _is_true(job, test.lacks):
        return False
    if test.field:
        value = first(job, test.field)
        text = "" if value is None else str(value).lower() if value is True else str(value)
        if (test.values and text not in test.values) or (test.without and text in test.without):
            return False
    if test.positive and not any(total(job, path) > 0 for path in test.positive):
        return False
    if test.reaches is not None and not _reaches(test.reaches, job, pods):
        return False
    return test.also is None or holds(test.also, job, pods)


def condition_of(job: Json, name: str) -> Json | None:
    """Return the condition of that type."""
    for condition in first(job, "status.conditions") or ():
        if condition.get("type") == name:
            return dict(condition)
    return None


def _reaches(reaches: Reaches, job: Json, pods: int) -> bool:
    wanted = sum(total(job, path) for path in reaches.of) if reaches.of else pods
    if reaches.values:
        found = sum(value in reaches.values for path in reaches.sum for value in values(job, path))
    else:
        found = sum(total(job, path) for path in reaches.sum)
    return found >= wanted


def _is_true(job: Json, name: str) -> bool:
    condition = condition_of(job, name)
    return condition is not None and condition.get("status") == "True"

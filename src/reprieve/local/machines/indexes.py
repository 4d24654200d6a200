"""Completion indexes of Indexed Jobs: who has which, which are done, how the status writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from reprieve.local.machines.objects import Object
from reprieve.local.machines.ownership import is_active

__all__ = ["INDEX", "completed_indexes", "format_ranges", "free_indexes", "parse_ranges"]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod."""


def completed_indexes(status: dict[str, Any], pods: Iterable[Object]) -> set[int]:
    """Return what the status says is done and what has succeeded since."""
    done = parse_ranges(status.get("completedIndexes", ""))
    for pod in pods:
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            done |= _index(pod)
    return done


def free_indexes(completions: int, status: dict[str, Any], pods: list[Object]) -> list[int]:
    """Return the indexes that are neither done nor worked on, lowest first."""
    taken = completed_indexes(status, pods)
    for pod in pods:
        if is_active(pod):
            taken |= _index(pod)
    return [index for index in range(completions) if index not in taken]


def _index(pod: Object) -> set[int]:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return {int(text)} if text.isdigit() else set()


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
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers

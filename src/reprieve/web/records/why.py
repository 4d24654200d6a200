"""Why this one: what separated a victim from the others, in a sentence without names.

Figures are those of the decision made again: what its ClusterQueue had borrowed, how long it was
idle, and its place in the order in which the plane tries candidates (`records.candidates`).
"""

from __future__ import annotations

from typing import Final

from reprieve.engine.plan import Plane
from reprieve.web.records.judged import Candidate, Fate, Judgement

__all__ = ["ordinal", "why_chosen"]

_OBJECTS: Final = {
    Plane.QUOTA.value: "workloads",
    Plane.SCHEDULING.value: "pods",
    Plane.IDLE.value: "idle ones",
}


def why_chosen(plane: str, candidate: Candidate, judgement: Judgement) -> str:
    """Return why a victim was chosen; empty where nothing more than the rule is known."""
    parts = [candidate.text] if candidate.text else []
    if candidate.place:
        spared = _reprieved(candidate, judgement)
        parts.append(
            f"{ordinal(candidate.place)} of {candidate.among} {_OBJECTS.get(plane, 'objects')} "
            f"that could be chosen{spared} ({judgement.order})"
        )
    return "; ".join(parts)


def _reprieved(candidate: Candidate, judgement: Judgement) -> str:
    """Return how many of all were reprieved, where they are of one order."""
    number = judgement.number_of(Fate.REPRIEVED)
    if not 0 < number < candidate.among:
        return ""
    return f", of which {number} {'was' if number == 1 else 'were'} reprieved"


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}th" if number % 100 in (11, 12, 13) else f"{number}{ending}"

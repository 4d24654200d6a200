"""What is behind a reason that has several causes, where each has a remedy of its own.

A cause is found by the decision: with what it names changed, the engine decides otherwise. It
stands in a diagnosis' values beside what its sentence needs. Without one, as where nothing was
decided again, the reason's own sentence is reported, which holds for all of its causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["CAUSE", "Cause", "cause_in"]

#: The name of a cause among the values of a diagnosis.
CAUSE: Final = "cause"


class Cause(StrEnum):
    """What is behind a reason."""

    # Stopped.
    DEACTIVATED = "deactivated"
    DEACTIVATED_BY_OPERATOR = "deactivated by the operator"
    # NoFlavorMatches.
    NOT_COVERED = "resource not covered"
    LEVEL_MISSING = "level missing"
    NO_TOPOLOGY = "no topology"
    # NoPlaces.
    WIDER_LEVEL = "wider level"
    # NeverFits.
    NEVER_WITH_FLAVORS = "never with these flavors"
    # PlacesTaken.
    PLACES_PROTECTED = "places protected"
    PLACES_BY_PRIORITY = "places by priority"
    PLACES_BY_POLICY = "places by policy"
    PLACES_NOT_RECLAIMABLE = "places not reclaimable"
    # HeldByOthers.
    PROTECTION = "protection"
    PRIORITY = "priority"
    BORROWING = "borrowing"
    FLAVORS = "flavors"
    POLICY = "policy"
    NOT_RECLAIMABLE = "not reclaimable"
    DELAYED = "preemption delayed"
    KEPT_FOR_HEADS = "kept for heads"
    # VictimsProtected.
    NOT_YET = "not yet"
    SPACED = "spaced"
    # NominatedWaiting.
    NODE_REFUSES = "node refuses"
    # Full.
    DEVICES = "devices"
    OWN_PODS = "own pods"
    # NoNodeMatches.
    TOO_MANY_PODS = "too many pods"


def cause_in(values: Mapping[str, str]) -> Cause | None:
    """Return the cause that a diagnosis' values name, None where they name none."""
    known = values.get(CAUSE)
    return None if known is None else Cause(known)

"""What stands in the status of a pending pod or a group, as far as we write it.

What is to be written is compared with it, so that nothing is written twice, and a transition keeps
the time at which it was. Source: specification of the scheduling plane, section 22.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve.api.scheduling import Condition

__all__ = ["Written", "written"]


@dataclass(frozen=True, slots=True)
class Written:
    """`condition`: status, reason, message. `since`: its lastTransitionTime."""

    condition: tuple[str, str, str] = ("", "", "")
    since: str = ""
    generation: int = 0


def written(conditions: Iterable[Condition] | None, type: str, generation: int) -> Written:
    """Return what the condition of this type states in an object of this generation."""
    for each in conditions or ():
        if each.type == type:
            triple = (each.status, each.reason or "", each.message or "")
            return Written(triple, each.last_transition_time or "", generation)
    return Written(generation=generation)

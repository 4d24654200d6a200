"""What the governor is queried for, what it answers, and the numbers of its rules.

Source: specification of disruptions, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Lineage, Participant

__all__ = [
    "NOBODY",
    "BudgetHold",
    "Enforcement",
    "GovernorPolicy",
    "Hold",
    "Loop",
    "Question",
    "Rule",
    "budget_of",
]

#: The preemptor where devices are wanted back and no work waits for them.
NOBODY: Final = Participant(Lineage("nobody"))


class Enforcement(StrEnum):
    """Whether repeated displacement protects, and a strictly higher priority is held."""

    TOLD = "told"
    EQUALS = "true"  # against preemptors without a strictly higher priority
    ALL = "all"  # against everybody but emergencies; other rules hold a higher priority, too


class Rule(StrEnum):
    """Why a victim is held."""

    CYCLE = "cycle"
    WITHOUT_GAIN = "without gain"
    REPEATED = "repeated displacement"
    CRASH_LOOP = "crash loop"
    REFUSED = "eviction refused"
    HARM_BUDGET = "harm budget"
    KEPT = "kept by its user"


@dataclass(frozen=True, slots=True)
class GovernorPolicy:
    """Numbers of the rules; durations in nanoseconds.

    A `loop_limit` or `loop_window` of 0 holds neither cycles nor what is done without gain.
    """

    loop_limit: int = 2
    loop_window: int = HOUR
    repeated: int = 3
    repeated_window: int = HOUR
    crashes: int = 3
    enforcement: Enforcement = Enforcement.TOLD
    emergency_priority: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """May one displace the other now?

    `priority` is the preemptor's, `above` by how much it is higher. `cause` as in `Displacement`.
    `reclaims`: it stays within its own nominal quota. `running_since` and `start_cost` (in
    nanoseconds) are the victim's.
    """

    preemptor: Participant
    victim: Participant
    now: Nanos
    priority: int = 0
    above: int = 0
    cause: str = ""
    reclaims: bool = False
    running_since: Nanos | None = None
    start_cost: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """The victim stays until then, by this rule."""

    until: Nanos
    rule: Rule


@dataclass(frozen=True, slots=True)
class BudgetHold(Hold):
    """The victim stays since a harm budget is used up, which has this name."""

    budget: str


def budget_of(hold: Hold) -> str:
    """Return the name of the harm budget that spares a workload; empty for other rules."""
    return hold.budget if isinstance(hold, BudgetHold) else ""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop as it was found: members in the order of one turn, and its counts in the window.

    `held`: who is held from whom. `until`: when the last of that ends.
    """

    members: tuple[Lineage, ...]
    found: Nanos
    until: Nanos
    displacements: int
    began: Nanos
    lost_device_seconds: int
    held: tuple[tuple[Lineage, Lineage], ...]

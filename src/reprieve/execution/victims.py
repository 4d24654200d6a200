"""What a plane states of its victims, so that one executor carries out the plans of all planes.

`Victims` states how a victim is marked, evicted, and observed to have ended; `Manner` states which
of the five steps differ between planes. Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus

__all__ = ["Manner", "Marked", "Reading", "Standing", "VictimResult", "Victims"]

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Marked(Generic[M]):
    """A victim carries its mark; `mark` is what its eviction needs to know of that."""

    mark: M


@dataclass(frozen=True, slots=True)
class VictimResult:
    """What became of a victim in one call, or why it is not marked.

    `away`: the API server had no answer, which is no statement about the victim. `remains`: it
    keeps what it holds, so that its plan alone does not serve the preemptor.
    """

    state: VictimState
    message: str = ""
    away: bool = False
    remains: bool = False


class Standing(StrEnum):
    """What a victim shows of a plan that is adopted.

    UNMARKED had a mark that was removed. EVICTED is out of the way by this plan, GONE by something
    else.
    """

    UNTOUCHED = "untouched"
    UNMARKED = "unmarked"
    MARKED = "marked"
    EVICTED = "evicted"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """What a victim shows; `mark` as in `Marked`, where it is to be evicted."""

    standing: Standing
    message: str = ""
    mark: M | None = None


@dataclass(frozen=True, slots=True)
class Manner:
    """What of the steps differs between planes.

    Attributes:
        evicted: what the reason of a closed record states of its victims.
        marked_at_once: how many victims are marked at a time.
        evicted_at_once: likewise.
        all_or_nobody: one that cannot be marked spares all others.
        last_alone: the last victim is evicted when the calls for all others have succeeded.
        whole: a plan is completed only where all its victims have ended.
        rest_is_marked: after a crash who carries no mark is marked while the plan holds.
        given_up_after: for how long an eviction is retried; None without end.
    """

    evicted: str = "evicted"
    marked_at_once: int = 32
    evicted_at_once: int = 32
    all_or_nobody: bool = True
    last_alone: bool = False
    whole: bool = False
    rest_is_marked: bool = False
    given_up_after: int | None = None

    @property
    def each_for_itself(self) -> bool:
        """Whether a unit with notice is evicted as soon as it may be, whatever the others do."""
        return not self.all_or_nobody and not self.last_alone


class Victims(Protocol[M]):
    """What a victim of one plane is: how it is marked, evicted, and seen to be deleted.

    All writes are fenced. Calls raise `Deposed`; an `ApiError` or a fault of one call is the
    failure of that victim, and in `evict` one that passes.
    """

    @property
    def manner(self) -> Manner:
        """Return what of the steps differs."""
        ...

    def gets_notice(self, victim: Victim) -> bool:
        """Whether it is marked before any eviction; otherwise `evict` marks it."""
        ...

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        """Return why a plan no longer holds, were these to be marked; empty when it does."""
        ...

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[M] | VictimResult:
        """Mark a victim, or return why not: GONE hinders no other, SPARED and FAILED do."""
        ...

    async def spare(self, intent: Preemption, victim: Victim, mark: M | None, why: str) -> None:
        """Remove a mark; without one, see to it that a delayed mark fails."""
        ...

    async def evict(
        self, intent: Preemption, victim: Victim, mark: M | None, *, again: bool
    ) -> VictimResult | None:
        """Evict a victim; None: it is on its way, and `observe` returns what becomes of it.

        `again`: a call for it may have been made before, and may have ended it.
        """
        ...

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[M]:
        """Return what a victim shows; `elsewhere`: another record has it as evicted."""
        ...

    def needed(self, intent: Preemption) -> bool:
        """Whether a victim that is only marked still has to be evicted."""
        ...

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        """Return how a victim has left, None while it is there; `state` as it is known by now."""
        ...

    def served(self, intent: Preemption) -> bool:
        """Whether the preemptor has what it needs, or does not want it any more."""
        ...

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        """Victims could not be evicted for so many nanoseconds; each with why."""
        ...

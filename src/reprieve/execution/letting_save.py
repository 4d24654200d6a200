"""The step before the marks of a plan: its victims save until all may go, or the plan ends.

All units of a plan are waited for, since nobody of it goes unless everybody does. Meanwhile, once a
second, it is asked whether the plan is still wanted, every few seconds whether its preemptor fits
without victims, and less often, as well as just before it goes on, whether it still holds: whoever
was told and is not needed any more is pardoned.

Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Protocol

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import Preemption, Victim
from reprieve.execution.notices import Member, Notices

__all__ = ["Audience", "Depth", "LettingSave"]

_EVERY: Final = SECOND
# Of these:
_FITTED_EVERY: Final = 5
_PROVEN_EVERY: Final = 30


class Depth(IntEnum):
    """How thoroughly it is asked whether a plan is needed, from cheap to dear."""

    WANTED = 0
    FITS = 1
    HOLDS = 2


class Audience(Protocol):
    """What a plane knows of the victims that were told."""

    def members(self, victim: Victim) -> Sequence[Member] | None:
        """Return the pods of a victim, None where the victim itself is gone."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether victims may say that they are needed."""
        ...

    def keep(self, victims: Sequence[Victim]) -> str:
        """Spare victims that were reported as needed; return why, empty where that is refused."""
        ...

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        """Return why nobody of the plan has to go, empty where they have to."""
        ...


class LettingSave:
    """Waits for the units of plans of one plane."""

    def __init__(self, notices: Notices, audience: Audience, clock: Clock) -> None:
        self._notices = notices
        self._audience = audience
        self._clock = clock

    async def wait(self, intent: Preemption) -> str:
        """Return when the victims of a plan may go; what is returned says why they stay instead."""
        notices, audience, turn = self._notices, self._audience, 0
        notices.begin(intent, audience.members, keeps=audience.keeps)
        while True:
            notices.follow(intent, audience.members)
            longest, kept = notices.waits(intent), notices.kept(intent)
            why = audience.keep(kept) if kept else ""
            why = why or audience.why_pardoned(intent, _depth(turn) if longest else Depth.HOLDS)
            if why:
                notices.pardon(intent)
                return why
            if not longest:
                return ""
            turn += 1
            await notices.wait(intent.metadata.name, min(longest, _EVERY))

    def release(self, intent: Preemption) -> None:
        """The victims of a plan are evicted from now on."""
        self._notices.release(intent)


def _depth(turn: int) -> Depth:
    if turn % _PROVEN_EVERY == _PROVEN_EVERY - 1:
        return Depth.HOLDS
    return Depth.FITS if turn % _FITTED_EVERY == _FITTED_EVERY - 1 else Depth.WANTED

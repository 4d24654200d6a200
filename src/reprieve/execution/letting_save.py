"""The step before the marks of a plan: its victims save until all may go, or the plan ends.

All units of a plan are waited for, since nobody of it goes unless everybody does. Meanwhile, once a
second, it is asked whether the plan is still wanted, and every few seconds whether it still holds,
as well as just before it goes on: whoever was told and is not needed any more is pardoned.

Source: the contract of notices in `docs/notice.md`.
"""

from __future__ import annotations

from typing import Final, Protocol

from reprieve.api.reprieve import Preemption, Victim
from reprieve.execution.notices import Notices
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND

__all__ = ["Audience", "LettingSave"]

_EVERY: Final = SECOND
_PROVEN_EVERY: Final = 5  # of these


class Audience(Protocol):
    """What a plane knows of the victims that were told."""

    def speaks(self, victim: Victim) -> bool:
        """Whether the pod answers for its unit."""
        ...

    def has_ended(self, victim: Victim) -> bool:
        """Whether the pod is gone or finished."""
        ...

    def why_pardoned(self, intent: Preemption, *, proven: bool) -> str:
        """Return why nobody of the plan has to go, empty where they have to.

        `proven`: the plan itself is proven anew, which takes a while.
        """
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
        notices.begin(intent, audience.speaks)
        while True:
            victims = intent.spec.victims
            notices.gone(each.root.uid for each in victims if audience.has_ended(each))
            longest = notices.waits(intent)
            proven = not longest or turn % _PROVEN_EVERY == _PROVEN_EVERY - 1
            why = audience.why_pardoned(intent, proven=proven)
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

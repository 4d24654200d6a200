"""The step before the marks of a plan: its victims save until all may be evicted, or it ends.

If a plan evicts all of its victims or none, all of its units are waited for. Otherwise each unit is
released as soon as it may be evicted, and units that are not released yet stay if the plan ends.
The plane is queried once a second whether the plan is still wanted, every few seconds whether its
preemptor fits without victims, and less often, as well as just before the plan continues, whether
it still holds: a notified unit that is not needed any more is pardoned.

Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, Protocol, TypeAlias

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import Preemption, Victim
from reprieve.execution.notices import Member, Notices

__all__ = ["Audience", "Depth", "LettingSave"]

_EVERY: Final = SECOND
# Of these:
_FITTED_EVERY: Final = 5
_PROVEN_EVERY: Final = 30
# A server whose definition lacks the field stores no extension: the write is repeated seldom.
_RECORDED_EVERY: Final = 10
# Thousands of pods may answer at once.
_LEAST: Final = SECOND // 20


class Depth(IntEnum):
    """How thoroughly it is checked whether a plan is needed, from cheap to dear."""

    WANTED = 0
    FITS = 1
    HOLDS = 2


#: Evicts some victims of a plan; returns its record as it stands, None if they still stay.
Release: TypeAlias = Callable[[Sequence[Victim]], Awaitable[Preemption | None]]


#: Records to when deadlines are extended, by the uids of roots, and which pods have saved; returns
#: the record as it stands, None where that fails.
Record: TypeAlias = Callable[
    [Preemption, Callable[[], Mapping[str, str]], Sequence[str]], Awaitable[Preemption | None]
]


class Audience(Protocol):
    """What a plane knows of the victims with notice."""

    def members(self, victim: Victim) -> Sequence[Member] | None:
        """Return the pods of a victim, None where the victim itself is deleted."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether victims may report that they are needed."""
        ...

    def keep(self, victims: Sequence[Victim]) -> str:
        """Spare victims that were reported as needed; return why, empty where that is refused."""
        ...

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        """Return why no victim of the plan is evicted, empty where they have to be."""
        ...


class LettingSave:
    """Waits for the units of plans of one plane."""

    def __init__(self, notices: Notices, audience: Audience, clock: Clock) -> None:
        self._notices = notices
        self._audience = audience
        self._clock = clock

    async def wait(self, intent: Preemption, record: Record, release: Release | None = None) -> str:
        """Return when a plan's victims may be evicted; the result states why they stay instead.

        `release` evicts victims that may be evicted while others are waited for; without it no
        victim is evicted early. `record` writes what pods have reported.
        """
        notices, audience, turn = self._notices, self._audience, 0
        asked: tuple[Mapping[str, str], Sequence[str]] = {}, ()
        notices.begin(intent, audience.members, keeps=audience.keeps)
        while True:
            began = self._clock.monotonic()
            notices.follow(intent, audience.members)
            answers = notices.wishes(intent), notices.unrecorded(intent)
            if any(answers) and (answers != asked or turn % _RECORDED_EVERY == 0):
                asked = answers
                written = await record(intent, partial(notices.wishes, intent), answers[1])
                intent = written or intent
                notices.extend(intent)
                if written:
                    notices.recorded(intent, answers[1])
            longest, kept = notices.waits(intent), notices.kept(intent)
            why = audience.keep(kept) if kept else ""
            ready = notices.ready_of(intent) if release is not None and longest else ()
            depth = Depth.HOLDS if ready or not longest else _depth(turn)
            why = why or audience.why_pardoned(intent, depth)
            if why:
                notices.pardon(intent)
                return why
            if not longest:
                return ""
            if ready:
                assert release is not None, "else no work is ready"
                written = await release([victim for unit in ready for victim in unit.victims])
                intent = written or intent
                for unit in ready if written else ():
                    notices.release(intent, unit)
            turn += 1
            await notices.waiters.wait(intent.metadata.name, min(longest, _EVERY))
            early = release is not None and notices.ready_of(intent)
            if notices.waits(intent) and not early:
                await self._clock.sleep(max(0, began + _LEAST - self._clock.monotonic()))

    def losses(self, intent: Preemption) -> dict[str, int]:
        """Return what victims of a plan lose that have saved, if they are evicted now."""
        return self._notices.losses(intent)

    def release(self, intent: Preemption) -> None:
        """The victims of a plan are evicted from now on."""
        self._notices.release(intent)


def _depth(turn: int) -> Depth:
    if turn % _PROVEN_EVERY == _PROVEN_EVERY - 1:
        return Depth.HOLDS
    return Depth.FITS if turn % _FITTED_EVERY == _FITTED_EVERY - 1 else Depth.WANTED

"""The states of a notice, from the record of a plan to the release of a unit.

| state | its first `saving` | all have saved | deadline | its plan continues | its plan ends |
|---|---|---|---|---|---|
| Noticed | Saving | Saved | Overdue | - | Pardoned |
| Saving | - | Saved | Overdue | - | Pardoned |
| Saved | - | - | - | Released | Pardoned |
| Overdue | - | - | - | Released | Pardoned |

Released and Pardoned are final; a pair without an entry changes nothing. Words of a pod that is not
a speaker are ignored. A speaker that has ended counts as one that has saved. Pods may start and end
while a unit is notified; without any speaker it has not saved.

A deadline moves at most once, and only later: a speaker that reports before it that it needs longer
gets that time, up to `extend_until`, as long as a speaker reports at least once in `HEARTBEAT` that
it is still saving. While that is being recorded, for `RECORDING` at most, the deadline does not
pass: a report just before it counts as much as an earlier one. Pure. Source: the contract of
notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kubeworld.units.durations import MINUTE, SECOND

__all__ = ["HEARTBEAT", "RECORDING", "TRANSITIONS", "Happening", "Notice", "State"]

#: For how long an extension outlasts the last word of a speaker.
HEARTBEAT: Final = MINUTE
#: For how long a unit is not overdue whose extension is being recorded.
RECORDING: Final = 2 * SECOND


class State(StrEnum):
    """How far a unit is."""

    NOTICED = "Noticed"
    SAVING = "Saving"
    SAVED = "Saved"
    OVERDUE = "Overdue"
    RELEASED = "Released"
    PARDONED = "Pardoned"


class Happening(StrEnum):
    """What moves a unit on: the columns of the table."""

    SAVING = "its first `saving`"
    ALL_SAVED = "all have saved"
    DEADLINE = "deadline"
    RELEASE = "its plan continues"
    PARDON = "its plan ends"


#: By state and what happens, the next state.
TRANSITIONS: Final[Mapping[tuple[State, Happening], State]] = {
    (State.NOTICED, Happening.SAVING): State.SAVING,
    (State.NOTICED, Happening.ALL_SAVED): State.SAVED,
    (State.SAVING, Happening.ALL_SAVED): State.SAVED,
    (State.NOTICED, Happening.DEADLINE): State.OVERDUE,
    (State.SAVING, Happening.DEADLINE): State.OVERDUE,
    (State.SAVED, Happening.RELEASE): State.RELEASED,
    (State.OVERDUE, Happening.RELEASE): State.RELEASED,
    (State.NOTICED, Happening.PARDON): State.PARDONED,
    (State.SAVING, Happening.PARDON): State.PARDONED,
    (State.SAVED, Happening.PARDON): State.PARDONED,
    (State.OVERDUE, Happening.PARDON): State.PARDONED,
}
_WAITS: Final = (State.NOTICED, State.SAVING)


@dataclass(frozen=True, slots=True)
class Notice:
    """One unit that got notice. Instants are nanoseconds since the Unix epoch.

    `deadline` and `extend_until`: as recorded; equal where nothing is extended. `speakers`: uids of
    the pods that are notified, `saved` those of them that have saved or ended. `extended`: to when
    it was extended, 0 where it was not. `heard`: when a speaker stated last that it was saving.
    `recording`: until when it is not overdue, since an extension is being recorded.
    """

    deadline: int
    extend_until: int
    speakers: frozenset[str]
    state: State = State.NOTICED
    saved: frozenset[str] = frozenset()
    extended: int = 0
    heard: int = 0
    recording: int = 0

    @property
    def due(self) -> int:
        """Return the latest known instant of the unit's eviction; it never becomes earlier."""
        return max(self.deadline, min(self.extended, self.heard + HEARTBEAT))

    @property
    def ends(self) -> int:
        """Return the instant from which the unit is overdue."""
        return max(self.due, self.recording)

    @property
    def may_go(self) -> bool:
        """Whether no demand waits for the unit any more."""
        return self.state in (State.SAVED, State.OVERDUE, State.RELEASED)

    @property
    def final(self) -> bool:
        """Whether nothing changes any more."""
        return self.state in (State.RELEASED, State.PARDONED)

    def at(self, now: int) -> Notice:
        """Return the notice as it stands at that time."""
        return self._on(Happening.DEADLINE) if now >= self.ends else self

    def saving(self, speaker: str, now: int, expected: int = 0) -> Notice:
        """Return the notice after a speaker reported that it saves; `expected`: until when."""
        known = self.at(now)
        if speaker not in self.speakers or known.state not in _WAITS:
            return known
        extended = known.extended
        if not extended and now < self.deadline < min(expected, self.extend_until):
            extended = min(expected, self.extend_until)
        heard = replace(known, heard=max(now, known.heard), extended=extended)
        return heard._on(Happening.SAVING)

    def has_saved(self, speaker: str, now: int) -> Notice:
        """Return the notice after a speaker reported that it has saved, or after it ended."""
        known = self.at(now)
        if speaker not in self.speakers or known.state not in _WAITS:
            return known
        known = replace(known, saved=known.saved | {speaker})
        return known._on(Happening.ALL_SAVED) if known.saved == self.speakers else known

    def spoken_for(self, speakers: frozenset[str], there: frozenset[str], now: int) -> Notice:
        """Return the notice of a unit with these speakers by now; who is not there has ended."""
        known = self.at(now)
        if known.state not in _WAITS:
            return known
        saved = (known.saved & speakers) | (speakers - there)
        known = replace(known, speakers=speakers, saved=saved)
        done = bool(speakers) and saved == speakers
        return known._on(Happening.ALL_SAVED) if done else known

    def ended(self, now: int) -> Notice:
        """Return the notice of a deleted unit: nothing is left to be saved."""
        return self.at(now)._on(Happening.ALL_SAVED)

    @property
    def waits(self) -> bool:
        """Whether the unit may still save."""
        return self.state in _WAITS

    def extended_to(self, until: int, now: int) -> Notice:
        """Return the notice with its deadline extended, where it is not over."""
        known = self.at(now)
        if not known.waits:
            return known
        return replace(known, extended=min(until, self.extend_until), recording=0)

    def being_recorded(self, now: int) -> Notice:
        """Return the notice while an extension that was requested now is not recorded yet."""
        return replace(self, extended=0, recording=min(now + RECORDING, self.extend_until))

    def notified_before(self, extended: int, now: int) -> Notice:
        """Return the notice as a new leader begins it; its predecessor extended it until then.

        No pod can have been notified of a later deadline than one `HEARTBEAT` from now.
        """
        until = min(extended, self.extend_until)
        return self if until <= self.deadline else replace(self, extended=until, heard=now)

    def released(self) -> Notice:
        """Return the notice of a unit that is evicted now."""
        return self._on(Happening.RELEASE)

    def pardoned(self) -> Notice:
        """Return the notice of a unit that stays after all."""
        return self._on(Happening.PARDON)

    def _on(self, happening: Happening) -> Notice:
        return replace(self, state=TRANSITIONS.get((self.state, happening), self.state))

"""A unit that got notice before its eviction, its pods, and what they state.

Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.notice.credit import NO_HISTORY, History
from reprieve.engine.notice.granting import MOST
from reprieve.engine.notice.states import Notice

__all__ = ["NO_WORD", "Asking", "Member", "Members", "Notified", "Word"]


class Member(NamedTuple):
    """A pod of a unit: whether it answers for the unit, and whether it has ended.

    `name`: in the namespace of the victim; empty for a pod that is deleted.
    """

    uid: str
    speaks: bool = False
    ended: bool = False
    name: str = ""


#: Gives the pods of a victim, None where the victim itself is deleted.
Members: TypeAlias = Callable[[Victim], Sequence[Member] | None]


class Asking(NamedTuple):
    """A victim of a plan before it is recorded.

    `asked`: nanoseconds that its pods request; `pods`: their uids; `allowed`: by queue or class.
    `undone`: nanoseconds of its work that are not saved, on each of its `devices`; `save`: how long
    its save lasts, 0 where that is not known; `lineage`: whose credit counts.
    """

    unit: str
    asked: Sequence[int]
    pods: Sequence[str]
    allowed: int = MOST
    undone: int = 0
    devices: int = 0
    save: int = 0
    lineage: str = ""


class Word(NamedTuple):
    """What a pod states beside its state: for people, and its step, -1 where it states none."""

    checkpoint: str = ""
    message: str = ""
    step: int = -1


NO_WORD: Final = Word()


@dataclass(slots=True)
class Notified:
    """One unit with notice: `pods` may read it, the speakers among them answer it.

    `names`: of those that were there, by uid.
    `speaks`: those of `pods` that stated that they answer for all. `since`: when it was notified,
    or adopted; `ahead`: by how much wall time was ahead of monotonic time then. `keeps`: it may
    state that it is needed; `kept`: it did. `word`: the last statement of a pod; `heard`: a pod
    stated something; `unheard`: it ended at its deadline without a statement. `saved_at`: when all
    of them had saved. `history` of its lineage. `wished`: to when it is extended once that is
    recorded. `said`: speakers that reported their save, `recorded` those of them whose report is
    in the record.
    """

    id: str
    intent: Preemption
    victims: Sequence[Victim]
    notice: Notice
    since: int
    ahead: int
    pods: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    speaks: set[str] = field(default_factory=set)
    keeps: bool = False
    kept: bool = False
    word: Word = NO_WORD
    heard: bool = False
    unheard: bool = False
    saved_at: int = 0
    history: History = NO_HISTORY
    wished: int = 0
    said: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)

    @property
    def lineage(self) -> str:
        """Return the lineage of the unit, as the record has it."""
        return self.victims[0].lineage

    @property
    def plan(self) -> str:
        """Return the name of the record."""
        return self.intent.metadata.name

    @property
    def at_stake(self) -> int:
        """Return the device-seconds of work that the record counts as lost with the unit."""
        return sum(victim.lost_device_seconds for victim in self.victims)

"""A plan on its way from its record to the last victim, as this process knows it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.reprieve import IntentPhase, Preemption, Victim, VictimState, VictimStatus

__all__ = ["FIRST_PAUSE", "Carried", "Inherited"]

M = TypeVar("M")
FIRST_PAUSE: Final = SECOND

log: Final = logging.getLogger("reprieve.execution")


@dataclass(slots=True)
class Carried(Generic[M]):
    """A plan that is being carried out.

    `marks`: of all and only victims that are notified and not evicted yet, by uid. `left`: of
    victims whose eviction is under way. `states`: of victims whose outcome is known, or that are
    tried again (PENDING). `busy`: a task works on it, so that `reconcile` leaves it alone.
    `ending`: how it is to be closed, once that is known. `ended`: when victims were seen to be out
    of the way, as RFC 3339. `notified`: their tenants are notified, or will be. `passing`: uids of
    victims for whose calls the API server had no answer. `interrupted`: a fault came between the
    plan's steps. `remains`: a victim keeps what it holds. `warned`: of which fault, and when. Other
    instants are monotonic.
    """

    intent: Preemption
    marks: dict[str, M | None] = field(default_factory=dict)
    states: dict[str, VictimStatus] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    busy: bool = True
    again: bool = False
    stalled: bool = False
    pending_since: int | None = None
    next_try: int = 0
    pause: int = FIRST_PAUSE
    gone_since: int | None = None
    ending: tuple[IntentPhase, str] | None = None
    ended: dict[str, str] = field(default_factory=dict)
    notified: bool = False
    passing: set[str] = field(default_factory=set)
    interrupted: bool = False
    remains: bool = False
    warned: tuple[str, int] = ("", 0)

    def warn(self, fault: str, now: int) -> None:
        """Log why the plan stays open: a fault that lasts as one warning a minute.

        It is tried again each second, and an API server that refuses has many open plans. `now`:
        monotonic nanoseconds.
        """
        said, at = self.warned
        lasts = fault == said and now - at < MINUTE
        if not lasts:
            self.warned = fault, now
        log.log(
            logging.DEBUG if lasts else logging.WARNING,
            "preemption %s stays open: %s",
            self.name,
            fault,
        )

    @property
    def away(self) -> bool:
        """Whether a victim is pending since the API server did not answer."""
        return any(self.state(each) is VictimState.PENDING for each in self._passing())

    def _passing(self) -> list[Victim]:
        return [each for each in self.intent.spec.victims if each.root.uid in self.passing]

    @property
    def name(self) -> str:
        """Return the name of the record."""
        return self.intent.metadata.name

    @property
    def abandoned(self) -> str:
        """Return why no victim of the plan is evicted, empty where one is."""
        if self.ending is None or self.ending[0] is not IntentPhase.ABANDONED:
            return ""
        return self.ending[1]

    @property
    def pending(self) -> list[Victim]:
        """Return the victims that are tried again."""
        return [
            each for each in self.intent.spec.victims if self.state(each) is VictimState.PENDING
        ]

    def state(self, victim: Victim) -> VictimState | None:
        """Return the state of a victim as far as it is known."""
        found = self.states.get(victim.root.uid)
        return None if found is None else found.state

    def is_over(self, victim: Victim) -> bool:
        """Whether a victim is out of the way, or about to be."""
        state = self.state(victim)
        return state is not None and state.over

    @property
    def any_over(self) -> bool:
        """Whether any is."""
        return any(state.state.over for state in self.states.values())

    def outcome(self) -> list[VictimStatus]:
        """Return the states that are known, in the order of the plan."""
        uids = (victim.root.uid for victim in self.intent.spec.victims)
        return [self.states[uid] for uid in uids if uid in self.states]


@dataclass(frozen=True, slots=True)
class Inherited(Generic[M]):
    """What former processes left: all records as they were, and the plans that were still open."""

    records: tuple[Preemption, ...]
    plans: tuple[Carried[M], ...]

    @property
    def interrupted(self) -> frozenset[str]:
        """The names of the plans that were open: the former process did not finish them."""
        return frozenset(each.name for each in self.plans)

    def known(self, record: Preemption) -> Preemption:
        """Return a record with what is known of its victims by now, and how it ended if it did."""
        plan = next((each for each in self.plans if each.name == record.metadata.name), None)
        if plan is None:
            return record
        phase = record.status.phase if plan.ending is None else plan.ending[0]
        status = replace(record.status, phase=phase, victims=plan.outcome())
        return replace(record, status=status)

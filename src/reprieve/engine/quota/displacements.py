"""What the quota plane reports to the governor of disruptions, and what it queries.

A workload is identified by its lineage (`Workload.participant`); where none was stated, it is one
of its own. `refusals` collects from whom a workload was held and until when, for a record that is
decided again, and `recorded` the displacements; the caller that keeps records empties both.
Source: specification of disruptions, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement, Exemption
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.questions import GovernorPolicy, Hold, Loop, Question, Rule
from reprieve.engine.harm_budgets.accounts import Account
from reprieve.engine.harm_budgets.budget import Harm
from reprieve.engine.quota.model import Workload
from reprieve.units.ids import Uid

__all__ = ["LIMIT", "Displacements", "Fits", "Uids", "participant_of"]

LIMIT = 2
_MOST_HARMS: Final = 100_000

Uids = tuple[str, str]  # of a preemptor and of its victim
#: Until when an account is used up, and which objects still fit into it, by uid.
Fits = dict[Account, tuple[Nanos, frozenset[str]]]


def participant_of(workload: Workload) -> Participant:
    """Return the lineage of a workload."""
    if workload.participant is not None:
        return workload.participant
    return Participant(Lineage(f"object/{workload.uid}"), workload.namespace)


class Displacements:
    """The governor's memory of who displaced whom in the quota plane."""

    def __init__(
        self, limit: int = LIMIT, window: int = HOUR, governor: Governor | None = None
    ) -> None:
        """Allow no cycle more than `limit` turns within `window` nanoseconds.

        `governor`: one that all planes query, with numbers of its own.
        """
        policy = GovernorPolicy(loop_limit=limit, loop_window=window)
        self.governor = governor or Governor(policy)
        self.refusals: dict[Uids, Nanos] = {}
        #: Whom which harm budget spared from whom, as of `refusals`.
        self.spared: dict[Uids, str] = {}
        self.recorded: dict[Uids, Displacement] = {}
        #: Whose eviction was refused, by uid: they are held from everybody.
        self.refused: Mapping[Uid, Hold] = {}
        #: What may still be chosen of accounts that a plan of a workload exceeded, by its key.
        self.fits: dict[str, Fits] = {}
        self._harms: dict[Uids, Harm] = {}
        self._fixed: dict[Uids, Nanos] = {}
        self._fixed_for: set[str] = set()
        self._number = 0

    @property
    def policy(self) -> GovernorPolicy:
        """Return the numbers of the rules."""
        return self.governor.policy

    def record(
        self,
        preemptor: Workload,
        victim: Workload,
        at: Nanos,
        cause: str = "",
        *,
        priority: int = 0,
        above: int = 0,
        devices: int = 0,
        lost_device_seconds: int = 0,
        harm: Harm | None = None,
    ) -> None:
        """Record that one displaces the other; `above` and `cause` as in `Displacement`.

        `priority` is the preemptor's; `harm`: what harm budgets count of it.
        """
        self._number += 1
        emergency = self.policy.emergency_priority
        urgent = emergency is not None and priority >= emergency
        row = Displacement(
            at,
            Actor.QUOTA,
            participant_of(preemptor),
            participant_of(victim),
            victim.uid,
            self._number,
            devices,
            lost_device_seconds,
            above,
            cause,
            Exemption.EMERGENCY if urgent else Exemption.NONE,
        )
        self.governor.record(row)
        self.recorded[(preemptor.uid, victim.uid)] = row
        if harm is not None:
            self.keep_harm((preemptor.uid, victim.uid), harm)
            with self.governor.guard:
                self.governor.harm.record(harm)

    def keep_harm(self, uids: Uids, harm: Harm) -> None:
        """Know what budgets count of a displacement until its plan is over."""
        self._harms[uids] = harm
        while len(self._harms) > _MOST_HARMS:
            del self._harms[next(iter(self._harms))]

    def pop_harm(self, uids: Uids) -> Harm | None:
        """Return what budgets count of a displacement whose plan is over, and forget it."""
        return self._harms.pop(uids, None)

    def harms(self, preemptor: str, victims: Iterable[str]) -> tuple[list[Harm], list[str]]:
        """Return what budgets count of these displacements, by uids, with the victims known."""
        known = [uid for uid in victims if (preemptor, uid) in self._harms]
        return [self._harms[preemptor, uid] for uid in known], known

    def forget_refusals(self) -> None:
        """Begin to collect anew whom one is held back from."""
        self.refusals.clear()
        self.spared.clear()

    def fold(self, rows: Iterable[Displacement]) -> None:
        """Record what former processes did."""
        self.governor.fold(rows)

    def undo(self, preemptor: Workload, victim: str) -> None:
        """Undo its last displacement of an object, by uid: it did not happen."""
        self.governor.undo(participant_of(preemptor).lineage, victim)
        harm = self._harms.pop((preemptor.uid, victim), None)
        if harm is not None:
            with self.governor.guard:
                self.governor.harm.undo(harm)

    def admitted(self, workload: Workload, at: Nanos) -> None:
        """Record that a workload has got quota: what it displaced for it was not in vain."""
        self.governor.admitted(participant_of(workload), at)

    def refuse(self, preemptor: str, victim: str, until: Nanos) -> None:
        """Hold one back from the other, by uids, whatever they did."""
        self._fixed[(preemptor, victim)] = until
        self._fixed_for.add(preemptor)

    def concerns(self, workload: Workload) -> bool:
        """Return whether any workload could be held from what a workload requests."""
        known = self.refused or workload.uid in self._fixed_for
        return bool(known) or self.governor.may_hold(participant_of(workload))

    def known_by(
        self, workload: Workload, now: Nanos, *, below: bool = True
    ) -> frozenset[str] | None:
        """Return by what those are known who could be held back from it now; None: all.

        `below`: whether any of them may have a higher priority.
        """
        if self.refused or workload.uid in self._fixed_for:
            return None
        return self.governor.known_by(participant_of(workload), now, below=below)

    def refusal(self, preemptor: Workload, victim: Workload, now: Nanos) -> Hold | None:
        """Return until when a victim stays whose eviction was refused, None where none was."""
        hold = self.refused.get(Uid(victim.uid))
        if hold is None or hold.until <= now:
            return None
        self.refusals[(preemptor.uid, victim.uid)] = hold.until
        return hold

    def is_fixed(self, preemptor: Workload, victim: Workload) -> bool:
        """Return whether `refuse` holds one back from the other."""
        return (preemptor.uid, victim.uid) in self._fixed

    def stays(self, preemptor: Workload, victim: Workload, now: Nanos) -> Hold | None:
        """Return why a victim stays though it was to be evicted, None where nothing keeps it."""
        found = self.refusal(preemptor, victim, now)
        if found is None and self.is_fixed(preemptor, victim):
            found = self.hold(preemptor, victim, now)
        return found

    def held_until(
        self,
        preemptor: Workload,
        victim: Workload,
        now: Nanos,
        cause: str = "",
        *,
        priority: int = 0,
        above: int = 0,
        reclaims: bool = False,
    ) -> Nanos | None:
        """Return when one may displace the other, None while it may; arguments as of `hold`."""
        hold = self.hold(
            preemptor, victim, now, cause, priority=priority, above=above, reclaims=reclaims
        )
        return None if hold is None else hold.until

    def hold(
        self,
        preemptor: Workload,
        victim: Workload,
        now: Nanos,
        cause: str = "",
        *,
        priority: int = 0,
        above: int = 0,
        reclaims: bool = False,
    ) -> Hold | None:
        """Return until when one may not displace the other and by which rule, None while it may.

        Args:
            preemptor: the one that preempts, as `victim` a workload.
            victim: who would be preempted.
            now: the instant of the decision.
            cause: what allows the two to displace each other now.
            priority: the preemptor's.
            above: by how much that is higher.
            reclaims: the preemptor stays within its own nominal quota.
        """
        uids = (preemptor.uid, victim.uid)
        if refused := self.refusal(preemptor, victim, now):
            return refused
        if uids in self._fixed:
            return Hold(self._fixed[uids], Rule.CYCLE)
        asked = Question(
            participant_of(preemptor),
            participant_of(victim),
            now,
            priority,
            above,
            cause,
            reclaims,
            victim.reserved_at,
        )
        hold = self.governor.hold(asked)
        if hold is None:
            return None
        self.refusals[uids] = hold.until
        return hold

    def held(self, now: Nanos) -> dict[tuple[str, str], tuple[Question, Hold]]:
        """Return who is held from whom, by families, each with its last displacement as it was."""
        return self.governor.held(now)

    def loops(self, now: Nanos) -> tuple[Loop, ...]:
        """Return the loops in which a lineage is held."""
        return self.governor.loops(now)

"""Whether a replay still ends; one that does not is stopped, and names the loop.

Decisions follow each other at one instant only while they change something, and a job is preempted
again only for one that can use its capacity. Neither bounds how often: with a guard against loops
that is switched off (`loopLimit: 0`) a victim's capacity passes to another one, or back to itself,
before it gets to the preemptor, which requests it once more.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.simulation.policy import PolicySpec
from reprieve.units.errors import ReprieveError

__all__ = ["LoopGuard", "ReplayFault"]

#: How often one job may be preempted while none arrives or finishes: a loop that nothing ends.
_MOST_TURNS: Final = 1_000
#: How often decisions may follow each other at one instant, whatever they are about.
_MOST_ROUNDS: Final = 10_000


class ReplayFault(ReprieveError):
    """The engine failed to decide, or the replay does not come to an end."""


class LoopGuard:
    """Counts what happens over and over; its methods raise `ReplayFault` once that is too much."""

    def __init__(self, policy: PolicySpec) -> None:
        self._policy = policy
        self._rounds, self._last = 0, -1
        # Who was preempted since a job arrived or finished last, and for whom.
        self._turns: Counter[str] = Counter()
        self._turns_for: Counter[tuple[str, str]] = Counter()

    def decides(self, now: int) -> None:
        """Count that something is decided at an instant."""
        self._rounds = self._rounds + 1 if now == self._last else 0
        self._last = now
        if self._rounds > _MOST_ROUNDS:
            raise self._stopped(
                f"at {now / SECOND:,.0f} s decisions continue without an end: {_MOST_ROUNDS:,} "
                f"times something changed at once"
            )

    def goes_on(self) -> None:
        """Begin anew: a job arrived or finished."""
        if self._turns:
            self._turns.clear()
            self._turns_for.clear()

    def displaces(self, now: int, preemptor: str, victim: str) -> None:
        """Count who is preempted for whom."""
        self._turns[victim] += 1
        self._turns_for[preemptor, victim] += 1
        if self._turns[victim] < _MOST_TURNS:
            return
        asking = {one: times for (one, who), times in self._turns_for.items() if who == victim}
        most = max(asking, key=lambda one: (asking[one], one))
        raise self._stopped(
            f"{_MOST_TURNS:,} preemptions of the same lineage, {victim}, until {now / SECOND:,.0f} "
            f"s while no job arrived or finished, {asking[most]:,} of them for {most}"
        )

    def _stopped(self, why: str) -> ReplayFault:
        rules, place = self._policy.governor, self._policy.place
        said = f"{place or f'policy {self._policy.name}'}: stopped: {why}"
        if self._policy.own is None and not (rules.loop_limit and rules.loop_window):
            said += (
                "; with a loopLimit or loopWindow of 0 no work that displaces others in turn is "
                "held; accepted: a loopLimit of 1 or more, 2 by default"
            )
        return ReplayFault(said)

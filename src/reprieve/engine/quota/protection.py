"""Who is spared though the reference would preempt it. Nothing here applies unless it is asked for.

1. a workload that has not held its quota for its minimum runtime yet: one for preemption within its
   ClusterQueue, one for reclamation by others
2. with a ledger, a pair that has preempted each other as often as is allowed within the window, so
   that two workloads do not take turns for ever

What is evicted already is not spared: it goes anyway.

Source: issue contract of the quota plane ("beyond the reference").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reprieve.engine.quota.candidates import Preemptor
from reprieve.engine.quota.state import Holder
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos

__all__ = ["Ledger", "Pair", "protected"]

LIMIT: Final = 2

Pair = frozenset[str]  # uids of two workloads


class Ledger:
    """Remembers who preempted whom within the window."""

    def __init__(self, limit: int = LIMIT, window: int = HOUR) -> None:
        """Allow `limit` preemptions between two workloads within `window` nanoseconds."""
        self._limit = limit
        self._window = window
        self._instants: dict[Pair, list[Nanos]] = {}

    def record(self, preemptor: str, victim: str, now: Nanos) -> None:
        """Note a preemption by uids; forget those that are out of the window."""
        self._instants.setdefault(frozenset((preemptor, victim)), []).append(now)
        for pair, instants in list(self._instants.items()):
            kept = [each for each in instants if now - each < self._window]
            if kept:
                self._instants[pair] = kept
            else:
                del self._instants[pair]

    def concerns(self, uid: str) -> bool:
        """Tell whether a workload has preempted or was preempted."""
        return any(uid in pair for pair in self._instants)

    def holds(self, preemptor: str, victim: str, now: Nanos) -> bool:
        """Tell whether the pair has used up what it is allowed."""
        instants = self._instants.get(frozenset((preemptor, victim)), ())
        return sum(now - each < self._window for each in instants) >= self._limit

    def held(self, now: Nanos) -> list[Pair]:
        """Return the pairs that are held, for events and metrics."""
        found = [
            pair
            for pair, instants in self._instants.items()
            if sum(now - each < self._window for each in instants) >= self._limit
        ]
        return sorted(found, key=sorted)


def protected(who: Preemptor, now: Nanos, runtimes: bool, ledger: Ledger | None) -> Preemptor:
    """Return the preemptor with the test of whom it leaves alone, or as it is.

    Args:
        who: the preemptor.
        now: the instant of the decision.
        runtimes: whether anything has a minimum runtime.
        ledger: of who preempted whom, None where pairs are not held.
    """
    uid = who.workload.uid
    paired = ledger is not None and ledger.concerns(uid)
    if not (runtimes or paired):
        return who

    def spares(holder: Holder) -> bool:
        workload = holder.workload
        if holder.evicted:
            return False
        own = holder.queue == who.queue
        seconds = workload.preempt_min_runtime_s if own else workload.reclaim_min_runtime_s
        held_for = None if workload.reserved_at is None else now - workload.reserved_at
        if seconds and held_for is not None and held_for < seconds * SECOND:
            return True
        return ledger is not None and paired and ledger.holds(uid, workload.uid, now)

    return replace(who, spares=spares)

"""Who is spared though the reference would preempt it. Nothing here applies unless it is asked for.

1. a workload that has not held its quota for its minimum runtime yet: one for preemption within its
   ClusterQueue, one for reclamation by others
2. with a ledger, a pair that has preempted each other as often as is allowed within the window, so
   that two workloads do not take turns for ever

What is evicted already is not spared: it goes anyway. Both end by time alone, so that whoever was
refused because of them has to be tried again then (`Spared.until`).

Source: issue contract of the quota plane ("beyond the reference").
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from reprieve.engine.quota.candidates import Preemptor
from reprieve.engine.quota.state import Holder
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos, format_instant

__all__ = ["Ledger", "Pair", "Spared", "protected"]

LIMIT: Final = 2

Pair = frozenset[str]  # uids of two workloads


class Ledger:
    """Remembers who preempted whom within the window."""

    def __init__(self, limit: int = LIMIT, window: int = HOUR) -> None:
        """Allow `limit` preemptions between two workloads within `window` nanoseconds."""
        self.limit = limit
        self.window = window
        self._instants: dict[Pair, list[Nanos]] = {}
        self._often: dict[Pair, None] = {}  # pairs with as many instants as hold them
        self._concerned: Counter[str] = Counter()  # preemptions by uid
        self._oldest: list[tuple[Nanos, str, str]] = []  # a heap; what was undone stays in it

    def record(self, preemptor: str, victim: str, at: Nanos) -> None:
        """Note a preemption by uids; forget those that are out of the window by then."""
        pair = frozenset((preemptor, victim))
        instants = self._instants.setdefault(pair, [])
        insort(instants, at)
        if len(instants) >= self.limit:
            self._often[pair] = None
        self._concerned.update(pair)
        heappush(self._oldest, (at, min(pair), max(pair)))
        while self._oldest[0][0] + self.window <= at:
            instant, first, second = heappop(self._oldest)
            self._forget(frozenset((first, second)), instant)

    def undo(self, preemptor: str, victim: str) -> None:
        """Take back the last preemption that was noted: it did not happen."""
        pair = frozenset((preemptor, victim))
        if pair in self._instants:
            self._forget(pair, self._instants[pair][-1])

    def concerns(self, uid: str) -> bool:
        """Tell whether a workload has preempted or was preempted."""
        return self._concerned[uid] > 0

    def held_until(self, preemptor: str, victim: str, now: Nanos) -> Nanos | None:
        """Return when the pair may preempt each other again, None while it may."""
        return self._end(self._instants.get(frozenset((preemptor, victim)), []), now)

    def held(self, now: Nanos) -> dict[Pair, Nanos]:
        """Return the pairs that are held, each with the instant at which that ends."""
        ends = ((pair, self._end(self._instants[pair], now)) for pair in self._often)
        return {pair: end for pair, end in ends if end is not None}

    def _end(self, instants: Sequence[Nanos], now: Nanos) -> Nanos | None:
        within = [each for each in instants if now - each < self.window]
        if len(within) < self.limit:
            return None
        return Nanos(within[-self.limit] + self.window)

    def _forget(self, pair: Pair, instant: Nanos) -> None:
        instants = self._instants.get(pair, [])
        if instant in instants:
            instants.remove(instant)
            if len(instants) < self.limit:
                self._often.pop(pair, None)
            if not instants:
                del self._instants[pair]
            for uid in pair:
                self._concerned[uid] -= 1
                if not self._concerned[uid]:
                    del self._concerned[uid]


@dataclass(slots=True)
class Spared:
    """Whom one preemptor leaves alone, found while its candidates are looked at.

    `young` are keys of workloads within their minimum runtime, `paired` of those that it may not
    preempt again; `until` is when the first of them may be preempted, None without any.
    """

    who: Preemptor
    now: Nanos
    ledger: Ledger | None
    until: Nanos | None = None
    young: set[str] = field(default_factory=set)
    paired: set[str] = field(default_factory=set)

    def __call__(self, holder: Holder) -> bool:
        """Tell whether a candidate is left alone."""
        workload = holder.workload
        if holder.evicted:
            return False
        own = holder.queue == self.who.queue
        seconds = workload.preempt_min_runtime_s if own else workload.reclaim_min_runtime_s
        if seconds and workload.reserved_at is not None:
            end = Nanos(workload.reserved_at + seconds * SECOND)
            if self.now < end:
                return self._spare(self.young, holder, end)
        if self.ledger is not None:
            held = self.ledger.held_until(self.who.workload.uid, workload.uid, self.now)
            if held is not None:
                return self._spare(self.paired, holder, held)
        return False

    @property
    def message(self) -> str:
        """Return who is left alone, and until when; empty if nobody is."""
        if self.until is None:
            return ""
        parts = []
        if self.young:
            parts.append(f"{len(self.young)} workload(s) within their minimum runtime")
        if self.paired:
            parts.append(f"{len(self.paired)} workload(s) that it took turns with")
        return f"Not preempted: {' and '.join(parts)}, the first until {format_instant(self.until)}"

    def _spare(self, why: set[str], holder: Holder, end: Nanos) -> bool:
        why.add(holder.key)
        self.until = end if self.until is None else min(self.until, end)
        return True


def protected(who: Preemptor, now: Nanos, runtimes: bool, ledger: Ledger | None) -> Spared | None:
    """Return whom the preemptor leaves alone, None if there cannot be anybody.

    Args:
        who: the preemptor.
        now: the instant of the decision.
        runtimes: whether anything has a minimum runtime.
        ledger: of who preempted whom, None where pairs are not held.
    """
    paired = ledger if ledger is not None and ledger.concerns(who.workload.uid) else None
    return Spared(who, now, paired) if runtimes or paired is not None else None

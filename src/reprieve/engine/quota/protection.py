"""Who is spared though the reference would preempt it. Nothing here applies unless it is asked for.

1. a workload that has not held its quota for its minimum runtime yet: one for preemption within its
   ClusterQueue, one for reclamation by others
2. with a ledger, a pair that has preempted each other as often as is allowed within the window, so
   that two workloads do not take turns for ever; but not

   - for what happened when a priority, weight or quota of the two was another: the pair starts anew
   - from a strictly higher priority, which takes its turn; unless it has preempted the other as
     often as is allowed without having got quota since: then others profit, and it goes on for ever

   The lower priority of two preempts the higher one time less, so that nobody makes way more often
   than is allowed although the higher has the last turn.

What is evicted already is not spared: it goes anyway. Both end by time alone, so that whoever was
refused because of them has to be tried again then (`Spared.until`).

Source: issue contract of the quota plane ("beyond the reference").
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from reprieve.engine.quota.candidates import Preemptor
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.state import Holder, Snapshot, effective_priority
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos, format_instant

__all__ = ["Causes", "Ledger", "Pair", "Spared", "protected"]

LIMIT: Final = 2

Pair = frozenset[str]  # uids of two workloads


class _Turn(NamedTuple):
    """One preemption; `cause` is empty where it is not known, which is as good as any."""

    at: Nanos
    preemptor: str
    cause: str


class Ledger:
    """Remembers who preempted whom within the window.

    `refusals` collects whom it held back from whom until when, for a record that is decided again;
    whoever keeps records empties it.
    """

    def __init__(self, limit: int = LIMIT, window: int = HOUR) -> None:
        """Allow `limit` preemptions between two workloads within `window` nanoseconds."""
        self.limit = limit
        self.window = window
        self.refusals: dict[tuple[str, str], Nanos] = {}
        self._turns: dict[Pair, list[_Turn]] = {}
        self._often: dict[Pair, None] = {}  # pairs with as many turns as hold them
        self._causes: dict[Pair, str] = {}  # as they were when it was told or asked last
        self._admitted: dict[str, Nanos] = {}  # the last time, of whom it concerns
        self._fixed: dict[tuple[str, str], Nanos] = {}
        self._concerned: Counter[str] = Counter()  # preemptions by uid
        self._oldest: list[tuple[Nanos, str, str]] = []  # a heap; what was undone stays in it

    def record(self, preemptor: str, victim: str, at: Nanos, cause: str = "") -> None:
        """Note a preemption by uids; forget those that are out of the window by then."""
        pair = frozenset((preemptor, victim))
        turns = self._turns.setdefault(pair, [])
        insort(turns, _Turn(at, preemptor, cause))
        if len(turns) >= self.limit:
            self._often[pair] = None
        if cause:
            self._causes[pair] = cause
        self._concerned.update(pair)
        heappush(self._oldest, (at, min(pair), max(pair)))
        while self._oldest and self._oldest[0][0] + self.window <= at:
            instant, first, second = heappop(self._oldest)
            old = frozenset((first, second))
            self._forget(old, [each for each in self._turns.get(old, ()) if each.at == instant])

    def undo(self, preemptor: str, victim: str) -> None:
        """Take back its last preemption of the other that was noted: it did not happen."""
        pair = frozenset((preemptor, victim))
        self._forget(pair, [t for t in self._turns.get(pair, ()) if t.preemptor == preemptor])

    def admitted(self, uid: str, at: Nanos) -> None:
        """Note that a workload has got quota: what it preempted for it was not in vain."""
        if self.concerns(uid):
            self._admitted[uid] = max(at, self._admitted.get(uid, at))

    def refuse(self, preemptor: str, victim: str, until: Nanos) -> None:
        """Hold one back from the other, whatever they did."""
        self._fixed[(preemptor, victim)] = until
        self._concerned.update((preemptor, victim))

    def concerns(self, uid: str) -> bool:
        """Tell whether a workload has preempted or was preempted."""
        return self._concerned[uid] > 0

    def held_until(
        self, preemptor: str, victim: str, now: Nanos, cause: str = "", *, above: int = 0
    ) -> Nanos | None:
        """Return when one may preempt the other again, None while it may.

        Args:
            preemptor: by uid, as `victim`.
            victim: who would make way.
            now: the instant of the decision.
            cause: of the two as they are now; turns of another cause do not count.
            above: by how much the preemptor's priority is higher. If it is, only what it did in
                vain counts; if it is lower, it has one turn less.
        """
        pair = frozenset((preemptor, victim))
        if (preemptor, victim) in self._fixed:
            return self._fixed[(preemptor, victim)]
        if cause and pair in self._turns:
            self._causes[pair] = cause
        turns: Sequence[_Turn] = self._turns.get(pair, ())
        own = [each for each in turns if each.preemptor == preemptor]
        if above > 0:
            since = self._admitted.get(preemptor, Nanos(0))
            end = self._end([each for each in own if each.at > since], cause, now, self.limit)
        else:
            end = self._end(turns, cause, now, self.limit)
            if end is None and above < 0:
                end = self._end(own, cause, now, max(1, self.limit - 1))
        if end is not None:
            self.refusals[(preemptor, victim)] = end
        return end

    def held(self, now: Nanos) -> dict[Pair, Nanos]:
        """Return the pairs that are held, each with the instant at which that ends."""
        ends = (
            (pair, self._end(self._turns[pair], self._causes.get(pair, ""), now, self.limit))
            for pair in self._often
        )
        return {pair: end for pair, end in ends if end is not None}

    def _end(self, turns: Sequence[_Turn], cause: str, now: Nanos, limit: int) -> Nanos | None:
        within = [
            each.at
            for each in turns
            if now - each.at < self.window and (not cause or each.cause in ("", cause))
        ]
        if len(within) < limit:
            return None
        return Nanos(within[-limit] + self.window)

    def _forget(self, pair: Pair, among: Sequence[_Turn]) -> None:
        """Forget the last of these turns of a pair, if there are any."""
        if not among:
            return
        turns = self._turns[pair]
        turns.remove(among[-1])
        if len(turns) < self.limit:
            self._often.pop(pair, None)
        if not turns:
            del self._turns[pair]
            self._causes.pop(pair, None)
        for uid in pair:
            self._concerned[uid] -= 1
            if not self._concerned[uid]:
                del self._concerned[uid]
                self._admitted.pop(uid, None)


class Causes:
    """What lets workloads preempt each other, as one snapshot has it: priorities, weights, quotas.

    Of a workload it is its effective priority, and the name, weight and quotas of its ClusterQueue
    and of every cohort above that.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._digests: dict[int, str] = {}  # by node of the tree

    def priority(self, workload: Workload) -> int:
        """Return the effective priority."""
        return effective_priority(workload, self._snapshot.settings)

    def between(self, one: Workload, queue: int, other: Workload, other_queue: int) -> str:
        """Return a text that is another one when the cause of turns between the two is another."""
        parts = (
            f"{workload.uid} {self.priority(workload)} {self._digest(node)}"
            for workload, node in ((one, queue), (other, other_queue))
        )
        return hashlib.sha256("|".join(sorted(parts)).encode()).hexdigest()[:16]

    def _digest(self, queue: int) -> str:
        found = self._digests.get(queue)
        if found is None:
            configuration, tree = self._snapshot.configuration, self._snapshot.tree
            queues, cohorts = configuration.cluster_queues, configuration.cohorts
            said = []
            for node in tree.path[queue]:
                name = tree.names[node]
                row = queues[name] if node < len(queues) else cohorts.get(name)
                said.append((name, None if row is None else (row.weight, row.groups)))
            found = hashlib.sha256(repr(said).encode()).hexdigest()
            self._digests[queue] = found
        return found


@dataclass(slots=True)
class Spared:
    """Whom one preemptor leaves alone, found while its candidates are looked at.

    `young` are keys of workloads within their minimum runtime, `paired` of those that it may not
    preempt again; `until` is when the first of them may be preempted, None without any.
    """

    who: Preemptor
    now: Nanos
    ledger: Ledger | None
    causes: Causes | None = None
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
            held = self._held_until(self.ledger, holder)
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

    def _held_until(self, ledger: Ledger, holder: Holder) -> Nanos | None:
        who, workload = self.who, holder.workload
        if self.causes is None:
            return ledger.held_until(who.workload.uid, workload.uid, self.now)
        cause = self.causes.between(who.workload, who.queue, workload, holder.queue)
        above = who.priority - self.causes.priority(workload)
        return ledger.held_until(who.workload.uid, workload.uid, self.now, cause, above=above)

    def _spare(self, why: set[str], holder: Holder, end: Nanos) -> bool:
        why.add(holder.key)
        self.until = end if self.until is None else min(self.until, end)
        return True


def protected(
    who: Preemptor,
    now: Nanos,
    runtimes: bool,
    ledger: Ledger | None,
    causes: Causes | None = None,
) -> Spared | None:
    """Return whom the preemptor leaves alone, None if there cannot be anybody.

    Args:
        who: the preemptor.
        now: the instant of the decision.
        runtimes: whether anything has a minimum runtime.
        ledger: of who preempted whom, None where pairs are not held.
        causes: what lets workloads preempt each other now; None where the ledger says who is held.
    """
    paired = ledger if ledger is not None and ledger.concerns(who.workload.uid) else None
    return Spared(who, now, paired, causes) if runtimes or paired is not None else None

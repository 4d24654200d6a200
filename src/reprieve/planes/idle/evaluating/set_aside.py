"""Evaluates without the GpuWorkloads that an evaluation breaks on, or does not come to an end with.

Which those are is found by halves: a part that an evaluation of its own breaks on holds one. They
are left out for 10 s, twice as long after each time in a row, at most ten minutes, or until they
change their settings or their phase; then all are evaluated again. One whose evaluation ended an
earlier process waits for as long as that states (`suspects`). A GpuWorkload of an open intent is
never left out, as what is freed for it would be freed again: then nothing is decided if the
evaluation breaks on it, or if one of it ended an earlier process. Source: the design's "Bad input".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import IdleSnapshot, Phase, Settings, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.quota.waiting.faults import Faults
from reprieve.planes.common.suspects import Ended
from reprieve.units.ids import GpuWorkloadKey

__all__ = ["Evaluated", "SetAside", "evaluate_others"]

Evaluate: TypeAlias = Callable[[IdleSnapshot], Awaitable[Evaluation]]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation and the snapshot it is of; `odd` were left out because of `fault`."""

    snapshot: IdleSnapshot
    evaluation: Evaluation
    odd: tuple[Workload, ...] = ()
    fault: Exception | None = None


class SetAside:
    """Who is left out of evaluations for now. `now` is the same clock in all calls."""

    def __init__(self) -> None:
        self._faults = Faults()
        # What each of them was when it was set aside.
        self._seen: dict[GpuWorkloadKey, tuple[Settings, Phase]] = {}
        # Of them those whose evaluation ended an earlier process.
        self._ended: dict[GpuWorkloadKey, Ended] = {}

    def hold(self, row: Workload, until: Nanos, ended: Ended) -> None:
        """Set aside whose evaluation ended an earlier process."""
        self._faults.hold(row.key, until)
        self._seen[row.key] = _facts(row)
        self._ended[row.key] = ended

    async def evaluate(self, evaluate: Evaluate, snapshot: IdleSnapshot, now: Nanos) -> Evaluated:
        """Return the evaluation of all but those that are set aside, and set aside who is odd.

        Raises:
            Exception: what the evaluation raised, where that is no GpuWorkload's own.
            Ended: an open intent is about one whose evaluation ended an earlier process.
        """
        rows = {row.key: row for row in snapshot.workloads}
        for key in self._seen.keys() - rows.keys():
            self._forget(key)
        left_out = {key for key in self._seen if self._waits(rows[key], now)}
        claimed = {key for key in left_out if _is_claimed(snapshot, rows[key])}
        for key in sorted(claimed & self._ended.keys()):
            raise self._ended[key]
        left_out -= claimed
        found = await evaluate_others(evaluate, without(snapshot, left_out))
        odd = {each.key for each in found.odd}
        for row in found.odd:
            self._faults.add(row.key, now)
            self._seen[row.key] = _facts(row)
        for key in self._seen.keys() - left_out - odd:
            self._forget(key)
        return found

    def next_try(self, now: Nanos) -> Nanos | None:
        """Return when a demand is to be tried again, None while none is set aside."""
        return self._faults.next_due(now)

    def _waits(self, row: Workload, now: Nanos) -> bool:
        return self._seen[row.key] == _facts(row) and self._faults.waits(row.key, now)

    def _forget(self, key: GpuWorkloadKey) -> None:
        del self._seen[key]
        self._ended.pop(key, None)
        self._faults.forget(key)


async def evaluate_others(evaluate: Evaluate, snapshot: IdleSnapshot) -> Evaluated:
    """Return the evaluation of all, or of all but those that it breaks on.

    Raises:
        Exception: what the evaluation raised, where that is no GpuWorkload's own.
    """
    try:
        return Evaluated(snapshot, await evaluate(snapshot))
    except Exception as fault:
        odd = await _odd(evaluate, snapshot, snapshot.workloads)
        if not odd or any(_is_claimed(snapshot, each) for each in odd):
            raise
        rest = without(snapshot, {each.key for each in odd})
        return Evaluated(rest, await evaluate(rest), tuple(odd), fault)


def without(snapshot: IdleSnapshot, keys: set[GpuWorkloadKey]) -> IdleSnapshot:
    """Return the snapshot without these."""
    if not keys:
        return snapshot
    left = tuple(each for each in snapshot.workloads if each.key not in keys)
    return replace(snapshot, workloads=left)


def _is_claimed(snapshot: IdleSnapshot, row: Workload) -> bool:
    return row.root.uid in snapshot.claims or row.key in set(snapshot.claims.values())


def _facts(row: Workload) -> tuple[Settings, Phase]:
    return row.settings, row.status.phase


async def _odd(
    evaluate: Evaluate, snapshot: IdleSnapshot, rows: Sequence[Workload]
) -> list[Workload]:
    try:
        await evaluate(replace(snapshot, workloads=tuple(rows)))
    except Exception:
        if len(rows) == 1:
            return list(rows)
    else:
        return []
    middle = len(rows) // 2
    parts = (rows[:middle], rows[middle:]) if middle else ()
    return [each for part in parts for each in await _odd(evaluate, snapshot, part)]

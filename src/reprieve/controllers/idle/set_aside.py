"""Evaluates without the GpuWorkloads that an evaluation breaks on.

Which those are is found by halves: a part that an evaluation of its own breaks on holds one.
Whoever an open intent is about is never left out, as what is freed for it would be freed again:
then nothing is decided. Source: the design's "Bad input".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Policy, Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.units.instants import Nanos

__all__ = ["Evaluated", "evaluate_others"]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation and the snapshot it is of; `odd` were left out because of `fault`."""

    snapshot: IdleSnapshot
    evaluation: Evaluation
    odd: tuple[Workload, ...] = ()
    fault: Exception | None = None


def evaluate_others(snapshot: IdleSnapshot, policy: Policy, now: Nanos) -> Evaluated:
    """Return the evaluation of all, or of all but those that it breaks on.

    Raises:
        Exception: what the evaluation raised, where that is no GpuWorkload's own.
    """
    try:
        return Evaluated(snapshot, evaluate(snapshot, policy, now))
    except Exception as fault:
        odd = _odd(snapshot, policy, now, snapshot.workloads)
        roots, demands = snapshot.claims.keys(), set(snapshot.claims.values())
        if not odd or any(each.root.uid in roots or each.key in demands for each in odd):
            raise
        keys = {each.key for each in odd}
        left = tuple(each for each in snapshot.workloads if each.key not in keys)
        rest = replace(snapshot, workloads=left)
        return Evaluated(rest, evaluate(rest, policy, now), tuple(odd), fault)


def _odd(
    snapshot: IdleSnapshot, policy: Policy, now: Nanos, rows: Sequence[Workload]
) -> list[Workload]:
    try:
        evaluate(replace(snapshot, workloads=tuple(rows)), policy, now)
    except Exception:
        if len(rows) == 1:
            return list(rows)
    else:
        return []
    middle = len(rows) // 2
    parts = (rows[:middle], rows[middle:]) if middle else ()
    return [each for part in parts for each in _odd(snapshot, policy, now, part)]

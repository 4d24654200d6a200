"""A run of cycles, each with the inputs of its preemptions as they stood before the next one.

Source: specification of the quota plane, section 8; the design's promise "Explained".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.pace import UNHURRIED, Pace
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, NodeCheck, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.nominated import Nominated
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.records.quota.record import inputs_of

__all__ = ["recorded_cycles"]


def recorded_cycles(
    holdings: Holdings,
    queues: Queues,
    now: Nanos,
    limit: int,
    most: int,
    first: int = 0,
    ledger: Displacements | None = None,
    proof: NodeCheck | None = None,
    pace: Pace = UNHURRIED,
    sampled: Callable[[], bool] = lambda: False,
    nominated: Nominated | None = None,
) -> list[tuple[CycleResult, dict[str, dict[str, Any]]]]:
    """Run `engine.quota.cycle.cycles`; return each result with the inputs of its preemptions.

    No further cycle is begun once `most` workloads or more were admitted. `sampled` is called for
    each head that got no quota and returns whether its input is wanted, too.
    """
    found = []
    admitted = 0
    if ledger is not None:
        ledger.forget_refusals()
        ledger.recorded.clear()
    for result in cycles(
        holdings, queues, now, limit, first, ledger, proof, pace, nominated=nominated
    ):
        found.append((result, inputs_of(result, holdings, queues, now, ledger, sampled)))
        admitted += len(result.of(Outcome.ADMITTED))
        if admitted >= most:
            break
        if ledger is not None:
            ledger.forget_refusals()
            ledger.recorded.clear()
    return found

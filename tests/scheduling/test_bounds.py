"""What a scheduling plane holds is bounded by what there is, however much came and went.

Gangs come, evict, are bound and leave, in virtual time; entries of all containers that the plane
holds are counted after as many gangs again. What is kept for a day or a number is given small
numbers here, since no test has a day: the ledger, the records.
"""

from __future__ import annotations

from typing import Final
from unittest.mock import patch

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions import governor as governors
from reprieve.engine.disruptions.governor import Governor
from reprieve.execution import pod_victims
from reprieve.execution.accounts import demand_names, returns
from reprieve.execution.records.book import Retention
from reprieve.planes.common.disruptions import displacements, loop_notices
from reprieve.planes.scheduling.cycle import preemptions
from tests.entries import entries
from tests.scheduling.churn import churn
from tests.scheduling.memory import memory
from tests.scheduling.site import pod

_NODES: Final = 4
_ROUNDS: Final = 40
_MOST: Final = 20


async def test_after_more_gangs_a_plane_holds_no_more_than_before() -> None:
    with (
        patch.object(preemptions, "_RETENTION", Retention(cap=_MOST, every=5 * SECOND)),
        patch.object(displacements, "_MOST_KNOWN", _MOST),
        patch.object(demand_names, "_KEPT", _MOST),
        patch.object(returns, "_MOST_RUNS", _MOST),
        patch.object(returns, "_MOST_LINES", _MOST),
        patch.object(loop_notices, "_KEPT", _MOST),
        patch.object(governors, "_FORGET_AFTER", _MOST),
        patch.object(pod_victims, "_MOST_EVICTED", _MOST),
    ):
        async with memory() as cluster:
            cluster.nodes([4] * _NODES)
            plane = cluster.start(tells=True, governor=Governor(most=_MOST))
            assert plane.context.disruptions is not None
            vars(plane.context.disruptions)["_displaced"].most = _MOST
            cluster.create(*(pod(f"low-{i}", 2, priority="low") for i in range(2 * _NODES)))
            await cluster.pass_time(5 * SECOND)
            await churn(cluster, 0, _ROUNDS)
            before = entries(plane)
            await churn(cluster, _ROUNDS, 2 * _ROUNDS)
            after = entries(plane)
            assert sum(cluster.api.deleted.values()) == 6 * _ROUNDS, "gangs had too few victims"
            assert len(cluster.intents()) <= _MOST + 1
    assert len(before) > 100 and sum(before.values()) > 1_000, "little of the plane was counted"
    # What the governor remembers is bounded by its ledger: `tests/disruptions/test_bounds.py`. Each
    # gang is a lineage of its own, and these keep the lineages that concern the governor.
    # Sums of harm have a bound of their own: `tests/engine/harm_budgets/test_table.py`.
    of_ledger = (".governor._history.", ".governor._admitted", ".loops._known", ".harm.sums.")
    grown = {
        name: (before[name], after[name])
        for name in after
        if after[name] > before[name] and not any(each in name for each in of_ledger)
    }
    assert not grown, grown

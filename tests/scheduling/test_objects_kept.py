"""However many displacements came, the plane keeps no object of them: what it remembers is packed.

Only sums of harm are rows, one for each lineage and hour, up to a number.

A thousand displacements in virtual time, with the bounds of the product but for what is kept of
records. Objects are counted, and bytes of arrays: nothing here depends on an allocator.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Final
from unittest.mock import patch

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.governor import Governor
from reprieve.execution.accounts import returns
from reprieve.execution.records.book import Retention
from reprieve.planes.scheduling.cycle import preemptions
from reprieve.planes.scheduling.plane import SchedulingPlane
from tests.entries import packed
from tests.scheduling.churn import churn
from tests.scheduling.memory import memory
from tests.scheduling.site import pod

_NODES: Final = 4
_MOST: Final = 20
#: Ten seconds each: series of events are kept for six minutes.
_BEFORE: Final = 40
_GANGS: Final = 130
_OF_SUMS: Final = ("sums.Key", "sums.Amount", "budget.HarmSide")


def _objects() -> Counter[str]:
    """Return how many objects of the product there are, by kind."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith("reprieve.")
    )


async def test_after_a_thousand_more_displacements_there_are_no_more_objects() -> None:
    with (
        patch.object(preemptions, "_RETENTION", Retention(cap=_MOST, every=5 * SECOND)),
        patch.object(returns, "_MOST_RUNS", _MOST),
        patch.object(returns, "_MOST_LINES", _MOST),
    ):
        async with memory() as cluster:
            cluster.nodes([4] * _NODES)
            plane = cluster.start(tells=True, governor=Governor())
            cluster.create(*(pod(f"low-{i}", 2, priority="low") for i in range(2 * _NODES)))
            await cluster.pass_time(5 * SECOND)
            await churn(cluster, 0, _BEFORE, size=2 * _NODES)
            before, told = _objects(), _remembered(plane)
            named = len(plane.loops._known)
            await churn(cluster, _BEFORE, _GANGS, size=2 * _NODES)
            after, now = _objects(), _remembered(plane)
            named = len(plane.loops._known) - named
    grown = {name: (before[name], after[name]) for name in after if after[name] > before[name]}
    rows = {name: counts for name, counts in grown.items() if ".harm_budgets." in name}
    grown = {name: counts for name, counts in grown.items() if name not in rows}
    # A key, an amount, and two sides of each row.
    assert rows.keys() == {f"reprieve.engine.harm_budgets.{each}" for each in _OF_SUMS}
    assert sum(last - first for first, last in rows.values()) <= 4 * _GANGS * 2 * _NODES
    # One name for each lineage of the ledger, of which each gang is one, up to a number.
    first, last = grown.pop("reprieve.units.references.Reference")
    assert (grown, last - first) == ({}, named)
    # What does grow is told, and is small.
    more = now["displacements"] - told["displacements"]
    assert more == now["named-victims"] - told["named-victims"] == _GANGS * 2 * _NODES
    size = sum(packed(plane.context.governor).values()) / now["displacements"]
    # Each gang is a lineage of its own, whose name the ledger keeps.
    assert 50 < size < 250, f"a row of the ledger takes {size} bytes"


def _remembered(plane: SchedulingPlane) -> dict[str, float]:
    metrics, governor = plane.context.metrics, plane.context.governor
    found = {
        sample.labels["table"]: sample.value
        for family in metrics.registry.collect()
        if family.name == "reprieve_remembered_rows"
        for sample in family.samples
    }
    assert governor is not None
    return found | {"displacements": governor.remembers[0]}

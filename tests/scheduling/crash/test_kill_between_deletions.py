"""SIGKILL at a deletion: what goes as a unit goes as a whole, by the next process at the latest.

The story is that of `test_whole_units` with a group of mode `all`, played with real processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from tests.scheduling.site import group, node, pod, site

pytestmark = pytest.mark.real_time  # operators are processes of their own

_UNIT = {f"unit-{number}" for number in range(3)}
_NODES = [node(f"node-{number}", 4) for number in range(3)]
_SAMPLE = [(1, Stage.STORED), (3, Stage.BEFORE)]


async def killed_at(k: int, stage: Stage, folder: Path) -> None:
    """Die at the k-th deletion of the unit, of which the preemptor needs one pod's room only."""
    async with site(_NODES, folder) as cluster:
        first = await cluster.operator_process()
        await cluster.classes()
        await cluster.create(group("unit", mode="all", priority="low"))
        members = (pod(name, 4, group="unit", priority="low") for name in sorted(_UNIT))
        await cluster.create(*members)
        await cluster.until_placed(_UNIT)
        await cluster.run()
        dead = asyncio.Event()
        deletions = 0

        async def kill(write: Write, at: Stage) -> None:
            nonlocal deletions
            if write.verb != "delete" or "/pods/" not in write.path or at is not stage:
                return
            deletions += 1
            if deletions == k and not dead.is_set():
                dead.set()
                os.kill(first.pids[0], signal.SIGKILL)

        cluster.hook = kill
        await cluster.create(pod("high", 4, priority="high"))
        await asyncio.wait_for(dead.wait(), 120)
        await cluster.end()
        await cluster.free_leases()
        await cluster.operator_process()

        async def settled() -> bool:
            await cluster.end()
            intents = await cluster.intents()
            # One that was stored in the moment of the death has no status yet.
            phases = {(each.get("status") or {}).get("phase") for each in intents}
            return phases <= {"Completed", "Abandoned"} and "high" in await cluster.placed()

        await cluster.until("the preemptor is bound and every intent closed", settled)
        assert not _UNIT & (await cluster.pods()).keys(), "a part of the unit is left"
        assert len(cluster.deleted) == len(_UNIT)
        assert set(cluster.deleted.values()) == {1}, "somebody was deleted twice"
        planned = {
            victim["root"]["uid"]
            for intent in await cluster.intents()
            for victim in intent["spec"]["victims"]
        }
        assert cluster.deleted.keys() <= planned, "somebody went without a record"


@pytest.mark.parametrize(("k", "stage"), _SAMPLE)
async def test_a_process_killed_between_two_deletions_leaves_no_part_of_a_unit(
    k: int, stage: Stage, tmp_path: Path
) -> None:
    await killed_at(k, stage, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.STORED, Stage.ANSWERED])
@pytest.mark.parametrize("k", range(1, 4))
async def test_a_process_killed_at_any_deletion_leaves_no_part_of_a_unit(
    k: int, stage: Stage, tmp_path: Path
) -> None:
    await killed_at(k, stage, tmp_path)

"""SIGKILL while a record in parts is written: nobody goes before its head stands there.

Processes of their own, whose parts hold a victim or two; all deaths of the story in memory, and
what becomes of parts without a head, are in `test_every_write`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from kubelocal.server.errors import StatusError
from reprieve.kube.resource import PREEMPTION_PARTS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.crash.evicted import evicted, together
from tests.scheduling.site import Site, node, site

pytestmark = pytest.mark.real_time  # operators are processes of their own

_MODULE = "tests.crash.small_parts"
_NODES = [node(f"node-{number}", 4) for number in range(2)]
_MOST_PARTS = 40


async def _objects(cluster: Site) -> tuple[int, int]:
    """Return how many heads and parts there are."""
    parts = await cluster.client.list(PREEMPTION_PARTS, dict, namespace=OPERATOR_NAMESPACE)
    return len(await cluster.intents()), len(parts.items)


async def killed_at(k: int, plural: str, stage: Stage, folder: Path) -> bool:
    """Die at the k-th creation of that kind; return whether there were so many."""
    async with site(_NODES, folder) as cluster:
        first = await cluster.operator_process(module=_MODULE)
        await cluster.filled()
        dead = asyncio.Event()
        created = 0

        async def kill(write: Write, at: Stage) -> None:
            nonlocal created
            made = write.verb == "create" and write.path.endswith(f"/{plural}")
            if not made or at is not stage or dead.is_set():
                return
            created += 1
            if created == k:
                dead.set()
                os.kill(first.pids[0], signal.SIGKILL)
                if stage is Stage.BEFORE:
                    # What a dead process has not sent is not stored.
                    raise StatusError(503, "ServiceUnavailable", "the process is dead")

        cluster.hook = kill
        members = await cluster.gang()
        over = asyncio.create_task(cluster.until_victims(4))
        death = asyncio.create_task(dead.wait())
        await asyncio.wait({over, death}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        death.cancel()
        if dead.is_set():
            heads, _ = await _objects(cluster)
            assert heads or not cluster.deleted, "somebody went before the head was there"
            await cluster.free_leases()
            await cluster.operator_process(module=_MODULE)

        async def settled() -> bool:
            await cluster.end()
            # One that was stored in the moment of the death has no status yet.
            phases = {(each.get("status") or {}).get("phase") for each in await cluster.intents()}
            placed = members <= (await cluster.placed()).keys()
            return placed and phases <= {"Completed", "Abandoned"}

        await cluster.until("the gang is bound and every intent closed", settled)
        assert set(cluster.deleted.values()) == {1}, "somebody was deleted twice"
        assert len(cluster.deleted) == 4
        parts = await cluster.client.list(PREEMPTION_PARTS, dict, namespace=OPERATOR_NAMESPACE)
        records = together(await cluster.intents(), parts.items)
        assert all(len(each.spec.parts) >= 2 for each in records)
        assert evicted(records) == dict.fromkeys(cluster.deleted, 1)
        return dead.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.STORED])
async def test_a_process_killed_at_any_object_of_a_record_is_made_good_by_the_next(
    stage: Stage, tmp_path: Path
) -> None:
    parts = 0
    while parts < _MOST_PARTS and await killed_at(
        parts + 1, "preemptionparts", stage, tmp_path / f"part-{parts + 1}"
    ):
        parts += 1
    assert 3 <= parts < _MOST_PARTS, "two for victims and some for the input"
    assert await killed_at(1, "preemptions", stage, tmp_path / "head"), "the head comes last"

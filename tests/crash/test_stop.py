"""Promise 4, one decider: a process stopped between check and write evicts nothing of its own.

A process is stopped (SIGSTOP) right after one of its writes was stored, deposed by another one
that finishes the story, and continued (SIGCONT): what it still sends must not count.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from tests.crash.reclaim import reclaim

MOST_WRITES = 44
FIRST_LED = 3  # the writes before are the KaiwoConfig and the lease itself
SAMPLE = (24, 26, 29)


async def stopped_after(folder: Path, k: int) -> None:
    async with reclaim(folder, "--lease-duration", "4s") as story:
        stopped = asyncio.Event()

        async def stop(index: int, write: Write, at: Stage) -> None:
            if index == k and at is Stage.STORED and not stopped.is_set():
                os.kill(first.pids[0], signal.SIGSTOP)
                stopped.set()

        story.hook = stop
        first = await story.start_operator()
        over = asyncio.create_task(story.until_over())
        stop_seen = asyncio.create_task(stopped.wait())
        await asyncio.wait({over, stop_seen}, return_when=asyncio.FIRST_COMPLETED)
        stop_seen.cancel()
        if not stopped.is_set():
            return await over
        over.cancel()
        await asyncio.gather(over, return_exceptions=True)
        second = await story.start_operator()
        await story.until_led_by(second)
        await story.until_over()
        os.kill(first.pids[0], signal.SIGCONT)
        for text in ("the process lease is lost: this process restarts itself", "stands by"):
            await first.until_said(text)
        await story.until_over()
        assert set(story.deleted.values()) == {1}, "a uid was deleted twice"
        assert await story.committed() == dict.fromkeys(story.deleted, 1)
        return None


@pytest.mark.parametrize("k", SAMPLE)
async def test_a_deposed_process_adds_nothing_to_what_its_successor_did(
    k: int, tmp_path: Path
) -> None:
    await stopped_after(tmp_path, k)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(FIRST_LED, MOST_WRITES + 1))
async def test_a_process_stopped_after_any_write_adds_nothing(k: int, tmp_path: Path) -> None:
    await stopped_after(tmp_path, k)

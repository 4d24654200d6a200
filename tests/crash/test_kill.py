"""Promise 3, recorded first: SIGKILL after any write leaves the same end and no second delete."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import Stage, Write
from tests.crash.reclaim import reclaim

#: A calm run takes about forty writes; a number beyond the end of a run kills nobody.
MOST_WRITES = 44
STAGES = (Stage.STORED, Stage.ANSWERED)
#: From the first GpuWorkload over intent, marks and deletes to the last status.
SAMPLE = [(k, STAGES[k % 2]) for k in (3, 22, 24, 26, 29, 31)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run that nobody disturbs ends in."""

    async def calm() -> dict[str, Any]:
        async with reclaim(tmp_path_factory.mktemp("calm")) as story:
            await story.start_operator()
            await story.until_over()
            return await story.outcome()

    return asyncio.run(calm())


async def killed_after(
    folder: Path,
    k: int,
    stage: Stage,
    expected: dict[str, Any],
    *,
    of: str = "",
    module: str = "reprieve",
) -> bool:
    """Die at the `k`-th write, `of` that plural if given; return whether there were so many."""
    async with reclaim(folder) as story:
        dead = asyncio.Event()
        written = 0

        async def kill(index: int, write: Write, at: Stage) -> None:
            nonlocal written
            if at is not stage or not write.path.partition("?")[0].endswith(of):
                return
            written += 1
            if (written if of else index) == k and not dead.is_set():
                os.kill(first.pids[0], signal.SIGKILL)
                dead.set()

        story.hook = kill
        first = await story.start_operator(module)
        over = asyncio.create_task(story.until_over())
        death = asyncio.create_task(dead.wait())
        await asyncio.wait({over, death}, return_when=asyncio.FIRST_COMPLETED)
        if dead.is_set():
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)
            await story.free_leases()
            await story.start_operator(module)
            await story.until_over()
        else:
            over.result()
        death.cancel()
        assert await story.outcome() == expected
        assert len(story.deleted) == 2
        assert set(story.deleted.values()) == {1}, "a uid was deleted twice"
        committed = await story.committed()
        assert committed == dict.fromkeys(story.deleted, 1)
        return dead.is_set()


@pytest.mark.parametrize(("k", "stage"), SAMPLE)
async def test_a_process_killed_after_a_write_is_finished_by_the_next(
    k: int, stage: Stage, tmp_path: Path, expected: dict[str, Any]
) -> None:
    await killed_after(tmp_path, k, stage, expected)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("k", range(1, MOST_WRITES + 1))
async def test_a_process_killed_after_any_write_is_finished_by_the_next(
    k: int, stage: Stage, tmp_path: Path, expected: dict[str, Any]
) -> None:
    await killed_after(tmp_path, k, stage, expected)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("of", ["preemptionparts", "preemptions"])
async def test_a_process_killed_while_it_writes_a_record_in_parts_is_finished_by_the_next(
    of: str, stage: Stage, tmp_path: Path, expected: dict[str, Any]
) -> None:
    at, module = 0, "tests.crash.small_parts"
    died = True
    while died and at < (1 if of == "preemptions" else 9):
        at += 1
        died = await killed_after(tmp_path / str(at), at, stage, expected, of=of, module=module)
    assert at == 1 or (at >= 4 and not died), "a record has several parts, and one head"

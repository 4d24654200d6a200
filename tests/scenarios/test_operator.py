"""Replicas of the operator as processes: what happens when one of them dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from reprieve.scenarios import operator
from reprieve.scenarios.operator import OperatorProcesses


@pytest.fixture
def processes(tmp_path: Path) -> OperatorProcesses:
    """Two replicas that do nothing."""
    made = OperatorProcesses(tmp_path / "kubeconfig", {}, replicas=2)
    made._command = (sys.executable, "-c", "import time; time.sleep(600)")
    return made


async def test_a_replica_that_is_killed_is_replaced_while_another_runs(
    processes: OperatorProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "_LONGEST_PAUSE_S", 0.0)
    await processes.start()
    ended = asyncio.create_task(processes.stopped_by_itself())
    try:
        for _ in range(2):
            killed, left = processes.pids
            os.kill(killed, signal.SIGKILL)
            async with asyncio.timeout(60):
                while len(processes.pids) < 2 or killed in processes.pids:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert left in processes.pids
        assert not ended.done()
        assert "ended by itself with code -9; another replaces it" in processes.tail()[-1]
    finally:
        ended.cancel()
        await processes.stop()
    assert processes.pids == []


async def test_it_is_over_when_no_replica_is_left(
    processes: OperatorProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this machine ever stands still.
    monkeypatch.setattr(operator, "_FIRST_PAUSE_S", 60.0)
    await processes.start()
    for pid in processes.pids:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        text = await processes.stopped_by_itself()
    await processes.stop()
    assert "ended by itself with code -9" in text

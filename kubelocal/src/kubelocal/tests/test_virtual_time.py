"""Time that passes only while nothing is ready, and who may keep it from passing."""

from __future__ import annotations

import asyncio

import pytest

from kubelocal.tests import virtual_time
from kubelocal.tests.virtual_time import VirtualTimeLoop


def test_a_task_that_is_always_ready_ends_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "_STANDSTILL", 1_000)

    async def wait() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with (
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
        pytest.raises(RuntimeError, match="stands still"),
    ):
        runner.run(wait())

"""The lag of the event loop is what a sleeper comes too late."""

from __future__ import annotations

import asyncio

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.telemetry.loop_lag import LoopLag
from reprieve.telemetry.metrics import Metrics


class LateClock(VirtualClock):
    """Wakes everybody later than asked."""

    late = 0

    async def sleep(self, nanoseconds: int) -> None:
        await super().sleep(nanoseconds + self.late)


async def test_the_lag_is_measured_and_shown() -> None:
    clock, metrics = LateClock(), Metrics()
    lag = LoopLag(clock, metrics)
    running = asyncio.create_task(lag.run())
    await clock.advance(1 * SECOND)
    assert lag.current == 0
    clock.late = SECOND // 10
    await clock.advance(1 * SECOND)
    assert lag.current == SECOND // 10
    running.cancel()
    total = metrics.registry.get_sample_value("reprieve_loop_lag_seconds_sum")
    assert total is not None
    assert total > 0

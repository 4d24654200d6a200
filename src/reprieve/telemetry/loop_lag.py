"""How late the event loop wakes its sleepers: when the loop lags, nothing is decided.

Source: design, "Processes and time".
"""

from __future__ import annotations

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.telemetry.metrics import Metrics

__all__ = ["LoopLag"]

_PERIOD = SECOND // 4


class LoopLag:
    """Measures the lag four times a second; `current` is the last one, in nanoseconds."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self.current = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            started = self._clock.monotonic()
            await self._clock.sleep(_PERIOD)
            self.current = max(0, self._clock.monotonic() - started - _PERIOD)
            self._metrics.loop_lag_seconds.observe(self.current / SECOND)

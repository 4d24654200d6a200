"""The scheduler of a stage whose operator is not one: our scheduling plane, in this process.

It replaces a kube-scheduler for the pods of `default-scheduler`, and knows no lease, as
no other process schedules there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.execution.fence import Fence
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.recording.events import EventRecorder
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.settings.scheduling import scheduling_settings
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.scheduling import SchedulingMetrics

__all__ = ["scheduling"]

_NAME: Final = "stage-scheduler"


@dataclass(frozen=True, slots=True)
class _Always:
    """A tenure without contenders."""

    clock: Clock
    identity: str = _NAME
    epoch: int = 0

    @property
    def held_until(self) -> Nanos:
        return Nanos(self.clock.monotonic() + HOUR)


@asynccontextmanager
async def scheduling(kubeconfig: Path, namespace: str, clock: Clock) -> AsyncIterator[None]:
    """Schedule pods for as long as the block lasts; `namespace` holds the intents."""
    client = connect(await load_connection(str(kubeconfig)), clock, field_manager=_NAME)
    events = EventRecorder(client, clock, instance=_NAME)
    metrics = Metrics()
    plane = SchedulingPlane(
        SchedulingContext(
            full_client=client,
            clock=clock,
            fence=Fence(_Always(clock), clock, HOUR // 60),
            events=events,
            metrics=metrics,
            scheduler_metrics=SchedulingMetrics(metrics.registry),
            settings=scheduling_settings(),
        ),
        namespace,
    )
    tasks = [asyncio.create_task(events.run()), asyncio.create_task(plane.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()

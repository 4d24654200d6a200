"""What the idle plane sees to every few seconds, whatever has changed.

It looks whether a live Kaiwo operator makes this one read-only, and counts what the metrics show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.engine.idle.discovery import Root
from reprieve.engine.idle.model import Phase
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.foreign_decider import ForeignDecider, last_writer
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.due import Due
from reprieve.planes.idle.evaluating.evaluator import Evaluator
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.telemetry.metrics import IdleGpuSeconds

__all__ = ["Housekeeping"]

_PERIOD: Final = 5 * SECOND


class Housekeeping:
    """Keeps one idle plane in order.

    `known_roots` are the roots by uid that are followed.
    """

    def __init__(
        self,
        context: IdleContext,
        kaiwo: ForeignDecider,
        workloads: TrackedWorkloads,
        known_roots: Mapping[str, Root],
        due: Due,
        evaluator: Evaluator,
        loops: LoopNotices,
    ) -> None:
        self._loops = loops
        self._context = context
        self._kaiwo = kaiwo
        self._workloads = workloads
        self._known_roots = known_roots
        self._due = due
        self._evaluator = evaluator
        self._idle_gpus = IdleGpuSeconds(context.metrics)

    async def run(self) -> None:
        """Look at everything again and again until cancelled."""
        while True:
            await self.look_for_kaiwo()
            phases = Counter(held.status.phase.value or "New" for held in self._workloads)
            self._context.metrics.set_workloads(phases)
            self._count_idle_gpus()
            await self._loops.show(self._context.clock.wall())
            await self._context.clock.sleep(_PERIOD)

    def _count_idle_gpus(self) -> None:
        idle: Counter[tuple[str, str]] = Counter()
        for held in self._workloads:
            if held.status.phase is Phase.IDLE:
                for resource, number in held.object.spec.gpu_resources.items():
                    idle[held.ref.namespace, resource] += number
        self._idle_gpus.observe(idle, self._context.clock.monotonic())

    async def look_for_kaiwo(self) -> None:
        """Be read-only from now on while a live Kaiwo operator writes, and no longer."""
        await self._kaiwo.observe()
        writes = [held.writes for held in self._workloads]
        holder = self._kaiwo.holder
        writer = next((each.other for each in writes if each.other), "") if holder else ""
        if not writer:
            _, holder = self._kaiwo.elsewhere
            writer = last_writer(writes) if holder else ""
        reason = ""
        if writer:
            reason = (
                f"read-only: the Kaiwo operator {holder} is alive and its manager "
                f"{writer!r} writes GpuWorkloads; stop it, or switch its GPU preemption off"
            )
        if reason != self._context.read_only:
            log.warning("%s", reason or "no other operator writes GpuWorkloads: not read-only")
            self._context.read_only = reason
            self._due.every_workload()
            for uid in self._known_roots:
                self._due.roots.add(uid)
            self._evaluator.ask()

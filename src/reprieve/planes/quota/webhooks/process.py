"""The webhooks of an operator process: which ones, when they are registered, their probes.

Every process of a deployment keeps the quota plane's caches up to date and answers; the one that
leads, and does not stand beside a Kueue that decides, registers. Beside such a Kueue nothing is
changed and nothing refused: its own webhooks do that.

Source: specification of the quota plane, section 12; the design's "Promises", 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from kubeworld.units.durations import SECOND
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.webhooks.hooks import plane_hooks, tenancy_of
from reprieve.planes.quota.webhooks.server import Standing, run_webhooks, webhook_options
from reprieve.settings.quota import QuotaSettings
from reprieve.telemetry.probes import Check

__all__ = ["ProcessWebhooks"]


class ProcessWebhooks:
    """The webhooks of one process. `leading` returns once the process leads."""

    def __init__(
        self,
        plane: QuotaPlane,
        settings: QuotaSettings,
        namespace: str,
        leading: Callable[[], Awaitable[None]],
    ) -> None:
        self._plane = plane
        self._settings = settings
        self._options = webhook_options(settings, namespace)
        self._leading = leading
        self._serving = False
        self._refused = ""
        # The plane writes once the API server knows where its writes are judged now.
        plane.context.registered.clear()
        plane.context.gates = tenancy_of(plane, settings).gates

    async def run(self) -> None:
        """Serve, and register when it is time, until cancelled.

        Raises:
            UsageError: the port cannot be listened on, or mounted files cannot be used.
        """
        context = self._plane.context
        tasks = [
            asyncio.create_task(self._plane.follow()),
            asyncio.create_task(
                run_webhooks(
                    context.full_client,
                    self._options,
                    plane_hooks(self._plane, self._settings, asyncio.get_running_loop()),
                    context.clock,
                    self._turn,
                    self._reported,
                    lambda why: context.metrics.webhook_refused.labels(why).inc(),
                )
            ),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def checks(self) -> Iterator[Check]:
        """Yield what a probe shows."""
        detail = "not served yet: there is no certificate, or no process leads"
        yield Check("webhooks", passed=self._serving, detail=detail)
        if self._refused:
            yield Check("webhooks-registered", passed=False, detail=self._refused, required=False)

    async def _turn(self) -> None:
        await self._leading()
        while not self._plane.alone:
            await self._plane.context.clock.sleep(SECOND // 2)

    def _reported(self, standing: Standing, why: str) -> None:
        self._serving = True
        self._refused = why
        if standing is not Standing.SERVING:
            self._plane.context.registered.set()
        self._plane.context.gates_pods = standing is Standing.REGISTERED

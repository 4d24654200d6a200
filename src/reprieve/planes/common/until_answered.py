"""What a process has to know before it can stand by, queried until the API server answers.

A process that leads begins anew when it loses its lease, and it loses it where the API server is
away for longer than that lasts: so a process that begins anew may find it away still. The API
server counts as away after no answer, a refused connection, or what a load balancer or an
overloaded server answers in its place (5xx, 429). Any other refusal is an answer, which another
request does not change. A signal to stop ends the waiting. Source: the design's "Processes and
time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.retry import AWAY

__all__ = ["until_answered"]

T = TypeVar("T")

_AGAIN: Final = 2 * SECOND


async def until_answered(
    ask: Callable[[], Awaitable[T]],
    clock: Clock,
    stop: asyncio.Event,
    report: Callable[[Exception], None],
) -> T | None:
    """Return the answer, None where `stop` was set first.

    `report` is called with why there is none yet, each reason once.

    Raises:
        Exception: what `ask` raises other than that the API server is away.
    """

    async def asking() -> T:
        reported = ""
        while True:
            try:
                return await ask()
            except AWAY as failure:
                if str(failure) != reported:
                    reported = str(failure)
                    report(failure)
                await clock.sleep(_AGAIN)

    answer = asyncio.create_task(asking())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((answer, stopped), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        for task in (answer, stopped):
            task.cancel()
        await asyncio.gather(answer, stopped, return_exceptions=True)

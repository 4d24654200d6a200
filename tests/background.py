"""What runs beside a test, and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

__all__ = ["ended", "in_background"]


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run this until the end of the block, which raises what it has failed with."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            await ended(task)


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel it and wait for its end; raises what it has failed with."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

"""One solver thread: decisions over immutable snapshots, beside the event loop.

Safety comes from the fence at every write, promptness from this thread: the loop goes on renewing
the lease and reading watches while a decision runs. Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["Solver"]

P = ParamSpec("P")
T = TypeVar("T")


class Solver:
    """Runs pure functions one at a time in one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="solver")

    async def run(self, decide: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `decide(*args, **kwargs)`, computed in the solver thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: decide(*args, **kwargs))

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

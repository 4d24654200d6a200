"""What is written of notices, each by itself, until it is written.

A notice is due again when its unit has changed; only its last state counts. What fails is retried
after a pause that doubles from a second to a minute, and holds up no other notice. No eviction
waits for any of it. Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.notices import Notified
from reprieve.kube.errors import ApiError

__all__ = ["DueNotices"]

log: Final = logging.getLogger("reprieve.execution")

_LONGEST_PAUSE: Final = MINUTE


class DueNotices:
    """Calls `write` for each notice that is due; `what` names in the log what that writes."""

    def __init__(
        self, write: Callable[[Notified], Awaitable[None]], what: str, fence: Fence, clock: Clock
    ) -> None:
        self._write = write
        self._what = what
        self._fence = fence
        self._clock = clock
        self._due: dict[str, Notified] = {}
        self._changed = asyncio.Event()

    def add(self, reported: Notified) -> None:
        """Write this notice as soon as possible."""
        self._due[reported.id] = reported
        self._changed.set()

    def drop(self, reported: Notified) -> None:
        """Do not write this notice any more."""
        self._due.pop(reported.id, None)

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        pause = SECOND
        while True:
            await self._changed.wait()
            self._changed.clear()
            failed = not self._fence.open or not await self._write_once()
            if failed:
                await self._clock.sleep(pause)
                self._changed.set()
            pause = min(2 * pause, _LONGEST_PAUSE) if failed else SECOND

    async def _write_once(self) -> bool:
        """Write what is due; return whether all could be written."""
        due, self._due = self._due, {}
        failed: dict[str, Notified] = {}
        try:
            for reported in list(due.values()):
                root = reported.victims[0].root
                try:
                    await self._write(reported)
                except (Deposed, ApiError) as failure:
                    log.warning(
                        "%s of %s %s/%s is not written, it is retried: %s",
                        self._what,
                        root.kind,
                        root.namespace,
                        root.name,
                        failure,
                    )
                    failed[reported.id] = reported
                except Exception:
                    log.exception(
                        "%s of %s %s/%s is not written",
                        self._what,
                        root.kind,
                        root.namespace,
                        root.name,
                    )
                del due[reported.id]
        finally:
            self._due = {**due, **failed, **self._due}
        return not failed

"""Until nothing moves any more: how a run waits for the planes to get ready and to come to rest.

A quarter of a minute in which nothing changes counts as rest. Source: the design's "Processes and
time".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reprieve.planes.common.assembly import Plane
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.errors import ReprieveError
from reprieve.whatif.overlay import Overlay
from reprieve.whatif.stand_ins import StandIns
from reprieve.whatif.virtual_loop import LoopClock

__all__ = ["Quiet", "Rest", "Undecided"]

_LOOK: Final = SECOND
_QUIET: Final = 15 * SECOND
_LONGEST: Final = 30 * MINUTE


class Undecided(ReprieveError):
    """No answer was found."""


@dataclass(slots=True)
class Rest:
    """Waits until nothing moves."""

    overlay: Overlay
    clock: LoopClock
    stand_ins: StandIns
    tasks: dict[str, asyncio.Task[Any]]

    async def ready(self, planes: Sequence[Plane]) -> None:
        """Wait until every plane has read what it needs.

        Raises:
            Undecided: one did not.
        """
        end = self.clock.monotonic() + MINUTE
        while not all(plane.ready for plane in planes):
            self._check()
            if self.clock.monotonic() >= end:
                troubles = [trouble for plane in planes for trouble in plane.troubles()]
                raise Undecided("; ".join(troubles) or "the planes did not get ready")
            await self.clock.sleep(_LOOK // 10)

    async def come(self) -> bool:
        """Let time pass until nothing has changed for a while; False where the limit came first."""
        limit = self.clock.monotonic() + _LONGEST
        seen, since = self.overlay.version, self.clock.monotonic()
        while self.clock.monotonic() < limit:
            await self.clock.sleep(_LOOK)
            self._check()
            if self.overlay.version != seen or self.stand_ins.busy:
                seen, since = self.overlay.version, self.clock.monotonic()
            elif self.clock.monotonic() - since >= _QUIET:
                return True
        return False

    def _check(self) -> None:
        """Raise what ended a plane or the stand-ins."""
        for task in self.tasks.values():
            if task.done():
                task.result()
                raise Undecided("a plane ended by itself")


class Quiet(logging.Handler):
    """Keeps the warnings of a run to itself, and everything else from being told."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._loggers = (logging.getLogger("reprieve"),)
        self._before: list[tuple[int, bool, list[logging.Handler]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> Quiet:
        for logger in self._loggers:
            self._before.append((logger.level, logger.propagate, logger.handlers))
            logger.handlers, logger.propagate = [self], False
            logger.setLevel(logging.WARNING)
        return self

    def __exit__(self, *failure: object) -> None:
        for logger, (level, propagate, handlers) in zip(self._loggers, self._before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)

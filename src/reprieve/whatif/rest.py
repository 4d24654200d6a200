"""Until nothing moves any more: how a run waits for the planes to get ready and to come to rest.

A quarter of a minute in which nothing changes counts as rest, and so does one in which what waits
only states so in other words: of a StrictFIFO queue the head is tried without end, each time from
the flavor behind the last one, and is refused for another reason each time. Deadlines of work that
was notified, and delays of preemptors, are waited for (`waited`). Source: the design's "Processes
and time"; specification of the quota plane, sections 5.1 and 8.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.time import LoopClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.bodies import Json
from reprieve.planes.common.assembly import Plane
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Change, Overlay
from reprieve.whatif.happened import Undecided
from reprieve.whatif.waited import Saving

__all__ = ["Quiet", "Rest"]

_LOOK: Final = SECOND
_QUIET: Final = 15 * SECOND
_LONGEST: Final = 30 * MINUTE


@dataclass(slots=True)
class Rest:
    """Waits until nothing moves.

    `saving`: work that was notified, whose deadline is waited for; `delay`: for how long a
    preemptor may have to wait, in nanoseconds.
    """

    overlay: Overlay
    clock: LoopClock
    stand_ins: StandIns
    tasks: dict[str, asyncio.Task[Any]]
    saving: Saving
    delay: int = 0

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
        """Pass time until nothing has changed for a while; False where the limit came first."""
        limit = self.clock.monotonic() + _LONGEST + self.delay
        history = self.overlay.history
        seen, since = len(history), self.clock.monotonic()
        while self.clock.monotonic() < limit or self._saves:
            await self.clock.sleep(_LOOK)
            self._check()
            moved = any(map(_moves, history[seen:]))
            seen = len(history)
            if moved or self.stand_ins.busy or self._saves:
                since = self.clock.monotonic()
            elif self.clock.monotonic() - since >= _QUIET + self.delay:
                return True
        return False

    @property
    def _saves(self) -> bool:
        """Whether a unit with notice may still save."""
        self.saving.follow()
        return self.saving.until > self.clock.wall()

    def _check(self) -> None:
        """Raise what ended a plane or the stand-ins."""
        for task in self.tasks.values():
            if task.done():
                task.result()
                raise Undecided("a plane ended by itself")


def _moves(change: Change) -> bool:
    """Return whether more has changed than the words in which something states that it waits."""
    old, new = change.old, change.new
    if old is None or new is None or new["kind"] != "Workload":
        return True
    return _stated(old) != _stated(new)


def _stated(workload: Json) -> tuple[Any, Any, Any]:
    status = dict(workload.get("status") or {})
    conditions = status.pop("conditions", None) or ()
    reported = {(each["type"], each["status"]) for each in conditions}
    return workload.get("spec"), status, reported


class Quiet(logging.Handler):
    """Keeps the warnings of a run to itself, and everything else from being reported."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []
        self._loggers = (logging.getLogger("reprieve"),)
        self._before: list[tuple[int, bool, list[logging.Handler]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> tuple[str, ...]:
        """What was logged, each text once."""
        return tuple(dict.fromkeys(each.getMessage() for each in self.records))

    def discard(self, logger: str) -> None:
        """Drop what a logger has logged so far."""
        self.records = [each for each in self.records if each.name != logger]

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

"""Work that continues after a fault of ours, and steps over many of which one may fail.

A fault is logged with its traceback and counted (`telemetry.faults`); the work begins anew after a
pause that grows while it fails again and again. Only the loss of the lease ends it. Source: the
design's "Bad input".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.execution.fence import Deposed
from reprieve.kube.errors import ApiError

__all__ = ["Pauses", "alone", "persistent", "recovered"]

_FIRST: Final = SECOND
_LONGEST: Final = MINUTE


class Pauses:
    """How long to pause after faults in a row: a second, then twice as long each time, a minute."""

    def __init__(self) -> None:
        self._next = _FIRST

    def after_fault(self) -> int:
        """Return the nanoseconds to pause now."""
        pause, self._next = self._next, min(2 * self._next, _LONGEST)
        return pause

    def well(self) -> None:
        """Begin again with the shortest pause."""
        self._next = _FIRST


@contextlib.contextmanager
def alone(reported: logging.Logger, what: str) -> Iterator[None]:
    """Log a fault in a step about one of many, so that the others come next.

    Raises:
        Deposed: the fence is closed.
        ApiError: the API server failed.
    """
    try:
        yield
    except (Deposed, ApiError):
        raise
    except Exception:
        reported.exception("%s is left out after a fault of ours", what)


async def persistent(
    work: Callable[[], Awaitable[None]], clock: Clock, reported: logging.Logger, what: str
) -> None:
    """Do an endless piece of work until cancelled; `what` names it in the log.

    Raises:
        Deposed: the fence is closed.
    """
    pauses = Pauses()
    while True:
        started = clock.monotonic()
        try:
            await work()
        except (Deposed, asyncio.CancelledError):
            raise
        except ExceptionGroup as group:
            deposed = group.subgroup(Deposed)
            if deposed is not None:
                raise deposed from None
            reported.exception("%s begins anew after a fault of ours", what)
        except Exception:
            reported.exception("%s begins anew after a fault of ours", what)
        else:
            return
        if clock.monotonic() - started > 2 * _LONGEST:
            pauses.well()
        await clock.sleep(pauses.after_fault())


async def recovered(
    recover: Callable[[], Awaitable[None]], clock: Clock, reported: logging.Logger
) -> None:
    """Adopt the open intents of a former process, and try again until that is done.

    No work is evicted before what was begun is known.

    Raises:
        Deposed: the fence is closed.
    """
    pauses = Pauses()
    while True:
        try:
            await recover()
        except ApiError as failure:
            reported.warning("cannot adopt open intents: %s", failure)
            await clock.sleep(_FIRST)
        except Deposed:
            raise
        except Exception:
            reported.exception("cannot adopt open intents")
            await clock.sleep(pauses.after_fault())
        else:
            return

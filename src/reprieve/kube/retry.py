"""How often a call is tried, on which errors it is tried again, and how long the pause is.

1. At most `ATTEMPTS` times; the last failure is raised.
2. Again where the API server was `AWAY`: no answer, or one that states nothing of the call. It may
   have been carried out, so what is tried again reads first, or can be done twice.
3. Again where another was faster: `Conflict` and, as far as the caller names them, `NotFound` and
   `AlreadyExists`. What is tried again reads and judges anew.
4. The pause doubles from 0.2 s to 10 s, each time jittered by half; a server's Retry-After has
   precedence.
5. What is tried again as a whole is not tried again in its parts: within a call that another one
   tries again after a failure, that failure is raised at once. The outermost decides, since it
   alone knows what has to be read anew, and a server that answers nothing else gets `ATTEMPTS`
   calls and not their square.

Source: the API conventions, "Concurrency Control and Consistency"; client-go, util/retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import Random
from typing import Final, TypeVar

from kubeworld.units.durations import SECOND
from reprieve.kube.errors import ApiError, Conflict, ServerError, TooManyRequests, Unreachable

__all__ = ["ATTEMPTS", "AWAY", "UNSETTLED", "backoff", "is_silent", "retried"]

T = TypeVar("T")
Failures = tuple[type[Exception], ...]

ATTEMPTS: Final = 5
#: What states that the API server is away.
AWAY: Final = (ServerError, TooManyRequests, Unreachable)
#: After these it is unknown what is stored now.
UNSETTLED: Final = (Conflict, *AWAY)

_FIRST: Final = SECOND // 5
_MOST: Final = 10 * SECOND
_RETRY_AFTER_MOST: Final = 60.0
#: After which failures the call at hand is tried again by who makes it.
_SEEN_TO: Final = ContextVar[Failures]("seen_to", default=())


async def retried(
    once: Callable[[], Awaitable[T]],
    pause: Callable[[int, float | None], Awaitable[None]],
    again: Failures = UNSETTLED,
    attempts: int = ATTEMPTS,
    *,
    soon: bool = False,
) -> T:
    """Return what `once` returns at the first attempt that does not fail.

    Args:
        once: the call, with what it has to read before it.
        pause: waits after that attempt, counted from 0, or for as long as the server has requested
            (`Transport.pause`).
        again: failures after which it is tried again.
        attempts: at most; at least 1.
        soon: a first conflict is read again at once, as what was tried was no fresh copy.

    Raises:
        Exception: any other failure at once, one of `again` after the last attempt.
    """
    outer = _SEEN_TO.get()
    again = tuple(each for each in again if not issubclass(each, outer))
    if not again:
        return await once()
    inner = _SEEN_TO.set(outer + again)
    try:
        for attempt in range(attempts - 1):
            try:
                return await once()
            except again as failure:
                if attempt or not (soon and isinstance(failure, Conflict)):
                    await pause(attempt, getattr(failure, "retry_after", None))
        return await once()
    finally:
        _SEEN_TO.reset(inner)


def is_silent(failure: ApiError) -> bool:
    """Whether a failure is not about the object that was written, after all tries.

    A 500 that answers a write again and again, though the object could be read before each try, is
    about that object: a webhook or a finalizer of another component has failed.
    """
    if not isinstance(failure, AWAY):
        return False
    written = failure.call is not None and failure.call.verb in ("delete", "patch", "update")
    return not (written and failure.code == 500)


def backoff(attempt: int, jitter: Random, retry_after: float | None = None) -> int:
    """Return the nanoseconds to wait after attempt number `attempt` (from 0) failed."""
    if retry_after is not None and retry_after > 0:
        base = int(min(retry_after, _RETRY_AFTER_MOST) * SECOND)
        return base + int(base * 0.1 * jitter.random())
    base = min(_FIRST << min(attempt, 20), _MOST)
    return int(base * (0.5 + jitter.random()))

"""The first process of a container, which outlives the operator so that its keeper can, too.

The kernel ends every process of a container with its first one. Were that the operator, a crash
would end the keeper of its lease with it, and the next leader would wait for the lease to run out.
So the first process forks before it loads anything, and the operator is its child. The first
process forwards signals, reaps the processes left to it, and ends with the operator's exit code
once the keeper has released the lease.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Final

__all__ = ["below_first_process"]

_FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: Seconds for the keeper after the operator's end: shorter than a pod's time to terminate.
_LAST_S: Final = 4.0


def below_first_process() -> None:
    """Return in a child where this process is the first of a container, else at once.

    There must be no other thread and no event loop yet.
    """
    if os.getpid() != 1:
        return
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    operator = os.fork()
    if operator == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_watch_over(operator, watched))


def _watch_over(operator: int, watched: set[signal.Signals]) -> int:
    """Return the exit code of the operator once all have ended, or the time is over."""
    code = None
    while code is None:
        number = signal.sigwait(watched)
        if number == signal.SIGCHLD:
            code = _reaped(operator)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(operator, number)
    until = time.monotonic() + _LAST_S
    while _has_children() and (left := until - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)
    return code


def _reaped(operator: int) -> int | None:
    """Reap all that have ended; return the operator's exit code if it is one of them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            if process == operator:
                ended = os.waitstatus_to_exitcode(status)
                code = ended if ended >= 0 else 128 - ended
    return code


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True

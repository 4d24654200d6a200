"""Runs a command of Reprieve in a process of its own, with the rights of the viewer.

So deciding holds up no page, and a fault in it ends with it. Turns are few, and each is ended when
it takes too long. On Linux a command has so much memory and no more, and where the machine or the
container has none left it is the one that goes, not the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reprieve.kube.errors import REFUSED_CREDENTIALS
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.web.server.door import Visit

__all__ = ["Commands", "Rights"]

_AT_ONCE: Final = 2
_WAITING: Final = 8
_TIME_S: Final = 60.0
_MEMORY_GIB: Final = 2
_FIRST_TO_GO: Final = "1000"  # the highest that oom_score_adj takes
_LONGEST_ERROR: Final = 4_000
#: The exit code of a command that was asked what it cannot answer.
_USAGE: Final = 2

#: Gives the options of a command that state which cluster, and with whose rights.
Rights = Callable[[Visit], AbstractAsyncContextManager[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    code: int
    output: bytes
    errors: str


class Commands:
    """Runs one command, two at once at most, each for at most a minute and 2 GiB of memory.

    Args:
        rights: for each question, the options that carry the rights of who asks.
        command: how the command is called.
        what: it makes, for people: `plan`, `explanation`.
    """

    def __init__(self, rights: Rights, command: Sequence[str], what: str) -> None:
        self._rights = rights
        self._command = tuple(command)
        self._what = what
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def ask(self, arguments: Sequence[str], given: bytes, visit: Visit) -> bytes:
        """Return what the command prints; `given` is its standard input.

        Raises:
            UsageError: the command cannot answer that.
            ReprieveError: there is no answer; the message states why.
        """
        if self._waiting >= _WAITING:
            raise ReprieveError(f"many {self._what}s are being made; try again in a minute")
        self._waiting += 1
        try:
            async with self._turns, self._rights(visit) as options:
                outcome = await self._run((*arguments, *options), given)
        finally:
            self._waiting -= 1
        if outcome.code == 0:
            return outcome.output
        if outcome.code == -signal.SIGKILL or "MemoryError" in outcome.errors:
            raise ReprieveError(
                f"the {self._what} needs more memory than there is for it here, {_MEMORY_GIB} GiB "
                "at most; the command has no such limit"
            )
        if REFUSED_CREDENTIALS in outcome.errors and visit.token:
            raise ReprieveError(
                f"the {self._what} is made with your own token, which the API server does not "
                "accept: it was made for this page alone, or has ended. Log out, and log in with "
                "one for both, as the login states"
            )
        text = outcome.errors.removeprefix("Error: ").strip()[:_LONGEST_ERROR]
        if outcome.code == _USAGE:
            raise UsageError(text)
        raise ReprieveError(text or f"the {self._what} could not be made")

    async def _run(self, arguments: Sequence[str], given: bytes) -> _Outcome:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _bound_memory(process.pid)
        try:
            async with asyncio.timeout(_TIME_S):
                output, errors = await process.communicate(given)
        except TimeoutError:
            raise ReprieveError(
                f"the {self._what} was not made within {_TIME_S:.0f} s; the command has no such "
                "limit"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        assert process.returncode is not None
        return _Outcome(process.returncode, output, errors.decode(errors="replace"))


def _bound_memory(process: int) -> None:
    """Bound the memory of a process that was just started and has read nothing yet."""
    if sys.platform != "linux":
        return
    most = _MEMORY_GIB * 2**30
    # It may have ended by itself; a container may keep /proc from being written.
    with contextlib.suppress(OSError):
        resource.prlimit(process, resource.RLIMIT_DATA, (most, most))
        Path(f"/proc/{process}/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")

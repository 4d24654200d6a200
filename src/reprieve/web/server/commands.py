"""Runs a command of Reprieve in a process of its own, with the rights of the viewer.

So deciding holds up no page, and a fault in it ends with it. Turns are few, and each is ended when
it exceeds its time. On Linux a command has so much memory and no more, and where the machine or the
container has none left the kernel kills the command, not the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
_FIRST_TO_GO: Final = "1000"  # the highest that oom_score_adj accepts
_LONGEST_ERROR: Final = 4_000
_LONGEST_LINE: Final = 4 * 2**20
#: The exit code of a command that got a query it cannot answer.
_USAGE: Final = 2

#: Gives the options of a command that state which cluster, and with whose rights.
Rights = Callable[[Visit], AbstractAsyncContextManager[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    code: int
    errors: str


class Commands:
    """Runs one command, two at once at most, each for at most a minute and 2 GiB of memory.

    Args:
        rights: for each question, the options that carry the rights of the user.
        command: how the command is called.
        what: it makes, for people: `plan`, `explanation`.
    """

    def __init__(self, rights: Rights, command: Sequence[str], what: str) -> None:
        self._rights = rights
        self._command = tuple(command)
        self._what = what
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._streams: dict[str, asyncio.Event] = {}

    async def ask(self, arguments: Sequence[str], given: bytes, visit: Visit) -> bytes:
        """Return what the command prints; `given` is its standard input.

        Raises:
            UsageError: the command cannot answer that.
            ReprieveError: there is no answer; the message states why.
        """
        async with (
            self._turn(visit) as options,
            self._started((*arguments, *options)) as process,
        ):
            output, errors = await process.communicate(given)
        self._check(process, errors, visit)
        return output

    async def lines(self, arguments: Sequence[str], visit: Visit) -> AsyncGenerator[bytes]:
        """Yield the lines that the command prints, as it prints them; to be closed by the caller.

        Each viewer has one at a time: the next one ends the one before.

        Raises:
            UsageError: the command cannot answer that.
            ReprieveError: there is no answer, or the viewer began another one.
        """
        ended = self._streams.pop(visit.name, None)
        if ended is not None:
            ended.set()
        mine = self._streams[visit.name] = asyncio.Event()
        try:
            async with self._turn(visit) as options:
                async with self._started((*arguments, *options), _LONGEST_LINE) as process:
                    assert process.stdout is not None and process.stderr is not None
                    errors = asyncio.create_task(process.stderr.read(_LONGEST_LINE))
                    while line := await self._line(process.stdout, mine):
                        yield line
                    await process.wait()
                self._check(process, await errors, visit)
        finally:
            if self._streams.get(visit.name) is mine:
                del self._streams[visit.name]

    async def _line(self, output: asyncio.StreamReader, ended: asyncio.Event) -> bytes:
        reading = asyncio.create_task(output.readline())
        over = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait({reading, over}, return_when=asyncio.FIRST_COMPLETED)
            if ended.is_set():
                raise ReprieveError(f"another {self._what} was requested")
            try:
                return reading.result()
            except ValueError:
                raise ReprieveError(f"the {self._what} has a line that is too long") from None
        finally:
            reading.cancel()
            over.cancel()

    @asynccontextmanager
    async def _turn(self, visit: Visit) -> AsyncIterator[Sequence[str]]:
        """Wait for a turn, and give the options that carry the viewer's rights."""
        if self._waiting >= _WAITING:
            raise ReprieveError(f"many {self._what}s are being made; try again in a minute")
        self._waiting += 1
        try:
            async with self._turns, self._rights(visit) as options:
                yield options
        finally:
            self._waiting -= 1

    def _check(self, process: Process, printed: bytes, visit: Visit) -> None:
        """Raise what a command that failed states."""
        assert process.returncode is not None
        outcome = _Outcome(process.returncode, printed.decode(errors="replace"))
        if outcome.code == 0:
            return
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

    @asynccontextmanager
    async def _started(
        self, arguments: Sequence[str], longest: int = 2**16
    ) -> AsyncIterator[Process]:
        """Give a running command, which ends with the block at the latest."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=longest,
        )
        _bound_memory(process.pid)
        try:
            async with asyncio.timeout(_TIME_S):
                yield process
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


def _bound_memory(process: int) -> None:
    """Bound the memory of a process that was just started and has read nothing yet."""
    if sys.platform != "linux":
        return
    most = _MEMORY_GIB * 2**30
    # It may have ended by itself; a container may keep /proc from being written.
    with contextlib.suppress(OSError):
        resource.prlimit(process, resource.RLIMIT_DATA, (most, most))
        Path(f"/proc/{process}/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")

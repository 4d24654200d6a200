"""The process that keeps the lease: it leads for the operator as long as that answers.

Why there is one, and what holds, stands in `lease_keeper`, which forks it. It ends when the
operator's end of the link closes, after it has given the lease back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.transport import HttpWire
from reprieve.operator.lease_link import ANSWERS, DUMP, END, SUSPECTS, Shared, WantedLease, line
from reprieve.planes.common.suspects import (
    ANNOTATION,
    Accused,
    accused_again,
    read_suspects,
    written,
)

__all__ = ["Keeping", "keep_until_the_end"]

_LONGEST_RETRY: Final = 2 * SECOND  # a candidate looks at the lease at least as often
_LAST_WORDS_S: Final = 1.0
_LONGEST_WORDS_S: Final = 5.0
_LOOK_S: Final = 0.5
_FEW_TICKS: Final = 3  # of processor time, which threads spend that only wait


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the process begins with."""

    link: socket.socket
    shared: Shared
    operator: int  # process id
    kubeconfig: str | None
    context: str | None
    clock: Clock


def keep_until_the_end(keeping: Keeping) -> None:
    """Be the keeper; never returns."""
    try:
        # Ctrl-C and SIGTERM to the whole group are for the operator, whose end is ours.
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        keeping.link.setblocking(False)
        asyncio.run(_keep(keeping))
    except BaseException as failure:
        with contextlib.suppress(OSError):
            keeping.link.send(line(logging.ERROR, f"{type(failure).__name__}: {failure}"))
    finally:
        os._exit(0)


async def _keep(keeping: Keeping) -> None:
    said = await _first_line(keeping.link)
    if not said:
        return
    wanted = WantedLease(**json.loads(said))
    over = asyncio.create_task(_until_closed(keeping.link))
    connection = await load_connection(keeping.kubeconfig, keeping.context, keeping.clock)
    client = connect(connection, keeping.clock, wire=HttpWire(connection, limit=2))
    if await _Candidacy(keeping, wanted, client).until(over):
        await client.close()
        return
    # The operator begins anew, and this ends with it.
    await over


class _Candidacy:
    """Stands for the lease, and reports through the link and the shared memory how it stands."""

    def __init__(self, keeping: Keeping, wanted: WantedLease, client: Client) -> None:
        self._keeping = keeping
        self._wanted = wanted
        self._lost = asyncio.Event()
        self._reported = False
        duration = wanted.duration
        self._times = LeaseTimes(
            duration, duration * 2 // 3, min(duration * 2 // 15, _LONGEST_RETRY)
        )
        self._elector = LeaderElector(
            client,
            keeping.clock,
            namespace=wanted.namespace,
            name=wanted.name,
            identity=wanted.identity,
            times=self._times,
            changed=self._changed,
            report=lambda trouble: self._report(logging.WARNING, str(trouble)),
            published=self._publish,
            wanted=lambda: _is_there(keeping, wanted.longest_silence),
        )
        for name, value in wanted.annotations.items():
            self._elector.annotate(name, value)

    async def until(self, over: asyncio.Task[list[Accused]]) -> bool:
        """Keep the lease until it is lost, or it is over; then give it back and return True."""
        elector = self._elector
        watch = asyncio.create_task(_watch(self._keeping, self._wanted, self._last_words))
        work = [
            watch,
            asyncio.create_task(elector.run()),
            asyncio.create_task(_log_holder_of_lease(elector, self._keeping.clock, self._stand_by)),
        ]
        ends = {over, asyncio.create_task(self._lost.wait()), *work}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                self._report(logging.ERROR, f"its keeper failed: {task.exception()!r}")
        if over.done():
            # From here on the operator may be another program, under the same process id.
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            accused = over.result()
            if accused:
                self._accuse(accused)
            await elector.stop()
            return True
        for task in work:
            task.cancel()
        return False

    def _report(self, level: int, text: str) -> None:
        with contextlib.suppress(OSError):
            self._keeping.link.send(line(level, text))

    def _changed(self, leading: bool) -> None:
        if not leading:
            self._lost.set()
        self._report(logging.DEBUG, "")  # has the operator look

    def _publish(self, held_until: Nanos | None, epoch: int) -> None:
        if held_until is not None and not self._reported:
            # Before the operator can see that it leads.
            self._reported = True
            suspects = written(read_suspects(self._elector.annotation(ANNOTATION)))
            with contextlib.suppress(OSError):
                self._keeping.link.send(f"{SUSPECTS} {suspects}\n".encode())
        self._keeping.shared.publish(held_until, epoch)

    def _accuse(self, accused: Iterable[Accused]) -> None:
        before, now = (
            read_suspects(self._elector.annotation(ANNOTATION)),
            self._keeping.clock.wall(),
        )
        self._elector.annotate(ANNOTATION, written(accused_again(before, accused, now)))

    async def _last_words(self) -> None:
        accused = await _at_fault(self._keeping)
        if accused:
            self._accuse(accused)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._elector.renew_now(), _LONGEST_WORDS_S)

    def _stand_by(self) -> None:
        duration, retry = self._wanted.duration, self._times.longest_retry
        self._report(
            logging.INFO,
            f"held by {self._elector.holder}: this process stands by; it leads soon after the "
            f"other one gives the lease back, and {duration // SECOND} to "
            f"{(duration + retry) // SECOND} s after it fell silent",
        )


async def _log_holder_of_lease(
    elector: LeaderElector, clock: Clock, emit: Callable[[], None]
) -> None:
    """Report once of each other holder that it is waited for."""
    said = ""
    while True:
        await clock.sleep(SECOND // 4)
        if elector.holder not in ("", said, elector.identity):
            said = elector.holder
            emit()


async def _first_line(link: socket.socket) -> bytes:
    """Return the operator's first message; nothing where it ended before sending it."""
    said = b""
    while not said.endswith(b"\n"):
        heard = await asyncio.get_running_loop().sock_recv(link, 65_536)
        if not heard:
            return b""
        said += heard
    return said


async def _until_closed(link: socket.socket) -> list[Accused]:
    """Return when the operator has closed its end of the link, or has ended; what it accused."""
    said = b""
    with contextlib.suppress(OSError):
        while heard := await asyncio.get_running_loop().sock_recv(link, 65_536):
            said += heard
    return [Accused(Plane(plane), what) for plane, what in json.loads(said or b"[]")]


async def _at_fault(keeping: Keeping) -> list[Accused]:
    """Return what the threads are at of which one keeps the interpreter's lock.

    That is the one that works on, if any does: all others request the lock now and then. Where none
    does, it is asleep and cannot be distinguished from the others. It may be none of a decision,
    too.
    """
    noted = keeping.shared.noted()
    threads = {keeping.operator, *noted.values()}
    before = {each: _spent(keeping.operator, each) for each in threads}
    await asyncio.sleep(_LOOK_S)
    spent = {each: _spent(keeping.operator, each) - before[each] for each in threads}
    most = max(spent.values())
    asleep = most < _FEW_TICKS
    return [each for each, thread in noted.items() if asleep or 2 * spent[thread] > most]


def _spent(process: int, thread: int) -> int:
    """Return the processor time of a thread in ticks; where that cannot be read, 0."""
    try:
        status = Path(f"/proc/{process}/task/{thread}/stat").read_text()
    except OSError:
        return 0
    user, system = status.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _is_there(keeping: Keeping, longest: int) -> bool:
    """Whether the operator answers, or may still do so in time."""
    silence = keeping.clock.monotonic() - keeping.shared.answered
    if silence < SECOND:
        return True
    return silence < longest and not _is_stopped(keeping.operator)


async def _watch(
    keeping: Keeping, wanted: WantedLease, last_words: Callable[[], Awaitable[None]]
) -> None:
    """End the operator when it has been silent for too long, unless it is stopped."""
    while True:
        await keeping.clock.sleep(wanted.duration // ANSWERS)
        silence = keeping.clock.monotonic() - keeping.shared.answered
        if silence < wanted.longest_silence or _is_stopped(keeping.operator):
            continue
        await last_words()
        reported = (
            f"reprieve: the event loop has not answered for {silence // SECOND} s: it is ended\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, reported.encode())
        for number in map(int, (DUMP, END, signal.SIGKILL)):
            if os.getppid() == keeping.operator:
                os.kill(keeping.operator, number)
            await asyncio.sleep(_LAST_WORDS_S)


def _is_stopped(process: int) -> bool:
    """Whether a process was stopped by a signal or a debugger; where that cannot be read, False."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # The state follows the name, which is in parentheses and may hold anything.
    return status.rpartition(")")[2].split()[0] in ("T", "t")

"""The process lease, kept by a process of its own, which no decision can hold up.

A thread would do against Python code, which lets others run every few milliseconds, but not against
C code that keeps the interpreter's lock (a regular expression, a plugin's extension): neither the
event loop nor any thread runs then. So `LeaseKeeper.fork` makes a child before there are threads.
The child runs the leader election over connections of its own and shares two numbers with the
operator: `held_until`, counted from the start of the last renewal that succeeded, and the epoch.

Why the fence holds as before. Its check reads `held_until` from shared memory at each write, on
the same monotonic clock (one for all processes of a machine). Nobody else leads before then,
whatever became of the keeper: one that is slow, stopped or dead only leaves it where it was, and it
runs out. Nor is it renewed for an operator that is no more:

1. The operator's event loop says sixty times in a lease duration that it is there. Where it has
   been silent for the longest silence (`--longest-silence`) the keeper ends it, since another
   replica or a fresh start is better than one that hangs. For an operator that is stopped (SIGSTOP)
   nothing is renewed either, and it is not ended: it finds that it is deposed when it goes on.
   Before it ends one the keeper writes into the lease what that was deciding (`suspects`), with one
   more renewal: in a container the keeper goes with it.
2. The lease is released when the operator's end of the link is closed: after its planes have
   stopped, or when the system has taken its last thread, after which it can send nothing. What is
   on the way then is what a crash leaves on the way (recovery waits for it, `execution.recovery`).
   So the next leader need not wait for the lease to run out after a crash, unless keeper and
   operator died together.
3. A keeper that has lost the lease takes it no more: the operator begins anew, with nothing of what
   it believed, and so does its keeper.

Source: the design's "Processes and time" and "Intent log and executor".
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import mmap
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from reprieve.controllers.suspects import (
    ANNOTATION,
    Accused,
    Suspect,
    accused_again,
    key_of,
    read_suspects,
    written,
)
from reprieve.engine.plan import Plane
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection, preload
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.transport import HttpWire
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["LeaseKeeper", "WantedLease"]

_NONE: Final = -1
_LONGEST_RETRY: Final = 2 * SECOND  # a candidate looks at the lease at least as often
_ANSWERS: Final = 60  # of the event loop in one lease duration
_DUMP: Final = signal.SIGUSR1
_END: Final = signal.SIGUSR2
_LAST_WORDS_S: Final = 1.0
_LONGEST_WORDS_S: Final = 5.0
_LOOK_S: Final = 0.5
_FEW_TICKS: Final = 3  # of processor time, which threads spend that only wait
_SLOT: Final = 1024  # bytes in shared memory
_SUSPECTS: Final = "suspects"  # begins the line in which the keeper says who is one


@dataclass(frozen=True, slots=True)
class WantedLease:
    """Which lease is to be kept, for whom, and for how long one who is silent; nanoseconds."""

    namespace: str
    name: str
    identity: str
    duration: int
    longest_silence: int


class _Shared:
    """What both processes see: three int64, and for each plane what it is at.

    The numbers are: held until, epoch, the operator's last answer. Each is written by one process
    and in one piece. A plane's slot is the number of the thread that is at work, the length of what
    it is at, and that text. It is read when the operator has been silent for long.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOT * (1 + len(Plane)))
        self._numbers = memoryview(self._memory).cast("q")
        self._numbers[0] = _NONE
        self._slots = {plane: _SLOT * number for number, plane in enumerate(Plane, 1)}

    @property
    def held_until(self) -> Nanos | None:
        until = self._numbers[0]
        return None if until == _NONE else Nanos(until)

    @property
    def epoch(self) -> int:
        return self._numbers[1]

    @property
    def answered(self) -> int:
        return self._numbers[2]

    def publish(self, held_until: Nanos | None, epoch: int) -> None:
        """Say until when the lease is held, the epoch first."""
        self._numbers[1] = epoch
        self._numbers[0] = _NONE if held_until is None else held_until

    def answer(self, now: int) -> None:
        """Say that the operator's event loop is there."""
        self._numbers[2] = now

    def note(self, plane: Plane, what: str, thread: int) -> None:
        """Say what a thread is at for a plane; nothing for the empty text."""
        start = self._slots[plane]
        text = key_of(what).encode("ascii")
        self._numbers[start // 8 + 1] = 0
        self._memory[start + 16 : start + 16 + len(text)] = text
        self._numbers[start // 8] = thread
        self._numbers[start // 8 + 1] = len(text)

    def noted(self) -> dict[Accused, int]:
        """Return what the planes are at, and the number of the thread that is."""
        found = {}
        for plane, start in self._slots.items():
            thread, length = self._numbers[start // 8 : start // 8 + 2]
            if length:
                text = self._memory[start + 16 : start + 16 + length].decode("ascii")
                found[Accused(plane, text)] = thread
        return found


class LeaseKeeper:
    """The operator's side: a tenure whose lease another process keeps.

    Attributes:
        identity: of this process on the lease.
        changed: told True when this process starts to lead, False when it ceases to.
        report: told a level of `logging` and what there is to say of the lease, in one line.
        accused: of what is to be written into the lease when it is released that deciding about it
            does not end.
        suspects: what the lease says of earlier processes, once this one leads.
    """

    def __init__(self, link: socket.socket, shared: _Shared, child: int, clock: Clock) -> None:
        self.identity = ""
        self.changed: Callable[[bool], None] = lambda leading: None
        self.report: Callable[[int, str], None] = lambda level, text: None
        self.accused: Sequence[Accused] = ()
        self.suspects: tuple[Suspect, ...] = ()
        self._link = link
        self._shared = shared
        self._child = child
        self._clock = clock
        self._led = False
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self._heard = b""

    @classmethod
    def fork(cls, kubeconfig: str | None, context: str | None, clock: Clock) -> LeaseKeeper:
        """Start the keeper. There must be no other thread and no event loop yet."""
        _reap()
        preload()
        ours, theirs = socket.socketpair()
        shared = _Shared()
        operator = os.getpid()
        gc.freeze()  # so that collections copy no pages that both have
        child = os.fork()
        if child == 0:
            ours.close()
            _keep_until_the_end(_Keeping(theirs, shared, operator, kubeconfig, context, clock))
        gc.unfreeze()
        theirs.close()
        ours.setblocking(False)
        return cls(ours, shared, child, clock)

    @property
    def epoch(self) -> int:
        """Return the number of this tenure; a later holder has a greater one."""
        return self._shared.epoch

    @property
    def held_until(self) -> Nanos | None:
        """Return the monotonic end of the tenure unless it is renewed, None when not held."""
        return None if self._lost.is_set() else self._shared.held_until

    @property
    def leading(self) -> bool:
        """Whether the lease is held right now."""
        until = self.held_until
        return until is not None and self._clock.monotonic() < until

    def note(self, plane: Plane, what: str, thread: int) -> None:
        """Say what a thread is at for a plane, nothing for the empty text; from any thread."""
        self._shared.note(plane, what, thread)

    async def wait_leading(self) -> None:
        """Return as soon as this process leads."""
        await self._leading.wait()

    async def wait_lost(self) -> None:
        """Return as soon as this process can lead no more: it did, or its keeper is gone."""
        await self._lost.wait()

    async def run(self, wanted: WantedLease) -> None:
        """Have the lease taken and kept; answer for the event loop until cancelled."""
        period = max(wanted.duration // _ANSWERS, SECOND // 50)
        _let_itself_be_ended()
        self._shared.answer(self._clock.monotonic())
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._link, json.dumps(asdict(wanted)).encode() + b"\n")
        loop.add_reader(self._link.fileno(), self._hear_and_look)
        try:
            while not self._lost.is_set():
                self._shared.answer(self._clock.monotonic())
                self._look()
                await self._clock.sleep(period)
        finally:
            loop.remove_reader(self._link.fileno())

    async def stop(self) -> None:
        """Have the lease released if it is held, and wait for the end of the keeper."""
        if self._led and not self._lost.is_set():
            self._lose()
        with contextlib.suppress(OSError):
            if self.accused:
                said = json.dumps([[each.plane.value, each.what] for each in self.accused])
                await asyncio.get_running_loop().sock_sendall(self._link, said.encode())
            self._link.shutdown(socket.SHUT_WR)
            while await asyncio.get_running_loop().sock_recv(self._link, 65_536):
                pass
        self._link.close()

    def close(self) -> None:
        """Let go of the keeper, which ends; for a process that ends without having led."""
        self._link.close()

    def _look(self) -> None:
        if not self._led and self.leading:
            self._hear()  # what the keeper has said before it took the lease
            self._led = True
            self._leading.set()
            self.changed(True)
        elif self._led and not self.leading:
            self._lose()

    def _lose(self) -> None:
        self._lost.set()
        if self._led:
            self._leading.clear()
            self.changed(False)

    def _hear_and_look(self) -> None:
        self._hear()
        self._look()

    def _hear(self) -> None:
        try:
            heard = self._link.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self.report(logging.ERROR, "its keeper has ended")
            self._lose()
            return
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            level, _, text = line.decode("utf-8", "replace").partition(" ")
            if level == _SUSPECTS:
                self.suspects = read_suspects(text)
            elif text:
                self.report(int(level), text)


def _reap() -> None:
    """Take note of children that have ended: keepers of before this process began anew."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _let_itself_be_ended() -> None:
    """Make two signals work also while C code keeps the interpreter's lock.

    One writes where all threads are, the other ends the process with its number as exit code: its
    handler is the C library's own `_exit`, so that it ends the first process of a container too,
    which SIGKILL from inside does not.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        # Standard error is no file in some tests.
        faulthandler.register(_DUMP, file=sys.__stderr__ or sys.stderr, all_threads=True)
    library = ctypes.CDLL(None)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal.restype = ctypes.c_void_p
    library.signal(int(_END), ctypes.cast(library._exit, ctypes.c_void_p))


# The keeper's side.


@dataclass(frozen=True, slots=True)
class _Keeping:
    link: socket.socket
    shared: _Shared
    operator: int  # process id
    kubeconfig: str | None
    context: str | None
    clock: Clock


def _keep_until_the_end(keeping: _Keeping) -> None:
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
            keeping.link.send(_line(logging.ERROR, f"{type(failure).__name__}: {failure}"))
    finally:
        os._exit(0)


async def _keep(keeping: _Keeping) -> None:
    clock, shared, link = keeping.clock, keeping.shared, keeping.link
    loop = asyncio.get_running_loop()
    said = await loop.sock_recv(link, 65_536)
    while said and not said.endswith(b"\n"):
        said += await loop.sock_recv(link, 65_536)
    if not said:
        return
    wanted = WantedLease(**json.loads(said))
    over = asyncio.create_task(_until_closed(link))
    connection = await load_connection(keeping.kubeconfig, keeping.context, clock)
    client = connect(connection, clock, wire=HttpWire(connection, limit=2))
    lost = asyncio.Event()
    told = False
    duration = wanted.duration
    times = LeaseTimes(duration, duration * 2 // 3, min(duration * 2 // 15, _LONGEST_RETRY))

    def tell(level: int, text: str) -> None:
        with contextlib.suppress(OSError):
            link.send(_line(level, text))

    def changed(leading: bool) -> None:
        if not leading:
            lost.set()
        tell(logging.DEBUG, "")  # has the operator look

    def publish(held_until: Nanos | None, epoch: int) -> None:
        nonlocal told
        if held_until is not None and not told:
            # Before the operator can see that it leads.
            told = True
            suspects = written(read_suspects(elector.annotation(ANNOTATION)))
            with contextlib.suppress(OSError):
                link.send(f"{_SUSPECTS} {suspects}\n".encode())
        shared.publish(held_until, epoch)

    elector = LeaderElector(
        client,
        clock,
        namespace=wanted.namespace,
        name=wanted.name,
        identity=wanted.identity,
        times=times,
        changed=changed,
        report=lambda trouble: tell(logging.WARNING, str(trouble)),
        published=publish,
        wanted=lambda: _is_there(keeping, wanted.longest_silence),
    )

    def accuse(accused: Iterable[Accused]) -> None:
        before = read_suspects(elector.annotation(ANNOTATION))
        elector.note(ANNOTATION, written(accused_again(before, accused, clock.wall())))

    async def last_words() -> None:
        accused = await _at_fault(keeping)
        if accused:
            accuse(accused)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(elector.renew_now(), _LONGEST_WORDS_S)

    def stand_by() -> None:
        tell(
            logging.INFO,
            f"held by {elector.holder}: this process stands by; it leads soon after the other one "
            f"gives the lease back, and {duration // SECOND} to "
            f"{(duration + times.longest_retry) // SECOND} s after it fell silent",
        )

    work = [
        asyncio.create_task(elector.run()),
        asyncio.create_task(_watch(keeping, wanted, last_words)),
        asyncio.create_task(_say_whom_it_waits_for(elector, clock, stand_by)),
    ]
    ends = {over, asyncio.create_task(lost.wait()), *work}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in work:
        if task.done():
            tell(logging.ERROR, f"its keeper failed: {task.exception()!r}")
    if over.done():
        accused = over.result()
        if accused:
            accuse(accused)
        await elector.stop()
        await client.close()
        return
    for task in work:
        task.cancel()
    # The operator begins anew, and this ends with it.
    await over


async def _say_whom_it_waits_for(
    elector: LeaderElector, clock: Clock, say: Callable[[], None]
) -> None:
    """Say once of each other holder that it is waited for."""
    said = ""
    while True:
        await clock.sleep(SECOND // 4)
        if elector.holder not in ("", said, elector.identity):
            said = elector.holder
            say()


def _line(level: int, text: str) -> bytes:
    return f"{level:d} {' '.join(text.split())}".encode()[:1_000] + b"\n"


async def _until_closed(link: socket.socket) -> list[Accused]:
    """Return when the operator has closed its end of the link, or is gone; what it accused."""
    said = b""
    with contextlib.suppress(OSError):
        while heard := await asyncio.get_running_loop().sock_recv(link, 65_536):
            said += heard
    return [Accused(Plane(plane), what) for plane, what in json.loads(said or b"[]")]


async def _at_fault(keeping: _Keeping) -> list[Accused]:
    """Return what the threads are at of which one keeps the interpreter's lock.

    That is the one that works on, if any does: all others ask for the lock now and then. Where none
    does, it is asleep and cannot be told from the others. It may be none of a decision, too.
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


def _is_there(keeping: _Keeping, longest: int) -> bool:
    """Whether the operator answers, or may still do so in time."""
    silence = keeping.clock.monotonic() - keeping.shared.answered
    if silence < SECOND:
        return True
    return silence < longest and not _is_stopped(keeping.operator)


async def _watch(
    keeping: _Keeping, wanted: WantedLease, last_words: Callable[[], Awaitable[None]]
) -> None:
    """End the operator when it has been silent for too long, unless it is stopped."""
    while True:
        await keeping.clock.sleep(wanted.duration // _ANSWERS)
        silence = keeping.clock.monotonic() - keeping.shared.answered
        if silence < wanted.longest_silence or _is_stopped(keeping.operator):
            continue
        await last_words()
        told = f"reprieve: the event loop has not answered for {silence // SECOND} s: it is ended\n"
        with contextlib.suppress(OSError):
            os.write(2, told.encode())
        for number in map(int, (_DUMP, _END, signal.SIGKILL)):
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

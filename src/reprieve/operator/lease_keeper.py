"""The process lease, kept by a process of its own, which no decision can hold up.

A thread would do against Python code, which yields to others every few milliseconds, but not
against C code that keeps the interpreter's lock (a regular expression, a plugin's extension):
neither the event loop nor any thread runs then. So `LeaseKeeper.fork` makes a child before there
are threads. The child runs the leader election over connections of its own and shares two numbers
with the operator: `held_until`, counted from the start of the last renewal that succeeded, and the
epoch.

Why the fence holds as before. Its check reads `held_until` from shared memory at each write, on
the same monotonic clock (one for all processes of a machine). No other work leads before then,
whatever became of the keeper: one that is slow, stopped or dead only leaves it where it was, and it
runs out. Nor is it renewed for an operator that is no more:

1. The operator's event loop states sixty times in a lease duration that it is there. Where it has
   been silent for the longest silence (`--longest-silence`) the keeper ends it, since another
   replica or a fresh start is better than one that hangs. For an operator that is stopped (SIGSTOP)
   nothing is renewed either, and it is not ended: it finds that it is deposed when it continues.
   Before it ends one the keeper writes into the lease what that was deciding (`suspects`), with one
   more renewal: in a container the keeper ends with it.
2. The lease is released when the operator's end of the link is closed: after its planes have
   stopped, or when the system has ended its last thread, after which it can send nothing. What is
   on the way then is what a crash leaves on the way (recovery waits for it, `execution.recovery`).
   So the next leader need not wait for the lease to run out after a crash, unless keeper and
   operator died together.
3. A keeper that has lost the lease acquires it no more: the operator begins anew, with nothing of
   what it believed, and so does its keeper.

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
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.kube.credentials import preload
from reprieve.operator.lease_link import ANSWERS, DUMP, END, SUSPECTS, Shared, WantedLease
from reprieve.operator.lease_process import Keeping, keep_until_the_end
from reprieve.planes.common.suspects import Accused, Suspect, read_suspects

__all__ = ["LeaseKeeper"]


class LeaseKeeper:
    """The operator's side: a tenure whose lease another process keeps.

    Attributes:
        identity: of this process on the lease.
        changed: called with True when this process starts to lead, False when it ceases to.
        report: called with a level of `logging` and one line about the lease.
        accused: of what is to be written into the lease when it is released that deciding about it
            does not end.
        suspects: what the lease states of earlier processes, once this one leads.
    """

    def __init__(self, link: socket.socket, shared: Shared, child: int, clock: Clock) -> None:
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
        shared = Shared()
        operator = os.getpid()
        gc.freeze()  # so that collections copy no pages that both have
        child = os.fork()
        if child == 0:
            ours.close()
            keep_until_the_end(Keeping(theirs, shared, operator, kubeconfig, context, clock))
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
        """State what a thread is at for a plane, nothing for the empty text; from any thread."""
        self._shared.note(plane, what, thread)

    async def wait_leading(self) -> None:
        """Return as soon as this process leads."""
        await self._leading.wait()

    async def wait_lost(self) -> None:
        """Return as soon as this process can lead no more: it did, or its keeper has ended."""
        await self._lost.wait()

    async def run(self, wanted: WantedLease) -> None:
        """Have the lease acquired and kept; answer for the event loop until cancelled."""
        period = max(wanted.duration // ANSWERS, SECOND // 50)
        _let_itself_be_ended()
        self._shared.answer(self._clock.monotonic())
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._link, json.dumps(asdict(wanted)).encode() + b"\n")
        loop.add_reader(self._link.fileno(), self._hear_and_look)
        try:
            while not self._lost.is_set():
                self._shared.answer(self._clock.monotonic())
                self._follow_tenure()
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
        """Release the keeper, which ends; for a process that ends without having led."""
        self._link.close()

    def _follow_tenure(self) -> None:
        if not self._led and self.leading:
            self._hear()  # what the keeper has stated before it acquired the lease
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
        self._follow_tenure()

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
            if level == SUSPECTS:
                self.suspects = read_suspects(text)
            elif text:
                self.report(int(level), text)


def _reap() -> None:
    """Reap children that have ended: keepers of before this process began anew."""
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
        faulthandler.register(DUMP, file=sys.__stderr__ or sys.stderr, all_threads=True)
    library = ctypes.CDLL(None)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal.restype = ctypes.c_void_p
    library.signal(int(END), ctypes.cast(library._exit, ctypes.c_void_p))

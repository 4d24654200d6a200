"""A moment of a run, kept in a process of its own: what is queried again continues from there.

    kept = Kept()
    await kept.stay(answer)          # within the run, at the moment to be kept; returns at once
    found = kept.ask(question)       # whenever: `answer(question)`, as if the run had not continued
    kept.close()

Where `stay` is called the process is forked, and its copy waits there. Each question forks the copy
once more; what answers ends, so that all of them are answered from the very same moment, and one
can leave no trace in another. All end when the first process does, however that comes. Questions
and answers are pickled; planes, coroutines and columns need no copying of their own, as the kernel
copies pages once a process writes to them.

Source: fork(2). Only the thread that runs the planes is in the copy: the thread that started it
waits for it and holds nothing. Bringing 50,000 pods to rest needs seconds, one question more a
fraction.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import select
import signal
import struct
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, Generic, NoReturn, TypeVar

from reprieve.units.errors import ReprieveError

__all__ = ["Kept", "Lost"]

Q = TypeVar("Q")
A = TypeVar("A")

_LENGTH: Final = struct.Struct(">Q")


class Lost(Exception):
    """The moment is not there, or the process that was to answer ended without one."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """The result of a question; `seconds` of processor time that it used."""

    found: object
    failure: ReprieveError | None
    seconds: float


class Kept(Generic[Q, A]):
    """One moment, the one at which `stay` was called last.

    Attributes:
        seconds: of processor time that questions used in other processes.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._child = 0
        self._questions: BinaryIO | None = None
        self._answers: BinaryIO | None = None

    async def stay(self, answer: Callable[[Q], Awaitable[A]]) -> None:
        """Keep this moment; in the copies `answer` is awaited here, and nothing after it."""
        self.close()
        read_question, write_question = os.pipe()
        read_answer, write_answer = os.pipe()
        child = _forked()
        if child == 0:
            os.close(write_question)
            os.close(read_answer)
            try:
                # The process that queries receives the signal to end; the copies end with it.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                _print_nothing()
                with (
                    os.fdopen(read_question, "rb") as asked,
                    os.fdopen(write_answer, "wb") as reported,
                ):
                    await _keep(asked, reported, answer)
            finally:
                os._exit(0)
        os.close(read_question)
        os.close(write_answer)
        self._child = child
        self._questions = os.fdopen(write_question, "wb")
        self._answers = os.fdopen(read_answer, "rb")

    def ask(self, question: Q) -> A:
        """Return the answer, as of the moment that is kept.

        Raises:
            Lost: there is none.
            ReprieveError: what the answer raised.
        """
        if self._questions is None or self._answers is None:
            raise Lost("no moment is kept")
        try:
            _write(self._questions, pickle.dumps(question))
            body = _read(self._answers)
        except OSError:
            body = b""
        if not body:
            raise Lost("a question was not answered")
        reply: _Reply = pickle.loads(body)
        self.seconds += reply.seconds
        if reply.failure is not None:
            raise reply.failure
        return reply.found  # type: ignore[return-value]

    def close(self) -> None:
        """Keep the moment no more."""
        for pipe in (self._questions, self._answers):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)
        self._child, self._questions, self._answers = 0, None, None


def _forked() -> int:
    """Return 0 in the copy, else its process id."""
    loop = asyncio.get_running_loop()
    gc.freeze()  # so that collections copy no pages that both have
    with warnings.catch_warnings():
        # Newer Pythons warn of other threads: those here wait, and hold nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        gc.unfreeze()
    else:
        # A loop that runs is none of a copy's own until it states it.
        asyncio._set_running_loop(loop)
    return child


async def _keep(asked: BinaryIO, reported: BinaryIO, answer: Callable[[Q], Awaitable[A]]) -> None:
    """Answer each question in a copy of this process, until there are none any more."""
    while body := _read(asked):
        read, write = os.pipe()
        child = _forked()
        if child == 0:
            _end_with(asked)
            await _answer(body, write, answer)
        os.close(write)
        with os.fdopen(read, "rb") as found:
            reply = found.read()
        _write(reported, reply if _ended_well(child) else b"")


async def _answer(body: bytes, write: int, answer: Callable[[Q], Awaitable[A]]) -> NoReturn:
    """Answer one question and end; without an answer the process ends with 1."""
    status = 1
    try:
        gc.disable()  # it ends with the question
        start = time.process_time()
        found: object = None
        failure = None
        try:
            found = await answer(pickle.loads(body))
        except ReprieveError as refusal:
            failure = refusal
        reply = _Reply(found, failure, time.process_time() - start)
        with os.fdopen(write, "wb") as reported:
            reported.write(pickle.dumps(reply))
        status = 0
    finally:
        os._exit(status)


def _print_nothing() -> None:
    """Hold no stream of the process: who reads one would wait for the copies, too."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)


def _end_with(asked: BinaryIO) -> None:
    """End this process once there is no reader of the answer any more."""
    hung_up = select.poll()
    hung_up.register(asked, 0)

    def watch() -> None:
        hung_up.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ended_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def _write(pipe: BinaryIO, body: bytes) -> None:
    pipe.write(_LENGTH.pack(len(body)) + body)
    pipe.flush()


def _read(pipe: BinaryIO) -> bytes:
    """Return what was written at once; nothing where the other side has ended, or does."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (length,) = _LENGTH.unpack(head)
    body = pipe.read(length)
    return body if len(body) == length else b""

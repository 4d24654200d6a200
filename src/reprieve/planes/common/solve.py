"""One solver thread: decisions over immutable snapshots, beside the event loop, and their limit.

A decision states what it is at (`at_work_on`). One that is at the same thing for longer than the
limit is stopped: `DecisionStopped` is raised inside of it, at its next step of Python, and nothing
of what it has done is used. A thread in which that does not help, since it is in C code, asleep or
keeps whatever is raised, is left to itself and a new one replaces it; where several are left like
that at the same time the process has to end (`DecisionLimit.give_up`). The limit is counted in
turns of the event loop, so that time in which the whole process was stopped counts for no work. A
turn in which all records were walked over for garbage (a second at 650,000 of them, with no thread
running) does not count either, as no decision causes it. Eight are excused at one thing, so that
one that has all collected again and again is stopped all the same.

C code that keeps the interpreter's lock stops the loop, too, and all of this with it: then the
process is ended from outside (`lease_keeper`), which is notified what each thread is at
(`DecisionLimit.noted`). The next leader leaves that alone for a while (`suspects`).

A thread can only be stopped like this while it alone uses what it works on: a snapshot and what the
decision has made of it. One that works on more is requested to end, and does so at a step where
nothing is half changed (`SolverPace`). The threads are daemons, so that the end of the process
waits for none. Safety comes from the fence at every write, promptness from this thread.
Source: the design's "Processes and time"; `PyThreadState_SetAsyncExc` of Python's C API.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from reprieve.engine.plan import Plane
from reprieve.planes.common.suspects import Accused, Suspects
from reprieve.units.counts import counted
from reprieve.units.errors import ReprieveError

__all__ = [
    "DecisionLimit",
    "DecisionStopped",
    "NotedPace",
    "Solver",
    "SolverPace",
    "TookTooLong",
    "at_work_on",
    "full_collections",
]

P = ParamSpec("P")
T = TypeVar("T")

_TURN: Final = SECOND // 4
_ATTEMPTS: Final = 4  # at stopping a thread, one each turn
_PATIENCE: Final = 12  # limits that a decision has to end by itself
_MOST_LEFT: Final = 4  # threads that did not stop and still run
_MOST_EXCUSED: Final = 8  # turns with a collection


class DecisionStopped(BaseException):
    """Raised inside a decision that exceeds its time; not for `except Exception`."""


class TookTooLong(ReprieveError):
    """A decision was stopped. `what` it was at; `left`: its thread did not stop and runs on."""

    def __init__(self, what: str, seconds: float, *, left: bool) -> None:
        ending = "and could not be stopped" if left else "and was stopped"
        super().__init__(f"deciding about {what or 'all'} needed more than {seconds:g} s {ending}")
        self.what = what
        self.seconds = seconds
        self.left = left


def _end(reason: str, accused: Sequence[Accused]) -> None:
    raise SystemExit(reason)


def _unnoted(plane: Plane, what: str, thread: int) -> None:
    """No one ends this process from outside."""


def _nobody() -> Suspects:
    return Suspects(SystemClock())


def full_collections() -> int:
    """Return how often all records of this process were walked over for garbage."""
    count: int = gc.get_stats()[-1]["collections"]
    return count


@dataclass(frozen=True, slots=True)
class DecisionLimit:
    """How long a decision may last, in nanoseconds, and what ends the process for want of threads.

    `give_up` is called with why, and what could not be stopped; `noted` with what a plane is at
    from now on, nothing for the empty text, and the system's number of the thread that is at it.
    `suspects`: the work about which deciding ended a process before this one. `inline`: decisions
    are made in the event loop itself, which stands still meanwhile, and last as long as they need;
    for runs in virtual time. `collections`: a number that grows with each collection that stops all
    threads.
    """

    longest: int = 5 * SECOND
    give_up: Callable[[str, Sequence[Accused]], None] = _end
    noted: Callable[[Plane, str, int], None] = _unnoted
    suspects: Suspects = field(default_factory=_nobody)
    inline: bool = False
    collections: Callable[[], int] = full_collections


def at_work_on(what: str) -> None:
    """State what the decision in this thread is at from now on; elsewhere this does nothing."""
    job = _current()
    if job is not None:
        job.late = False
        job.steps += 1
        job.note(what)


def _current() -> _Job | None:
    thread = threading.current_thread()
    return thread.job if isinstance(thread, _Thread) else None


class NotedPace:
    """Follows a decision whose limit is for the whole of it: it notes what that is at."""

    def begin(self, what: str) -> None:
        """Note what the decision is at from now on."""
        job = _current()
        if job is not None:
            job.note(what)

    def check(self) -> None:
        """Do nothing."""


class SolverPace:
    """Follows a decision that works on more than its own snapshot: it ends at its own steps.

    `suspects` of the plane are not decided about.
    """

    def __init__(self, plane: Plane, suspects: Suspects) -> None:
        self._plane = plane
        self._suspects = suspects

    def begin(self, what: str) -> None:
        """State what the decision is at from now on.

        Raises:
            Ended: it is not to be decided about for now.
        """
        at_work_on(what)
        self._suspects.refuse(self._plane, what)

    def check(self) -> None:
        """Return when the decision may last longer.

        Raises:
            TookTooLong: it was requested to end.
        """
        job = _current()
        if job is not None and job.late:
            job.late = False
            raise TookTooLong(job.what, job.limit / SECOND, left=False)


class _Job:
    """One decision: its work, where the answer is sent, and what it is at."""

    def __init__(
        self, work: Callable[[], Any], limit: int, noted: Callable[[_Job, str], None]
    ) -> None:
        self.work = work
        self.limit = limit
        self._noted = noted
        self.late = False  # it is to end at its next step
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.what = ""  # it was at last
        self.steps = 0

    def note(self, what: str) -> None:
        """Write down what it is at where a process of its own reads it, nothing at its end."""
        self.what = what or self.what
        self._noted(self, what)

    def finish(self, result: Any, failure: BaseException | None) -> None:
        def settle() -> None:
            if self.answer.done():
                return
            if failure is None:
                self.answer.set_result(result)
            else:
                self.answer.set_exception(failure)

        # The loop is closed when the process ends meanwhile.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(settle)


class _Thread(threading.Thread):
    """Does jobs one after the other, until it is stopped or ended."""

    def __init__(self) -> None:
        super().__init__(name="solver", daemon=True)
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.job: _Job | None = None

    def run(self) -> None:
        # What stops a job may be raised a little later, in here.
        with contextlib.suppress(DecisionStopped):
            while (job := self.jobs.get()) is not None:
                self.job = job
                self._solve(job)
                self.job = None

    def _solve(self, job: _Job) -> None:
        try:
            try:
                result = job.work()
            finally:
                job.note("")  # before any caller has the answer
        except DecisionStopped:
            raise
        except Exception as failure:
            job.finish(None, failure)
        except BaseException as failure:
            # A plugin that ends the interpreter ends its own decision only.
            job.finish(None, RuntimeError(f"{type(failure).__name__}: {failure}"))
        else:
            job.finish(result, None)

    def stop(self) -> None:
        """Raise `DecisionStopped` at the thread's next step of Python."""
        assert self.ident is not None, "it runs"
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self.ident), ctypes.py_object(DecisionStopped)
        )


class Solver:
    """Runs functions of one plane one at a time in one thread, none longer than the limit.

    `interrupts`: they work on snapshots only, so that they can be stopped anywhere. Others are
    requested to end, at their next `SolverPace.check`; where none comes the process is given up.
    """

    def __init__(
        self, plane: Plane, limit: DecisionLimit | None = None, *, interrupts: bool = True
    ) -> None:
        self._plane = plane
        self._limit = limit or DecisionLimit()
        self._interrupts = interrupts
        self._one = asyncio.Lock()
        self._thread: _Thread | None = None  # the one that is free or at work
        self._job: _Job | None = None  # the one that is waited for
        self._left: dict[_Thread, str] = {}  # those that did not stop, and what they are at

    async def run(self, decide: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `decide(*args, **kwargs)`, computed in the solver thread.

        Raises:
            TookTooLong: it was stopped.
        """
        async with self._one:
            if self._limit.inline:
                return decide(*args, **kwargs)
            thread = self._thread or self._started()
            job = _Job(lambda: decide(*args, **kwargs), self._limit.longest, self._note)
            self._thread, self._job = None, job
            self._limit.noted(self._plane, "", 0)
            thread.jobs.put(job)
            steps, turns, excused = 0, 0, 0
            collections = self._limit.collections()
            try:
                while not await _over(job):
                    before, collections = collections, self._limit.collections()
                    if job.steps != steps:
                        steps, turns, excused = job.steps, 0, 0
                    elif collections != before and excused < _MOST_EXCUSED:
                        excused += 1
                    else:
                        turns += 1
                    if turns * _TURN < self._limit.longest:
                        continue
                    if self._interrupts:
                        raise await self._stop(thread, job)
                    self._ask_to_end(job, turns)
            except BaseException:
                # No caller wants the answer any more, and the thread ends with its job.
                job.answer.cancel()
                thread.jobs.put(None)
                raise
            self._thread = thread
            result: T = job.answer.result()
            return result

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.jobs.put(None)
            self._thread = None

    def _ask_to_end(self, job: _Job, turns: int) -> None:
        job.late = True
        if turns * _TURN >= _PATIENCE * self._limit.longest:
            reason = f"the decision about {job.what or 'all'} does not end"
            self._limit.give_up(reason, self._accused([job.what]))

    def _accused(self, what: Iterable[str]) -> list[Accused]:
        return [Accused(self._plane, each) for each in what if each]

    def _note(self, job: _Job, what: str) -> None:
        # What a thread is at that was left to itself states nothing of the one that is waited for.
        if job is self._job:
            self._limit.noted(self._plane, what, threading.get_native_id())

    def _started(self) -> _Thread:
        thread = _Thread()
        thread.start()
        return thread

    async def _stop(self, thread: _Thread, job: _Job) -> TookTooLong:
        """End a job, or else leave it; nothing that it still answers is used."""
        what = job.what
        for _ in range(_ATTEMPTS):
            thread.stop()
            await _ended(thread)
            if not thread.is_alive():
                break
        left = {**self._left, thread: what}
        self._left = {each: left[each] for each in left if each.is_alive()}
        if len(self._left) >= _MOST_LEFT:
            self._limit.give_up(
                f"{counted(len(self._left), 'decision')} could not be stopped, "
                f"the last about {what or 'all'}",
                self._accused(self._left.values()),
            )
        return TookTooLong(what, self._limit.longest / SECOND, left=thread.is_alive())


async def _over(job: _Job) -> bool:
    """Wait for one turn; return whether there is an answer."""
    await asyncio.wait((job.answer,), timeout=_TURN / SECOND)
    return job.answer.done()


async def _ended(thread: _Thread) -> None:
    """Wait for one turn, or less if the thread ends."""
    for _ in range(10):
        if not thread.is_alive():
            return
        await asyncio.sleep(_TURN / SECOND / 10)

"""An event loop in which no time passes while anything has anything to do.

    def test_my_controller_waits_a_minute() -> None:
        async def story() -> None:
            clock = LoopClock(asyncio.get_running_loop(), start)
            ...
            await clock.sleep(MINUTE)

        run_virtually(story)

Once nothing is ready its time moves to the next timer, so that an hour of a story lasts only as
long as it computes. It serves what needs no socket and no thread: work for threads is done at once,
in the loop itself, so that a run depends on nothing but its input.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = ["LoopClock", "Stalled", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class Stalled(RuntimeError):
    """Everybody waits for another, for ever."""


class _Instant(selectors.BaseSelector):
    """Waits for nothing: time is moved instead."""

    def __init__(self) -> None:
        self.now: float = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled("nobody has anything to do, and nobody waits for a time")
        self.now += max(0.0, timeout)
        return self._inner.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is its own."""

    def __init__(self) -> None:
        self._instant: Final = _Instant()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do the work now; it has ended when this returns."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:
            future.set_exception(failure)
        return future


class LoopClock:
    """The clock of a virtual loop, which starts at a wall time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Nanos) -> None:
        self._loop = loop
        self._start = start

    def wall(self) -> Nanos:
        return Nanos(self._start + self.monotonic())

    def monotonic(self) -> Nanos:
        return Nanos(round(self._loop.time() * SECOND))

    async def sleep(self, nanoseconds: int) -> None:
        await asyncio.sleep(max(0, nanoseconds) / SECOND)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns, run in a virtual loop of its own, from wherever.

    Where a loop runs in this thread already, another thread does it; this one waits.
    """

    def run() -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    outcome: list[tuple[T | None, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((run(), None))
        except BaseException as failure:
            outcome.append((None, failure))

    thread = threading.Thread(target=work, name="what-if", daemon=True)
    thread.start()
    thread.join()
    result, failure = outcome[0]
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value]

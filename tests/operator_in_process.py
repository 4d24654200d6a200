"""An operator in the test's own process and loop, where others are processes (`OperatorProcesses`).

It reads the same flags, variables and file and runs all that `reprieve run` runs, but for the
process that keeps its lease: here it leads from the start and until it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.cli.run import operator_options, run
from reprieve.operator.process import run_operator
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.telemetry.log import TextFormatter
from reprieve.units.errors import UsageError
from tests.virtual_time import LoopClock, VirtualTimeLoop

__all__ = ["OperatorInProcess", "operator_of_this_time"]


def operator_of_this_time(
    kubeconfig: Path,
    environment: Mapping[str, str],
    *,
    arguments: Sequence[str] = (),
    on_line: Callable[[str], None],
) -> OperatorInProcess | OperatorProcesses:
    """Return an operator in this process where time is virtual, else as a process of its own."""
    if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
        return OperatorInProcess(
            kubeconfig, environment, arguments=arguments, on_line=on_line, clock=LoopClock()
        )
    return OperatorProcesses(kubeconfig, environment, arguments=arguments, on_line=on_line)


class OperatorInProcess:
    """One operator; `on_line` is called with each line of its log."""

    def __init__(
        self,
        kubeconfig: Path,
        environment: Mapping[str, str],
        *,
        arguments: Sequence[str] = (),
        on_line: Callable[[str], None],
        clock: Clock,
    ) -> None:
        flags = ["--controllers", "idle", "--kubeconfig", str(kubeconfig), *arguments]
        given = run.make_context("run", flags).params
        self._options = operator_options(environment, **given)
        self.clock = clock
        self._log = _Lines(on_line)
        self._log.setFormatter(TextFormatter(clock))
        self._task: asyncio.Task[object] | None = None

    async def start(self) -> None:
        """Run from now on."""
        logging.getLogger().addHandler(self._log)
        keeper = None if self._options.dry_run else _Leads(self.clock)
        self._task = asyncio.create_task(
            run_operator(self._options, self.clock, keeper)  # type: ignore[arg-type]
        )
        self._task.add_done_callback(self._ended)

    async def end(self) -> object:
        """Wait until it ends by itself; return how `run_operator` did."""
        assert self._task is not None
        return await self._task

    def kill(self) -> None:
        """End it where it is; `stop` waits for its end."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End it as a signal does, or as it ended by itself."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        logging.getLogger().removeHandler(self._log)

    def _ended(self, task: asyncio.Task[object]) -> None:
        if not task.cancelled() and isinstance(failure := task.exception(), UsageError):
            self._log.on_line(f"Error: {failure}")


class _Lines(logging.Handler):
    """Hands on each line of the log."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        super().__init__()
        self.on_line = on_line

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self.on_line(line)


class _Leads:
    """A keeper whose lease is held until the end."""

    leading = True
    epoch = 1

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.identity = ""
        self.changed: Callable[[bool], None] = lambda leading: None
        self.report: Callable[[int, str], None] = lambda level, text: None
        self.accused: Sequence[object] = ()
        self.suspects: Sequence[object] = ()

    @property
    def held_until(self) -> Nanos:
        return Nanos(self._clock.monotonic() + HOUR)

    def note(self, *about: object) -> None:
        pass

    async def run(self, lease: object) -> None:
        self.changed(True)
        await asyncio.Event().wait()

    async def wait_leading(self) -> None:
        pass

    async def wait_lost(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        pass

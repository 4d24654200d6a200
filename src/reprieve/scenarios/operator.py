"""Operator processes: `reprieve run` as its own process that knows a kubeconfig and variables.

The player of a scenario starts, stops and restarts replicas as a cluster would start pods: with
an environment that holds only what the scenario gives, and SIGTERM before SIGKILL. The output of
all replicas is written to one log, which is kept in memory up to a bound and can be followed. A
replica that ends by itself is replaced as long as another one runs. None outlives the player.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from reprieve.scenarios import with_parent

__all__ = ["OperatorProcesses"]

# SIGTERM has to be enough within 5 s; twice that is a hang.
_TERMINATION_S: Final = 10.0
# Before a replica that ended by itself is replaced; twice as long each time.
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# What a replica states once it has read its settings and begins its work.
_BEGUN: Final = "telemetry on port"
_BEGINNING_S: Final = 60.0
# Variables of our own process that the interpreter needs to start; nothing else is handed down.
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "TMPDIR")


class OperatorProcesses:
    """All replicas of one operator.

    `arguments` follow `run` of `module`, which is the product unless a test plays around it;
    `environment` is everything that the processes know beside what an interpreter needs.
    `on_line` is called with each line they print.
    """

    def __init__(
        self,
        kubeconfig: Path,
        environment: Mapping[str, str],
        *,
        arguments: Sequence[str] = (),
        replicas: int = 1,
        on_line: Callable[[str], None] | None = None,
        log_lines: int = 400,
        module: str = "reprieve",
    ) -> None:
        self._command = (
            *with_parent.command(module),
            "run",
            "--controllers",
            "idle",
            "--kubeconfig",
            str(kubeconfig),
            *arguments,
        )
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._environment = {**inherited, **environment, "PYTHONUNBUFFERED": "1"}
        self._config = kubeconfig.with_suffix(".values.yaml")
        self._replicas = replicas
        self._values: tuple[str, ...] = ()
        self._on_line = on_line
        self._log: deque[str] = deque(maxlen=log_lines)
        # All and only processes that were started and not stopped, with the reader of each.
        self._running: list[tuple[asyncio.subprocess.Process, asyncio.Task[None]]] = []
        # Process id and exit code of those that ended without a request to end.
        self._ended: list[tuple[int, int]] = []
        self._end = asyncio.Event()
        self._spoke = asyncio.Event()
        self._begun = asyncio.Event()
        self._stopping = False
        self._starting_again: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> list[int]:
        """Process ids of the replicas that were started and not stopped."""
        return [process.pid for process, _ in self._running]

    def configure(self, values: Mapping[str, Any]) -> None:
        """Give replicas that are started from now on these values as their `--config` file."""
        self._config.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        self._values = ("--config", str(self._config))

    async def start(self) -> None:
        """Start all replicas that are not running."""
        self._stopping = False
        for _ in range(self._replicas - len(self._running)):
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *self._values,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                # Ctrl-C in a terminal reaches the whole group; the order of stopping is ours.
                start_new_session=True,
            )
            reader = asyncio.create_task(self._read(process))
            self._running.append((process, reader))

    async def stop(self) -> None:
        """Request all replicas to end, and end those that do not."""
        self._stopping = True
        for starting in self._starting_again:
            starting.cancel()
        await asyncio.gather(*self._starting_again, return_exceptions=True)
        for process, _ in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process, reader in self._running:
            try:
                await asyncio.wait_for(process.wait(), _TERMINATION_S)
            except TimeoutError:
                self._keep(f"replica {process.pid} did not end within {_TERMINATION_S:.0f} s")
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await reader
        self._running.clear()

    async def restart(self) -> None:
        """Stop all replicas, then start as many."""
        await self.stop()
        await self.start()

    async def stopped_by_itself(self) -> str:
        """Return what happened once the last replica has ended without a request to."""
        await self._end.wait()
        pid, code = self._ended[-1]
        return f"operator process {pid} ended by itself with code {code}: " + " | ".join(
            self.tail(5)
        )

    async def ended_so_far(self) -> str:
        """Return what happened where the last replica has ended, once one has begun its work.

        Empty where none has ended, was started, or has begun within a minute.
        """
        if not self._end.is_set() and (self._stopping or not self._running):
            return ""
        ended = asyncio.create_task(self.stopped_by_itself())
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait(
            {ended, begun}, timeout=_BEGINNING_S, return_when=asyncio.FIRST_COMPLETED
        )
        said = ended.result() if ended.done() else ""
        for task in (ended, begun):
            task.cancel()
        return said

    async def until_said(self, text: str, seconds: float = 60.0) -> None:
        """Return as soon as a line with this text was printed.

        Raises:
            TimeoutError: none was in time.
        """
        async with asyncio.timeout(seconds):
            while not any(text in line for line in self._log):
                self._spoke.clear()
                await self._spoke.wait()

    def tail(self, lines: int = 60) -> list[str]:
        """Return the last lines that the replicas printed."""
        return list(self._log)[-lines:]

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than the reader's bound; the rest of it follows
                continue
            if not line:
                break
            self._keep(line.decode(errors="replace").rstrip())
        code = await process.wait()
        if not self._stopping:
            self._ended.append((process.pid, code))
            self._running = [each for each in self._running if each[0] is not process]
            if self._running:
                text = f"operator process {process.pid} ended by itself with code {code}"
                self._keep(f"{text}; another replaces it")
                again = asyncio.create_task(self._start_again())
                self._starting_again.add(again)
                again.add_done_callback(self._starting_again.discard)
            else:
                self._end.set()

    async def _start_again(self) -> None:
        """Replace a replica, after a pause that grows with how many have ended."""
        pause = _FIRST_PAUSE_S * 2 ** min(len(self._ended) - 1, 10)
        await asyncio.sleep(min(_LONGEST_PAUSE_S, pause))
        if not self._stopping and not self._end.is_set():
            await self.start()

    def _keep(self, line: str) -> None:
        self._log.append(line)
        if _BEGUN in line:
            self._begun.set()
        self._spoke.set()
        if self._on_line is not None:
            self._on_line(line)

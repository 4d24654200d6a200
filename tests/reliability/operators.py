"""Operator processes under supervision, as kubelets run them: one that ends is started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from reprieve.scenarios import with_parent

__all__ = ["Operators", "Usage"]

_RESTARTED_AFTER_S: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "TMPDIR")


@dataclass(frozen=True)
class Usage:
    """One replica at one moment: MiB resident, open descriptors, seconds of CPU.

    `keeper_mib`: resident of the process that renews its lease.
    """

    mib: float
    keeper_mib: float
    descriptors: int
    cpu_s: float


class Operators:
    """`replicas` of `reprieve run`, logging to `log`. `starts` counts every start.

    `module`: what runs it, where that is not the product's own entry. `port`: of the metrics of a
    single replica.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        replicas: int = 1,
        module: str = "reprieve",
        port: int = 0,
    ) -> None:
        self._command = with_parent.command(module, "run", *arguments)
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._environment = {**inherited, **environment, "PYTHONUNBUFFERED": "1"}
        self._log = log
        self._port = port
        self._replicas = replicas
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.starts = 0
        self.codes: list[int] = []

    async def start(self) -> None:
        self._keepers = [
            asyncio.create_task(self._keep(number)) for number in range(self._replicas)
        ]

    async def stop(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()

    def signal(self, number: int, sent: int) -> None:
        """Send a signal to a replica, if it runs."""
        process = self._processes.get(number)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sent)

    def lines(self, text: str) -> int:
        """Return how many lines of the log have this in them."""
        log = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        return sum(text in line for line in log.splitlines())

    async def until_line(self, text: str, times: int) -> None:
        """Wait until that many lines have this in them, for ten minutes at most."""
        for _ in range(3_000):
            if self.lines(text) >= times:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{text!r} is not in the log {times} times")

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels, 0 while nobody answers."""
        samples = await self._samples(name)
        return sum(value for found, value in samples if labels.items() <= found.items())

    async def by_label(self, name: str, label: str) -> dict[str, int]:
        """Return a metric's samples by one of their labels, none while nobody answers."""
        return {found[label]: int(value) for found, value in await self._samples(name)}

    async def _samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.get(f"http://127.0.0.1:{self._port}/metrics") as answer,
            ):
                text = await answer.text()
        except (OSError, TimeoutError, aiohttp.ClientError):
            return []
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def usage(self, number: int = 0) -> Usage | None:
        """Return what a replica uses, None while it does not run."""
        process = self._processes.get(number)
        if process is None or process.returncode is not None:
            return None
        folder = Path("/proc") / str(process.pid)
        try:
            children = (folder / "task" / str(process.pid) / "children").read_text().split()
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            descriptors = len(list((folder / "fd").iterdir()))
            keeper = sum(_mib(Path("/proc") / child) for child in children)
            cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
            return Usage(_mib(folder), keeper, descriptors, cpu_s)
        except OSError:
            return None

    async def _keep(self, number: int) -> None:
        while True:
            try:
                await self._run(number)
            except OSError as failure:
                print(f"replica {number} does not start: {failure}", file=sys.stderr)
            await asyncio.sleep(_RESTARTED_AFTER_S)

    async def _run(self, number: int) -> None:
        """Run a replica until it ends."""
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        self._processes[number] = process
        self.codes.append(await process.wait())


def _mib(folder: Path) -> float:
    pages = int((folder / "statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)

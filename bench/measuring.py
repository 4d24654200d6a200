"""How a case is measured: process CPU time, wall time, peak memory; best of several runs.

State changes before each run and the result is checked after it, both outside the measured time.
Servers and generators are other processes, whose time does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Measurement", "Stopwatch", "best_of", "other_process", "peak_mib", "print_line"]

T = TypeVar("T")


@dataclass
class Measurement:
    """The best run by CPU time; `parts_ms` are CPU times of named parts of that run."""

    cpu_ms: float
    wall_ms: float
    runs: int
    parts_ms: dict[str, float]


@dataclass
class Stopwatch:
    """CPU time of parts of one run."""

    parts_ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.parts_ms[name] = round((time.process_time() - started) * 1e3, 1)


async def best_of(
    runs: int,
    prepare: Callable[[int], Awaitable[None]],
    measured: Callable[[Stopwatch], Awaitable[T]],
    check: Callable[[T], None],
) -> Measurement:
    """Prepare, measure and check so many times; returns the run with the least CPU time."""
    best: Measurement | None = None
    for run in range(runs):
        await prepare(run)
        await asyncio.sleep(0)
        stopwatch = Stopwatch()
        wall, cpu = time.perf_counter(), time.process_time()
        result = await measured(stopwatch)
        cpu_ms = (time.process_time() - cpu) * 1e3
        wall_ms = (time.perf_counter() - wall) * 1e3
        check(result)
        if best is None or cpu_ms < best.cpu_ms:
            best = Measurement(round(cpu_ms, 1), round(wall_ms, 1), run + 1, stopwatch.parts_ms)
    assert best is not None
    best.runs = runs
    return best


def peak_mib() -> float:
    """Return the largest resident size of this process so far."""
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(kibibytes / 1024, 1)


def print_line(bench: str, case: str, **figures: Any) -> None:
    """Print one result as a JSON object on its own line."""
    print(json.dumps({"bench": bench, "case": case, **figures}), flush=True)


@contextmanager
def other_process(module: str, *arguments: str) -> Iterator[int]:
    """Run `python -m module` beside this one; gives the port that it prints as its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdecimal():
            raise RuntimeError(f"{module} did not start: {line!r}")
        yield int(line)
    finally:
        process.terminate()
        process.wait(10)

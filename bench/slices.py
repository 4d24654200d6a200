"""How long a decision keeps the event loop waiting: `python -m bench.slices FILE...`.

A decision runs in the solver thread; the interpreter takes turns between it and the event loop,
unless one operation holds on to the interpreter. Measured is the CPU time that the decision gets
between two turns of a loop that does nothing else; the aim is 20 ms (design, "Processes and time").
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from pathlib import Path

from bench.measuring import print_line
from bench.scheduling_input import Scenario, most_free_cpu, recorded
from reprieve.engine.placement.profile import Policy
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.operator.collector import freeze_records, relax_collector
from reprieve.planes.common.solve import Solver

_AIM_MS = 20.0
_POLICY = Policy()


def main(arguments: list[str] | None = None) -> int:
    """Return 1 when a slice is longer than the aim."""
    parser = argparse.ArgumentParser(prog="python -m bench.slices", description=__doc__)
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args(arguments)
    relax_collector()
    worst = 0.0
    for file in chosen.file:
        for scenario in recorded(file):
            worst = max(worst, asyncio.run(_longest(scenario, chosen.runs)))
    return int(worst > _AIM_MS)


async def _longest(scenario: Scenario, runs: int) -> float:
    snapshot = scenario.cluster().snapshot()
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    freeze_records()
    solver = Solver(Plane.SCHEDULING)
    identity = await solver.run(threading.get_ident)
    clock = time.pthread_getcpuclockid(identity)

    def decide() -> Attempt | None:
        return Session(snapshot, _POLICY, choose=most_free_cpu).attempt(unit)

    await solver.run(decide)
    slices: list[float] = []
    total = 0.0
    for _ in range(runs):
        before = start = time.clock_gettime(clock)
        decision = asyncio.create_task(solver.run(decide))
        while not decision.done():
            await asyncio.sleep(0)
            now = time.clock_gettime(clock)
            slices.append(now - before)
            before = now
        assert decision.result() is not None
        total += before - start
    solver.close()
    longest = max(slices) * 1000
    print_line(
        "slices",
        scenario.name,
        longest_ms=round(longest, 2),
        decision_ms=round(total / runs * 1000, 2),
        turns=len(slices) // runs,
    )
    return longest


if __name__ == "__main__":
    sys.exit(main())

"""How fast is a replay? `python -m bench.simulate [--quick] [--jobs N ...] [--policy NAME ...]`.

Jobs come as a Poisson stream at load 0.8 of 16 nodes of 8 devices (`--load X`; 0: as they are
drawn, which is just below 1; from 1 on the queue grows as long as jobs arrive, and the cost of a
job with it), from 8 tenants with three priorities, and are replayed under one policy in a process
of their own. Being preempted takes no time, which lets `fair` go round at one instant where many
wait; with `--evict 30` it takes 30 s.

Printed are jobs, events and decisions per second of CPU time, the peak of memory, and what each job
costs beside the fewest jobs of the same policy (`growth`). The drawing of jobs is `setup_cpu_ms`.
`--quick` has few jobs and asserts what came out, never times.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from bench.measuring import peak_mib, print_line
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.quota.model import Preemption, Settings
from reprieve.simulation.demand import Tenants, demand
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.simulation.trace import Job, Trace

__all__ = ["NODES", "POLICIES", "main", "stream"]

NODES: Final = (16, 8)
EXAMPLES: Final = Path(__file__).parents[1] / "examples" / "policies"
POLICIES: Final[Mapping[str, PolicySpec]] = {
    "none": PolicySpec("none", Preemption()),
    "classical": PolicySpec("classical"),
    "harm": PolicySpec("harm", settings=Settings(harm_order=True)),
    "fair": PolicySpec("fair", settings=Settings(fair_sharing=())),
    "least-lost": PolicySpec("least-lost", own=("least_lost.py:LeastLost", EXAMPLES)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each policy at each number of jobs, in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="300 jobs")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000], metavar="N")
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--load", type=float, default=0.8, metavar="X")
    parser.add_argument(
        "--evict", type=float, default=0, metavar="S", help="being preempted takes S s"
    )
    parser.add_argument("--base", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    sizes = [300] if chosen.quick else sorted(chosen.jobs)
    if chosen.here:
        model = Checkpointing(
            30 * MINUTE, 90 * SECOND, 3 * MINUTE, 30 * SECOND, round(chosen.evict * SECOND)
        )
        _measure(POLICIES[chosen.policy[0]], sizes[0], chosen.load or None, chosen.base, model)
        return 0
    for name in chosen.policy:
        base = 0.0
        for size in sizes:
            command = [sys.executable, "-m", "bench.simulate", "--here", "--policy", name]
            command += ["--jobs", str(size), "--load", str(chosen.load), "--base", str(base)]
            command += ["--evict", str(chosen.evict)]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            print(ended.stdout, end="", flush=True)
            if ended.returncode:
                return ended.returncode
            base = base or _cost(ended.stdout)
    return 0


def _cost(line: str) -> float:
    import json

    return float(json.loads(line)["cpu_us_per_job"])


def _measure(
    policy: PolicySpec, count: int, load: float | None, base: float, model: Checkpointing
) -> None:
    started = time.process_time()
    tenants = Tenants(8, 1.1, {0: 0.6, 100: 0.3, 1000: 0.1})
    capacity = NODES[0] * NODES[1]
    given = demand(Trace("poisson", stream(count)), tenants, capacity, load, 0)
    setup = time.process_time() - started
    wall, cpu = time.perf_counter(), time.process_time()
    done = replay(given.jobs, policy, model, tenants.names, NODES)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    displaced = sum(life.displaced for life in done.lives)
    assert all(life.finished is not None for life in done.lives)
    assert (displaced == 0) == (policy.name == "none")
    # Every job arrives and finishes; who is displaced leaves and has one more end that is void.
    events = 2 * len(done.lives) + 2 * displaced
    per_job = cpu * 1e6 / len(done.lives)
    print_line(
        "simulate",
        f"{policy.name}-{count}",
        cpu_ms=round(cpu * 1e3),
        wall_ms=round(wall * 1e3),
        peak_mib=peak_mib(),
        setup_cpu_ms=round(setup * 1e3),
        jobs=len(done.lives),
        preemptions=displaced,
        cycles=done.cycles,
        jobs_per_s=round(len(done.lives) / cpu),
        events_per_s=round(events / cpu),
        cpu_us_per_job=round(per_job, 1),
        growth=round(per_job / base, 2) if base else 1.0,
    )


def stream(count: int) -> tuple[Job, ...]:
    """Return a stream that asks for about the capacity, so that few are left out or doubled."""
    random = Random("bench.simulate")
    found, now = [], 0.0
    widths = (1, 1, 1, 1, 2, 4, 8, 16)
    mean = 2 * 3_600
    per_s = NODES[0] * NODES[1] / (mean * sum(widths) / len(widths))
    for number in range(count):
        now += random.expovariate(per_s)
        length = max(30, round(random.lognormvariate(8.0, 1.33)))
        found.append(Job(f"j{number}", round(now) * SECOND, random.choice(widths), length * SECOND))
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main())

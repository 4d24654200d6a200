"""`python -m bench.validation [--quick] [--jobs N]`: the replay against what theory knows.

The first step of the ladder of docs/simulate.md: queues whose mean wait has a formula are replayed
through the quota engine, and each prints its mean wait beside that of the formula. `--quick` has
few jobs and asserts a wide bound only: it is the smoke test that CI runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from bench.measuring import print_line
from reprieve.engine.quota.model import Policy, Preemption, QueueingStrategy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replay import Life, replay
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Displaced, Run
from reprieve.units.durations import SECOND
from tests.oracle.queueing import md1_wait, mmk_wait, preemptive_waits

__all__ = ["CASES", "Case", "Resuming", "main", "waits"]

SERVICE_S = 1_000


@dataclass(frozen=True)
class Resuming:
    """A model in which displaced work goes on where it was, as theory has it."""

    def finishes(self, job: Job, run: Run) -> int:
        return run.started + job.duration - run.kept

    def idle(self, job: Job, run: Run, now: int) -> int:
        return 0

    def displaced(self, job: Job, run: Run, now: int) -> Displaced:
        return Displaced(now, run.kept + now - run.started, 0, 0)


@dataclass(frozen=True)
class Case:
    """A queue: its servers, the loads of its classes by priority, and the waits by formula."""

    name: str
    servers: int
    loads: dict[int, float]
    expected: dict[int, float]
    service: Callable[[Random], float] = field(default=lambda random: random.expovariate(1.0))


FIRST, SECOND_CLASS = preemptive_waits(0.25, 0.35)
CASES = (
    Case("M/M/1 at 0.5", 1, {0: 0.5}, {0: mmk_wait(0.5, 1)}),
    Case("M/M/4 at 0.6", 4, {0: 0.6}, {0: mmk_wait(0.6, 4)}),
    Case("M/D/1 at 0.6", 1, {0: 0.6}, {0: md1_wait(0.6)}, lambda _: 1.0),
    Case("two classes, preemptive", 1, {100: 0.25, 0: 0.35}, {100: FIRST, 0: SECOND_CLASS}),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the cases; the exit code is 1 if a mean wait is outside the bound."""
    parser = argparse.ArgumentParser(prog="python -m bench.validation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5,000 jobs, within 25 %%")
    parser.add_argument("--jobs", type=int, default=100_000, metavar="N")
    chosen = parser.parse_args(arguments)
    jobs, bound = (5_000, 0.25) if chosen.quick else (chosen.jobs, 0.02)
    good = True
    for case in CASES:
        started, cpu = time.perf_counter(), time.process_time()
        found = waits(case, jobs)
        cpu_ms = (time.process_time() - cpu) * 1e3
        wall_ms = (time.perf_counter() - started) * 1e3
        for priority, expected in case.expected.items():
            off = found[priority] / expected - 1
            good = good and abs(off) <= bound
            print_line(
                "validation",
                f"{case.name}, priority {priority}" if len(case.expected) > 1 else case.name,
                cpu_ms=round(cpu_ms),
                wall_ms=round(wall_ms),
                jobs=jobs,
                wait=round(found[priority], 4),
                formula=round(expected, 4),
                off_percent=round(100 * off, 2),
            )
    return 0 if good else 1


def waits(case: Case, jobs: int, seed: int = 0) -> dict[int, float]:
    """Return the mean wait of each class in the unit of the service time.

    Gaps and services are brought to their exact means, so that the load is the one of the
    formula; the first fiftieth of the jobs, which find an empty queue, does not count.
    """
    lives = replay(
        _jobs(case, jobs, seed),
        PolicySpec(
            "theory",
            Preemption(Policy.LOWER_PRIORITY if len(case.loads) > 1 else Policy.NEVER),
            QueueingStrategy.STRICT_FIFO,
            loop_limit=0,
        ),
        Resuming(),
        ("all",),
        (1, case.servers),
    ).lives
    warm = lives[len(lives) // 50 :]
    return {priority: _mean(warm, priority) for priority in case.loads}


def _mean(lives: Sequence[Life], priority: int) -> float:
    waited = [life.waited for life in lives if life.job.priority == priority]
    return sum(waited) / len(waited) / SECOND / SERVICE_S


def _jobs(case: Case, count: int, seed: int) -> list[Job]:
    random = Random(f"{seed}/{case.name}")
    total = sum(case.loads.values())
    gaps = [random.expovariate(total * case.servers) for _ in range(count)]
    services = [case.service(random) for _ in range(count)]
    priorities = random.choices(list(case.loads), list(case.loads.values()), k=count)
    scale_gap = count / (total * case.servers) / sum(gaps)
    scale_service = count / sum(services)
    found, now = [], 0.0
    for number, (gap, service) in enumerate(zip(gaps, services, strict=True)):
        now += gap * scale_gap
        found.append(
            Job(
                f"j{number}",
                round(now * SERVICE_S * SECOND),
                1,
                max(1, round(service * scale_service * SERVICE_S * SECOND)),
                tenant="all",
                priority=priorities[number],
            )
        )
    return found


if __name__ == "__main__":
    sys.exit(main())

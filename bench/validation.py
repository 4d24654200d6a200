"""`python -m bench.validation [--quick] [--jobs N] [--steps 1,2,3,4] [--out FILE]`: right?

The ladder of docs/simulate/validation.md, a line for each thing that is compared:

1. queues whose mean wait has a formula are replayed through the quota engine
2. the records of step 3's cluster, decided again: the same plan ids
3. a study through the replay, and through the real quota plane on the embedded cluster
4. recorded cases of Kueue and kube-scheduler: the victims that they say
5. a study with saves on a real API server, in real time: makespan and lost device hours. It is
   made by `--steps 5` alone, lasts for about `--minutes N`, and wants the control plane that
   CONTRIBUTING names. The jobs of an hour are scaled to the minutes, what a cluster takes time for
   is not: its seconds are told, and beside the replay stand `delayed` ones, that take as long for
   each step as the cluster did, in 200 draws. In how many of them the figure is at most the
   cluster's is its `rank`; the middle 95 % of the ranks are what chance explains

`--quick` has few jobs and wide bounds: it is the smoke test that CI runs. `--out FILE` is written
for `reprieve simulate --validation FILE`, which prints it in its report. The exit code is 1 if a
bound does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

import reprieve
from bench.api_server_study import DEVICES, played_in_real_time, timed_study
from bench.api_server_study import TENANTS as REAL_TENANTS
from bench.cluster_study import (
    TENANTS,
    Played,
    agreement,
    played,
    reproduced,
    study_jobs,
    virtually,
)
from bench.delayed_replay import beside_replays
from bench.measuring import print_line
from bench.recorded_cases import kube_scheduler_cases, kueue_cases
from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.quota.model import Policy, Preemption, QueueingStrategy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Life
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing, Displaced, Run, Saved
from reprieve.simulation.reporting.validation_figures import Comparison, Validation
from reprieve.simulation.trace import Job
from tests.integration.control_plane import NoBinaries, find_binaries
from tests.oracle.queueing import md1_wait, mmk_wait, preemptive_waits

__all__ = ["CASES", "Case", "Resuming", "main", "waits"]

SERVICE_S = 1_000
#: Recorded cases of others, which are no part of the project.
VECTORS = Path(__file__).parents[2] / "shared" / "conformance"


@dataclass(frozen=True)
class Resuming:
    """A model in which displaced work goes on where it was, as theory has it."""

    @property
    def evict(self) -> int:
        """Return that it leaves at once."""
        return 0

    def finishes(self, job: Job, run: Run) -> int:
        return run.started + job.duration - run.kept

    def idle(self, job: Job, run: Run, now: int) -> int:
        return 0

    def displaced(self, job: Job, run: Run, now: int, notice: int = 0) -> Displaced:
        return Displaced(now, run.kept + now - run.started, 0, 0)

    def save_time(self, job: Job) -> int:
        return 0

    def saved(self, job: Job, run: Run, now: int) -> Saved:
        return Saved()


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
    """Make the steps; the exit code is 1 if a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.validation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs; step 1 within 25 %%")
    parser.add_argument("--jobs", type=int, default=100_000, metavar="N", help="of step 1")
    parser.add_argument("--study-jobs", type=int, default=200, metavar="N", help="of step 3")
    parser.add_argument("--steps", default="1,2,3,4", metavar="LIST")
    parser.add_argument("--minutes", type=float, default=60, metavar="N", help="of step 5")
    parser.add_argument("--vectors", type=Path, default=VECTORS, metavar="DIR", help="of step 4")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for a study's report")
    given = sys.argv[1:] if arguments is None else list(arguments)
    chosen = parser.parse_args(given)
    steps = {int(each) for each in chosen.steps.split(",")}
    reported: list[Comparison] = []
    if 1 in steps:
        jobs, bound = (5_000, 0.25) if chosen.quick else (chosen.jobs, 0.02)
        reported += _queues(jobs, bound)
    if steps & {2, 3}:
        reported += _study(30 if chosen.quick else chosen.study_jobs)
    if 4 in steps:
        reported += _recorded(chosen.vectors, chosen.quick)
    if 5 in steps:
        reported += _in_real_time(*((30, 2.0) if chosen.quick else (108, chosen.minutes)))
    if chosen.out is not None:
        command = shlex.join(["python", "-m", "bench.validation", *given])
        found = Validation(command, _commit(), reprieve.__version__, tuple(reported))
        chosen.out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return 0 if all(each.holds for each in reported) else 1


def _commit() -> str:
    """Return the commit of the sources, with `-dirty` if they have changed since."""
    here = Path(__file__).parent
    said = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(
            said, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _reported(
    case: str, holds: bool, cpu_ms: float, wall_ms: float, **figures: int | float
) -> Comparison:
    """Print one comparison, and return it without its times, which are none of the result."""
    print_line("validation", case, cpu_ms=round(cpu_ms), wall_ms=round(wall_ms), **figures)
    return Comparison(case, holds, dict(figures))


def _queues(jobs: int, bound: float) -> Iterator[Comparison]:
    for case in CASES:
        started, cpu = time.perf_counter(), time.process_time()
        found = waits(case, jobs)
        cpu_ms = (time.process_time() - cpu) * 1e3
        wall_ms = (time.perf_counter() - started) * 1e3
        for priority, expected in case.expected.items():
            off = found[priority] / expected - 1
            yield _reported(
                f"{case.name}, priority {priority}" if len(case.expected) > 1 else case.name,
                abs(off) <= bound,
                cpu_ms,
                wall_ms,
                jobs=jobs,
                wait=round(found[priority], 4),
                formula=round(expected, 4),
                off_percent=round(100 * off, 2),
            )


def _study(count: int) -> Iterator[Comparison]:
    """Play the same jobs both ways, and decide the records again."""
    jobs, devices = study_jobs(count), 16
    spec = PolicySpec("classical")
    replayed = Played.of(replay(jobs, spec, Checkpointing(), TENANTS, (1, devices)))
    started, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        real = virtually(lambda: played(jobs, TENANTS, devices, Path(folder)))
    cpu_ms = (time.process_time() - cpu) * 1e3
    wall_ms = (time.perf_counter() - started) * 1e3
    same, of = reproduced(real.records)
    yield _reported(
        "2 own records: the same plan ids",
        same == of > 0,
        cpu_ms,
        wall_ms,
        records=of,
        same=same,
    )
    found = agreement(replayed, real)
    close = found.admissions >= 0.99 and found.victims >= 0.99 and abs(found.makespan_off) <= 0.02
    yield _reported(
        "3 embedded cluster",
        close,
        cpu_ms,
        wall_ms,
        jobs=count,
        admissions=len(real.admitted),
        preempted=len(real.victims),
        admissions_same_percent=round(100 * found.admissions, 2),
        victims_same_percent=round(100 * found.victims, 2),
        makespan_s=round(real.makespan_s, 1),
        makespan_off_percent=round(100 * found.makespan_off, 3),
    )


def _recorded(folder: Path, quick: bool) -> Iterator[Comparison]:
    if not folder.is_dir():
        print(f"step 4 is left out: no recorded cases in {folder}; --vectors DIR names them")
        return
    both = (("Kueue", kueue_cases), ("kube-scheduler", kube_scheduler_cases))
    for name, cases_of in both:
        started, cpu = time.perf_counter(), time.process_time()
        same = judged = of = 0
        for number, case in enumerate(cases_of(folder)):
            if quick and number % 20:
                continue
            of += 1
            verdict = case()
            same += verdict is True
            judged += verdict is None
        yield _reported(
            f"4 recorded cases of {name}",
            same + judged == of > 0,
            (time.process_time() - cpu) * 1e3,
            (time.perf_counter() - started) * 1e3,
            cases=of,
            same=same,
            documented_deviations=judged,
        )


def _in_real_time(count: int, minutes: float) -> Iterator[Comparison]:
    """Play a study with saves on a real control plane, and in the replay."""
    try:
        binaries = find_binaries()
    except NoBinaries as missing:
        print(f"step 5 is left out: {missing}")
        return
    jobs, model = timed_study(count, minutes)
    started, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        most_s = 60 * max(3 * minutes, minutes + 5)
        playing = played_in_real_time(binaries, Path(folder), jobs, model, most_s)
        real = asyncio.run(playing)
    cpu_ms = (time.process_time() - cpu) * 1e3
    wall_ms = (time.perf_counter() - started) * 1e3
    close, figures = beside_replays(jobs, model, real, REAL_TENANTS, DEVICES)
    yield _reported("5 real API server", close, cpu_ms, wall_ms, minutes=minutes, **figures)
    same, of = reproduced(real.played.records)
    yield _reported(
        "5 its own records: the same plan ids",
        same == of > 0,
        cpu_ms,
        wall_ms,
        records=of,
        same=same,
    )


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
            governor=GovernorPolicy(loop_limit=0),
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

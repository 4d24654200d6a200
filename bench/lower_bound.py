"""`python -m bench.lower_bound [--instances N] [--jobs N] [--seconds S]`: what is left to win?

Small instances are replayed under policies; HiGHS then says how much any schedule loses that knows
all jobs beforehand and serves each class of priority as well as that policy did
(`least_lost_schedule`). Jobs are drawn: on 4 devices, one third urgent, of two tenants; slots of
ten minutes, a save each hour that takes no time, restarts of one slot. Printed are for each
instance and policy the device hours lost, those undone, and the bound, and for each policy the
sums; `exact` counts the bounds that a schedule reaches, others are what was proven in time.
The exit code is 1 if a bound is above what a policy lost, which would be a fault.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.least_lost_schedule import SlotJob, least_lost_schedule
from bench.measuring import print_line
from kubeworld.units.durations import HOUR, MINUTE
from reprieve.engine.quota.model import Settings
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Life
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.simulation.trace import Job

__all__ = ["POLICIES", "Compared", "compared", "drawn", "main"]

SLOT: Final = 10 * MINUTE
CHECKPOINT: Final = 6
RESTART: Final = 1
DEVICES: Final = 4
TENANTS: Final = ("a", "b")
POLICIES: Final = (
    PolicySpec("classical"),
    PolicySpec("harm", settings=Settings(harm_order=True)),
    PolicySpec("protected", preempt_min_runtime_s=600, reclaim_min_runtime_s=600),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Device hours: what a policy lost, what of it was undone, and what any schedule loses."""

    lost_h: float
    undone_h: float
    least_h: float
    exact: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; the exit code is 1 if a bound is above what a policy lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.lower_bound", description=__doc__)
    parser.add_argument("--instances", type=int, default=20, metavar="N")
    parser.add_argument("--jobs", type=int, default=6, metavar="N", help="of each instance")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of each bound")
    chosen = parser.parse_args(arguments)
    good = True
    for policy in POLICIES:
        started, cpu, found = time.perf_counter(), time.process_time(), []
        for seed in range(chosen.instances):
            one = compared(drawn(seed, chosen.jobs), policy, chosen.seconds)
            found.append(one)
            good = good and one.least_h <= one.lost_h + 1e-6
            print_line("lower_bound", f"{policy.name}, instance {seed}", **_figures([one]))
        print_line(
            "lower_bound",
            policy.name,
            cpu_ms=round((time.process_time() - cpu) * 1e3),
            wall_ms=round((time.perf_counter() - started) * 1e3),
            instances=len(found),
            jobs=chosen.jobs,
            **_figures(found),
        )
    return 0 if good else 1


def _figures(found: Sequence[Compared]) -> dict[str, float]:
    return {
        "lost_h": round(sum(each.lost_h for each in found), 2),
        "undone_h": round(sum(each.undone_h for each in found), 2),
        "least_h": round(sum(each.least_h for each in found), 2),
        "exact": sum(each.exact for each in found),
    }


def drawn(seed: int, count: int) -> list[SlotJob]:
    """Return jobs that contend, in the order of their arrivals."""
    random = Random(f"lower-bound/{seed}")
    found = []
    for number in range(count):
        urgent = random.random() < 1 / 3
        found.append(
            SlotJob(
                0 if number == 0 else random.randint(0, 4 * count),
                random.choice((1, 2, 2, 4)),
                random.randint(3, 12) if urgent else random.randint(8, 30),
                100 if urgent else 0,
            )
        )
    return sorted(found, key=lambda job: job.arrival)


def compared(jobs: Sequence[SlotJob], policy: PolicySpec, seconds: float) -> Compared:
    """Replay jobs under a policy, and return what it lost beside what any schedule loses."""
    lives = replay(
        [
            Job(
                f"j{number}",
                job.arrival * SLOT,
                job.devices,
                job.duration * SLOT,
                tenant=TENANTS[number % len(TENANTS)],
                priority=job.priority,
            )
            for number, job in enumerate(jobs)
        ],
        policy,
        Checkpointing(CHECKPOINT * SLOT, 0, RESTART * SLOT),
        TENANTS,
        (1, DEVICES),
    ).lives
    ends = [_end(life) for life in lives]
    sums = {
        priority: sum(end for job, end in zip(jobs, ends, strict=True) if job.priority == priority)
        for priority in {job.priority for job in jobs}
    }
    least = least_lost_schedule(jobs, DEVICES, CHECKPOINT, RESTART, sums, max(ends), seconds)
    assert least is not None, "what the policy did is a schedule that serves as well"
    undone = sum(life.lost for life in lives)
    lost = undone + sum(life.idle for life in lives)
    return Compared(lost / HOUR, undone / HOUR, least.lost * SLOT / HOUR, least.exact)


def _end(life: Life) -> int:
    """Return the slot at whose beginning the job had ended."""
    assert life.finished is not None, "a replay ends when all jobs have finished"
    assert life.finished % SLOT == 0, "all that happens is a whole number of slots apart"
    return life.finished // SLOT


if __name__ == "__main__":
    sys.exit(main())

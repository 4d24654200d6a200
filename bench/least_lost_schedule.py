"""The least device time that any schedule of known jobs loses: an integer program for HiGHS.

Time is cut into slots, and everything is a whole number of them. Who decides here knows all jobs
beforehand, so that a job is stopped at its saves alone: stopped later it would leave its devices
later with the same progress. What is lost then are restarts. A job is a path of runs, each from one
progress to a later one; between runs it waits. No slot has more devices in use than there are.
Without more to hold, nothing would ever be stopped, so a schedule has to serve each class of
priority as well as another one did: the sum of its jobs' ends is no later. Quotas are left out.
All of this only allows more than a policy can do, so that none of the same waits loses less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import highspy

__all__ = ["Least", "SlotJob", "least_lost_schedule"]


@dataclass(frozen=True, slots=True)
class SlotJob:
    """A job, its times in slots."""

    arrival: int
    devices: int
    duration: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Least:
    """Device slots that every schedule loses; `exact` says that one loses no more than that."""

    lost: float
    exact: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that may be made: from a progress to a later one, in the slots `start` to `end`."""

    job: int
    kept: int
    reached: int
    start: int
    end: int


def least_lost_schedule(
    jobs: Sequence[SlotJob],
    devices: int,
    checkpoint: int,
    restart: int,
    ends: Mapping[int, int],
    horizon: int,
    seconds: float = 60.0,
) -> Least | None:
    """Return the least loss, None if no schedule serves so well.

    `ends`: for each priority the latest sum of the ends of its jobs. `horizon`: the last slot in
    which anything runs, exclusive. After `seconds` the best bound that is proven then.
    """
    import highspy

    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("time_limit", seconds)
    model.setOptionValue("threads", 1)
    runs = list(_runs(jobs, checkpoint, restart, horizon))
    for column, run in enumerate(runs):
        model.addVar(0.0, 1.0)
        model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        if run.kept:
            model.changeColCost(column, float(restart * jobs[run.job].devices))
    _add_paths(model, jobs, runs, horizon)
    in_use: dict[int, dict[int, float]] = defaultdict(dict)
    over: dict[int, dict[int, float]] = defaultdict(dict)
    for column, run in enumerate(runs):
        job = jobs[run.job]
        for slot in range(run.start, run.end):
            in_use[slot][column] = float(job.devices)
        if run.reached == job.duration:
            over[job.priority][column] = float(run.end)
    for amounts in in_use.values():
        _add_row(model, amounts, 0.0, float(devices))
    for priority, latest in ends.items():
        _add_row(model, over[priority], 0.0, float(latest))
    model.run()
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    info = model.getInfo()
    if status == highspy.HighsModelStatus.kOptimal:
        return Least(float(round(info.objective_function_value)), True)
    assert status == highspy.HighsModelStatus.kTimeLimit, status
    return Least(max(0.0, info.mip_dual_bound), False)


def _runs(jobs: Sequence[SlotJob], checkpoint: int, restart: int, horizon: int) -> Iterator[_Run]:
    for number, job in enumerate(jobs):
        for kept in range(0, job.duration, checkpoint):
            reachable = [*range(kept + checkpoint, job.duration, checkpoint), job.duration]
            earliest = job.arrival + kept
            for start in range(earliest, horizon):
                for reached in reachable:
                    end = start + (restart if kept else 0) + reached - kept
                    if end <= horizon:
                        yield _Run(number, kept, reached, start, end)


def _add_paths(
    model: highspy.Highs, jobs: Sequence[SlotJob], runs: Sequence[_Run], horizon: int
) -> None:
    """Add what makes runs of one job a path: it waits with a progress until it goes on from it."""
    changes: dict[tuple[int, int, int], dict[int, float]] = defaultdict(dict)
    for column, run in enumerate(runs):
        changes[run.job, run.kept, run.start][column] = -1.0
        changes[run.job, run.reached, run.end][column] = 1.0
    columns = len(runs)
    for number, job in enumerate(jobs):
        progresses = sorted({kept for of, kept, _ in changes if of == number})
        for kept in progresses:
            waiting = None
            for slot in range(job.arrival, horizon + 1):
                amounts = changes[number, kept, slot]
                if waiting is not None:
                    amounts[waiting] = 1.0
                model.addVar(0.0, 1.0)
                waiting, columns = columns, columns + 1
                amounts[waiting] = -1.0
                came = -1.0 if kept == 0 and slot == job.arrival else 0.0
                _add_row(model, amounts, came, came)
            last = 1.0 if kept == job.duration else 0.0
            assert waiting is not None
            model.changeColBounds(waiting, last, last)


def _add_row(model: highspy.Highs, amounts: Mapping[int, float], least: float, most: float) -> None:
    columns = np.fromiter(amounts.keys(), np.int32, len(amounts))
    values = np.fromiter(amounts.values(), np.float64, len(amounts))
    model.addRow(least, most, len(columns), columns, values)

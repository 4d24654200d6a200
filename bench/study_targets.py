"""`python -m bench.study_targets results.csv [--base POLICY]`: which cells meet the targets?

A cell is a trace, a seed and a load, under a policy and under the base (the first policy of the
file unless said). Of each cell the policy is to lose at most half of what the base loses, to do at
most 1 % less work, and to make the 95th percentile of waits at most 5 % longer, which in a cell
in which the base makes nobody wait means not at all.

*Work* is told in three ways, since they differ: `done` are the device-hours of use until the last
arrival; `admitted h` the device-hours of all jobs that have started by then; `admitted` counts
those jobs. Only the first is work that somebody has: a job that starts a minute before the last
arrival counts whole in the others, and one that starts a minute after it not at all.

For each load and policy: cells, how many meet each target and all three, and the median of the
changes with its 95 % bootstrap interval, drawn over the cells with a fixed seed. Only cells that
both policies have finished count.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Cell", "cells", "lines", "main", "median_interval", "met"]

#: Columns of results.csv, and what they are called here.
_LOST: Final = ("lost_device_hours", "lost")
_WORK: Final = (
    ("device_hours_done", "done"),
    ("admitted_device_hours", "admitted h"),
    ("admitted", "admitted"),
)
_WAIT: Final = ("wait_p95_s", "wait p95")
_DRAWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One trace, seed and load: the changes of a policy to the base, as shares of it."""

    trace: str
    seed: str
    load: str
    policy: str
    changes: dict[str, float]


def cells(rows: Sequence[dict[str, str]], base: str | None = None) -> Iterator[Cell]:
    """Yield the cells of the rows of a `results.csv`."""
    base = base or rows[0]["policy"]
    of = {(row["trace"], row["seed"], row["load"]): row for row in rows if row["policy"] == base}
    for row in rows:
        other = of.get((row["trace"], row["seed"], row["load"]))
        if row["policy"] == base or other is None:
            continue
        changes = {
            name: _change(float(row[column]), float(other[column]))
            for column, name in (_LOST, *_WORK, _WAIT)
            if column in row
        }
        yield Cell(row["trace"], row["seed"], row["load"], row["policy"], changes)


def met(cell: Cell) -> dict[str, bool]:
    """Tell which targets a cell meets; `all` are the three with what is done as work."""
    changes = cell.changes
    found = {"lost": round(changes["lost"], 9) <= -0.5}
    found |= {name: round(changes[name], 9) >= -0.01 for _, name in _WORK if name in changes}
    found["wait p95"] = round(changes["wait p95"], 9) <= 0.05
    found["all"] = found["lost"] and found["done"] and found["wait p95"]
    return found


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and the ends of its 95 % bootstrap interval."""
    import numpy

    given = numpy.asarray(values, dtype=float)
    drawn = numpy.random.default_rng(0).integers(0, len(values), (_DRAWS, len(values)))
    low, high = numpy.percentile(numpy.median(given[drawn], axis=1), [2.5, 97.5], method="nearest")
    return float(numpy.median(given)), float(low), float(high)


def lines(found: Sequence[Cell]) -> Iterator[str]:
    """Yield a Markdown table of the policies at each load, and over all of them."""
    names = list(found[0].changes)
    targets = list(met(found[0]))
    titles = [*(f"{name}: met" for name in targets), *names]
    yield f"| load | policy | cells | {' | '.join(titles)} |"
    yield f"|---|---|{'---:|' * (1 + len(targets) + len(names))}"
    loads = list(dict.fromkeys(cell.load for cell in found))
    for load in (*loads, None):
        for policy in dict.fromkeys(cell.policy for cell in found):
            mine = [each for each in found if each.policy == policy and load in (None, each.load)]
            if mine:
                yield _line(load or "all", policy, mine, targets, names)


def _line(
    load: str, policy: str, mine: Sequence[Cell], targets: Sequence[str], names: Sequence[str]
) -> str:
    counts = [str(sum(met(each)[target] for each in mine)) for target in targets]
    changes = []
    for name in names:
        median, low, high = median_interval([each.changes[name] for each in mine])
        changes.append(f"{_percent(median)} ({_percent(low)} to {_percent(high)}) %")
    return f"| {' | '.join((load, policy, str(len(mine)), *counts, *changes))} |"


def _change(value: float, base: float) -> float:
    if base:
        return value / base - 1
    return float("inf") if value else 0.0


def _percent(share: float) -> str:
    said = f"{100 * share:+.1f}"
    return "±0.0" if said in ("+0.0", "-0.0") else said.replace("-", "−")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then each cell that misses a target."""
    parser = argparse.ArgumentParser(prog="python -m bench.study_targets", description=__doc__)
    parser.add_argument("results", type=Path, help="results.csv of a study")
    parser.add_argument("--base", metavar="POLICY", help="the first one of the file unless said")
    given = parser.parse_args(arguments)
    with given.results.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = list(cells(rows, given.base)) if rows else []
    if not found:
        parser.error(f"{given.results}: no cell that two policies have finished")
    for line in lines(found):
        print(line)
    for each in found:
        missed = [name for name, good in met(each).items() if not good and name != "all"]
        if missed:
            said = ", ".join(f"{name} {_percent(each.changes[name])} %" for name in missed)
            print(f"missed: {each.trace} seed {each.seed} load {each.load} {each.policy}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

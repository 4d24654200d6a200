"""`python -m bench.large_study [--quick] [--jobs N] [--load X] [--workers N]`: a study, how large?

One `reprieve simulate` replays as many jobs under each of four policies (`none`, `classical`,
`fair`, `harm`). The jobs are the stream of `bench.simulate`, stretched in time until it asks for
that share of 16 nodes of 8 devices, so that none is left out. Printed are the wall time, the CPU
time of all processes, replayed jobs per second of it, and what the process that was started, the
largest of its workers, and all of them together held of the memory when that was most (`Pss`, which
counts what several share once; looked at twice a second). `--quick` has few jobs; what came out is
checked, times never are.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.measuring import print_line
from bench.simulate import NODES, stream
from kubeworld.units.durations import SECOND

__all__ = ["main"]

_POLICIES: Final = ("none", "classical", "fair", "harm")
_STUDY: Final = """\
cluster: {nodes: 16, devices: 8}
workload: {trace: csv, path: trace.csv}
tenants: {count: 8, zipf: 1.1, priorities: {0: 0.6, 100: 0.3, 1000: 0.1}}
work: {checkpoint: 30m, save: 90s, restart: 180s}
policies:
  none: {preemption: Never}
  classical: {}
  fair: {quota: {preemptionPolicy: FairSharing}}
  harm: {quota: {harmOrder: true}}
"""


@dataclass
class Memory:
    """The most that was held at one time, in MiB."""

    started: float = 0.0
    worker: float = 0.0
    together: float = 0.0

    def observe(self, pid: int) -> None:
        """Add what a process and those that it started hold now."""
        own, others = _held_mib(pid), [_held_mib(child) for child in _started_by(pid)]
        self.started = max(self.started, own)
        self.worker = max([self.worker, *others])
        self.together = max(self.together, own + sum(others))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the study, run it, check what came out, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench.large_study", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="300 jobs")
    parser.add_argument("--jobs", type=int, default=100_000, metavar="N")
    parser.add_argument("--load", type=float, default=0.8, metavar="X")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    chosen = parser.parse_args(arguments)
    count, memory = 300 if chosen.quick else chosen.jobs, Memory()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "study.yaml").write_text(_STUDY)
        _write_trace(folder / "trace.csv", count, chosen.load)
        command = [sys.executable, "-m", "reprieve", "simulate", "study.yaml"]
        wall = time.perf_counter()
        with (folder / "said").open("w+") as said:
            run = subprocess.Popen(
                [*command, "--workers", str(chosen.workers)], cwd=folder, stdout=said, stderr=said
            )
            while run.poll() is None:
                memory.observe(run.pid)
                time.sleep(0.5 if count > 1_000 else 0.05)
            wall = time.perf_counter() - wall
            if run.returncode:
                said.seek(0)
                print(said.read(), file=sys.stderr)
                return run.returncode
        _check(folder / "results.csv", count)
        report = (folder / "report.html").stat().st_size
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = spent.ru_utime + spent.ru_stime
    print_line(
        "large_study",
        f"{len(_POLICIES)}-policies-{count}-jobs-load-{chosen.load}",
        wall_ms=round(wall * 1e3),
        cpu_ms=round(cpu * 1e3),
        jobs_per_s=round(count * len(_POLICIES) / cpu),
        workers=chosen.workers,
        started_peak_mib=round(memory.started, 1),
        worker_peak_mib=round(memory.worker, 1),
        together_peak_mib=round(memory.together, 1),
        report_mib=round(report / 2**20, 1),
    )
    return 0


def _write_trace(file: Path, count: int, load: float) -> None:
    jobs = stream(count)
    asked = sum(job.devices * job.duration for job in jobs)
    stretch = asked / (NODES[0] * NODES[1] * load * jobs[-1].arrival)
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(("job", "arrival_s", "gpus", "duration_s"))
        for job in jobs:
            arrival = round(job.arrival * stretch / SECOND)
            rows.writerow((job.id, arrival, job.devices, job.duration // SECOND))


def _check(results: Path, count: int) -> None:
    with results.open(newline="") as opened:
        rows = {row["policy"]: row for row in csv.DictReader(opened)}
    assert tuple(rows) == _POLICIES, rows
    for row in rows.values():
        # Admitted are those until the last one has arrived: some wait for longer.
        assert int(row["jobs"]) == count and int(row["admitted"]) > 0.9 * count, row
    assert int(rows["none"]["preemptions"]) == 0, rows["none"]


def _started_by(pid: int) -> list[int]:
    """Return the processes that one has started, and those that these have."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        own = [int(child) for child in listed]
    except OSError:  # it has ended
        return []
    return own + [further for child in own for further in _started_by(child)]


def _held_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    sys.exit(main())

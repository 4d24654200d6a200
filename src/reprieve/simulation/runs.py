"""The runs of a study: each trace, seed and load under each policy, on its own.

Runs are independent of each other, so they are spread over processes; what comes out does not
depend on how many. A run that fails is reported with its reason, and the others continue.
Interrupted, the study has the runs that were over by then.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from kubeworld.units.durations import HOUR
from reprieve.simulation.demand import Demand, demand
from reprieve.simulation.own import raised
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.reporting.budget_costs import TenantCosts, costs_of
from reprieve.simulation.reporting.measures import Measures, measured
from reprieve.simulation.stories import decision_lines, packed_stories
from reprieve.simulation.study import Study
from reprieve.simulation.trace import Malformed, Trace
from reprieve.units.errors import ReprieveError, UsageError

__all__ = [
    "Failed",
    "Outcome",
    "Run",
    "Submitted",
    "Underway",
    "carried_out",
    "decisions_file",
    "planned",
]

DAY: Final = 24 * HOUR
_NO_COSTS: Final = TenantCosts()
_LOOK: Final = 0.5  # seconds between two looks at what the processes did

#: Called with the runs that are over, of how many, the last of them, and how far others are.
Progress = Callable[[int, int, "Outcome | Failed | None", "Underway"], None]


@dataclass(frozen=True, slots=True)
class Underway:
    """How far runs are that are not over: finished jobs, simulated days, parts of whole runs."""

    jobs: int = 0
    days: float = 0.0
    runs: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One replay; `load` None is that of the trace as it is, `number` its place in the study."""

    number: int
    trace: str
    file: Path
    seed: int
    load: float | None
    policy: PolicySpec
    stories: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was submitted: jobs, the trace's own load, the one reached, and what was left out."""

    jobs: int
    own_load: float
    load: float
    too_wide: int
    malformed: int
    without: int = 0
    examples: tuple[Malformed, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; `cpu_s` is the CPU time of its replay.

    `decisions` is a file with its lines of `decisions.jsonl`; `stories` are packed ones. `costs`:
    of each tenant, where the study has harm budgets.
    """

    run: Run
    submitted: Submitted
    measures: Measures
    cpu_s: float
    decisions: Path | None = None
    stories: str = field(default="", repr=False)
    costs: TenantCosts = _NO_COSTS


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that did not come to an end, and why."""

    run: Run
    why: str


def planned(study: Study) -> list[Run]:
    """Return the runs of a study in the order of its results; stories are of the first trace."""
    found: list[Run] = []
    for seed, traces in study.workload.files.items():
        for (name, file), load, policy in product(traces, study.workload.loads, study.policies):
            first = not found or (found[0].trace, found[0].seed) == (name, seed)
            found.append(Run(len(found), name, file, seed, load, policy, first))
    return found


def carried_out(
    study: Study, runs: Sequence[Run], workers: int, folder: Path, progress: Progress
) -> Iterator[Outcome | Failed]:
    """Yield what the runs came to, as they end.

    Args:
        study: whose runs they are.
        runs: which of them.
        workers: processes; with one everything happens in this one.
        folder: where the decisions are written, a file for each run.
        progress: called now and then, also while nothing ends.
    """
    if workers == 1:
        for over, run in enumerate(runs):
            progress(over, len(runs), None, Underway())

            def reported(found: Underway, over: int = over) -> None:
                progress(over, len(runs), None, found)

            outcome = carry_out(study, run, folder, reported)
            progress(over + 1, len(runs), outcome, Underway())
            yield outcome
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, _belong_to_the_first)
    try:
        left = {executor.submit(carry_out, study, run, folder): run for run in runs}
        # Not `concurrent.futures.wait`: it acquires the locks of all of them, and an interrupt that
        # comes meanwhile leaves some locked, for which the pool's thread then waits for ever.
        done: SimpleQueue[Future[Outcome | Failed]] = SimpleQueue()
        for future in left:
            future.add_done_callback(done.put)
        while left:
            try:
                future = done.get(timeout=_LOOK)
            except Empty:
                progress(len(runs) - len(left), len(runs), None, _underway(folder, left.values()))
                continue
            outcome = _result(future, left.pop(future))
            progress(len(runs) - len(left), len(runs), outcome, _underway(folder, left.values()))
            yield outcome
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def carry_out(
    study: Study, run: Run, folder: Path, reported: Callable[[Underway], None] | None = None
) -> Outcome | Failed:
    """Replay one run; `reported` gets its progress, or a file that others read."""
    noted = _underway_file(folder, run)

    def note(jobs: int, of: int, now: int) -> None:
        found = Underway(jobs, now / DAY, jobs / of)
        if reported is not None:
            reported(found)
        else:
            written = noted.with_suffix(".new")
            written.write_text(f"{found.jobs} {found.days} {found.runs}", encoding="ascii")
            written.replace(noted)

    try:
        return _carry_out(study, run, folder, note)
    finally:
        noted.unlink(missing_ok=True)


def _underway(folder: Path, runs: Iterable[Run]) -> Underway:
    """Return how far runs are together, by what their processes noted."""
    jobs, days, parts = 0, 0.0, 0.0
    for run in runs:
        try:
            said = _underway_file(folder, run).read_text(encoding="ascii").split()
        except OSError:  # it has not noted anything yet, or is over by now
            continue
        jobs, days, parts = jobs + int(said[0]), days + float(said[1]), parts + float(said[2])
    return Underway(jobs, days, parts)


def _underway_file(folder: Path, run: Run) -> Path:
    return folder / f"underway-{run.number:06}"


def _carry_out(
    study: Study, run: Run, folder: Path, note: Callable[[int, int, int], None]
) -> Outcome | Failed:
    try:
        trace = study.workload.read(run.file, run.trace)
        given = _demanded(study, run, trace)
        started = time.process_time()
        nodes = (study.cluster.nodes, study.cluster.devices)
        count = len(given.jobs)
        done = replay(
            given.jobs,
            run.policy,
            study.work,
            study.tenants.names,
            nodes,
            lambda jobs, now: note(jobs, count, now),
            study.idleness.utilization,
            study.cluster.domains,
        )
        cpu = time.process_time() - started
    except ReprieveError as error:
        return Failed(run, str(error))
    except Exception as error:  # a fault of ours costs its own run, not the study
        return Failed(run, f"a fault of the replay's own: {raised(error)}")
    path = decisions_file(folder, run)
    with path.open("w", encoding="utf-8") as lines:
        for line in decision_lines(done, _stated(run)):
            lines.write(f"{line}\n")
    return Outcome(
        run,
        _submitted(given, trace),
        measured(done, study.cluster.capacity),
        cpu,
        path,
        packed_stories(done) if run.stories else "",
        costs_of(done) if any(each.harm_budgets for each in study.policies) else _NO_COSTS,
    )


def _demanded(study: Study, run: Run, trace: Trace) -> Demand:
    try:
        capacity = study.cluster.capacity
        given = trace, study.tenants, capacity, run.load, run.seed, study.idleness
        cluster = study.cluster
        nodes = cluster.nodes, cluster.devices
        return demand(*given, study.asking, nodes, cluster.domains, study.topology)
    except UsageError as error:
        raise UsageError(f"{run.file}: {error}") from error


def decisions_file(folder: Path, run: Run) -> Path:
    """Return the file with the lines of `decisions.jsonl` that are of one run."""
    return folder / f"decisions-{run.number:06}.jsonl"


def _stated(run: Run) -> dict[str, object]:
    return {"trace": run.trace, "seed": run.seed, "load": run.load, "policy": run.policy.name}


def _submitted(given: Demand, trace: Trace) -> Submitted:
    return Submitted(
        len(given.jobs),
        given.own_load,
        given.load,
        given.too_wide,
        len(trace.malformed),
        trace.without,
        trace.malformed[:3],
    )


def _result(future: Future[Outcome | Failed], run: Run) -> Outcome | Failed:
    try:
        return future.result()
    except BrokenProcessPool:
        return Failed(run, "its process ended, perhaps for want of memory; try --workers 1")


def _belong_to_the_first() -> None:
    """Have the first process end this one, and end when that has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    first = multiprocessing.parent_process()
    assert first is not None, "started by the pool"

    def follow(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, args=(first.sentinel,), daemon=True).start()

"""`reprieve simulate STUDY`: replay a trace under several policies, and report what each costs.

`--shard I/N` makes a part of the runs, on as many machines as one likes, and `--merge DIR` the
report of all of them.

Exit code 0: all runs came to an end. 1: some failed, which the report names, or shards are missing.
2: the study cannot be used. 130: interrupted, by Ctrl-C or SIGTERM; the report has what was over by
then, and states it. Interrupted while the study is read, nothing is written; while the results are
written, these are written to their end, and nothing was missed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

import click

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_instant
from reprieve.cli.sessions.simulate_cluster import study_of
from reprieve.cli.sessions.whole_files import write_whole
from reprieve.simulation.reporting import figures
from reprieve.simulation.reporting.failures import failure_lines
from reprieve.simulation.reporting.report import Provenance, report_html
from reprieve.simulation.reporting.summary import Results, summarised
from reprieve.simulation.reporting.tables import own_load_lines, results_csv, terminal_tables
from reprieve.simulation.reporting.validation_figures import Validation, read_validation
from reprieve.simulation.runs import (
    Failed,
    Outcome,
    Run,
    Underway,
    carried_out,
    decisions_file,
    planned,
)
from reprieve.simulation.shards import Shard, read_shard, read_shards, write_shard
from reprieve.simulation.sources import sum_of
from reprieve.simulation.study import Study
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError

__all__ = ["simulate"]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="The report; default report.html. results.csv and decisions.jsonl are written beside "
    "it. For a shard, the folder of its files; default shards.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=None,
    help="Processes that replay at once; default: as many as this machine has cores.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="A folder for the charts as SVG files, for paper; made if it is not there.",
)
@click.option("--no-decisions", is_flag=True, help="Write no decisions.jsonl, which may be large.")
@click.option(
    "--shard",
    "shard_text",
    metavar="I/N",
    help="Make every N-th run alone, from the I-th on, counted from 0; --merge makes the report.",
)
@click.option(
    "--merge",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Make no runs, but the report of what all shards have left in a folder.",
)
@click.option(
    "--validation",
    "validation_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Print the figures of a validation in the report, as `python -m bench.validation --out "
    "FILE` writes them.",
)
def simulate(
    study: Path,
    output: Path | None,
    workers: int | None,
    plots: Path | None,
    no_decisions: bool,
    shard_text: str | None,
    merge: Path | None,
    validation_file: Path | None,
) -> None:
    """Replay a trace under several policies with the engine that decides.

    STUDY is a file that describes the cluster, the jobs and the policies; docs/simulate.md has an
    example.
    """
    try:
        with _interruptible():
            _simulate(
                study,
                output,
                workers,
                plots,
                shard_text,
                merge,
                validation_file,
                decisions=not no_decisions,
            )
    except KeyboardInterrupt:
        click.echo("interrupted before any run; nothing was written", err=True)
        sys.exit(130)


def _simulate(
    study: Path,
    output: Path | None,
    workers: int | None,
    plots: Path | None,
    shard_text: str | None,
    merge: Path | None,
    validation_file: Path | None,
    *,
    decisions: bool,
) -> None:
    if shard_text is not None:
        if merge is not None or plots is not None or validation_file is not None:
            others = "--merge, --plots and --validation, which need all runs"
            raise UsageError(f"--shard: accepted: without {others}")
        folder = output or Path("shards")
        _make_shard(study, read_shard(shard_text), folder, workers, decisions=decisions)
        return
    given, report = study_of(study), output or Path("report.html")
    if report.is_dir() or not report.resolve().parent.is_dir():
        raise UsageError(f"--output {report}: accepted: a file in a folder that is there")
    validation = read_validation(validation_file) if validation_file else None
    runs = planned(given)
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="reprieve-") as made:
        if merge is None:
            ended, interrupted = _carried_out(given, runs, workers, Path(made))
        else:
            (ended, missing), interrupted = read_shards(merge, given, runs), False
        _end_no_more()
        results = summarised(given, runs, ended)
        _write(results, report, validation, _provenance(results), decisions=decisions)
    if plots is not None:
        _write_plots(results, plots)
    _print_tables(results, report, interrupted, missing)
    if interrupted or results.failed or results.missing:
        sys.exit(130 if interrupted else 1)


def _make_shard(
    file: Path, shard: Shard, folder: Path, workers: int | None, *, decisions: bool
) -> None:
    """Make the runs of a shard; those that fail are in the merged report."""
    study = study_of(file)
    runs = planned(study)
    mine = shard.runs(runs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}; accepted: a folder") from None
    ended, interrupted = _carried_out(study, mine, workers, folder)
    _end_no_more()
    if not decisions:
        for run in mine:
            decisions_file(folder, run).unlink(missing_ok=True)
    try:
        path = write_shard(folder, study, shard, runs, ended)
    except OSError as error:
        raise UsageError(
            f"--output {folder}: {error.strerror}; accepted: a folder to write to, with free space"
        ) from None
    click.echo(f"wrote {path}: {len(ended)} of {len(mine)} runs")
    if interrupted:
        sys.exit(130)


def _carried_out(
    study: Study, runs: Sequence[Run], workers: int | None, folder: Path
) -> tuple[list[Outcome | Failed], bool]:
    ended: list[Outcome | Failed] = []
    count = min(workers or os.cpu_count() or 1, max(1, len(runs)))
    line = _Line()
    try:
        for outcome in carried_out(study, runs, count, folder, line.progress):
            ended.append(outcome)
    except KeyboardInterrupt:
        return ended, True
    finally:
        line.clear()
    return ended, False


@contextmanager
def _interruptible() -> Iterator[None]:
    """End at SIGINT and SIGTERM alike, also where a shell started this with SIGINT ignored.

    A shell that is no terminal's ignores it for what it starts in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, _interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _end_no_more()  # a process that is already ending receives no second signal to end
    raise KeyboardInterrupt


def _end_no_more() -> None:
    """Accept no more signals to end: what is left is to write what there is, within seconds."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


class _Line:
    """What is shown of the progress: one line that changes on a terminal, else now and then one."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._reported = self._started
        self._jobs, self._days = 0, 0.0
        self._changes = sys.stderr.isatty()

    def progress(
        self, over: int, of: int, ended: Outcome | Failed | None, underway: Underway
    ) -> None:
        """Record what ended, and report it."""
        if isinstance(ended, Outcome):
            self._jobs += ended.measures.jobs
            self._days += ended.measures.makespan_s / 86_400
        now = time.monotonic()
        if now - self._reported < (0.2 if self._changes else 30):
            return
        self._reported, took = now, now - self._started
        done = over + underway.runs
        left = f"{took / done * (of - done):,.0f} s left" if done else "?"
        jobs, days = self._jobs + underway.jobs, self._days + underway.days
        said = f"{over} of {of} runs, {counted(jobs, 'job')}, {days:,.0f} simulated days, {left}"
        click.echo(f"\r\x1b[K{said}" if self._changes else said, nl=not self._changes, err=True)

    def clear(self) -> None:
        """Leave an empty line to what comes next."""
        if self._changes:
            click.echo("\r\x1b[K", nl=False, err=True)


def _provenance(results: Results) -> Provenance:
    """Return when and how this report is made; names of files without their folders."""
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    files = dict.fromkeys(outcome.run.file for outcome in results.outcomes)
    return Provenance(
        format_instant(SystemClock().wall())[:10],
        shlex.join(["reprieve", *words]),
        {path.name: sum_of(path) for path in files if path.is_file()},
    )


def _write(
    results: Results,
    output: Path,
    validation: Validation | None,
    provenance: Provenance,
    *,
    decisions: bool,
) -> None:
    try:
        _write_files(results, output, validation, provenance, decisions=decisions)
    except OSError as error:
        raise UsageError(
            f"--output {output}: {error.strerror}; accepted: a file in a folder to write to, with "
            f"free space for it and what is written beside it"
        ) from None


def _write_files(
    results: Results,
    output: Path,
    validation: Validation | None,
    provenance: Provenance,
    *,
    decisions: bool,
) -> None:
    def copy_decisions(whole: BinaryIO) -> None:
        for outcome in results.outcomes:
            if outcome.decisions is not None:
                with outcome.decisions.open("rb") as part:
                    shutil.copyfileobj(part, whole)

    report, table = (
        report_html(results, validation, provenance).encode(),
        results_csv(results).encode(),
    )
    files: dict[Path, Callable[[BinaryIO], object]] = {
        output: lambda file: file.write(report),
        output.with_name("results.csv"): lambda file: file.write(table),
    }
    if decisions:
        files[output.with_name("decisions.jsonl")] = copy_decisions
    write_whole(files)


def _write_plots(results: Results, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in figures.plots(results):
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plots {folder}: {error}; accepted: a folder to write to") from None


def _print_tables(
    results: Results, output: Path, interrupted: bool, missing: Sequence[str]
) -> None:
    for line in own_load_lines(results):
        click.echo(line)
    for line in terminal_tables(results):
        click.echo(line)
    for line in failure_lines(results.study, results.failed):
        click.echo(f"failed: {line}", err=True)
    click.echo("")
    if interrupted:
        click.echo(
            f"interrupted; not made: {counted(results.missing, 'run')}; this is what there is"
        )
    elif results.missing:
        which = f", of {', '.join(missing)}" if missing else ""
        click.echo(f"missing: {counted(results.missing, 'run')}{which}; this is what there is")
    click.echo(f"wrote {output}, and beside it results.csv and what was decided")

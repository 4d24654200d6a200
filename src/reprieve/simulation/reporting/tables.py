"""The table on the terminal, and `results.csv`.

A row of `results.csv` is a trace, seed, load and policy. All of its columns but `decision_cpu_s`
are the same whenever the study runs again; those after it are of nodes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO

from reprieve.simulation.reporting.summary import LoadSummary, Results
from reprieve.simulation.reporting.verdicts import verdict_lines
from reprieve.simulation.runs import Outcome
from reprieve.units.counts import counted

__all__ = ["load_title", "own_load_lines", "results_csv", "terminal_tables", "without_line"]

_LAST = (
    "decision_cpu_s",
    "stranded_device_hours",
    "unplaced_device_hours",
    "preemptions_for_nodes",
    "quota_lost_unplaced",
    "quota_timeouts",
    "unused_device_hours",
    "reclaimed_device_hours",
    "preemptions_for_idle",
    "idle_jobs_ended",
    "idle_undone_device_hours",
    "served_by_idle",
    "reclaimed_by",
    "reclaimed_by_wait_p50_s",
    "admitted_device_hours",
    "notified",
    "notified_saved",
    "spared_device_hours",
    "wait_p95_highest_priority_s",
    "jobs_requesting_a_domain",
    "starts_in_one_domain",
    "wait_p95_requesting_a_domain_s",
)
_LOW = 0.05  # an own load at which hardly anything ever waits


def own_load_lines(results: Results) -> list[str]:
    """Return what each trace requests as it is, and what of it was left out.

    Of several traces and seeds the first line states from what to what. What the study states and
    changes nothing comes last.
    """
    capacity = results.study.cluster.capacity
    said: dict[tuple[str, int], str] = {}
    for outcome in results.outcomes:
        key, given = (outcome.run.trace, outcome.run.seed), outcome.submitted
        line = (
            f"{outcome.run.trace}, seed {outcome.run.seed}: own load {_percent(given.own_load)} of "
            f"{capacity:,} devices ({given.own_load * capacity:,.1f} in use on average)"
        )
        if given.own_load < _LOW:
            line += "; hardly anything contends in it as it is"
        if given.too_wide:
            line += f"; left out: {counted(given.too_wide, 'job')} wider than the cluster"
        if given.without:
            line += f"; left out: {counted(given.without, 'job')} without devices"
        if given.malformed:
            example = given.examples[0]
            line += (
                f"; left out: {counted(given.malformed, 'unreadable line')}, the first is "
                f"{outcome.run.file.name}:{example.line}: {example.why}"
            )
        said.setdefault(key, line)
    if len(said) < 2:
        return [*said.values(), *results.study.notices]
    loads = [outcome.submitted.own_load for outcome in results.outcomes]
    least, most = _percent(min(loads)), _percent(max(loads))
    between = least if least == most else f"{least} to {most}"
    contends = "; hardly anything contends in them as they are" if max(loads) < _LOW else ""
    first = f"own load of the traces: {between} of {capacity:,} devices{contends}"
    return [first, *said.values(), *results.study.notices]


def load_title(summary: LoadSummary) -> str:
    """Return what a load is called, with what was reached and over how many runs."""
    runs = len(summary.submitted)
    reached = sum(each.load for each in summary.submitted.values()) / runs
    jobs = sum(each.jobs for each in summary.submitted.values())
    said = "the trace as it is" if summary.load is None else f"load {summary.load:g}"
    return f"{said} (reached {reached:.3f}; {counted(runs, 'run')}, {counted(jobs, 'job')})"


def without_line(summary: LoadSummary) -> str:
    """Return which policies are left out of a comparison."""
    return f"without {', '.join(summary.without)}: not finished where the others are"


def terminal_tables(results: Results) -> Iterator[str]:
    """Yield the lines of a table for each load."""
    for summary in results.loads:
        yield ""
        yield load_title(summary)
        if summary.without:
            yield without_line(summary)
        columns = summary.columns
        rows = [["policy", *(column.title for column in columns)]]
        for policy in summary.policies:
            means = [policy.columns[column.title].value.mean for column in columns]
            texts = [column.text(mean) for column, mean in zip(columns, means, strict=True)]
            rows.append([policy.policy, *texts])
        yield from aligned(rows)
        yield from verdict_lines(summary)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines, the first column flush left and the others flush right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def results_csv(results: Results) -> str:
    """Return the content of `results.csv`."""
    content = StringIO()
    rows = csv.writer(content, lineterminator="\n")
    rows.writerow([*(name for name, _ in _cells(None)), *_LAST])
    for outcome in results.outcomes:
        found = outcome.measures
        last = (
            f"{outcome.cpu_s:.3f}",
            f"{found.stranded_h:.3f}",
            f"{found.unplaced_h:.3f}",
            found.for_nodes,
            found.returned,
            found.unready,
            f"{found.unused_h:.3f}",
            f"{found.reclaimed_h:.3f}",
            found.for_idle,
            found.idle_ended,
            f"{found.idle_undone_h:.3f}",
            found.served,
            found.reclaimed_by,
            f"{found.reclaimed_by_wait_p50_s:.3f}",
            f"{found.admitted_h:.3f}",
            found.notified,
            found.notified_saved,
            f"{found.spared_h:.3f}",
            f"{found.urgent_wait_p95_s:.3f}",
            found.asked,
            f"{found.together:.6f}",
            f"{found.asked_wait_p95_s:.3f}",
        )
        rows.writerow([*(cell for _, cell in _cells(outcome)), *last])
    return content.getvalue()


def _cells(outcome: Outcome | None) -> list[tuple[str, str]]:
    """Return names and values of the columns that are always the same; None for names alone."""
    run, given = (outcome.run, outcome.submitted) if outcome else (None, None)
    figures = outcome.measures if outcome else None

    def of(value: object, places: int | None = None) -> str:
        if value is None:
            return ""
        return str(value) if places is None else f"{value:.{places}f}"

    return [
        ("trace", of(run and run.trace)),
        ("seed", of(run and run.seed)),
        ("load", of(run and run.load)),
        ("policy", of(run and run.policy.name)),
        ("own_load", of(given and given.own_load, 6) if given else ""),
        ("reached_load", of(given and given.load, 6) if given else ""),
        *[
            (name, of(getattr(figures, field), places) if figures else "")
            for name, field, places in _MEASURES
        ],
    ]


_MEASURES: tuple[tuple[str, str, int | None], ...] = (
    ("jobs", "jobs", None),
    ("admitted", "admitted", None),
    ("makespan_s", "makespan_s", 3),
    ("device_hours_done", "done_h", 3),
    ("useful_share", "useful_share", 6),
    ("wait_p50_s", "wait_p50_s", 3),
    ("wait_p95_s", "wait_p95_s", 3),
    ("wait_p99_s", "wait_p99_s", 3),
    ("first_wait_p50_s", "first_wait_p50_s", 3),
    ("first_wait_p95_s", "first_wait_p95_s", 3),
    ("completion_mean_s", "completion_mean_s", 3),
    ("preemptions", "preemptions", None),
    ("preemptions_most", "most", None),
    ("jobs_preempted_again", "repeated", None),
    ("lost_device_hours", "lost_h", 3),
    ("undone_device_hours", "undone_h", 3),
    ("idle_device_hours", "idle_h", 3),
    ("finish_ratio_largest", "finish_ratio_largest", 4),
    ("jain", "jain", 6),
)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

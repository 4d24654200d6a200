"""`report.html`: the study in one file, to be read, printed and kept.

It begins with the traces' own load, since a trace in which nothing contends shows nothing about
policies. For each load a table (means over runs, their intervals, and the difference to the first
policy) and charts; then the story of any job, the configuration, and the versions. The same study
gives the same bytes on the same day: there are no times of day and no CPU times in it. A star marks
a difference of six runs or more; of fewer the number of runs and the interval stand there.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Final

import reprieve
from reprieve.simulation.policy import IDLE, QUOTA, SCHEDULING, PolicySpec
from reprieve.simulation.reporting import charts
from reprieve.simulation.reporting.failures import failure_lines
from reprieve.simulation.reporting.figures import Figure, figures
from reprieve.simulation.reporting.intervals import FEWEST_FOR_A_STAR, Estimate
from reprieve.simulation.reporting.report_page import SCRIPT, STYLE
from reprieve.simulation.reporting.summary import (
    COLUMNS,
    Column,
    Found,
    LoadSummary,
    Results,
    duration_text,
)
from reprieve.simulation.reporting.tables import load_title, own_load_lines, without_line
from reprieve.simulation.reporting.validation_figures import Validation, validation_section
from reprieve.simulation.reporting.verdicts import is_clear, verdict_lines
from reprieve.units.counts import counted

__all__ = ["Provenance", "report_html"]

_MOST_LINES: Final = 6
_MOST_STORIES: Final = 12 * 1024 * 1024  # characters of packed stories in a report


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a report came about: the day, the command, and the sha256 of each trace by its name."""

    day: str
    command: str
    sums: Mapping[str, str]


def report_html(
    results: Results,
    validation: Validation | None = None,
    provenance: Provenance | None = None,
) -> str:
    """Return the report; `validation` are figures that it prints as they are."""
    return "".join(_parts(results, validation, provenance))


def _parts(
    results: Results, validation: Validation | None, provenance: Provenance | None
) -> Iterator[str]:
    study = results.study
    title = f"Study {study.name}"
    yield "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
    yield '<meta name=viewport content="width=device-width,initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
    yield f"<h1>{escape(title)}</h1>\n"
    yield from _made(provenance)
    yield '<ul class="own">'
    said = [f"<li>{escape(line)}</li>" for line in own_load_lines(results)]
    if len(said) > _MOST_LINES:
        said[1:] = [
            f"<li><details><summary>each of them</summary>{''.join(said[1:])}</details></li>"
        ]
    yield "".join(said)
    yield "</ul>\n"
    cluster, tenants = study.cluster, study.tenants
    yield (
        f'<p class="soft">{counted(cluster.nodes, "node")} of {cluster.devices} devices; '
        f"{counted(tenants.count, 'tenant')}; decided by reprieve {escape(reprieve.__version__)}: "
        f"{escape('; '.join(_decided_by(study.policies)))}.</p>"
    )
    yield from _notices(results)
    numbers = Captions()
    for summary in results.loads:
        yield from _load(results, summary, numbers)
    yield from _stories(results)
    yield from validation_section(validation, reprieve.__version__)
    yield from _configuration(results)
    accent = 1 if len(study.policies) > 1 else 0
    yield f"<script>{SCRIPT}choose({accent});</script></body></html>\n"


class Captions:
    """Numbers of figures and tables, in the order in which they stand."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def next(self, kind: str, text: str) -> str:
        """Return a caption with the next number of its kind."""
        self._given[kind] += 1
        return f"<b>{kind} {self._given[kind]}.</b> {escape(text)}"


def _made(provenance: Provenance | None) -> Iterator[str]:
    if provenance is None:
        return
    yield (
        f'<p class="soft">Made on {escape(provenance.day)} with reprieve '
        f"{escape(reprieve.__version__)}: <code>{escape(provenance.command)}</code></p>"
    )
    for name, said in provenance.sums.items():
        yield f'<p class="soft">{escape(name)}: sha256 <code>{escape(said)}</code></p>'
    yield "\n"


def _decided_by(policies: Sequence[PolicySpec]) -> Iterator[str]:
    """Yield who decides, each with the names of the policies."""
    quota, placed, both, own = list[str](), list[str](), list[str](), list[str]()
    for policy in policies:
        planes = set(policy.planes)
        if policy.own:
            own.append(policy.name)
        elif {QUOTA, SCHEDULING} <= planes:
            both.append(policy.name)
        else:
            (quota if QUOTA in planes else placed).append(policy.name)
    idle = [policy.name for policy in policies if IDLE in policy.planes]
    for names, said in (
        (quota, "by the quota engine, which counts devices and places nothing on nodes"),
        (own, "by a policy of one's own within the rules of the quota engine"),
        (placed, "by the scheduling engine, on nodes"),
        (both, "by both, first for quota and then on nodes"),
        (idle, "also by the idle engine, that has idle work preempted"),
    ):
        if names:
            yield f"{_listed(names)} {said}"


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _notices(results: Results) -> Iterator[str]:
    if results.missing:
        yield (
            f'<p class="notice">This study is not whole: {results.missing} of its runs were not '
            f"made. Compared are the traces and seeds that all policies of a table have "
            f"finished.</p>"
        )
    for line in failure_lines(results.study, results.failed):
        yield f'<p class="notice">Failed: {escape(line)}</p>'


def _load(results: Results, summary: LoadSummary, numbers: Captions) -> Iterator[str]:
    names = [policy.policy for policy in summary.policies]
    yield f"\n<h2>{escape(_capitalised(load_title(summary)))}</h2>"
    if summary.without:
        yield f'<p class="notice">{escape(without_line(summary))}</p>'
    for line in verdict_lines(summary):
        yield f"<p>{escape(line)}</p>"
    runs = len(summary.submitted)
    yield from _table(summary, numbers.next("Table", _table_text(names[0], runs)))
    yield charts.legend(names)
    yield '<div class="charts">'
    for figure in figures(results, summary):
        caption = numbers.next("Figure", f"{figure.title}. {_over(figure, runs)}")
        yield f"<figure>{figure.svg}<figcaption>{caption}</figcaption></figure>"
    yield "</div>"
    yield from _sizes(summary)


def _over(figure: Figure, runs: int) -> str:
    if figure.name == "use":
        return "1 run."
    return f"{counted(runs, 'run')}."


def _table_text(first: str, runs: int) -> str:
    """Return what a table shows, and how far it can be trusted."""
    if runs == 1:
        return f"One run, so there are no intervals. Below each mean: the difference to {first}."
    star = (
        "A star: the interval of the difference has no 0 in it."
        if runs >= FEWEST_FOR_A_STAR
        else f"With {counted(runs, 'run')} there is no star: the interval of the difference is "
        "printed."
    )
    return (
        f"Means over {counted(runs, 'run')}; below, where there are at least three, the 95 % "
        f"bootstrap interval, and the mean difference to {first} run by run. {star}"
    )


def _table(summary: LoadSummary, caption: str) -> Iterator[str]:
    yield f'<div class="wide"><table><caption>{caption}</caption><thead><tr><th>policy</th>'
    for column in summary.columns:
        yield f'<th title="{escape(column.meaning)}">{escape(column.title)}</th>'
    yield "</tr></thead><tbody>"
    for number, policy in enumerate(summary.policies):
        yield f'<tr data-policy="{number}"><td>{escape(policy.policy)}</td>'
        for column in summary.columns:
            yield f"<td>{_cell(column, policy.columns[column.title])}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _cell(column: Column, found: Found) -> str:
    said = escape(column.text(found.value.mean))
    below = _interval(column, found.value)
    if below:
        said += f"<small>{escape(below)}</small>"
    if found.change is not None:
        size = column.text(abs(found.change.mean))
        sign = "±" if size == column.text(0) else "+" if found.change.mean > 0 else "−"
        change = sign + size
        said += f"<small>{escape(change)}{' *' if is_clear(found.change) else ''}</small>"
        if found.change.runs < FEWEST_FOR_A_STAR and (within := _interval(column, found.change)):
            said += f"<small>({escape(within)})</small>"
    return said


def _interval(column: Column, value: Estimate) -> str:
    if value.low is None or value.high is None or value.low == value.high:
        return ""
    between = " – " if value.low >= 0 else " to "
    return between.join(column.text(each).replace("-", "−") for each in (value.low, value.high))


def _sizes(summary: LoadSummary) -> Iterator[str]:
    yield "<details><summary>Waits by size of the job, of the first run</summary>"
    yield '<div class="wide"><table><thead><tr><th>policy</th>'
    sizes = [each.size for each in summary.policies[0].outcomes[0].measures.by_size]
    yield "".join(f"<th>devices {size}: p50</th><th>p95</th>" for size in sizes)
    yield "</tr></thead><tbody>"
    for policy in summary.policies:
        yield f"<tr><td>{escape(policy.policy)}</td>"
        for each in policy.outcomes[0].measures.by_size:
            yield f"<td>{duration_text(each.p50_s)}</td><td>{duration_text(each.p95_s)}</td>"
        yield "</tr>"
    yield "</tbody></table></div></details>"


def _stories(results: Results) -> Iterator[str]:
    notified, size = [], 0
    for outcome in results.outcomes:
        if outcome.stories and size + len(outcome.stories) <= _MOST_STORIES:
            notified.append(outcome)
            size += len(outcome.stories)
    if not notified:
        return
    run = notified[0].run
    yield "\n<h2>The story of a job</h2>"
    yield (
        f'<p class="soft">Of trace {escape(run.trace)}, seed {run.seed}; all decisions of all runs '
        f"are in decisions.jsonl. Times count from the first arrival.</p>"
    )
    yield '<form><label>Run <select id="stories">'
    for outcome in notified:
        load = "as it is" if outcome.run.load is None else f"load {outcome.run.load:g}"
        chosen = " selected" if outcome is notified[min(1, len(notified) - 1)] else ""
        yield (
            f'<option value="{outcome.run.number}"{chosen}>{load}, '
            f"{escape(outcome.run.policy.name)}</option>"
        )
    yield '</select></label><label>Job <input id="asked" size="16" autocomplete="off"></label>'
    yield '<input type="submit" value="Show"> <button id="most">displaced most often</button>'
    yield '</form><div id="story"></div>'
    for outcome in notified:
        number = outcome.run.number
        yield f'<script type="text/plain" id="run-{number}">{outcome.stories}</script>\n'


def _configuration(results: Results) -> Iterator[str]:
    study = results.study
    yield "\n<h2>Configuration</h2>"
    yield f"<pre>{escape(study.text.rstrip())}</pre>"
    yield "<h3>What the columns are</h3><table class=meanings><tbody>"
    shown = dict.fromkeys(column for each in results.loads for column in each.columns)
    for column in shown or COLUMNS:
        yield f"<tr><td>{escape(column.title)}</td><td>{escape(column.meaning)}</td></tr>"
    yield "</tbody></table>"
    yield "<details><summary>Policies as they were understood</summary><pre>"
    for policy in study.policies:
        yield escape(_policy_text(policy))
    yield "</pre></details>"
    yield (
        f'<p class="soft">reprieve {escape(reprieve.__version__)}, Python '
        f"{platform.python_version()}.</p>"
    )


def _policy_text(policy: PolicySpec) -> str:
    said = [f"{policy.name}\n"]
    for field in fields(policy):
        if field.name not in ("name", "place"):  # the same study is the same in any folder
            said.append(f"  {field.name}: {getattr(policy, field.name)}\n")
    return "".join(said)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]

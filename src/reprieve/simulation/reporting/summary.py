"""The results of a study: each load and policy over its runs, compared to the first policy.

Only runs that all policies of a load have finished are compared, so that an interrupted study
compares like with like. A policy that failed and finished no run of a load is left out of it, and
the others are compared. Where there is no run that all have finished, those policies are compared
that have finished the trace and seed which most of them have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.simulation.policy import IDLE
from reprieve.simulation.reporting.intervals import Estimate, difference, estimate
from reprieve.simulation.reporting.measures import Measures
from reprieve.simulation.runs import Failed, Outcome, Run, Submitted
from reprieve.simulation.study import Study

__all__ = [
    "COLUMNS",
    "DOMAIN_COLUMNS",
    "IDLE_COLUMNS",
    "NOTICE_COLUMNS",
    "Column",
    "Found",
    "LoadSummary",
    "PolicySummary",
    "Results",
    "summarised",
]


@dataclass(frozen=True, slots=True)
class Column:
    """One measure of the tables: its title, what it is in a sentence, and how it is written."""

    title: str
    meaning: str
    value: Callable[[Measures], float]
    text: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Found:
    """A measure of one policy, and its difference to the first policy; None for that itself."""

    value: Estimate
    change: Estimate | None


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One policy at one load; `columns` by title."""

    policy: str
    outcomes: tuple[Outcome, ...]
    columns: Mapping[str, Found]

    def mean(self, of: Callable[[Measures], Sequence[float]]) -> list[float]:
        """Return the mean of a row of figures over the runs."""
        rows = [of(each.measures) for each in self.outcomes]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """One load: what was submitted, by trace and seed, and each policy; which columns are shown.

    `without`: policies that are left out, since they have not finished what the others have.
    """

    load: float | None
    submitted: Mapping[tuple[str, int], Submitted]
    policies: tuple[PolicySummary, ...]
    columns: tuple[Column, ...]
    without: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Return whether columns about idle work are among them."""
        return IDLE_COLUMNS[0] in self.columns


@dataclass(frozen=True, slots=True)
class Results:
    """All of a study that is known; `missing` counts the runs that were not made."""

    study: Study
    outcomes: tuple[Outcome, ...]
    failed: tuple[Failed, ...]
    missing: int
    loads: tuple[LoadSummary, ...]


def duration_text(seconds: float) -> str:
    """Return seconds as people read them: 0 s, 42 s, 12.5 min, 3.2 h, 4.1 d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _ratio(value: float) -> str:
    return f"{value:,.2f}"


COLUMNS: Final = (
    Column("admitted", "jobs started while jobs arrive", lambda m: m.admitted, _count),
    Column("done GPU h", "of use, while jobs arrive", lambda m: m.done_h, _count),
    Column("useful", "their share of the capacity", lambda m: m.useful_share, _share),
    Column(
        "wait p50",
        "without devices, first wait and later ones",
        lambda m: m.wait_p50_s,
        duration_text,
    ),
    Column("wait p95", "the same", lambda m: m.wait_p95_s, duration_text),
    Column(
        "completion", "mean time from arrival to end", lambda m: m.completion_mean_s, duration_text
    ),
    Column("preempted", "displacements", lambda m: m.preemptions, _count),
    Column("most", "displacements of one job", lambda m: m.most, _count),
    Column(
        "lost GPU h",
        "undone, or held for restarts, last saves and being preempted",
        lambda m: m.lost_h,
        _count,
    ),
    Column(
        "worst tenant",
        "largest mean of completion time by duration",
        lambda m: m.finish_ratio_largest,
        _ratio,
    ),
    Column("Jain", "evenness of that over tenants, 1 at best", lambda m: m.jain, _ratio),
)


#: Of studies in which jobs are idle, or the idle plane decides.
IDLE_COLUMNS: Final = (
    Column("unused GPU h", "held without being used", lambda m: m.unused_h, _count),
    Column(
        "reclaimed GPU h",
        "for which idle work that was preempted would have held them unused",
        lambda m: m.reclaimed_h,
        _count,
    ),
    Column("idle evicted", "displacements for being idle", lambda m: m.for_idle, _count),
    Column("of it over", "those that had no work left", lambda m: m.idle_ended, _count),
    Column("served", "jobs for which idle ones were preempted", lambda m: m.served, _count),
    Column("reclaimed_by", "jobs that started as idle work left", lambda m: m.reclaimed_by, _count),
    Column("their wait p50", "until then", lambda m: m.reclaimed_by_wait_p50_s, duration_text),
)


#: Of studies in which jobs are notified before they are preempted.
NOTICE_COLUMNS: Final = (
    Column("notified", "displacements with notice", lambda m: m.notified, _count),
    Column(
        "spared GPU h",
        "work that would have been undone at these moments without notice",
        lambda m: m.spared_h,
        _count,
    ),
    Column(
        "urgent wait p95",
        "of the jobs of the highest priority",
        lambda m: m.urgent_wait_p95_s,
        duration_text,
    ),
)


#: Of studies in which jobs request a domain.
DOMAIN_COLUMNS: Final = (
    Column(
        "in one domain",
        "starts of jobs that request a domain, with all pods in one",
        lambda m: m.together,
        _share,
    ),
    Column(
        "their wait p95", "of jobs that request one", lambda m: m.asked_wait_p95_s, duration_text
    ),
)


def summarised(study: Study, runs: Sequence[Run], ended: Sequence[Outcome | Failed]) -> Results:
    """Return the results of the runs that have ended, in the order of the study."""
    outcomes = sorted((each for each in ended if isinstance(each, Outcome)), key=_number)
    failed = sorted((each for each in ended if isinstance(each, Failed)), key=_number)
    loads = []
    for load in study.workload.loads:
        faults = {each.run.policy.name for each in failed if each.run.load == load}
        mine = [each for each in outcomes if each.run.load == load]
        summary = _of_load(study, load, mine, faults)
        if summary is not None:
            loads.append(summary)
    missing = len(runs) - len(outcomes) - len(failed)
    return Results(study, tuple(outcomes), tuple(failed), missing, tuple(loads))


def _number(ended: Outcome | Failed) -> int:
    return ended.run.number


def _of_load(
    study: Study, load: float | None, outcomes: list[Outcome], faults: set[str]
) -> LoadSummary | None:
    by_run: dict[tuple[str, int], dict[str, Outcome]] = {}
    for each in outcomes:
        by_run.setdefault((each.run.trace, each.run.seed), {})[each.run.policy.name] = each
    left_out = faults.difference(each.run.policy.name for each in outcomes)
    names = [policy.name for policy in study.policies if policy.name not in left_out]
    if not by_run:
        return None
    planned = names
    if not any(len(of) == len(names) for of in by_run.values()):
        most = max(by_run.values(), key=len)
        names = [name for name in names if name in most]
    whole = {key: of for key, of in by_run.items() if set(names) <= set(of)}
    rows = {name: [of[name] for of in whole.values()] for name in names}
    base = rows[names[0]]
    idle = any(IDLE in each.planes for each in study.policies) or any(
        each.measures.unused_h for row in rows.values() for each in row
    )
    asked = any(each.measures.asked for row in rows.values() for each in row)
    notified = any(each.measures.notified for row in rows.values() for each in row)
    return LoadSummary(
        load,
        {key: of[names[0]].submitted for key, of in whole.items()},
        tuple(_of_policy(name, rows[name], None if name == names[0] else base) for name in names),
        (
            *COLUMNS,
            *IDLE_COLUMNS * idle,
            *NOTICE_COLUMNS * notified,
            *DOMAIN_COLUMNS * asked,
        ),
        tuple(name for name in planned if name not in names),
    )


def _of_policy(name: str, outcomes: list[Outcome], base: list[Outcome] | None) -> PolicySummary:
    columns = {}
    for column in (*COLUMNS, *IDLE_COLUMNS, *NOTICE_COLUMNS, *DOMAIN_COLUMNS):
        values = [column.value(each.measures) for each in outcomes]
        change = None
        if base is not None:
            change = difference(values, [column.value(each.measures) for each in base])
        columns[column.title] = Found(estimate(values), change)
    return PolicySummary(name, tuple(outcomes), columns)

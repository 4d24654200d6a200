"""The page Harm: harm budgets and their use, and who paid for whose urgency.

Table `budgets`, a row for each account of which something is used, exhausted ones first: budget,
of, window, displacements, mostDisplacements, lost, mostLost (GPU-hours), free (when another
displacement fits, empty while it does), holds (Hold or Report). Tables `week` and `month`, since
Monday and since the first, in UTC: payer, beneficiary, plane, reason, displacements, lost, saved,
waitSaved (hours).
Values: `counts` (budgets, exhausted), `refused` (budgets that are not accepted, and why).

A viewer of all namespaces sees all accounts. Any other viewer sees those of their own namespaces,
and the rows in which one of these paid or gained; the other side has the masked name of a
Disruption.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from kubeworld.units.untrusted import read_float
from reprieve.api.harm_budget import HarmBudget, HarmUse
from reprieve.records.harm_table import NOBODY, HarmRow, harm_rows
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.tables import Cell, Column, Kind, Page, Parameters, Table, Viewer, seconds
from reprieve.wording.displacements import known_as

__all__ = ["page"]

_BUDGETS: Final = (
    Column("budget", Kind.TEXT),
    Column("of", Kind.TEXT),
    Column("window", Kind.TEXT),
    Column("displacements", Kind.NUMBER),
    Column("mostDisplacements", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("mostLost", Kind.NUMBER),
    Column("free", Kind.INSTANT),
    Column("holds", Kind.WORD),
)
_LEDGER: Final = (
    Column("payer", Kind.TEXT),
    Column("beneficiary", Kind.TEXT),
    Column("plane", Kind.WORD),
    Column("reason", Kind.TEXT),
    Column("displacements", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("saved", Kind.NUMBER),
    Column("waitSaved", Kind.NUMBER),
)
_Row = tuple[Cell, ...]
#: The former name of what an exhausted account does, which is accepted for one release.
_FORMER: Final = {"Tell": "Report"}


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return the budgets and the ledger as far as the viewer may know of them."""
    del parameters
    budgets = mirror.harm.budgets
    today = datetime.datetime.fromtimestamp(at // SECOND, datetime.UTC)
    today = today.replace(hour=0, minute=0, second=0, microsecond=0)
    monday = today - datetime.timedelta(days=today.weekday())
    accounts = {row_id: row for budget in budgets for row_id, row in _accounts(budget, viewer)}
    exhausted = sum(row[7] is not None for row in accounts.values())
    return Page(
        {
            "counts": {"budgets": len(budgets) if viewer.sees_all else 0, "exhausted": exhausted},
            "refused": list(_refused(budgets)) if viewer.sees_all else [],
        },
        {
            "budgets": Table(_BUDGETS, accounts),
            "week": Table(_LEDGER, dict(_ledger(mirror, viewer, monday))),
            "month": Table(_LEDGER, dict(_ledger(mirror, viewer, today.replace(day=1)))),
        },
    )


def _accounts(budget: HarmBudget, viewer: Viewer) -> Iterator[tuple[str, _Row]]:
    spec, status = budget.spec, budget.status
    # The account of a lineage begins with its namespace.
    of_tenants = spec.scope == "Work" or (
        spec.per in ("Tenant", "Work") and spec.scope in ("Suffered", "Caused")
    )
    for use in () if status is None else status.used:
        if viewer.sees_all or (of_tenants and viewer.sees(use.of.partition("/")[0])):
            yield f"{budget.metadata.name}/{use.of}", _account(budget, use)


def _account(budget: HarmBudget, use: HarmUse) -> _Row:
    spec, status = budget.spec, budget.status
    return (
        budget.metadata.name,
        use.of,
        "" if status is None else status.window,
        use.displacements,
        spec.limits.displacements,
        _number(use.lost_gpu_hours),
        spec.limits.lost_gpu_hours,
        None if use.free_at is None else _instant(use.free_at),
        _FORMER.get(spec.when_exhausted, spec.when_exhausted),
    )


def _number(text: str) -> float | None:
    try:
        return read_float(text)
    except ValueError:
        return None


def _instant(text: str) -> Cell:
    try:
        return seconds(parse_instant(text))
    except ValueError:
        return None


def _refused(budgets: tuple[HarmBudget, ...]) -> Iterator[str]:
    for budget in budgets:
        for each in () if budget.status is None else budget.status.conditions:
            if each.type == "Accepted" and each.status == "False":
                yield f"{budget.metadata.name}: {each.message}"


def _ledger(mirror: Mirror, viewer: Viewer, since: datetime.datetime) -> Iterator[tuple[str, _Row]]:
    began = Nanos(int(since.timestamp()) * SECOND)
    for row in harm_rows(mirror.harm.rows, began, "month"):
        if not (viewer.sees(row.payer) or viewer.sees(row.beneficiary)):
            continue
        home = row.payer if viewer.sees(row.payer) else row.beneficiary
        payer, beneficiary = (
            name
            if name == NOBODY or viewer.sees(name)
            else known_as(mirror.key, home, f"tenant/{name}")
            for name in (row.payer, row.beneficiary)
        )
        row_id = "/".join((row.window, row.plane, row.reason, payer, beneficiary))
        yield row_id, _paid(row, payer, beneficiary)


def _paid(row: HarmRow, payer: str, beneficiary: str) -> _Row:
    return (
        payer,
        beneficiary,
        row.plane,
        row.reason,
        row.displacements,
        _number(row.lost_gpu_hours),
        _number(row.saved_gpu_hours),
        _number(row.wait_saved_hours),
    )

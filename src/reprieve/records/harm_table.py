"""The ledger of harm as a table: who paid for whose urgency, how often and how much.

One row for each window, payer, beneficiary, plane and reason, in that order. A payer is the
namespace of the work that was displaced, a beneficiary that of the work that it was displaced for,
`nobody` where nothing waited. What a notice saved is not in the lost GPU-hours. The wait that a
beneficiary was saved is how long the displaced unit was away in its place.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.sums import Amount, Key

__all__ = ["NOBODY", "WINDOWS", "HarmRow", "as_csv", "as_open_metrics", "harm_rows"]

#: How instants are grouped into windows.
WINDOWS: Final = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d", "month": "%Y-%m"}
NOBODY: Final = "nobody"
_SECONDS: Final = 3_600
_COLUMNS: Final = (
    *("window", "payer", "beneficiary", "plane", "reason"),
    *("displacements", "lost_gpu_hours", "saved_gpu_hours", "wait_saved_hours"),
)


@dataclass(frozen=True, slots=True, order=True)
class HarmRow:
    """One row; hours as decimal texts with two places."""

    window: str
    payer: str
    beneficiary: str
    plane: str
    reason: str
    displacements: int
    lost_gpu_hours: str
    saved_gpu_hours: str
    wait_saved_hours: str


def harm_rows(
    sums: Iterable[tuple[Key, Amount]], since: Nanos, window: str, payer: str | None = None
) -> list[HarmRow]:
    """Return the rows of hours that began at `since` or later; `payer`: of this namespace alone."""
    found: dict[tuple[str, str, str, str, str], Amount] = {}
    for key, amount in sums:
        if key.hour * HOUR < since or payer not in (None, key.victim.tenant):
            continue
        began = datetime.datetime.fromtimestamp(key.hour * HOUR // SECOND, datetime.UTC)
        gains = NOBODY if key.preemptor is None else key.preemptor.tenant
        named = (began.strftime(WINDOWS[window]), key.victim.tenant, gains, key.plane, key.reason)
        found.setdefault(named, Amount()).merge(amount)
    return [
        HarmRow(
            *named,
            row.displacements,
            _hours(row.lost_device_seconds),
            _hours(row.saved_device_seconds),
            _hours(row.waited_seconds if named[2] != NOBODY else 0),
        )
        for named, row in sorted(found.items())
    ]


def _hours(seconds: int) -> str:
    return f"{seconds / _SECONDS:.2f}"


def as_csv(rows: Iterable[HarmRow]) -> str:
    """Return the rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(row, column) for column in _COLUMNS] for row in rows)
    return text.getvalue()


def as_open_metrics(rows: Iterable[HarmRow]) -> str:
    """Return the rows as OpenMetrics text."""
    found = list(rows)
    lines = []
    for column in _COLUMNS[5:]:
        name = f"reprieve_ledger_{column}"
        lines.append(f"# TYPE {name} gauge")
        for row in found:
            labels = ",".join(f'{each}="{_escaped(getattr(row, each))}"' for each in _COLUMNS[:5])
            lines.append(f"{name}{{{labels}}} {getattr(row, column)}")
    return "\n".join((*lines, "# EOF\n"))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

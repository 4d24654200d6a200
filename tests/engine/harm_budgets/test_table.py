"""Stored sums as text and as the table of `reprieve ledger`."""

from __future__ import annotations

from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.sums import HourlySums
from reprieve.records.harm_sums import sums_from, sums_text
from reprieve.records.harm_table import as_csv, as_open_metrics, harm_rows
from reprieve.units.durations import HOUR, MINUTE
from reprieve.units.instants import Nanos, parse_instant

START = parse_instant("2026-11-01T00:00:00Z")


def sums() -> HourlySums:
    """Return sums of three displacements in two months."""
    found = HourlySums()
    batch, urgent = HarmSide("batch", "", 5, "owner/a"), HarmSide("urgent", "", 9, "owner/b")
    for at in (START - HOUR, START + MINUTE, START + 2 * HOUR):
        found.add(Harm(Nanos(at), "scheduling", batch, urgent, 5_400, "lower priority"))
    found.add(Harm(START, "idle", HarmSide("other"), None, 0, "idle"))
    return found


def test_sums_are_read_as_they_were_written_and_other_lines_are_counted() -> None:
    text = sums_text(sums())
    assert sums_from(text) == (dict(sums()), 0)
    assert sums_from(f"{text}\n[1]\nno") == (dict(sums()), 2)


def test_the_table_says_who_paid_for_whom_by_month_since_a_day() -> None:
    rows = harm_rows(sums(), START, "month")
    assert as_csv(rows) == (
        "window,payer,beneficiary,plane,reason,displacements,lost_gpu_hours\n"
        "2026-11,batch,urgent,scheduling,lower priority,2,3.00\n"
        "2026-11,other,nobody,idle,idle,1,0.00\n"
    )
    assert [row.window for row in harm_rows(sums(), Nanos(0), "month", "batch")] == [
        "2026-10",
        "2026-11",
    ]


def test_the_table_as_open_metrics_ends_as_such() -> None:
    text = as_open_metrics(harm_rows(sums(), START, "day", "other"))
    labels = 'window="2026-11-01",payer="other",beneficiary="nobody",plane="idle",reason="idle"'
    assert text == (
        "# TYPE reprieve_ledger_displacements gauge\n"
        f"reprieve_ledger_displacements{{{labels}}} 1\n"
        "# TYPE reprieve_ledger_lost_gpu_hours gauge\n"
        f"reprieve_ledger_lost_gpu_hours{{{labels}}} 0.00\n"
        "# EOF\n"
    )

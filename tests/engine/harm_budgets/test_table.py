"""Stored sums as text and as the table of `reprieve ledger`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch
from uuid import UUID

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.engine.harm_budgets import sums as sums_of_harm
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.sums import Amount, HourlySums, Key, coarser
from reprieve.records.harm_sums import (
    part_data,
    part_records,
    part_rows,
    record_digest,
    sums_from,
    sums_text,
)
from reprieve.records.harm_table import as_csv, as_open_metrics, harm_rows

START = parse_instant("2026-11-01T00:00:00Z")


def sums() -> HourlySums:
    """Return sums of three displacements in two months."""
    found = HourlySums()
    batch, urgent = HarmSide("batch", "", 5, "owner/a"), HarmSide("urgent", "", 9, "owner/b")
    for at in (START - HOUR, START + MINUTE, START + 2 * HOUR):
        found.add(Harm(Nanos(at), "scheduling", batch, urgent, 5_400, "lower priority"))
    plane, reason = "scheduling", "lower priority"
    found.add(Harm(START, plane, batch, urgent, 0, reason, waited_seconds=900, units=0))
    found.add(Harm(START, plane, batch, urgent, 0, reason, saved_device_seconds=1_800, units=0))
    found.add(Harm(START, "idle", HarmSide("other"), None, 0, "idle"))
    return found


def test_sums_are_read_as_they_were_written_and_other_lines_are_counted() -> None:
    text = sums_text(sums())
    assert sums_from(text) == (dict(sums()), 0)
    assert sums_from(f"{text}\n[1]\nno") == (dict(sums()), 2)


def test_the_table_says_who_paid_for_whom_by_month_since_a_day() -> None:
    rows = harm_rows(sums(), START, "month")
    assert as_csv(rows) == (
        "window,payer,beneficiary,plane,reason,displacements,lost_gpu_hours,saved_gpu_hours,"
        "wait_saved_hours\n"
        "2026-11,batch,urgent,scheduling,lower priority,2,3.00,0.50,0.25\n"
        "2026-11,other,nobody,idle,idle,1,0.00,0.00,0.00\n"
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
        "# TYPE reprieve_ledger_saved_gpu_hours gauge\n"
        f"reprieve_ledger_saved_gpu_hours{{{labels}}} 0.00\n"
        "# TYPE reprieve_ledger_wait_saved_hours gauge\n"
        f"reprieve_ledger_wait_saved_hours{{{labels}}} 0.00\n"
        "# EOF\n"
    )


def test_a_part_is_read_as_it_was_written_and_an_odd_one_is_empty() -> None:
    records = [record_digest("a"), record_digest("b")]
    part = {"binaryData": part_data(sums(), records)}
    assert part_rows(part) == (dict(sums()), 0)
    assert part_records(part) == records
    assert part_rows({"binaryData": {"rows": "AAAA"}}) == ({}, 1)
    assert part_rows({"binaryData": {"rows": "?"}}) == ({}, 1)
    assert part_records({}) == []


def month_of_a_thousand_tenants(hours: int, tenants: int) -> dict[Key, Amount]:
    """Return sums where each tenant's work is displaced every hour, another job each time."""
    random, found = Random(5), HourlySums()
    for hour in range(hours):
        for tenant in range(tenants):
            line = str(UUID(int=random.getrandbits(128)))
            victim = HarmSide(f"team-{tenant}", "", 5, f"owner/{line}")
            asks = HarmSide(f"team-{random.randrange(3)}", "", 9)
            at = Nanos(START + hour * HOUR + random.randrange(3_600) * SECOND)
            found.add(Harm(at, "scheduling", victim, asks, 5_400, "lower priority"))
    return dict(found)


def test_sums_that_are_coarser_have_the_same_totals_and_never_count_shorter() -> None:
    fine = month_of_a_thousand_tenants(48, 5)
    before = Nanos(START + 24 * HOUR)
    rows = coarser(fine, before)
    assert len(rows) < len(fine)
    assert sum(each.displacements for each in rows.values()) == 240
    for key, amount in fine.items():
        if amount.last < before:
            day = key._replace(hour=key.hour // 24 * 24, victim=replace(key.victim, lineage=""))
            assert rows[day].last >= amount.last
        else:
            assert rows[key] == amount
    assert harm_rows(rows.items(), START, "month") == harm_rows(fine.items(), START, "month")


def test_sums_of_ever_new_lineages_keep_a_day_of_them_once_there_are_many() -> None:
    found, side = HourlySums(), HarmSide("urgent", "", 9)
    with patch.object(sums_of_harm, "MOST_ROWS", 50):
        for hour in range(20 * 24):
            victim = HarmSide("batch", "", 5, f"owner/{hour}")
            at = Nanos(START + hour * HOUR)
            found.add(Harm(at, "scheduling", victim, side, 60, "lower priority"))
            # One of each hour of a day, one of each day before, and what has come since.
            assert len(found) <= max(51, 25 + hour // 24 + 26), hour
    assert sum(each.displacements for _, each in found) == 20 * 24

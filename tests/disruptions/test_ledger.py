"""The ledger of displacements: what is kept, in which order, and what is taken back."""

from __future__ import annotations

from random import Random

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.ledger import KEPT, Displacement, Ledger
from tests.disruptions.builders import at, displaced


def test_a_row_that_is_told_twice_is_one_and_order_plays_no_role() -> None:
    rows = [displaced(k // 3, "ab"[k % 2], "xyz"[k % 3], uid=f"{k}") for k in range(60)]
    ordered, shuffled, folded = Ledger(), Ledger(), Ledger()
    for row in rows:
        ordered.record(row)
    mixed = [*rows, *rows[::7]]
    Random(1).shuffle(mixed)
    for row in mixed:
        shuffled.record(row)
    folded.fold(mixed)
    assert ordered.rows == shuffled.rows == folded.rows
    assert len(ordered) == 60
    assert ordered.record(rows[5]) is None


def test_rows_go_after_a_day_and_above_the_cap_the_oldest_first() -> None:
    ledger = Ledger(most=3)
    for seconds in range(5):
        ledger.record(displaced(seconds, "a", "b"))
    assert [row.at for row in ledger.rows] == [at(2), at(3), at(4)]
    day = KEPT // SECOND
    ledger.record(displaced(day + 3, "a", "b"))
    assert [row.at for row in ledger.rows] == [at(4), at(day + 3)]
    assert ledger.record(displaced(3, "a", "b")) is None
    assert [ledger.columns.at[row] for row in ledger.since(at(4))] == [at(day + 3)]


def test_the_last_displacement_of_an_object_is_taken_back_from_who_did_it() -> None:
    ledger = Ledger()
    rows: list[Displacement] = [
        displaced(0, "a", "x", uid="1"),
        displaced(1, "a", "x", uid="1"),
        displaced(2, "b", "x", uid="1"),
    ]
    ledger.fold(rows)
    assert ledger.undo(rows[0].preemptor.lineage if rows[0].preemptor else "", "1")  # type: ignore[arg-type]
    assert ledger.rows == [rows[0], rows[2]]
    assert not ledger.undo(rows[0].victim.lineage, "1")
    # What was taken back may happen after all.
    assert ledger.record(rows[1]) is not None

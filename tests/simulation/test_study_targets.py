"""Which cells of a study meet the targets, and what the median's interval is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.study_targets import Cell, cells, lines, main, median_interval, met
from tests.simulation.building import study_in

ROW = {"trace": "t", "seed": "0", "load": "1.0"}


def row(policy: str, lost: float, done: float, admitted: int, wait: float) -> dict[str, str]:
    return {
        **ROW,
        "policy": policy,
        "lost_device_hours": str(lost),
        "device_hours_done": str(done),
        "admitted_device_hours": str(done),
        "admitted": str(admitted),
        "wait_p95_s": str(wait),
    }


def only(*rows: dict[str, str]) -> Cell:
    (found,) = cells(rows)
    return found


BASE = row("classical", 100, 1_000, 200, 60)


def test_a_cell_meets_all_targets_at_their_bounds() -> None:
    found = met(only(BASE, row("harm", 50, 990, 198, 63)))
    assert set(found.values()) == {True}


@pytest.mark.parametrize(
    ("missed", "lost", "done", "wait"),
    [("lost", 51, 1_000, 60), ("done", 50, 989, 60), ("wait p95", 50, 1_000, 64)],
)
def test_a_cell_that_misses_one_target_does_not_meet_all(
    missed: str, lost: float, done: float, wait: float
) -> None:
    found = met(only(BASE, row("harm", lost, done, 200, wait)))
    assert (found[missed], found["all"]) == (False, False)


def test_fewer_jobs_that_started_in_time_miss_no_target_of_work_that_is_done() -> None:
    found = met(only(BASE, row("harm", 50, 1_001, 190, 60)))
    assert (found["admitted"], found["done"], found["all"]) == (False, True, True)


def test_waits_where_nobody_waited_are_longer_than_any_share() -> None:
    assert not met(only(row("classical", 1, 1, 1, 0), row("harm", 0, 1, 1, 1)))["wait p95"]
    assert met(only(row("classical", 1, 1, 1, 0), row("harm", 0, 1, 1, 0)))["wait p95"]


def test_a_cell_that_the_base_has_not_finished_is_left_out() -> None:
    assert not list(cells([row("harm", 0, 1, 1, 1)], "classical"))


def test_the_interval_of_a_median_holds_it_and_is_the_same_each_time() -> None:
    values = [0.1, -0.3, 0.2, -0.7, 0.05]
    found = median_interval(values)
    assert found[1] <= found[0] <= found[2]
    assert found == median_interval(values)
    assert median_interval([0.5, 0.5]) == (0.5, 0.5, 0.5)


def test_the_table_counts_cells_for_each_load_and_over_all() -> None:
    found = [only(BASE, row("harm", 40, 1_000, 200, 60))]
    assert [line.split(" | ")[:8] for line in lines(found)][2:] == [
        ["| 1.0", "harm", "1", "1", "1", "1", "1", "1"],
        ["| all", "harm", "1", "1", "1", "1", "1", "1"],
    ]


def test_the_results_of_a_study_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from click.testing import CliRunner

    from reprieve.cli.simulate import simulate

    report = tmp_path / "report.html"
    given = [str(study_in(tmp_path)), "-o", str(report), "--workers", "1", "--no-decisions"]
    assert CliRunner().invoke(simulate, given).exit_code == 0
    assert main([str(tmp_path / "results.csv")]) == 0
    assert capsys.readouterr().out.startswith("| load | policy | cells | lost: met | done: met |")

"""Studies of which some runs failed or were not made: what is told, and what is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.simulation.reporting.failures import failure_lines
from reprieve.simulation.reporting.report import report_html
from reprieve.simulation.reporting.summary import summarised
from reprieve.simulation.reporting.tables import terminal_tables
from reprieve.simulation.runs import Failed, carried_out, planned
from reprieve.simulation.study import read_study
from tests.simulation.building import STUDY, study_in


def test_a_trace_that_cannot_be_read_is_told_once_for_all_its_runs(tmp_path: Path) -> None:
    study = study_in(tmp_path, STUDY.replace("load: [1.2]", "load: [1.2, 1.4]"))
    (tmp_path / "trace.csv").write_text("arrival_s,gpus\n0,1\n")
    done = CliRunner().invoke(
        simulate, [str(study), "-o", str(tmp_path / "report.html"), "--workers", "1"]
    )
    assert done.exit_code == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    (only,) = told
    assert only.startswith("failed: trace trace, all seeds, all loads, all policies: ")
    assert "trace.csv:1: a header without duration_s" in only
    assert (tmp_path / "report.html").read_text().count("Failed: ") == 1


def test_runs_that_fail_for_one_reason_are_named_one_by_one_unless_they_are_all(
    tmp_path: Path,
) -> None:
    study = read_study(study_in(tmp_path))
    runs = planned(study)
    lines = [
        *failure_lines(study, [Failed(each, "no") for each in runs[:3]]),
        *failure_lines(study, [Failed(each, "so") for each in runs[:4]]),
    ]
    assert lines == [
        "trace trace, seed 0, load 1.2, policy none: no",
        "trace trace, seed 0, load 1.2, policy classical: no",
        "trace trace, seed 1, load 1.2, policy none: no",
        "trace trace, seeds 0, 1, load 1.2, all policies: so",
    ]


@pytest.mark.parametrize("over", [1, 2])
def test_of_one_trace_those_policies_are_compared_that_are_over(tmp_path: Path, over: int) -> None:
    text = STUDY.replace("seeds: [0, 1, 2]", "seeds: [0]") + "  strict: {strategy: StrictFIFO}\n"
    study = read_study(study_in(tmp_path, text))
    runs = planned(study)
    ended = list(carried_out(study, runs[:over], 1, tmp_path, lambda *_: None))
    results = summarised(study, runs, ended)
    (load,) = results.loads
    names = ["none", "classical", "strict"]
    assert [each.policy for each in load.policies] == names[:over]
    assert load.without == tuple(names[over:])
    said = f"without {', '.join(names[over:])}: not finished where the others are"
    assert said in list(terminal_tables(results))
    assert said in report_html(results)


def test_a_policy_that_is_not_over_does_not_keep_others_from_runs_that_all_have(
    tmp_path: Path,
) -> None:
    study = read_study(study_in(tmp_path))
    runs = planned(study)
    ended = list(carried_out(study, runs[:3], 1, tmp_path, lambda *_: None))
    (load,) = summarised(study, runs, ended).loads
    assert load.without == ()
    assert [len(each.outcomes) for each in load.policies] == [1, 1]

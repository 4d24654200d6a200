"""How far a study is, while its runs go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.simulation import runs
from reprieve.simulation.replaying.lives import Replay
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.runs import Outcome, Underway, carried_out, carry_out, planned
from reprieve.simulation.study import Study, read_study

STUDY = """\
cluster: {nodes: 2, devices: 4}
workload: {trace: csv, path: trace.csv}
policies:
  none: {preemption: Never}
"""


def study_in(folder: Path) -> Study:
    """Return a study of 2,500 jobs, one a minute, that never contend."""
    rows = "".join(f"{60 * number},1,10,net\n" for number in range(2_500))
    (folder / "trace.csv").write_text(f"arrival_s,gpus,duration_s,model\n{rows}")
    (folder / "study.yaml").write_text(STUDY)
    return read_study(folder / "study.yaml")


def test_jobs_and_days_are_told_while_a_run_goes_on(tmp_path: Path) -> None:
    study, told = study_in(tmp_path), list[tuple[int, int, Underway]]()
    runs_of = planned(study)
    (outcome,) = carried_out(
        study, runs_of, 1, tmp_path, lambda over, of, _, found: told.append((over, of, found))
    )
    assert isinstance(outcome, Outcome)
    assert [(over, of, found.jobs, found.runs) for over, of, found in told] == [
        (0, 1, 0, 0.0),
        (0, 1, 1_000, 0.4),
        (0, 1, 2_000, 0.8),
        (1, 1, 0, 0.0),
    ]
    assert told[2][2].days == pytest.approx(2_000 * 60 / 86_400, rel=0.01)


def test_other_processes_read_how_far_a_run_is_and_nothing_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, seen = study_in(tmp_path), list[Underway]()
    (run,) = planned(study)

    def looked_at(*given: Any) -> Replay:
        jobs, policy, model, tenants, nodes, note, *_ = given

        def noted(finished: int, now: int) -> None:
            note(finished, now)
            seen.append(runs._underway(tmp_path, [run]))

        return replay(jobs, policy, model, tenants, nodes, noted)

    monkeypatch.setattr(runs, "replay", looked_at)
    assert runs._underway(tmp_path, [run]) == Underway()
    assert isinstance(carry_out(study, run, tmp_path), Outcome)
    assert [(each.jobs, each.runs) for each in seen] == [(1_000, 0.4), (2_000, 0.8)]
    assert runs._underway(tmp_path, [run]) == Underway()
    assert not list(tmp_path.glob("underway*"))

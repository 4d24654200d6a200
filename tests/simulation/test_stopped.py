"""A study in which work takes turns without an end comes to one, and says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.simulation.replaying import loop_guard
from tests.simulation.test_refusals import _jobs as jobs_that_contend

STUDY = """\
cluster: {nodes: 3, devices: 9}
workload: {trace: csv, path: trace.csv}
work: {checkpoint: 30m, save: 90s, restart: 3m}
policies:
  guarded: {quota: {preemptionPolicy: FairSharing}}
  fair:
    quota: {preemptionPolicy: FairSharing, loopLimit: 0}
"""


def study_in(folder: Path) -> Path:
    lines = ["arrival_s,gpus,duration_s,tenant,priority"]
    for each in jobs_that_contend(5):
        seconds = each.arrival // 10**9, each.devices, each.duration // 10**9
        lines.append(",".join(map(str, (*seconds, each.tenant, each.priority))))
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    path = folder / "study.yaml"
    path.write_text(STUDY)
    return path


def test_a_lineage_that_makes_way_without_an_end_ends_its_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_guard, "_MOST_TURNS", 30)
    study = study_in(tmp_path)
    done = CliRunner().invoke(
        simulate, [str(study), "-o", str(tmp_path / "report.html"), "--workers", "1"]
    )
    assert done.exit_code == 1, done.output
    said = (
        f"{study}:6: policies.fair: stopped: 30 preemptions of the same lineage, d/L17, until "
        f"10,550 s while no job arrived or finished, 30 of them for c/L39; with a loopLimit or "
        f"loopWindow of 0 no work that displaces others in turn is held; accepted: a loopLimit of "
        f"1 or more, 2 by default"
    )
    assert said in done.stderr
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows[1:]] == ["guarded"]

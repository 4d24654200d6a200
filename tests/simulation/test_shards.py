"""A study in shards, merged, is the study in one piece, and a killed one leaves no processes."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kubelocal.running import Settings, running_in_thread
from reprieve.cli.simulate import simulate
from reprieve.simulation.runs import planned
from reprieve.simulation.shards import Shard, read_shard
from reprieve.simulation.study import read_study
from reprieve.units.errors import UsageError
from tests.simulation.building import ROOT, STUDY, study_in

EXAMPLE = ROOT / "examples" / "study-on-kubernetes"


def run(study: Path, *arguments: str | Path) -> Result:
    given = [str(study), "--workers", "1", *map(str, arguments)]
    return CliRunner().invoke(simulate, given, catch_exceptions=False)


def written(folder: Path) -> tuple[list[dict[str, str]], bytes, bytes]:
    """Return the results, the report and the decisions; CPU time alone is of the machine."""
    with (folder / "results.csv").open() as lines:
        rows = [{**row, "decision_cpu_s": ""} for row in csv.DictReader(lines)]
    return rows, (folder / "report.html").read_bytes(), (folder / "decisions.jsonl").read_bytes()


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_shards_merged_are_the_study_in_one_piece(tmp_path: Path, count: int) -> None:
    study = study_in(tmp_path)
    assert run(study, "-o", tmp_path / "report.html").exit_code == 0
    whole, plots = written(tmp_path), tmp_path / "plots"
    assert run(study, "-o", tmp_path / "report.html", "--plots", plots).exit_code == 0
    charts = {path.name: path.read_bytes() for path in plots.iterdir()}
    for index in reversed(range(count)):
        done = run(study, "--shard", f"{index}/{count}", "-o", tmp_path / "shards")
        assert done.exit_code == 0, done.output
        runs = len(range(index, 6, count))
        file = tmp_path / "shards" / f"shard-{index}-of-{count}.jsonl"
        assert done.output == f"wrote {file}: {runs} of {runs} runs\n"
    (tmp_path / "again").mkdir()
    merged = run(
        study,
        *("--merge", tmp_path / "shards", "-o", tmp_path / "again" / "report.html"),
        *("--plots", tmp_path / "again" / "plots"),
    )
    assert merged.exit_code == 0, merged.output
    assert written(tmp_path / "again") == whole
    found = (tmp_path / "again" / "plots").iterdir()
    assert {path.name: path.read_bytes() for path in found} == charts


def test_a_run_that_fails_in_a_shard_is_told_by_the_report(tmp_path: Path) -> None:
    text = STUDY + "  broken: {own: 'broken.py:Broken'}\n"
    (tmp_path / "broken.py").write_text(
        "class Broken:\n"
        "    def admit(self, heads):\n        raise RuntimeError('no')\n"
        "    def order(self, candidates):\n        return candidates\n"
    )
    study = study_in(tmp_path, text)
    for index in range(2):
        assert run(study, "--shard", f"{index}/2", "-o", tmp_path / "shards").exit_code == 0
    merged = run(study, "--merge", tmp_path / "shards", "-o", tmp_path / "report.html")
    assert merged.exit_code == 1
    said = "failed: trace trace, all seeds, load 1.2, policy broken: "
    assert merged.output.count(said) == merged.output.count("failed: ") == 1


def test_what_is_missing_is_told_and_the_rest_reported(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    for index in (0, 2):
        run(study, "--shard", f"{index}/3", "-o", tmp_path / "shards", "--no-decisions")
    assert not list((tmp_path / "shards").glob("decisions-*"))
    merged = run(study, "--merge", tmp_path / "shards", "-o", tmp_path / "report.html")
    assert merged.exit_code == 1
    assert "missing: 2 runs, of shard 1/3; this is what there is" in merged.output
    assert (
        "This study is not whole: 2 of its runs were not made"
        in (tmp_path / "report.html").read_text()
    )


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "a/b", "0/0", "1_0/20", "0/99999"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--shard: .*; accepted: I/N with I from 0 to N-1"):
        read_shard(text)
    assert read_shard("2/8") == Shard(2, 8)


def test_shards_of_another_study_or_division_are_refused(tmp_path: Path) -> None:
    study, shards = study_in(tmp_path), tmp_path / "shards"
    report = ("--merge", shards, "-o", tmp_path / "report.html")
    with pytest.raises(UsageError, match=r"^--merge .*No such file or directory; accepted: a fol"):
        run(study, *report)
    shards.mkdir()
    with pytest.raises(UsageError, match=r"accepted: a folder with files shard-I-of-N\.jsonl$"):
        run(study, *report)
    run(study, "--shard", "0/2", "-o", shards)
    run(study, "--shard", "1/3", "-o", shards)
    with pytest.raises(UsageError, match=r"is twice there|shards of 2 and of 3"):
        run(study, *report)
    (shards / "shard-1-of-3.jsonl").unlink()
    other = study_in(tmp_path, STUDY.replace("zipf: 1", "zipf: 2"))
    with pytest.raises(UsageError, match=r"shard-0-of-2\.jsonl: of another study, or of reprieve"):
        run(other, *report)
    (shards / "shard-0-of-2.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"accepted: a file that --shard wrote$"):
        run(study, *report)
    with pytest.raises(UsageError, match=r"^--shard: accepted: without --merge, --plots and --val"):
        run(study, "--shard", "0/2", "--merge", shards)


def _job(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / name).read_text())
    return found


def test_the_example_on_kubernetes_makes_the_study_with_its_own_arguments(tmp_path: Path) -> None:
    shown = study_in(tmp_path, (EXAMPLE / "study.yaml").read_text())
    assert len(planned(read_study(shown))) == 24
    study_in(tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    assert run(tmp_path / "study.yaml", "-o", whole / "report.html").exit_code == 0

    def carried_out(job: dict[str, Any], index: int = 0) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        name, *arguments = container["args"]
        assert name == "simulate"
        number = ("$(JOB_COMPLETION_INDEX)", str(index))
        given = [
            re.sub(r"^(--[a-z]+=)?/study/", rf"\1{tmp_path}/", each.replace(*number))
            for each in arguments
        ]
        done = CliRunner().invoke(simulate, given, catch_exceptions=False)
        assert done.exit_code == 0, done.output

    job = _job("job.yaml")
    assert job["spec"]["completionMode"] == "Indexed"
    for index in range(job["spec"]["completions"]):
        carried_out(job, index)
    carried_out(_job("merge.yaml"))
    assert written(tmp_path) == written(whole)


def test_the_example_on_kubernetes_is_accepted_by_an_api_server() -> None:
    with running_in_thread(Settings(nodes=1, scheduler=False)) as found:
        for name in ("job.yaml", "merge.yaml"):
            made = subprocess.run(
                ["kubectl", "--kubeconfig", found.kubeconfig, "create", "-o", "json", "-f", "-"],
                input=(EXAMPLE / name).read_text(),
                capture_output=True,
                text=True,
            )
            assert made.returncode == 0, made.stderr
            assert json.loads(made.stdout)["spec"]["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_study_that_is_killed_leaves_no_processes(tmp_path: Path, how: signal.Signals) -> None:
    seeds = ", ".join(str(seed) for seed in range(400))
    study = study_in(tmp_path, STUDY.replace("seeds: [0, 1, 2]", f"seeds: [{seeds}]"))
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "simulate", str(study), "--workers", "2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    while process.poll() is None and not list(tmp_path.glob("reprieve-*/decisions-000002.jsonl")):
        time.sleep(0.01)
    assert len(_of_session(process.pid)) >= 3
    process.send_signal(how)
    process.wait()
    while _of_session(process.pid):
        time.sleep(0.01)


def _of_session(leader: int) -> list[int]:
    """Return the processes of a session that are not over."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            state, *numbers = (path / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(numbers[2]) == leader and state != "Z":
            found.append(int(path.name))
    return found

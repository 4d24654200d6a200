"""`reprieve simulate`: what it writes, that it is the same each time, and how it ends."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from reprieve.cli.simulate import simulate
from reprieve.simulation import runs
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Replay
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.reporting.report import Provenance, report_html
from reprieve.simulation.reporting.summary import Results
from reprieve.simulation.reporting.validation_figures import Validation
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError
from tests.simulation.building import STUDY, study_in, traces

COLUMNS = {
    *("trace", "seed", "load", "policy", "jobs", "admitted", "device_hours_done", "wait_p50_s"),
    *("wait_p95_s", "preemptions", "lost_device_hours", "useful_share", "decision_cpu_s"),
}
# As a shell that is no terminal's starts what runs in the background.
IN_THE_BACKGROUND = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from reprieve.cli.main import main
main()
"""


def run(study: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        simulate,
        [str(study), "-o", str(study.parent / "report.html"), "--workers", "1", *arguments],
        catch_exceptions=False,
    )


def in_the_background(study: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND, "simulate", str(study), "--workers", "1"],
        cwd=study.parent,
        capture_output=True,
        text=True,
    )


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_a_study_gives_a_table_a_report_and_every_decision(tmp_path: Path) -> None:
    done = run(study_in(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("own load of the traces: ")
    found = rows(tmp_path)
    assert set(found[0]) >= COLUMNS
    assert [(row["seed"], row["policy"]) for row in found] == [
        (seed, policy) for seed in "012" for policy in ("none", "classical")
    ]
    none, classical = found[0::2], found[1::2]
    assert [row["jobs"] for row in none] == [row["jobs"] for row in classical]
    assert {row["preemptions"] for row in none} == {"0"}
    assert sum(int(row["preemptions"]) for row in classical) > 0
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    victims = [len(each["victims"]) for each in map(json.loads, lines) if "victims" in each]
    assert sum(victims) == sum(int(row["preemptions"]) for row in classical)


def test_a_fault_of_the_replays_own_costs_its_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(jobs: list[Job], policy: PolicySpec, *rest: Any) -> Replay:
        if policy.name == "classical":
            raise AssertionError("no such room")
        return replay(jobs, policy, *rest)

    monkeypatch.setattr(runs, "replay", faulty)
    done = run(study_in(tmp_path))
    assert done.exit_code == 1
    assert "a fault of the replay's own: AssertionError('no such room') at " in done.stderr
    assert [row["policy"] for row in rows(tmp_path)] == ["none"] * 3


def test_the_same_study_gives_the_same_bytes_whatever_the_processes(tmp_path: Path) -> None:
    written = []
    for name, workers in (("one", "1"), ("two", "2")):
        (tmp_path / name).mkdir()
        study = study_in(tmp_path / name)
        assert run(study, "--workers", workers).exit_code == 0
        results = [{**row, "decision_cpu_s": ""} for row in rows(study.parent)]
        report = (study.parent / "report.html").read_bytes()
        written.append((results, report, (study.parent / "decisions.jsonl").read_bytes()))
    assert written[0] == written[1]


class Page(HTMLParser):
    """Notes what a page would load, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.packed: list[str] = []
        self._in_story = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [value for key, value in attrs if key in ("src", "href", "data") and value]
        self._in_story = tag == "script" and given.get("type") == "text/plain"

    def handle_endtag(self, tag: str) -> None:
        self._in_story = False

    def handle_data(self, data: str) -> None:
        if self._in_story:
            self.packed.append(data)


def test_the_report_loads_nothing_and_has_the_story_of_every_job(tmp_path: Path) -> None:
    run(study_in(tmp_path))
    text = (tmp_path / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.loads == []
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert text.count('<svg class="chart"') == 4
    assert "prefers-color-scheme:dark" in text
    body = re.sub(r"<[^>]*>", " ", text.split("<body>")[1])
    assert body.split()[:4] == ["Study", "study.yaml", "Made", "on"]
    assert "Table 1. Means over 3 runs" in " ".join(body.replace(" . ", ". ").split())
    titles = [
        " ".join(each.split()) for each in re.findall(r"<figcaption>(.*?)</figcaption>", text)
    ]
    assert [each[: each.index("</b>")] for each in titles] == [
        f"<b>Figure {number}." for number in range(1, 5)
    ]
    assert text.count('class="axis"') == 7
    trace = hashlib.sha256((tmp_path / "trace.csv").read_bytes()).hexdigest()
    assert f"trace.csv: sha256 <code>{trace}</code>" in text
    told = [json.loads(gzip.decompress(base64.b64decode(each))) for each in page.packed]
    jobs = int(rows(tmp_path)[0]["jobs"])
    assert [len(each["jobs"]) for each in told] == [jobs, jobs]
    events = [event for each in told[1]["jobs"] for event in each[7]]
    classical = next(row for row in rows(tmp_path) if row["policy"] == "classical")
    assert sum(event[0] == 1 for event in events) == int(classical["preemptions"])


def test_the_charts_are_files_that_stand_alone(tmp_path: Path) -> None:
    study = study_in(tmp_path, STUDY.replace("load: [1.2]", "load: [0.9, 1.2]"))
    assert run(study, "--plots", str(tmp_path / "plots")).exit_code == 0
    found = sorted((tmp_path / "plots").iterdir())
    names = [
        f"load-{load}-{name}.svg"
        for load in ("0.9", "1.2")
        for name in ("lost", "often", "use", "waits")
    ]
    assert [path.name for path in found] == names
    for path in found:
        drawn = ElementTree.fromstring(path.read_text())
        texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert texts[-2:] == ["none", "classical"]
        assert drawn.find("{http://www.w3.org/2000/svg}style") is not None


def test_lines_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    with (tmp_path / "trace.csv").open("a") as trace:
        trace.write("soon,1,10,net\n")
    done = run(study)
    assert "left out: 1 unreadable line, the first is trace.csv:62: 'soon'" in done.output
    assert "1 unreadable line" in (tmp_path / "report.html").read_text()


def test_a_trace_in_which_nothing_contends_says_so_first(tmp_path: Path) -> None:
    study = study_in(
        tmp_path, STUDY.replace("nodes: 2", "nodes: 1000").replace("load: [1.2], ", "")
    )
    assert "hardly anything contends" in run(study).output.splitlines()[0]


def test_a_study_that_cannot_be_used_ends_with_2_and_one_line(tmp_path: Path) -> None:
    study = study_in(tmp_path, STUDY.replace("zipf: 1", "zipf: no"))
    ended = subprocess.run(
        [sys.executable, "-m", "reprieve", "simulate", str(study)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        f"Error: {study}:3: tenants.zipf: False; accepted: a number from 0 to 10\n"
    )
    with pytest.raises(UsageError, match="accepted: a file in a folder that is there"):
        run(study_in(tmp_path), "-o", str(tmp_path / "none" / "report.html"))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_with_what_it_has_and_says_so(
    number: signal.Signals, workers: str, tmp_path: Path
) -> None:
    seeds = ", ".join(str(seed) for seed in range(400))
    study = study_in(tmp_path, STUDY.replace("seeds: [0, 1, 2]", f"seeds: [{seeds}]"))
    process = subprocess.Popen(
        [sys.executable, "-c", IN_THE_BACKGROUND, "simulate", str(study), "--workers", workers],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    # Decisions of the ninth run are being written: some are over.
    while process.poll() is None and not list(tmp_path.glob("reprieve-*/decisions-000008.jsonl")):
        time.sleep(0.01)
    process.send_signal(number)
    told, faults = process.communicate()
    assert process.returncode == 130, faults
    assert re.search(r"interrupted; not made: \d+ runs?; this is what there is", told)
    assert "Traceback" not in faults
    report = (tmp_path / "report.html").read_text()
    assert "This study is not whole" in report
    assert 2 <= len(rows(tmp_path)) < 800
    assert not list(tmp_path.glob("reprieve-*"))


def test_a_real_trace_is_replayed_under_both_policies(tmp_path: Path) -> None:
    folder = traces()
    study = study_in(
        tmp_path,
        STUDY.replace(
            "trace.csv, load: [1.2], seeds: [0, 1, 2]", f"{folder}, only: [2869ce]"
        ).replace("nodes: 2", "nodes: 8"),
    )
    assert run(study).exit_code == 0
    none, classical = rows(tmp_path)
    assert none["jobs"] == classical["jobs"] == "533"


def test_the_report_prints_the_figures_of_a_validation_with_their_commit_and_command(
    tmp_path: Path,
) -> None:
    study = study_in(tmp_path)
    figures = tmp_path / "validation.json"
    said = {
        "command": "python -m bench.validation --jobs 7",
        "commit": "abc<1>",
        "version": "0.0.1",
        "comparisons": [
            {"case": "M/M/1", "holds": True, "figures": {"off_percent": 0.4}},
            {"case": "M/D/1", "holds": False, "figures": {"wait": 0.9}},
        ],
    }
    figures.write_text(json.dumps(said))
    assert run(study, "--validation", str(figures)).exit_code == 0
    report = (tmp_path / "report.html").read_text()
    made_by = "<code>python -m bench.validation --jobs 7</code> with commit abc&lt;1&gt;"
    assert made_by in report
    assert "<td>M/M/1</td><td>off (%) 0.4</td><td>yes</td>" in report
    assert "<td>M/D/1</td><td>wait 0.9</td><td>no</td>" in report
    assert "1 of the comparisons are not within their bound" in report
    assert "which these figures are not of" in report
    figures.write_text('{"command": 1}')
    with pytest.raises(UsageError, match=r"--validation .*accepted: a file that"):
        run(study, "--validation", str(figures))
    assert run(study).exit_code == 0
    assert "No figures of a validation were given" in (tmp_path / "report.html").read_text()


def test_results_that_cannot_be_written_end_with_one_line(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    (tmp_path / "results.csv").mkdir()
    with pytest.raises(UsageError, match=r"--output .*report\.html: Is a directory; accepted: a "):
        run(study)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_ends_with_one_line(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    (tmp_path / "report.html").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left on device; accepted: "):
        run(study)


def test_what_cannot_be_written_leaves_the_former_results_as_they_were(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    assert run(study).exit_code == 0
    names = ("report.html", "results.csv")
    former = {name: (tmp_path / name).read_bytes() for name in names}
    (tmp_path / "decisions.jsonl").unlink()
    (tmp_path / "decisions.jsonl").mkdir()
    study.write_text(study.read_text().replace("nodes: 2", "nodes: 3"))
    with pytest.raises(UsageError, match="Is a directory; accepted: "):
        run(study)
    assert {name: (tmp_path / name).read_bytes() for name in names} == former
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_the_study_is_read_nothing_is_written(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os, signal, time\nos.kill(os.getpid(), signal.{number.name})\ntime.sleep(60)\n"
    )
    study = study_in(tmp_path, STUDY + '  mine: {own: "mine.py:Mine"}\n')
    (tmp_path / "report.html").write_text("former")
    done = in_the_background(study)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted before any run; nothing was written\n"
    assert (tmp_path / "report.html").read_text() == "former"
    assert not (tmp_path / "results.csv").exists()


def test_interrupted_while_results_are_written_they_are_written_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(results: Results, validation: Validation | None, made: Provenance) -> str:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        return report_html(results, validation, made)

    monkeypatch.setattr("reprieve.cli.simulate.report_html", report)
    former = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert run(study_in(tmp_path)).exit_code == 0
    assert "This study is not whole" not in (tmp_path / "report.html").read_text()
    assert len(rows(tmp_path)) == 6
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == former


def test_names_of_more_than_two_policies_are_listed_with_commas(tmp_path: Path) -> None:
    third = STUDY.replace("policies:\n", "policies:\n  first: {}\n  second: {}\n")
    assert run(study_in(tmp_path, third), "--no-decisions").exit_code == 0
    said = (tmp_path / "report.html").read_text()
    assert re.search(r"first, second, [\w, ]+ and \w+ by the quota engine", said), said[:900]

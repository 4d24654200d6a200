"""Policies of one's own: what they are shown, and what they cannot break."""

from __future__ import annotations

import csv
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Preempted, Victim
from reprieve.units.errors import UsageError
from tests.simulation.building import (
    ROOT,
    SECOND,
    STUDY,
    job,
    life_of,
    played,
    random_jobs,
    study_in,
    work,
)

ANYBODY = """
class Anybody:
    def admit(self, heads):
        return sorted(heads, key=lambda head: (-head.priority, head.id))

    def order(self, candidates):
        lower = [each for each in candidates if each.priority < candidates.preemptor.priority]
        return sorted(lower, key=lambda each: each.id)
"""


def own(folder: Path, text: str, name: str) -> PolicySpec:
    (folder / "mine.py").write_text(text)
    return PolicySpec("mine", own=(f"mine.py:{name}", folder))


def test_who_is_not_needed_is_put_back(tmp_path: Path) -> None:
    jobs = [
        job("a1", 0, 1, 1_000),
        job("a2", 0, 3, 1_000),
        job("urgent", 100, 3, 50, "b", 100),
    ]
    done = played(jobs, own(tmp_path, ANYBODY, "Anybody"))
    (preempted,) = [each for each in done.decisions if isinstance(each, Preempted)]
    assert preempted.victims == (Victim("a/a2", "InCohortReclamation", 300 * SECOND, 100 * SECOND),)
    assert life_of(done, "urgent").started == 100 * SECOND


def test_nobody_is_displaced_for_a_job_that_made_way_in_the_same_instant(tmp_path: Path) -> None:
    everybody = """
class Everybody:
    def admit(self, heads):
        return heads

    def order(self, candidates):
        return list(candidates)
"""
    jobs = [job("first", 0, 4, 1_000), job("second", 100, 4, 50, "b")]
    done = played(jobs, own(tmp_path, everybody, "Everybody"))
    preempted = [each for each in done.decisions if isinstance(each, Preempted)]
    assert [each.victims[0].job for each in preempted] == ["a/first"]
    assert life_of(done, "second").started == 100 * SECOND


def test_room_that_comes_free_is_the_preemptors_while_its_victims_leave(tmp_path: Path) -> None:
    jobs = [
        job("wide", 0, 4, 1_000),
        job("urgent", 100, 4, 50, "b", 100),
        job("small", 110, 1, 10, "b", 100),
    ]
    model = work(save=30, grace=30)
    done = played(jobs, own(tmp_path, ANYBODY, "Anybody"), model)
    assert life_of(done, "urgent").started == 130 * SECOND
    assert life_of(done, "small").started == 180 * SECOND
    assert life_of(done, "wide").displaced == 1


def test_no_policy_gives_devices_that_are_not_there_or_loses_a_job(tmp_path: Path) -> None:
    careless = """
from random import Random
class Careless:
    def __init__(self):
        self.random = Random(4)
    def admit(self, heads):
        return self.random.sample(list(heads), len(heads))
    def order(self, candidates):
        lower = [each for each in candidates if each.priority < candidates.preemptor.priority]
        return self.random.sample(lower, len(lower))
"""
    kinds = Counter[str]()
    for seed in range(8):
        jobs = random_jobs(Random(seed), 60, 8)
        model = work(100, 10, 20, grace=10 if seed % 2 else 5)
        done = played(jobs, own(tmp_path, careless, "Careless"), model, devices=8)
        assert all(0 <= devices <= 8 for _, devices in done.use)
        assert all(life.finished is not None for life in done.lives)
        held = sum(devices * (until - since) for (since, devices), (until, _) in pairwise(done.use))
        asked = sum(each.devices * each.duration for each in jobs)
        assert held == asked + sum(life.lost + life.idle for life in done.lives)
        kinds["displaced"] += sum(life.displaced for life in done.lives)
        kinds["wide"] += sum(
            len(each.victims) > 1 for each in done.decisions if isinstance(each, Preempted)
        )
    assert kinds["displaced"] >= 50, kinds
    assert kinds["wide"] >= 5, kinds


def test_the_example_loses_less_than_priority_and_age(tmp_path: Path) -> None:
    folder = ROOT / "examples" / "policies"
    code = (folder / "least_lost.py").read_text().split("class LeastLost")[1]
    assert len(code.splitlines()) <= 30
    done = CliRunner().invoke(
        simulate, [str(folder / "study.yaml"), "-o", str(tmp_path / "r.html"), "--workers", "1"]
    )
    assert done.exit_code == 0, done.output
    with (tmp_path / "results.csv").open() as lines:
        found = list(csv.DictReader(lines))
    lost = Counter[str]()
    for row in found:
        lost[row["policy"]] += float(row["undone_device_hours"])  # type: ignore[assignment]
    assert 0 < lost["least-lost"] < lost["classical"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Mine:\n  def admit(self, h): return 1 / 0\n  def order(self, c): return []",
         "policy mine: admit raised ZeroDivisionError('division by zero') at mine.py:2"),
        ("class Mine:\n  def admit(self, h): raise SystemExit(0)\n  def order(self, c): return []",
         "policy mine: admit raised SystemExit(0) at mine.py:2"),
        (("class Mine:\n  def __init__(self): exit(3)\n  def admit(self, h): return []\n"
         "  def order(self, c): return []"),
         "policy mine cannot be made: SystemExit(3)"),
        ("class Mine:\n  def admit(self, h): return [1]\n  def order(self, c): return []",
         "policy mine: admit returned 1, which it was not shown, or twice"),
        ("class Mine:\n  def admit(self, h): return 7\n  def order(self, c): return []",
         "policy mine: admit returned 7; accepted: a list of what it was shown"),
        ("class Mine:\n  def admit(self, h): return [[1]]\n  def order(self, c): return []",
         "policy mine: admit returned [1], which it was not shown, or twice"),
        (("class Mine:\n  def admit(self, h):\n    while True: yield h[0]\n"
          "  def order(self, c): return []"),
         "policy mine: admit returned more than there is; accepted: a list of what it was shown"),
        ("class Mine:\n  def admit(self, h): return []\n  def order(self, c): return []",
         "nothing happens any more, with "),
    ],
)  # fmt: skip
def test_a_policy_that_raises_is_named_and_the_other_runs_go_on(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    study = study_in(tmp_path, STUDY + '  mine: {own: "mine.py:Mine"}\n')
    done = CliRunner().invoke(
        simulate,
        [
            *(str(study), "-o", str(tmp_path / "report.html"), "--workers", "1"),
            *("--plots", str(tmp_path / "plots")),
        ],
    )
    assert done.exit_code == 1
    assert said in done.stderr
    failed = re.findall("Failed: (trace .+?), load 1.2", (tmp_path / "report.html").read_text())
    assert failed in (["trace trace, all seeds"], [f"trace trace, seed {n}" for n in range(3)])
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 * 2
    # The others are compared all the same, with charts of theirs.
    table = done.stdout.split("load 1.2")[1].splitlines()
    assert [line.split()[0] for line in table[1:4] if line] == ["policy", "none", "classical"]
    legend = (tmp_path / "plots" / "load-1.2-lost.svg").read_text()
    assert ">classical</text>" in legend
    assert ">mine</text>" not in legend


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("{own: 'none.py:Mine'}", ":8: policies.mine.own: there is no "),
        ("{own: 'mine.py:Other'}", "there is no Other in "),
        ("{own: 'mine.py:Empty'}", "has no admit; accepted: a class with admit and order"),
        ("{own: nowhere}", "accepted: FILE.py:CLASS beside the study, or an entry point of"),
        ("{own: 'mine.py:Empty', strategy: StrictFIFO}", "accepted: alone, without strategy"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, policy: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text("class Empty: pass\n")
    study = study_in(tmp_path, f"{STUDY}  mine: {policy}\n")
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(simulate, [str(study)], catch_exceptions=False)
    assert said in str(refused.value)

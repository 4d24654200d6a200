"""Harm budgets in a replay: who waits longer with them, and what a study may say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.study import read_study
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND, classical, job, life_of, played, work

MINUTE = 60 * SECOND


def bounded(**limits: int) -> PolicySpec:
    budget = HarmBudget("day", window=10 * MINUTE, **limits)
    return replace(classical(), name="bounded", harm_budgets=(budget,))


def waited(policy: PolicySpec) -> list[int]:
    """Return how many seconds two urgent jobs wait that displace one job twice."""
    jobs = [
        job("long", 0, 4, 5_000),
        job("first", 100, 4, 50, priority=10),
        job("second", 300, 4, 50, priority=10),
    ]
    done = played(jobs, policy, work(checkpoint=60), tenants=("a",))
    return [life_of(done, name).waited // SECOND for name in ("first", "second")]


def test_a_second_displacement_waits_until_the_window_has_passed() -> None:
    assert waited(classical()) == [0, 0]
    first, second = waited(bounded(displacements=1))
    assert first == 0
    # The first was at 100 s and leaves a window of 600 s.
    assert second == 100 + 600 - 300


def test_what_may_be_lost_is_what_has_not_been_saved() -> None:
    # At 100 s four devices have lost 40 s each since the last save.
    assert waited(bounded(lost_device_seconds=160))[0] == 0
    assert waited(bounded(lost_device_seconds=159))[0] > 0


STUDY = """\
cluster: {nodes: 1, devices: 4}
workload: {trace: csv, path: trace.csv, load: [1], seeds: [0]}
tenants: {count: 2, zipf: 1}
work: {checkpoint: 10m, save: 10s, restart: 1m}
policies:
  bounded:
    harmBudgets:
      day: %s
"""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{limits: {displacements: 2}, windows: 1h}", "windows"),
        ("{limits: {displacement: 2}}", "displacement"),
        ("{limits: {displacements: two}}", "limits.displacements"),
        ("{}", "spec.limits has neither displacements nor lostGpuHours"),
        ("{limits: {displacements: 2}, window: 1m}", "durations of 10m to 720h"),
        ("{limits: {displacements: 2}}\n    planes: [quota, scheduling]", "planes [quota]"),
    ],
)
def test_a_budget_that_says_something_else_is_refused(tmp_path: Path, spec: str, said: str) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,gpus,duration_s\n0,1,10\n")
    (tmp_path / "study.yaml").write_text(STUDY % spec)
    with pytest.raises(UsageError) as refused:
        read_study(tmp_path / "study.yaml")
    assert said in str(refused.value)


def test_a_budget_of_a_study_is_that_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,gpus,duration_s\n0,1,10\n")
    spec = "{limits: {displacements: 2, lostGpuHours: 3}, window: 1h}"
    (tmp_path / "study.yaml").write_text(STUDY % spec)
    (policy,) = read_study(tmp_path / "study.yaml").policies
    (budget,) = policy.harm_budgets
    assert (budget.name, budget.displacements, budget.lost_device_seconds) == ("day", 2, 10_800)

"""Harm budgets in a replay: who waits longer with them, and what a study may say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Preempted
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.reporting.budget_costs import (
    TenantCosts,
    budget_line,
    compared_to,
    costs_of,
)
from reprieve.simulation.study import read_study
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND, classical, job, life_of, never, played, work
from tests.simulation.test_idle_replay import idle_job, idling

MINUTE = 60 * SECOND


def bounded(**limits: Any) -> PolicySpec:
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


@pytest.mark.parametrize("planes", [("scheduling",), ("quota", "scheduling")], ids=" and ".join)
def test_a_second_displacement_on_nodes_waits_until_the_window_has_passed(
    planes: tuple[str, ...],
) -> None:
    def on_nodes(policy: PolicySpec) -> PolicySpec:
        return replace(policy, planes=planes, places=True)

    assert waited(on_nodes(classical())) == [0, 0]
    assert waited(on_nodes(bounded(displacements=1))) == [0, 100 + 600 - 300]
    # Quota is no way around what nodes may not lose, nor the other way round.
    assert waited(on_nodes(bounded(displacements=0)))[0] > 0
    assert waited(on_nodes(bounded(lost_device_seconds=160)))[0] == 0
    assert waited(on_nodes(bounded(lost_device_seconds=159)))[0] > 0


def test_a_plan_on_nodes_takes_what_fits_of_an_account_and_finds_others() -> None:
    """Two of tenant a would go; one displacement is left, so that one of b goes beside it."""
    jobs = [
        job("a1", 0, 2, 5_000, "a"),
        job("a2", 0, 2, 5_000, "a"),
        job("b1", 1, 2, 5_000, "b", priority=1),
        job("b2", 1, 2, 5_000, "b", priority=1),
        job("urgent", 100, 4, 50, "b", priority=10),
    ]
    for spec, gone in ((classical(), ["a", "a"]), (bounded(displacements=1), ["a", "b"])):
        policy = replace(spec, planes=("scheduling",), places=True)
        done = replay(jobs, policy, work(), ("a", "b"), (1, 8))
        one = next(each for each in done.decisions if isinstance(each, Preempted))
        assert sorted(each.job.partition("/")[0] for each in one.victims) == gone


@pytest.mark.parametrize("planes", [("idle",), ("idle", "scheduling")], ids=" and ".join)
@pytest.mark.parametrize("always", [False, True])
def test_idle_work_is_spared_until_the_window_has_passed(
    planes: tuple[str, ...], always: bool
) -> None:
    jobs = [
        idle_job(job("first", 0, 4, 5_000), 10),
        idle_job(job("second", 0, 4, 5_000), 20),
        job("one", 200, 4, 5_000),
        job("two", 201, 4, 5_000),
    ]

    def gone(policy: PolicySpec) -> list[int]:
        done = replay(jobs, policy, work(), ("a",), (2, 4))
        return [each.at // SECOND for each in done.decisions if isinstance(each, Preempted)]

    plain = idling(always, planes)
    spared = replace(plain, harm_budgets=bounded(displacements=1).harm_budgets)
    before, after = gone(plain), gone(spared)
    assert before[1] < before[0] + 600
    assert after[0] == before[0]
    assert after[1] >= after[0] + 600
    # Nobody goes where nothing is allowed.
    none = replace(plain, harm_budgets=(replace(spared.harm_budgets[0], displacements=0),))
    assert not gone(none)


def test_the_sentence_says_who_waits_longer_for_budgets_and_who_loses_less() -> None:
    jobs = [
        job("long", 0, 4, 5_000, "a"),
        job("first", 100, 4, 50, "b", priority=10),
        job("second", 300, 4, 50, "b", priority=10),
    ]
    plain, spec = classical(), bounded(displacements=1)
    after = replace(spec, planes=("scheduling",), places=True)
    before = replace(plain, planes=("scheduling",), places=True)
    costs = [costs_of(replay(jobs, each, work(), ("a", "b"), (1, 4))) for each in (after, before)]
    line = budget_line(["day"], "classical", *costs)
    said = "with harm budget day, against classical: b would have waited 7 minutes more on day 1, a"
    assert line == f"{said} Thursday"
    less = [TenantCosts(lost=(("a", 3_600),)), TenantCosts(lost=(("a", 10_800), ("b", 60)))]
    assert budget_line(["day"], "x", *less).endswith("x: a would have lost 2.0 GPU hours less")
    assert budget_line(["day"], "classical", costs[1], costs[1]).endswith("loses less")
    assert compared_to(after, [never(), before]) == before
    assert compared_to(after, [never(), classical()]) == never()


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
    ],
)
def test_a_budget_that_says_something_else_is_refused(tmp_path: Path, spec: str, said: str) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,gpus,duration_s\n0,1,10\n")
    (tmp_path / "study.yaml").write_text(STUDY % spec)
    with pytest.raises(UsageError) as refused:
        read_study(tmp_path / "study.yaml")
    assert said in str(refused.value)


def test_the_report_has_the_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(
        "arrival_s,gpus,duration_s,priority\n0,4,5000,0\n100,4,50,10\n300,4,50,10\n"
    )
    text = STUDY.replace("  bounded:", "  plain: {}\n  bounded:")
    (tmp_path / "study.yaml").write_text(text % "{limits: {displacements: 0}, window: 1h}")
    done = CliRunner().invoke(simulate, [str(tmp_path / "study.yaml")])
    assert done.exit_code == 0, done.output
    assert "bounded: with harm budget day, against plain: " in done.output


def test_a_budget_of_a_study_is_that_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,gpus,duration_s\n0,1,10\n")
    spec = "{limits: {displacements: 2, lostGpuHours: 3}, window: 1h}"
    (tmp_path / "study.yaml").write_text(STUDY % spec)
    (policy,) = read_study(tmp_path / "study.yaml").policies
    (budget,) = policy.harm_budgets
    assert (budget.name, budget.displacements, budget.lost_device_seconds) == ("day", 2, 10_800)

"""`profile: best` beside constraints of members on one another, claims, budgets and short CPUs.

The least comes from integer programs (`bench.optimum_exact`).
"""

from __future__ import annotations

import json

import pytest

from bench.optimum_variants import main


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, float]]:
    assert main([*arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("variant", ["spread", "claims"])
def test_equal_members_that_constrain_each_other_cost_the_least_there_is(
    variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = figures(capsys, "--variants", variant, "--kinds", "equal", "--instances", "9")
    assert len(lines) == 2  # without and with harmOrder
    for line in lines:
        assert line["plans"] >= 5
        assert line["exact"] == line["gap_0"] == line["plans"]
        assert line["cheaper"] > 0


def test_under_budgets_and_with_short_cpus_lost_work_is_near_the_least(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--kinds", "mixed", "--instances", "3")
    for line in figures(capsys, "--variants", "budgets", "cpu", *arguments):
        assert line["cost_to_least"] <= 1.05
        assert line["most"] <= 1.5

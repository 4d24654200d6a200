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


@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        ("spread", "equal"),
        ("claims", "equal"),
        ("zones", "mixed"),
        ("budgets", "equal"),
        pytest.param("claims", "single", marks=pytest.mark.thorough),
        pytest.param("held", "mixed", marks=pytest.mark.thorough),
        pytest.param("apart", "equal", marks=pytest.mark.thorough),
        pytest.param("budgets", "mixed", marks=pytest.mark.thorough),
        pytest.param("cpu", "mixed", marks=pytest.mark.thorough),
        pytest.param("spread", "mixed", marks=pytest.mark.thorough),
        pytest.param("zones", "equal", marks=pytest.mark.thorough),
        pytest.param("budgets", "single", marks=pytest.mark.thorough),
        pytest.param("large", "mixed", marks=pytest.mark.thorough),
    ],
)
def test_no_victims_cost_less_and_the_plan_states_it(
    variant: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = figures(capsys, "--variants", variant, "--kinds", kind, "--instances", "9")
    assert len(lines) == 2  # without and with harmOrder
    for line in lines:
        assert line["plans"] >= 5
        assert line["exact"] == line["gap_0"] == line["plans"]
        assert not line.get("missed")
    assert sum(line["cheaper"] for line in lines) > 0


def test_members_that_fit_in_one_order_alone_are_placed_without_preemption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The search in orders ends before it finds it; what zones may have is worked out."""
    arguments = ("--variants", "zones", "--kinds", "mixed", "--first", "132", "--instances", "1")
    for line in figures(capsys, *arguments):
        assert (line["placed_free"], line["free_only_with_best"]) == (1, 1)

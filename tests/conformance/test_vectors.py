"""The published cases of each plane, one test a case: `plane/file.json::name`.

An engine is given the case's input only. Every case also runs as a shifted copy: other times, uids
and names in input and expectation alike. Cases of source `go-code` record the reference with its
hazards and run with all literal switches on, all others with the defaults. `DEVIATIONS.md` lists
the cases whose outcome differs on purpose; what stands there is asserted instead.
"""

from __future__ import annotations

import pytest

from reprieve.engine.idle.literal import LiteralSwitches
from tests.conformance import comparison, deviations, idle_decisions, idle_rules, shift
from tests.conformance.world import Json

RUNNERS = {
    "aggregation": idle_rules.run_aggregation,
    "api_version": idle_rules.run_api_version,
    "config_resolution": idle_rules.run_config_resolution,
    "controller_ref": idle_rules.run_controller_ref,
    "decision_evaluate": idle_decisions.run_evaluate,
    "decision_reconcile": idle_decisions.run_reconcile,
    "discovery": idle_rules.run_discovery,
    "duration_format": idle_rules.run_duration_format,
    "durations": idle_rules.run_durations,
    "has_gpu": idle_rules.run_has_gpu,
    "lease": idle_rules.run_lease,
    "metrics_scrape": idle_rules.run_metrics_scrape,
    "naming": idle_rules.run_naming,
    "owner_resolution": idle_rules.run_owner_resolution,
    "pending_gpu": idle_rules.run_pending_gpu,
    "pod_ownership": idle_rules.run_pod_ownership,
    "resources": idle_rules.run_resources,
    "resources_equal": idle_rules.run_resources_equal,
}
NOT_INPUT = ("name", "source", "ref", "note", "expect", "code_expect", "error")


@pytest.mark.parametrize("copy", ["as published", "shifted"])
def test_case(vector: tuple[str, str, Json], copy: str) -> None:
    case_id, plane_format, case = vector
    assert plane_format in RUNNERS, f"{case_id}: no engine for format {plane_format!r}"
    expected = deviations.EXPECTED.get(case_id, case["expect"])
    if plane_format == "metrics_scrape":
        expected = {**expected, "error": bool(case.get("error"))}
    given = {key: value for key, value in case.items() if key not in NOT_INPUT}
    if copy == "shifted":
        given, expected = shift.shifted(plane_format, given, expected)
    literal = LiteralSwitches.all() if case["source"] == "go-code" else LiteralSwitches()
    outcome = RUNNERS[plane_format](given, literal)
    assert comparison.differences(plane_format, outcome, expected) == []


def test_plane_without_engine(plane: str) -> None:
    pytest.skip(f"the plane {plane} has no engine yet")


def test_deviations_are_few_and_published(vector_ids: frozenset[str]) -> None:
    assert len(deviations.EXPECTED) <= 10
    if vector_ids:
        listed = {each for each in deviations.EXPECTED if each in vector_ids}
        documented = deviations.documented()
        assert listed <= documented

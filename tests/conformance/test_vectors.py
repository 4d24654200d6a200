"""The published cases of each plane, one test a case: `plane/file.json::name`.

An engine is given the case's input only. Every case also runs as a shifted copy: other times, uids
and names in input and expectation alike. Cases of source `go-code` record the reference with its
hazards and run with all literal switches on, all others with the defaults. `DEVIATIONS.md` lists
the cases whose outcome differs on purpose; what stands there is asserted instead.
"""

from __future__ import annotations

from typing import Any

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


def test_published(vector: tuple[str, str, Json]) -> None:
    _, plane_format, case = vector
    given, expected = _given(case), _expected(vector)
    assert _differences(plane_format, given, expected, case["source"]) == []


def test_shifted_copy(vector: tuple[str, str, Json]) -> None:
    _, plane_format, case = vector
    given, expected = shift.shifted(plane_format, _given(case), _expected(vector))
    assert _differences(plane_format, given, expected, case["source"]) == []


def test_plane_without_engine(plane: str) -> None:
    pytest.skip(f"the plane {plane} has no engine yet")


def test_deviations_are_few_and_published(vector_ids: frozenset[str]) -> None:
    assert len(deviations.EXPECTED) <= 10
    if vector_ids:
        listed = {each for each in deviations.EXPECTED if each in vector_ids}
        documented = deviations.documented()
        assert listed <= documented


def _given(case: Json) -> Json:
    return {key: value for key, value in case.items() if key not in NOT_INPUT}


def _expected(vector: tuple[str, str, Json]) -> Any:
    case_id, plane_format, case = vector
    assert plane_format in RUNNERS, f"{case_id}: no engine for format {plane_format!r}"
    expected = deviations.EXPECTED.get(case_id, case["expect"])
    if plane_format == "metrics_scrape":
        return {**expected, "error": bool(case.get("error"))}
    return expected


def _differences(plane_format: str, given: Json, expected: Any, source: str) -> list[str]:
    literal = LiteralSwitches.all() if source == "go-code" else LiteralSwitches()
    outcome = RUNNERS[plane_format](given, literal)
    return comparison.differences(plane_format, outcome, expected)

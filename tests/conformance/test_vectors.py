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
from tests.conformance import comparison, deviations, shift
from tests.conformance.runners import RUNNERS
from tests.conformance.world import Json

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


def test_deviations_are_few_and_documented() -> None:
    listed = {*deviations.EXPECTED, *deviations.WORKLOAD_AWARE}
    assert len(listed) <= 10
    assert listed == deviations.documented()


def _given(case: Json) -> Json:
    return {key: value for key, value in case.items() if key not in NOT_INPUT}


def _expected(vector: tuple[str, str, Json]) -> Any:
    case_id, plane_format, case = vector
    assert plane_format in RUNNERS, f"{case_id}: no engine for format {plane_format!r}"
    expected = deviations.EXPECTED.get(case_id.split("/", 1)[1], case["expect"])
    if plane_format == "metrics_scrape":
        return {**expected, "error": bool(case.get("error"))}
    return expected


def _differences(plane_format: str, given: Json, expected: Any, source: str) -> list[str]:
    literal = LiteralSwitches.all() if source == "go-code" else LiteralSwitches()
    outcome = RUNNERS[plane_format](given, literal)
    return comparison.differences(plane_format, outcome, expected, given)

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


@pytest.mark.parametrize(
    ("requests", "limits", "counts"), [("2", None, 3), (None, "2", 3), ("1", "2", 3), ("4", "2", 4)]
)
def test_limits_of_init_containers_count_whatever_a_case_says_of_them(
    requests: str | None, limits: str | None, counts: int
) -> None:
    """The reference reads no limits of init containers; its answer is not asserted then."""
    resources = {
        kind: {"amd.com/gpu": amount}
        for kind, amount in (("requests", requests), ("limits", limits))
        if amount is not None
    }
    main = {"name": "main", "resources": {"requests": {"amd.com/gpu": "3"}}}
    spec = {"containers": [main], "initContainers": [{"name": "init", "resources": resources}]}
    case: Json = {
        "name": "one",
        "source": "go-code",
        "pods": [{"metadata": {"name": "p"}, "spec": spec}],
        "expect": {"amd.com/gpu": max(3, int(requests or 0))},
    }
    vector = ("idle/resources.json::one", "resources", case)
    assert _expected(vector) == {"amd.com/gpu": counts}
    assert _differences("resources", _given(case), _expected(vector), case["source"]) == []


def test_deviations_are_few_and_documented() -> None:
    listed = {*deviations.EXPECTED, *deviations.WORKLOAD_AWARE}
    assert len(listed) <= 10
    assert listed == deviations.documented()


def _given(case: Json) -> Json:
    return {key: value for key, value in case.items() if key not in NOT_INPUT}


def _expected(vector: tuple[str, str, Json]) -> Any:
    case_id, plane_format, case = vector
    assert plane_format in RUNNERS, f"{case_id}: no engine for format {plane_format!r}"
    expected = deviations.idle(case_id.split("/", 1)[1], plane_format, case)
    if plane_format == "metrics_scrape":
        return {**expected, "error": bool(case.get("error"))}
    return expected


def _differences(plane_format: str, given: Json, expected: Any, source: str) -> list[str]:
    literal = LiteralSwitches.all() if source == "go-code" else LiteralSwitches()
    outcome = RUNNERS[plane_format](given, literal)
    return comparison.differences(plane_format, outcome, expected, given)

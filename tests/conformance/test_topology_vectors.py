"""The published cases of topology-aware scheduling, one test a file.

Assignments are compared with the order of their domains, reasons to the letter, and each assignment
is also encoded, compared with the recorded form, and read back. Of a cycle is compared who is
admitted, with which places, who is preempted and evicted, who waits where, and every message. Each
preemption of a cycle has also been held against its proof: a plan that fails it is a fault, and
the outcome another one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from reprieve.engine.topology.encoding import decoded, encoded
from tests.conformance.topology_cycles import run_cycle
from tests.conformance.topology_deviations import DEVIATIONS
from tests.conformance.topology_objects import FOLDER, Json, assignment, cases, decide, files

_DEVIATES: Final = frozenset[str]().union(*(e.cases for e in DEVIATIONS if not e.fault))

DOCS: Final = Path(__file__).parents[2] / "docs"
_ABSENT = pytest.param(
    None, id="absent", marks=pytest.mark.skip("no cases of topologies beside the project")
)


@pytest.mark.parametrize("path", files() or [_ABSENT], ids=lambda path: path.name.split(".")[0])
def test_published(path: Path) -> None:
    different = []
    for case in cases(path):
        if case["kind"] == "tasAssignment":
            expected = {name: _decision(each) for name, each in case["expect"].items()}
            answer = decide(case)
            if answer != expected:
                different.append((case["name"], answer, expected))
    assert different == []


@pytest.mark.parametrize("path", files() or [_ABSENT], ids=lambda path: path.name.split(".")[0])
def test_published_cycles(path: Path) -> None:
    different = []
    for case in cases(path):
        if case["kind"] in ("tasScheduler", "tasSchedulerGenerated"):
            outcome, expected = map(_alike, run_cycle(case))
            if (outcome == expected) == (case["name"] in _DEVIATES):
                different.append((case["name"], outcome, expected))
    assert different == []


@pytest.mark.parametrize("path", files() or [_ABSENT], ids=lambda path: path.name.split(".")[0])
def test_each_assignment_is_written_as_recorded_and_read_back(path: Path) -> None:
    different = []
    for case in cases(path):
        for name, listed, form in _written(case):
            assigned = assignment(listed)
            assert assigned is not None
            if encoded(assigned) != form or decoded(form) != assigned:
                different.append((case["name"], name))
    assert different == []


@pytest.mark.skipif(not files(), reason="no cases of topologies beside the project")
def test_each_deviation_is_listed_and_none_is_stale() -> None:
    recorded = {case["name"] for path in files() for case in cases(path)}
    listed = [name for each in DEVIATIONS if not each.fault for name in each.cases]
    assert len(listed) == len(set(listed))
    assert set(listed) <= recorded
    faults = {case["name"] for case in cases(FOLDER / "reference_faults.json")}
    assert faults == {name for each in DEVIATIONS if each.fault for name in each.cases}
    for each in DEVIATIONS:
        assert each.said in " ".join((DOCS / each.page).read_text().split())


@pytest.mark.skipif(not files(), reason="no cases of topologies beside the project")
def test_what_the_reference_answers_wrongly_is_answered_rightly() -> None:
    found = {case["name"]: case for case in cases(FOLDER / "reference_faults.json")}
    for case in found.values():
        expected = {name: _decision(each) for name, each in case["expect"].items()}
        assert decide(case) != expected, case["name"]
    balanced = decide(found["balanced-0344"])["ps0"]["assignment"]
    assert sum(each["count"] for each in balanced["domains"]) == 16
    assert all(each["count"] % 2 == 0 for each in balanced["domains"])
    # The block with the empty value has no node for these pods.
    assert decide(found["replacement-0167"])["ps0"]["assignment"] is None


def _alike(outcome: Json) -> Any:
    """Return an outcome without the resource that stands for all of a group in one message.

    The reference names whichever its map gives first.
    """
    return json.loads(
        re.sub(r"(nomination mapping for resource) [\w./-]+", r"\1", json.dumps(outcome))
    )


def _decision(expected: Json) -> Json:
    return {key: value for key, value in expected.items() if key != "encoded"}


def _written(case: Json) -> list[tuple[str, Json, Json]]:
    if case["kind"] == "tasEncoding":
        return [("", case["assignment"], case["expect"]["encoded"])]
    if case["kind"] != "tasAssignment":
        return []
    return [
        (name, each["assignment"], each["encoded"])
        for name, each in case["expect"].items()
        if each.get("encoded")
    ]

"""The published cases of topology-aware assignment and of its encoding, one test a file.

Assignments are compared with the order of their domains, reasons to the letter, and each assignment
is also encoded, compared with the recorded form, and read back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.engine.topology.encoding import decoded, encoded
from tests.conformance.topology_objects import Json, assignment, cases, decide, files

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
def test_each_assignment_is_written_as_recorded_and_read_back(path: Path) -> None:
    different = []
    for case in cases(path):
        for name, listed, form in _written(case):
            assigned = assignment(listed)
            assert assigned is not None
            if encoded(assigned) != form or decoded(form) != assigned:
                different.append((case["name"], name))
    assert different == []


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

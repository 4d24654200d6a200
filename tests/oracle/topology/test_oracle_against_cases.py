"""The oracle of topologies meets what the reference answered, case by case.

Only so may it judge the engine on cases that nobody recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.topology_objects import cases, files
from tests.oracle.topology.answers import answer

_ABSENT = pytest.param(
    None, id="absent", marks=pytest.mark.skip("no cases of topologies beside the project")
)


@pytest.mark.parametrize("path", files() or [_ABSENT], ids=lambda path: path.name.split(".")[0])
def test_published(path: Path) -> None:
    different = []
    for case in cases(path):
        if case["kind"] == "tasAssignment":
            expected = {
                name: {key: value for key, value in each.items() if key != "encoded"}
                for name, each in case["expect"].items()
            }
            found = answer(case)
            if found != expected:
                different.append((case["name"], found, expected))
    assert different == []

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
from tests.conformance.topology_objects import Json, assignment, cases, decide, files

#: With the gate TASFailedNodeReplacementFailFast off the reference lets a workload that lost a node
#: preempt others, whose nodes it may not use: they go in vain. Here nobody goes for it.
_PREEMPTS_FOR_A_REPLACEMENT: Final = {
    f"replace-{number}" for number in ("0024", "0037", "0067", "0068", "0078", "0081")
}
#: Assignments that wait for a ProvisioningRequest, which no check of ours makes.
_DELAYED: Final = {
    "workload in CQ with ProvisioningRequest gets QuotaReserved only; implicit defaulting"
}
_DEVIATES: Final = _PREEMPTS_FOR_A_REPLACEMENT | _DELAYED

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

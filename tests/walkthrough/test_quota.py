"""The scenario `quota` to its end, and what people then see of it with kubectl and `reprieve`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from reprieve.scenarios.catalogue import packaged
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.steps import Sleep
from tests.walkthrough.clusters import KINDS, cluster_of
from tests.walkthrough.conftest import Site, explained

SCENARIO = packaged("quota")
SHARES = (
    "custom-columns=QUEUE:.metadata.name,SHARE:.status.fairSharing.weightedShare,"
    "USED:.status.flavorsUsage[0].resources[0].total,"
    "BORROWED:.status.flavorsUsage[0].resources[0].borrowed"
)


@pytest.fixture(params=KINDS)
async def played(
    request: pytest.FixtureRequest, tmp_path: Path, kubectl: Path
) -> AsyncIterator[Site]:
    """The cluster as the scenario leaves it, with the operator still running."""
    operators: list[OperatorProcesses] = []
    # The pauses are for people.
    steps = tuple(step for step in SCENARIO.steps if not isinstance(step, Sleep))
    arguments = ("--controllers", "quota")
    async with cluster_of(
        request.param, SCENARIO.nodes, tmp_path, operator_arguments=arguments, kueue=True
    ) as found:
        try:
            result = await play_scenario(
                msgspec.structs.replace(SCENARIO, steps=steps),
                found.stage,
                on_operator=operators.append,
                keep_operator=True,
            )
            assert result.outcome is Outcome.PASSED, result.text()
            yield Site(found, kubectl)
        finally:
            for operator in operators:
                await operator.stop()


def rows(table: str) -> list[list[str]]:
    """The cells of a kubectl table without its last column, which is an age."""
    return [re.split(r" {2,}", line.rstrip()) for line in table.splitlines()]


@pytest.mark.slow
async def test_both_policies_are_played_and_tell_who_made_way_and_why(played: Site) -> None:
    assert rows(await played.says("get", "clusterqueues", "-o", SHARES)) == [
        ["QUEUE", "SHARE", "USED", "BORROWED"],
        ["team-a", "112", "5", "2"],
        ["team-b", "112", "4", "1"],
        ["team-c", "0", "0", "0"],
    ]
    assert rows(await played.says("get", "clusterqueues", "-o", "wide")) == [
        ["NAME", "COHORT", "STRATEGY", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
        ["team-a", "research", "BestEffortFIFO", "1", "5"],
        ["team-b", "research", "BestEffortFIFO", "5", "4"],
        ["team-c", "research", "BestEffortFIFO", "0", "0"],
    ]
    assert rows(await played.says("get", "localqueues", "-n", "research")) == [
        ["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
        ["a", "team-a", "1", "5"],
        ["b", "team-b", "5", "4"],
        ["c", "team-c", "0", "0"],
    ]
    workloads = rows(await played.says("get", "wl", "-n", "research"))
    assert workloads[0][:4] == ["NAME", "QUEUE", "RESERVED IN", "ADMITTED"]
    assert Counter((row[1], "True" in row) for row in workloads[1:]) == {
        ("a", True): 5,
        ("a", False): 1,
        ("b", True): 4,
        ("b", False): 5,
    }

    items = json.loads(await played.says("get", "preemptions", "-A", "-o", "json"))["items"]
    rules = [
        (each["spec"]["preemptor"]["name"], victim["subject"]["name"], victim["rule"])
        for each in items
        for victim in each["spec"]["victims"]
    ]
    plain = Counter(
        (re.sub(r"-\d?-?[0-9a-f]{5}$", "", who), re.sub(r"-\d?-?[0-9a-f]{5}$", "", whom), why)
        for who, whom, why in rules
    )
    assert plain == {
        ("job-a-batch", "job-b-batch", "InCohortReclamation"): 1,
        ("job-a-urgent", "job-a-batch", "InClusterQueue"): 1,
        ("job-c-large", "job-b-batch", "InCohortReclaimWhileBorrowing"): 1,
        ("job-c-large", "job-b-evaluate", "InCohortReclaimWhileBorrowing"): 1,
        ("job-a", "job-b", "InCohortReclamation"): 3,
        ("job-a", "job-b", "InCohortFairSharing"): 2,
    }
    for each in items:
        code, story = await explained(played, each["metadata"]["name"])
        assert code == 0 and ": the same plan" in story, story
        fair = re.match(r"job-a-\d-", each["spec"]["preemptor"]["name"]) is not None
        assert ("Shares before: team-a " in story) is fair
    told = await played.says(
        *("get", "events", "-n", "research", "--field-selector", "reason=EvictedDueToPreempted"),
        *("-o", 'jsonpath={range .items[*]}{.message}{"\\n"}{end}'),
    )
    assert len([line for line in told.splitlines() if "due to Fair Sharing within" in line]) == 2

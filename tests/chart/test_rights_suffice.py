"""The operator asks for nothing that the chart's roles do not give, in a whole tour."""

from __future__ import annotations

from pathlib import Path

from reprieve.scenarios.catalogue import DEFAULT, find
from reprieve.scenarios.embedded import OPERATOR_USER, embedded_stage
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from tests.chart.helm import Rendered, render

# What Kubernetes gives to every user that it knows (its role system:basic-user).
EVERYBODY = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}


async def test_the_tour_needs_no_right_that_the_chart_does_not_give(tmp_path: Path) -> None:
    tour = find(DEFAULT)
    async with embedded_stage(tour.nodes, tmp_path) as embedded:
        result = await play_scenario(tour, embedded.stage)
        asked = {
            tuple(question)
            for user, *question in embedded.cluster.requests
            if user == OPERATOR_USER and question[-1]
        }
    assert result.outcome is Outcome.PASSED, result.text()
    rendered = render(tmp_path)
    everywhere, at_home = rights(rendered, "ClusterRole"), rights(rendered, "Role")
    assert ("delete", "batch", "jobs") in asked
    assert ("watch", "reprieve.dev", "preemptions") in asked
    assert asked - everywhere - at_home - EVERYBODY == set()
    # What is watched is watched in all namespaces.
    assert {one for one in asked if one[0] == "watch"} - everywhere == set()


def rights(rendered: Rendered, kind: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rendered.one(kind)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

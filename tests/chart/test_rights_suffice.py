"""The operator runs with the chart's roles and no other right, through a whole tour."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from reprieve.scenarios.catalogue import DEFAULT, find
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from reprieve.units.durations import SECOND
from tests.chart.helm import CHART, Rendered, run_helm

# What Kubernetes gives to every user that it knows (its role system:basic-user).
EVERYBODY = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}
UNRELATED: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "unrelated"},
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
}


async def test_the_tour_passes_with_exactly_the_roles_of_the_chart(tmp_path: Path) -> None:
    rendered = installed_beside_the_stage()
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    roles = [obj for kind in kinds for obj in rendered.all(kind)]
    tour = find(DEFAULT)
    async with embedded_stage(
        tour.nodes, tmp_path, tls=True, rbac=True, operator_user=user, operator_roles=roles
    ) as embedded:
        result = await play_scenario(tour, embedded.stage)
        asked = {
            tuple(question)
            for who, *question in embedded.cluster.requests
            if who == user and question[-1]
        }
        refused = dict(embedded.cluster.refused)
    assert result.outcome is Outcome.PASSED, result.text()
    assert ("delete", "batch", "jobs") in asked
    assert ("watch", "reprieve.dev", "preemptions") in asked
    assert refused == {}
    everywhere, at_home = rights(rendered, "ClusterRole"), rights(rendered, "Role")
    assert asked - everywhere - at_home - EVERYBODY == set()
    # What is watched is watched in all namespaces.
    assert {one for one in asked if one[0] == "watch"} - everywhere == set()


async def test_without_its_roles_the_tour_does_not_pass(tmp_path: Path) -> None:
    """The proof can fail: with the roles of everybody alone nothing is done."""
    tour = find(DEFAULT)
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:nobody"
    async with embedded_stage(
        tour.nodes, tmp_path, rbac=True, operator_user=user, operator_roles=[UNRELATED]
    ) as embedded:
        stage = embedded.stage
        operator = stage.launch({"GPU_PREEMPTION_ENABLED": "true"}, 1)
        await operator.start()
        try:
            async with asyncio.timeout(30):
                while not embedded.cluster.refused:
                    await stage.clock.sleep(SECOND // 10)
        finally:
            await operator.stop()
        asked = {verb for who, verb, *_ in embedded.cluster.requests if who == user}
    assert {who for who, *_ in embedded.cluster.refused} == {user}
    assert "delete" not in asked


def installed_beside_the_stage() -> Rendered:
    """The chart as installed in the namespace that the stage gives to the operator."""
    text = run_helm("template", "r", str(CHART), "--namespace", OPERATOR_NAMESPACE)
    return Rendered(tuple(one for one in yaml.safe_load_all(text) if one))


def account(rendered: Rendered) -> str:
    return str(rendered.one("ServiceAccount")["metadata"]["name"])


def rights(rendered: Rendered, kind: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rendered.one(kind)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

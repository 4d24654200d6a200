"""A plan with a tenant's rights: what he may not list is told, and names nothing of others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reprieve.api.crds import kueue_crds
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from reprieve.planes.quota.watches import FLAVORS
from reprieve.whatif.happened import Undecided
from reprieve.whatif.questions.answer import Verdict
from tests.quota_plane.test_topologies import queues
from tests.scheduling.site import NAMESPACE, node, pod, priority_class, site
from tests.whatif.asking import ask

RBAC = "rbac.authorization.k8s.io"
TENANT = "tenant"


def role(name: str, rules: list[dict[str, Any]], namespace: str = "") -> list[dict[str, Any]]:
    """Return a role of these rules and its binding, in a namespace or cluster-wide."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": TENANT}],
        },
    ]


def reads(*resources: str) -> dict[str, Any]:
    return {"apiGroups": ["*"], "resources": list(resources), "verbs": ["get", "list"]}


ROLES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    *role("sees-nodes", [reads("nodes", "namespaces", "priorityclasses")]),
    *role(
        "own-pods",
        [reads("*"), {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
        NAMESPACE,
    ),
]


async def test_what_a_tenant_may_not_list_is_told_and_nothing_of_it_named(tmp_path: Path) -> None:
    async with site(
        [node("node-0")], tmp_path, rbac=True, operator_user=TENANT, operator_roles=ROLES
    ) as cluster:
        await cluster.client.create(NAMESPACES, {"metadata": {"name": "secret-team"}}, dict)
        await cluster.create(priority_class("low", 100), priority_class("high", 1000))
        hidden = pod("secret-model", 4, priority="low", nodeName="node-0")
        hidden["metadata"]["namespace"] = "secret-team"
        await cluster.client.create(PODS, hidden, dict)
        await asyncio.sleep(1)
        wanted = pod("mine", 2, priority="high")
        facts: dict[str, Any] = {"controllers": "scheduling", "names": ["default-scheduler"]}
        asked = await ask(cluster.embedded.operator_kubeconfig, wanted, **facts)
        # To him the node looks free.
        assert asked.answer.verdict is Verdict.STARTS
        told = list(plan_text(asked.answer, ["scheduling"]))
        assert told[0].endswith("(1 node, 0 pods); you may not list 6 of 7 namespaces and 8 kinds")
        assert len(told[0]) <= 120
        (sure,) = [line for line in told if line.startswith("how sure: ")]
        assert sure.startswith("how sure: figures are lower bounds: you may not list ")
        assert not any("secret-model" in line for line in told)
        unseen = {each.resource.plural: each.namespaces for each in asked.answer.snapshot.unseen}
        assert "secret-team" in unseen["pods"] and NAMESPACE not in unseen["pods"]
        assert "nodes" not in unseen
        whole = await ask(cluster.embedded.kubeconfig, wanted, **facts)
        assert whole.answer.verdict is Verdict.STARTS_WITH_VICTIMS
        assert [each.name for each in whole.answer.victims] == ["secret-model"]


async def test_who_may_not_list_nodes_is_refused_and_not_told_that_nothing_fits(
    tmp_path: Path,
) -> None:
    roles = [each for each in ROLES if each.get("metadata", {}).get("name") != "sees-nodes"]
    assert len(roles) == len(ROLES) - 2
    facts: dict[str, Any] = {"controllers": "scheduling", "names": ["default-scheduler"]}
    async with site(
        [node("node-0")], tmp_path, rbac=True, operator_user=TENANT, operator_roles=roles
    ) as cluster:
        with pytest.raises(Undecided, match="without nodes, which you may not list; the rule to"):
            await ask(cluster.embedded.operator_kubeconfig, pod("mine", 2), **facts)
        seen = await ask(cluster.embedded.kubeconfig, pod("mine", 2), **facts)
        assert seen.answer.verdict is Verdict.STARTS


async def test_who_may_not_list_nodes_is_refused_where_the_quota_plane_alone_places_pods(
    tmp_path: Path,
) -> None:
    cluster_wide = ["namespaces", "priorityclasses", "resourceflavors", "topologies"]
    cluster_wide += ["clusterqueues", "cohorts", "workloadpriorityclasses", "admissionchecks"]
    roles = [ROLES[0], *role("sees-queues", [reads(*cluster_wide)]), *ROLES[3:]]
    async with site(
        [node("node-0")], tmp_path, rbac=True, operator_user=TENANT, operator_roles=roles
    ) as cluster:
        mine, admin = cluster.embedded.operator_kubeconfig, cluster.embedded.kubeconfig
        for crd in kueue_crds():
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
        assert (await ask(mine, pod("mine", 2))).answer.verdict is None
        topology, flavor = queues()[:2]
        topologies = Resource("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", False)
        await cluster.client.create(topologies, topology, dict)
        await cluster.client.create(FLAVORS, flavor, dict)
        with pytest.raises(Undecided, match="without nodes, which you may not list; the rule to"):
            await ask(mine, pod("mine", 2))
        assert (await ask(admin, pod("mine", 2))).answer.verdict is None

"""The operator runs with the chart's roles and no other right, through a whole tour."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kubeworld.units.durations import SECOND
from reprieve.execution.writes.reserve import VOLUME_CLAIMS, VOLUMES
from reprieve.kube.resource import DEVICE_CLAIMS, DISRUPTIONS, Resource
from reprieve.scenarios.catalogue import DEFAULT, find
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from tests.chart.helm import CHART, Rendered, installed, run_helm
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Site, group, node, pod, site

# What Kubernetes gives to every user that it knows (its role system:basic-user).
EVERYBODY = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}
#: Nobody is told here before work is evicted; what is left of earlier notices is looked for once.
OF_NOTICES = {
    (verb, "reprieve.dev", "preemptionnotices") for verb in ("list", "create", "patch", "delete")
}
NOT_ON_THE_TOUR = {
    ("patch", "reprieve.dev", "harmbudgets/status"),  # there is no budget
    ("get", "", "nodes"),
    # Statuses of the older kinds of PodGroup, of which there are none here.
    ("get", "scheduling.sigs.k8s.io", "podgroups"),
    ("get", "scheduling.x-k8s.io", "podgroups"),
    ("patch", "scheduling.sigs.k8s.io", "podgroups"),
    ("patch", "scheduling.x-k8s.io", "podgroups/status"),
    # Listed, and not there.
    ("watch", "scheduling.sigs.k8s.io", "elasticquotas"),
    ("watch", "scheduling.x-k8s.io", "elasticquotas"),
    ("update", "", "pods/finalizers"),  # asked by an admission plugin of some clusters
}
# Needed on the tour or not, as it comes.
BY_CHANCE = {
    # Disruptions that are old, looked for after a minute.
    ("list", "reprieve.dev", "disruptions"),
    ("delete", "reprieve.dev", "disruptions"),
    ("patch", "reprieve.dev", "disruptions"),  # of work that runs again
    ("patch", "events.k8s.io", "events"),  # a series of equal ones
    ("get", "", "pods"),  # after a conflict or a lost answer
    ("delete", "resource.k8s.io", "resourceclaims"),  # of extended resources, made in vain
}
DRIVER = "gpu.example.com"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WITH_EXTENDED: dict[str, Any] = {
    "name": "c",
    "image": "registry.example/app:1",
    "resources": {"limits": {"example.com/gpu": "1"}},
}
UNRELATED: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "unrelated"},
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
}


async def test_the_tour_passes_with_exactly_the_roles_of_the_chart(tmp_path: Path) -> None:
    rendered = installed_beside_the_stage()
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    tour = find(DEFAULT)
    async with embedded_stage(
        tour.nodes,
        tmp_path,
        tls=True,
        rbac=True,
        operator_user=user,
        operator_roles=roles_of(rendered),
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
            async with asyncio.timeout(60):
                while not embedded.cluster.refused:
                    await stage.clock.sleep(SECOND // 10)
        finally:
            await operator.stop()
        asked = {verb for who, verb, *_ in embedded.cluster.requests if who == user}
    assert {who for who, *_ in embedded.cluster.refused} == {user}
    assert "delete" not in asked


async def test_gangs_volumes_and_devices_are_scheduled_with_exactly_the_roles_of_the_chart(
    tmp_path: Path,
) -> None:
    rendered = installed_beside_the_stage("--set", "controllers={scheduling}")
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    rights_of_user: dict[str, Any] = {"tls": True, "rbac": True, "operator_user": user}
    nodes = [node("node-0", 8), node("node-1", 8)]
    async with site(
        nodes, tmp_path, kubelet=True, operator_roles=roles_of(rendered), **rights_of_user
    ) as cluster:
        await cluster.operator("-v", "6")
        await storage_and_devices(cluster)
        await cluster.classes()
        await cluster.create(group("low", min_count=4, mode="all", priority="low"))
        await cluster.create(*(pod(f"low-{i}", 3, group="low", priority="low") for i in range(4)))
        await cluster.until_placed({f"low-{i}" for i in range(4)})
        await cluster.create(
            pod("volume", 1, volumes=[claimed("late")]),
            pod("local", 1, volumes=[claimed("early")]),
            pod("device", 1, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
            pod("extended", 0, containers=[WITH_EXTENDED]),
        )
        await cluster.until_placed({"volume", "local", "device", "extended"})
        await cluster.until_placed(await cluster.gang(2, 5))
        embedded = cluster.embedded.cluster

        async def told() -> bool:
            scheduled = {"PodGroupInitiallyScheduled"}
            page = await cluster.client.list(POD_GROUPS, dict, namespace=NAMESPACE)
            return all(
                scheduled & {each["type"] for each in group["status"].get("conditions", ())}
                for group in page.items
            )

        await cluster.until("the groups have their conditions", told)

        async def disrupted() -> bool:
            page = await cluster.client.list(DISRUPTIONS, dict, namespace=NAMESPACE)
            return len(page.items) == 1

        await cluster.until("the tenant of the victims is told", disrupted)
        (intent,) = await cluster.intents()
        assert len(intent["spec"]["victims"]) == 4
        asked = {
            tuple(question) for who, *question in embedded.requests if who == user and question[-1]
        }
        refused = dict(embedded.refused)
    assert refused == {}
    everywhere, at_home = rights(rendered, "ClusterRole"), rights(rendered, "Role")
    assert asked - everywhere - at_home - EVERYBODY == set()
    assert {one for one in asked if one[0] == "watch"} - everywhere == set()
    # Nothing is granted beyond that, but for what this tour does not come to.
    assert everywhere - asked - BY_CHANCE - OF_NOTICES == NOT_ON_THE_TOUR


async def test_shared_nodes_need_the_one_right_that_the_chart_adds_for_them(
    tmp_path: Path,
) -> None:
    shared = ("--set", "controllers={scheduling}", "--set", "scheduling.sharedNodes=true")
    rendered = installed_beside_the_stage(*shared)
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    async with site(
        [node("node-0", 8)],
        tmp_path,
        kubelet=True,
        operator_roles=roles_of(rendered),
        rbac=True,
        operator_user=user,
    ) as cluster:
        await cluster.operator("--shared-nodes")
        await cluster.create(pod("alone", 1))
        await cluster.until_placed({"alone"})
        embedded = cluster.embedded.cluster
        asked = {tuple(question) for who, *question in embedded.requests if who == user}
        assert embedded.refused == {}
    assert ("patch", "", "nodes") in asked
    plain = installed_beside_the_stage("--set", "controllers={scheduling}")
    added = rights(rendered, "ClusterRole") - rights(plain, "ClusterRole")
    assert added == {("patch", "", "nodes")}


async def storage_and_devices(cluster: Site) -> None:
    """A disk at node-0, a class that provisions, three devices, and claims for all of them."""
    create = cluster.client.create
    for name, provisioner in (("late", "disks.example.com"), ("early", NO_PROVISIONER)):
        provision = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await create(wide("storage.k8s.io", "storageclasses", "StorageClass"), provision, dict)
        claim = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "storageClassName": name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await create(VOLUME_CLAIMS, claim, dict)
    at_node = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}]
    disk = {
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "early",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": at_node}]}},
        },
    }
    await create(VOLUMES, disk, dict)
    devices = {
        "driver": DRIVER,
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{i}"} for i in range(3)],
    }
    slices = wide("resource.k8s.io", "resourceslices", "ResourceSlice")
    await create(slices, {"metadata": {"name": "gpus"}, "spec": devices}, dict)
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    gpu = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": selectors, "extendedResourceName": "example.com/gpu"},
    }
    await create(wide("resource.k8s.io", "deviceclasses", "DeviceClass"), gpu, dict)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    wanted = {
        "metadata": {"name": "gpu", "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }
    await create(DEVICE_CLAIMS, wanted, dict)


def wide(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False)


def claimed(claim: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def installed_beside_the_stage(*arguments: str) -> Rendered:
    """The chart as installed in the namespace that the stage gives to the operator."""
    text = run_helm("template", "r", str(CHART), "--namespace", OPERATOR_NAMESPACE, *arguments)
    return installed(text)


def roles_of(rendered: Rendered) -> list[dict[str, Any]]:
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    return [obj for kind in kinds for obj in rendered.all(kind)]


def account(rendered: Rendered) -> str:
    return str(rendered.one("ServiceAccount")["metadata"]["name"])


def rights(rendered: Rendered, kind: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for role in rendered.all(kind)
        if not role["metadata"]["name"].endswith("-disruptions-view")  # the tenants'
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

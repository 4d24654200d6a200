"""A gang that needs a rack, on a real API server with the real Job controller; kubelets are played.

The definitions' rules, the gate, and the write that places a pod are judged by the API server, and
pods are made by kube-controller-manager as it likes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import NODES, PODS, Resource
from tests.integration.control_plane import Binaries
from tests.integration.test_surplus import FLAVORS, LOCAL_QUEUES, until
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    cluster_queue,
    flavor,
    local_queue,
    priority_class,
)
from tests.quota_plane.test_topologies import HOST, RACK, asking, topology
from tests.reliability.audit import read
from tests.reliability.stand import OPERATOR, Stand, stand

TOPOLOGIES = Resource("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", False)
CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)


@pytest.mark.slow
async def test_gangs_get_racks_and_only_who_is_in_the_way_of_one_is_preempted(
    controllers: Binaries, tmp_path: Path
) -> None:
    async with stand(controllers, tmp_path, nodes=4, cpus=8) as cluster:
        page = await cluster.client.list(NODES, dict)
        names = sorted(each["metadata"]["name"] for each in page.items)
        for name, rack in zip(names, ("r1", "r1", "r2", "r3"), strict=True):
            labels = {"pool": "gpu", RACK: rack, HOST: name}
            await cluster.client.patch(NODES, "", name, {"metadata": {"labels": labels}}, dict)
        operators = cluster.operators(
            *("--controllers", "quota,scheduling", "--scheduler-name", "default-scheduler"),
        )
        await operators.start()
        try:
            await cluster.create(TOPOLOGIES, topology())
            await cluster.create(FLAVORS, flavor(topologyName="racks", nodeLabels={"pool": "gpu"}))
            rules = {"withinClusterQueue": "LowerPriority"}
            await cluster.create(CLUSTER_QUEUES, cluster_queue("team", 100, preemption=rules))
            await cluster.create(LOCAL_QUEUES, local_queue("q", "team"))
            await cluster.create(CLASSES, priority_class("high", 10))
            await cluster.client.create(JOBS, asking("gang", 12), dict)
            await until("the gang is in the rack of two nodes", is_on(cluster, "gang", names[:2]))
            for name, where in (("two", names[2]), ("three", names[3])):
                await cluster.client.create(JOBS, asking(name, 6, level=HOST), dict)
                await until(f"{name} has a node of its own", is_on(cluster, name, [where]))
            await cluster.client.create(JOBS, asking("urgent", 5, priority="high"), dict)
            await until(
                "the urgent one has the node of one of them",
                lambda: has_one_of(cluster, "urgent", names[2:]),
            )
            left = [name for name in ("two", "three") if await on(cluster, name)]
            assert len(left) == 1
            assert await on(cluster, "gang") == set(names[:2])
        finally:
            await operators.stop()


PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
SLICES = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"


@pytest.mark.slow
async def test_levels_slices_and_a_failed_node_as_kubectl_and_the_audit_log_have_them(
    controllers: Binaries, tmp_path: Path, kubectl: Path
) -> None:
    async with stand(controllers, tmp_path, nodes=6, cpus=4) as cluster:
        page = await cluster.client.list(NODES, dict)
        names = sorted(each["metadata"]["name"] for each in page.items)
        for name, rack in zip(names, ("r1", "r1", "r1", "r2", "r2", "r2"), strict=True):
            labels = {"pool": "gpu", RACK: rack, HOST: name}
            await cluster.client.patch(NODES, "", name, {"metadata": {"labels": labels}}, dict)
        operators = cluster.operators(
            *("--controllers", "quota,scheduling", "--scheduler-name", "default-scheduler"),
        )
        await operators.start()
        try:
            await cluster.create(TOPOLOGIES, topology())
            await cluster.create(FLAVORS, flavor(topologyName="racks", nodeLabels={"pool": "gpu"}))
            await cluster.create(CLUSTER_QUEUES, cluster_queue("team", 100))
            await cluster.create(LOCAL_QUEUES, local_queue("q", "team"))
            # Eight pods fill two hosts; the third of their rack is left for a failure.
            await cluster.client.create(JOBS, asking("gang", 8), dict)
            await until("the gang has two hosts of a rack", is_on(cluster, "gang", names[:2]))
            # Slices of two, each on one host, in the other rack as far as there is room.
            sliced = asking("sliced", 6)
            notes = {PREFERRED: RACK, SLICES: HOST, SLICE_SIZE: "2"}
            sliced["spec"]["template"]["metadata"] = {"annotations": notes}
            await cluster.client.create(JOBS, sliced, dict)
            await until("its slices have hosts", lambda: has_slices(cluster, "sliced", 6, 2))
            assert await on(cluster, "sliced") < set(names[3:])
            stay = await pods_on(cluster, "gang", names[0])
            assert len(stay) == 4
            await lose(cluster, names[1])
            moved = [names[0], names[2]]
            await until("the lost pods have the third host", is_on(cluster, "gang", moved))
            assert stay == await pods_on(cluster, "gang", names[0])
            listed = await asyncio.create_subprocess_exec(
                *(kubectl, "--kubeconfig", str(tmp_path / "kubeconfig")),
                *("get", "workloads.kueue.x-k8s.io", "-A", "-o", "json"),
                stdout=asyncio.subprocess.PIPE,
            )
            told, _ = await listed.communicate()
            items = json.loads(told)["items"]
            assert len(items) == 2
            for workload in items:
                assert "unhealthyNodes" not in workload["status"]
                (assigned,) = workload["status"]["admission"]["podSetAssignments"]
                assert assigned["topologyAssignment"]["levels"] == [HOST]
        finally:
            await operators.stop()
        entries = read(tmp_path / "audit.log")
        ended = {
            each.object_ref.name
            for each in entries
            if each.verb == "delete"
            and each.object_ref is not None
            and each.object_ref.resource == "pods"
            and each.user.username == OPERATOR
        }
        assert ended == set()


HOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
RANK = "batch.kubernetes.io/job-completion-index"
VALUES = {
    "quota": {
        "webhooks": {"url": "https://127.0.0.1:0"},
        "configuration": {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "integrations": {"frameworks": ["batch/job"]},
        },
    }
}


@pytest.mark.slow
async def test_with_webhooks_ranks_are_neighbours_also_after_a_node_is_replaced(
    controllers: Binaries, tmp_path: Path, kubectl: Path
) -> None:
    config = tmp_path / "values.yaml"
    config.write_text(yaml.safe_dump(VALUES))
    async with stand(controllers, tmp_path, nodes=6, cpus=4) as cluster:
        page = await cluster.client.list(NODES, dict)
        names = sorted(each["metadata"]["name"] for each in page.items)
        for name, rack in zip(names, ("r1", "r1", "r1", "r2", "r2", "r2"), strict=True):
            labels = {"pool": "gpu", RACK: rack, HOST: name}
            await cluster.client.patch(NODES, "", name, {"metadata": {"labels": labels}}, dict)
        operators = cluster.operators(
            *("--controllers", "quota,scheduling", "--scheduler-name", "default-scheduler"),
            *("--config", str(config)),
        )
        await operators.start()
        try:
            await until("the webhooks are registered", lambda: registered(cluster))
            await cluster.create(TOPOLOGIES, topology())
            await cluster.create(FLAVORS, flavor(topologyName="racks", nodeLabels={"pool": "gpu"}))
            await cluster.create(CLUSTER_QUEUES, cluster_queue("team", 100))
            await cluster.create(LOCAL_QUEUES, local_queue("q", "team"))
            sizeless = asking("sizeless", 8)
            notes = sizeless["spec"]["template"]["metadata"]["annotations"]
            notes[SLICES] = HOST
            with pytest.raises(ApiError) as refused:
                await cluster.client.create(JOBS, sizeless, dict)
            assert f"must be set when '{SLICES}' is specified" in str(refused.value)
            gang = asking("gang", 8, suspend=False)
            gang["spec"]["completionMode"] = "Indexed"
            await cluster.client.create(JOBS, gang, dict)
            await until("the gang has two hosts of a rack", is_on(cluster, "gang", names[:2]))
            first = {number: names[number // 4] for number in range(8)}
            assert await by_rank(cluster, "gang") == first
            uids = await pods_on(cluster, "gang", names[0])
            domains = [{"values": [name], "count": 4} for name in names[:2]]
            assert await old_assignment(kubectl, tmp_path) == {"levels": [HOST], "domains": domains}
            await lose(cluster, names[1])
            moved = [names[0], names[2]]
            await until("the lost pods have the third host", is_on(cluster, "gang", moved))
            after = {number: moved[number // 4] for number in range(8)}
            assert await by_rank(cluster, "gang") == after
            assert await pods_on(cluster, "gang", names[0]) == uids
            domains = [{"values": [name], "count": 4} for name in moved]
            assert await old_assignment(kubectl, tmp_path) == {"levels": [HOST], "domains": domains}
            await columns_are_shown(kubectl, tmp_path)
        finally:
            await operators.stop()
        entries = [e for e in read(tmp_path / "audit.log") if e.user.username == OPERATOR]
        assert [e.object_ref for e in entries if e.what == ("delete", "pods", "")] == []
        refusals = {e.what: e.code for e in entries if e.code in (400, 403, 422)}
        assert {key for key in refusals if key[1] in ("workloads", "jobs", "pods")} == set()


async def registered(cluster: Stand) -> bool:
    """Tell whether our webhooks judge Jobs."""
    try:
        found = await cluster.client.get(HOOKS, "", "reprieve-quota", dict)
    except NotFound:
        return False
    return any(each["name"] == "vjob.kb.io" for each in found["webhooks"])


async def by_rank(cluster: Stand, job: str) -> dict[int, str]:
    """Return the node of each of a job's pods that are not ending, by its completion index."""
    page = await cluster.client.list(
        PODS, dict, namespace=NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={job}"
    )
    found = [pod for pod in page.items if not pod["metadata"].get("deletionTimestamp")]
    ranks = {int(each["metadata"]["labels"][RANK]): each["spec"]["nodeName"] for each in found}
    assert len(ranks) == len(found)
    return dict(sorted(ranks.items()))


async def told(kubectl: Path, folder: Path, *arguments: str) -> str:
    """Return what kubectl prints."""
    command = [str(kubectl), "--kubeconfig", str(folder / "kubeconfig"), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def old_assignment(kubectl: Path, folder: Path) -> object:
    """Return the topology assignment of the one Workload, as v1beta1 lists its domains."""
    where = ("get", "workloads.v1beta1.kueue.x-k8s.io", "-n", NAMESPACE, "-o", "json")
    (workload,) = json.loads(await told(kubectl, folder, *where))["items"]
    assert workload["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    return assigned["topologyAssignment"]


async def columns_are_shown(kubectl: Path, folder: Path) -> None:
    """Check what `kubectl get` shows of topologies, of their queue and of the Workload."""
    for version in ("v1beta1", "v1beta2"):
        shown = await told(kubectl, folder, "get", f"topologies.{version}.kueue.x-k8s.io")
        assert [row.split()[0] for row in shown.splitlines()] == ["NAME", "racks"]
        assert shown.split()[1] == "AGE"
    shown = await told(kubectl, folder, "get", "workloads.kueue.x-k8s.io", "-n", NAMESPACE)
    header, row = (line.split() for line in shown.splitlines())
    assert header == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
    assert row[1:4] == ["q", "team", "True"]
    levels = ("get", "topologies.v1beta1.kueue.x-k8s.io", "racks", "-o", "json")
    found = json.loads(await told(kubectl, folder, *levels))
    assert found["spec"]["levels"] == [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    assert found["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]


async def has_slices(cluster: Stand, job: str, pods: int, size: int) -> bool:
    """Tell whether all pods of a job are bound, on each host a multiple of a slice."""
    page = await cluster.client.list(
        PODS, dict, namespace=NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={job}"
    )
    counts = Counter(pod["spec"].get("nodeName", "") for pod in page.items)
    return (
        counts.total() == pods
        and "" not in counts
        and not any(count % size for count in counts.values())
    )


async def pods_on(cluster: Stand, job: str, node: str) -> set[str]:
    """Return the uids of a job's pods on a node."""
    page = await cluster.client.list(
        PODS, dict, namespace=NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={job}"
    )
    return {p["metadata"]["uid"] for p in page.items if p["spec"].get("nodeName") == node}


async def lose(cluster: Stand, node: str) -> None:
    """Let a node be gone, and the pods on it, as the node's controllers do."""
    await cluster.client.delete(NODES, "", node)
    page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
    for pod in page.items:
        if pod["spec"].get("nodeName") == node:
            await cluster.client.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_seconds=0)


async def on(cluster: Stand, job: str) -> set[str]:
    """Return the nodes of a job's pods that are not ending."""
    page = await cluster.client.list(
        PODS, dict, namespace=NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={job}"
    )
    return {
        pod["spec"].get("nodeName", "")
        for pod in page.items
        if not pod["metadata"].get("deletionTimestamp")
    }


def is_on(cluster: Stand, job: str, nodes: list[str]) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return await on(cluster, job) == set(nodes)

    return there


async def has_one_of(cluster: Stand, job: str, nodes: list[str]) -> bool:
    where = await on(cluster, job)
    return len(where) == 1 and where <= set(nodes)

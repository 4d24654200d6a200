"""DaemonSets and the EndpointSlices of Services."""

from __future__ import annotations

from typing import Any

from kubelocal.tests.machines.cluster import Cluster, gpu_node, pod, running, template, workload

NODES = [gpu_node("a"), gpu_node("b"), gpu_node("c", labels={"pool": "spare"})]
SLICES = "endpointslices.discovery.k8s.io"


async def test_a_daemon_set_has_one_pod_on_every_node_that_takes_it() -> None:
    async with running(NODES) as cluster:
        await cluster.create(workload("DaemonSet", "agent", 0))
        await cluster.wait(2)
        assert sorted(map(str, cluster.nodes_of().values())) == ["a", "b", "c"]
        assert set(cluster.phases().values()) == {"Running"}
        status = cluster.one("daemonsets.apps", "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)
        await cluster.delete("nodes", "b")
        await cluster.wait(60)
        assert sorted(map(str, cluster.nodes_of().values())) == ["a", "c"]


async def test_a_daemon_set_keeps_to_its_node_selector_and_stays_on_cordoned_nodes() -> None:
    async with running(NODES) as cluster:
        pod_spec = {"nodeSelector": {"pool": "spare"}}
        await cluster.create(workload("DaemonSet", "agent", 0, pod_spec=pod_spec))
        await cluster.wait(2)
        assert list(cluster.nodes_of().values()) == ["c"]
        before = cluster.names("pods")
        taint = {"key": "x", "effect": "NoSchedule"}
        await cluster.change("nodes", "c", unschedulable=True, taints=[taint])
        await cluster.wait(2)
        assert cluster.names("pods") == before


async def test_a_daemon_set_replaces_pods_of_an_older_template_one_at_a_time() -> None:
    async with running(NODES) as cluster:
        await cluster.create(workload("DaemonSet", "agent", 0))
        await cluster.wait(2)
        fewest = 3
        body = template(0, labels={"app": "agent"})
        body["spec"]["containers"][0]["image"] = "example.com/main:2"
        await cluster.change("daemonsets.apps", "agent", template=body)
        for _ in range(20):
            await cluster.wait(0.5)
            ready = list(cluster.phases().values()).count("Running")
            fewest = min(fewest, ready)
        images = {p["spec"]["containers"][0]["image"] for p in cluster.all("pods")}
        assert images == {"example.com/main:2"}
        assert fewest == 2
        assert cluster.one("daemonsets.apps", "agent")["status"]["updatedNumberScheduled"] == 3


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec},
    }


def endpoints(cluster: Cluster) -> dict[str, bool]:
    """Return the pods in the slices of the Service, and whether each is ready."""
    return {
        endpoint["targetRef"]["name"]: endpoint["conditions"]["ready"]
        for found in cluster.all(SLICES)
        if found["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
        for endpoint in found["endpoints"]
    }


async def test_a_service_has_the_addresses_of_the_pods_that_it_selects() -> None:
    async with running() as cluster:
        await cluster.create(service(selector={"app": "web"}), pod("other"))
        await cluster.create(workload("Deployment", "web", 1, replicas=2))
        await cluster.wait(2)
        names = {name for name in cluster.names("pods") if name != "other"}
        assert endpoints(cluster) == dict.fromkeys(names, True)
        [found] = cluster.all(SLICES)
        assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        assert found["metadata"]["ownerReferences"][0]["name"] == "web"
        first = sorted(names)[0]
        await cluster.delete("pods", first)
        await cluster.wait(0.2)
        assert endpoints(cluster)[first] is False
        await cluster.wait(3)
        assert first not in endpoints(cluster)
        assert len(endpoints(cluster)) == 2
        await cluster.delete("services", "web")
        await cluster.wait(2)
        assert cluster.all(SLICES) == []


async def test_a_slice_holds_a_hundred_addresses_and_a_named_port_is_looked_up() -> None:
    async with running([gpu_node("a", allocatable={"pods": 500})]) as cluster:
        ports = [{"port": 80, "targetPort": "web"}]
        await cluster.create(service(selector={"app": "web"}, ports=ports))
        for index in range(120):
            one = pod(f"p-{index}", labels={"app": "web"})
            one["spec"]["containers"][0]["ports"] = [{"name": "web", "containerPort": 9000}]
            await cluster.create(one)
        for _ in range(20):
            await cluster.wait(0.5)
        found = cluster.all(SLICES)
        assert sorted(len(s["endpoints"]) for s in found) == [20, 100]
        assert all(s["ports"][0]["port"] == 9000 for s in found)


async def test_a_service_without_a_selector_is_left_alone() -> None:
    async with running() as cluster:
        await cluster.create(service(), pod("p"))
        await cluster.wait(2)
        assert cluster.all(SLICES) == []

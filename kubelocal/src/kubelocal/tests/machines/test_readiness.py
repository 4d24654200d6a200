"""Readiness, heartbeats, evictions by taints, and failures on command."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.machines.cluster import Cluster, gpu_node, pod, running, sim, workload

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
ONE_CPU = {"requests": {"cpu": "1"}}
LEASE = ("leases.coordination.k8s.io", "kube-node-lease", "gpu-0")


def tolerating(seconds: int | None) -> list[dict[str, object]]:
    toleration: dict[str, object] = {"operator": "Exists", "effect": "NoExecute"}
    return [toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}]


def taints(cluster: Cluster) -> list[tuple[str, str]]:
    return [
        (t["key"], t["effect"]) for t in cluster.one("nodes", "gpu-0")["spec"].get("taints", [])
    ]


async def test_every_node_renews_its_lease_each_ten_seconds_spread_over_them() -> None:
    async with running([gpu_node("gpu-0"), gpu_node("gpu-1")], without=()) as cluster:
        await cluster.wait(31)
        leases = cluster.all("leases.coordination.k8s.io")
        assert [
            (o["metadata"]["namespace"], o["spec"]["holderIdentity"], o["spec"]["renewTime"][-10:])
            for o in leases
        ] == [
            ("kube-node-lease", "gpu-0", "30.000000Z"),
            ("kube-node-lease", "gpu-1", "25.000000Z"),
        ]
        [owner] = leases[0]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Node", "gpu-0")
        await cluster.delete("nodes", "gpu-0")
        await cluster.wait(10)
        assert cluster.names("leases.coordination.k8s.io") == ["gpu-1"]


async def test_a_node_that_renews_its_lease_no_more_is_unknown_until_it_does() -> None:
    async with running() as cluster:  # without heartbeats
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "other", "namespace": "kube-node-lease"},
            "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}, "spec": {}}
        await cluster.create(
            {**node, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        )
        await cluster.create(lease)
        await cluster.wait(30)
        assert cluster.conditions("nodes", "other")["Ready"][0] == "True"
        held = cluster.store.held["leases.coordination.k8s.io", "kube-node-lease", "other"]
        held["spec"]["renewTime"] = "2026-01-01T00:00:20.000000Z"
        await cluster.wait(30)
        assert cluster.conditions("nodes", "other")["Ready"][0] == "True"
        await cluster.wait(40)
        assert cluster.conditions("nodes", "other")["Ready"] == (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
        assert [t["key"] for t in cluster.one("nodes", "other")["spec"]["taints"]] == [
            "node.kubernetes.io/unreachable"
        ] * 2
        # A node that never had a Lease is nobody's to judge.
        assert cluster.conditions("nodes", "gpu-0")["Ready"][0] == "True"


async def test_a_node_told_to_be_not_ready_is_tainted_and_loses_what_does_not_tolerate_it() -> None:
    async with running() as cluster:
        await cluster.create(
            pod("at-once", 1),
            pod("later", 1, tolerations=tolerating(60)),
            pod("stays", 1, tolerations=tolerating(None)),
        )
        await cluster.wait(2)
        await cluster.annotate("nodes", "gpu-0", ready="false")
        await cluster.wait(0.5)
        assert cluster.conditions("nodes", "gpu-0")["Ready"][:2] == ("False", "KubeletNotReady")
        assert taints(cluster) == [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
        target = cluster.conditions("pods", "at-once")["DisruptionTarget"]
        assert target[:2] == ("True", "DeletionByTaintManager")
        assert cluster.conditions("pods", "later")["Ready"][0] == "False"
        await cluster.wait(50)
        assert cluster.names("pods") == ["later", "stays"]
        await cluster.create(pod("waits", 1))
        await cluster.wait(20)
        assert cluster.phases() == {"stays": "Running", "waits": "Pending"}
        await cluster.annotate("nodes", "gpu-0", ready="true")
        await cluster.wait(2)
        assert taints(cluster) == []
        assert cluster.phases() == {"stays": "Running", "waits": "Running"}
        assert cluster.conditions("pods", "stays")["Ready"][0] == "True"


async def test_pods_come_back_in_time_when_the_node_does() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", 1, tolerations=tolerating(60)))
        await cluster.wait(2)
        await cluster.annotate("nodes", "gpu-0", ready="false")
        await cluster.wait(40)
        await cluster.annotate("nodes", "gpu-0", ready="true")
        await cluster.wait(100)
        assert cluster.phases() == {"p": "Running"}
        assert cluster.conditions("pods", "p")["Ready"][0] == "True"


async def test_a_silent_kubelet_renews_nothing_and_ends_nothing() -> None:
    async with running(without=()) as cluster:
        await cluster.create(pod("p", 1))
        await cluster.wait(2)
        await cluster.annotate("nodes", "gpu-0", ready="unknown")
        await cluster.wait(60)
        renewed = cluster.store.held[LEASE]["spec"]["renewTime"]
        await cluster.wait(60)
        assert cluster.store.held[LEASE]["spec"]["renewTime"] == renewed
        assert {t: c[0] for t, c in cluster.conditions("nodes", "gpu-0").items()} == dict.fromkeys(
            ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready"), "Unknown"
        )
        assert taints(cluster) == [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        assert "deletionTimestamp" in cluster.one("pods", "p")["metadata"]
        await cluster.annotate("nodes", "gpu-0", ready="true")
        await cluster.wait(12)
        assert cluster.names("pods") == []
        assert cluster.store.held[LEASE]["spec"]["renewTime"] > renewed


async def test_replicas_move_to_a_node_that_is_ready() -> None:
    async with running([gpu_node("gpu-0"), gpu_node("gpu-1")]) as cluster:
        await cluster.create(workload("Deployment", "web", 1, replicas=4, pod_spec=ONE_CPU))
        await cluster.wait(2)
        assert set(cluster.nodes_of().values()) == {"gpu-0", "gpu-1"}
        await cluster.annotate("nodes", "gpu-0", ready="false")
        await cluster.wait(5)
        assert set(cluster.nodes_of().values()) == {"gpu-1"}
        assert len(cluster.phases()) == 4


@pytest.mark.parametrize("value", ["no", "", "True"])
async def test_a_word_that_is_no_readiness_is_named_and_changes_nothing(value: str) -> None:
    async with running() as cluster:
        await cluster.annotate("nodes", "gpu-0", ready=value)
        await cluster.wait(1)
        assert cluster.conditions("nodes", "gpu-0")["Ready"][0] == "True"
        [warning] = [e for e in cluster.all("events") if e["type"] == "Warning"]
        assert warning["message"] == (
            f"annotation sim.reprieve.dev/ready: {value!r}; accepted: true, false, unknown"
        )


async def test_latencies_drawn_from_distributions_stay_within_them_and_repeat() -> None:
    async def started(seed: int) -> dict[str, str]:
        async with running(seed=seed) as cluster:
            settings = sim(start_latency="uniform(2s, 40s)")
            for index in range(6):
                await cluster.create(pod(f"p-{index}", annotations=settings))
            await cluster.wait(1.9)
            assert set(cluster.phases().values()) == {"Pending"}
            await cluster.wait(40)
            assert set(cluster.phases().values()) == {"Running"}
            return {
                p["metadata"]["name"]: p["status"]["containerStatuses"][0]["state"]["running"][
                    "startedAt"
                ]
                for p in cluster.all("pods")
            }

    first = await started(1)
    assert len(set(first.values())) > 1
    assert await started(1) == first
    assert await started(2) != first


async def test_an_image_is_pulled_once_for_each_node() -> None:
    async with running() as cluster:
        slow = sim(pull_latency="30s", start_latency="1s")
        await cluster.create(pod("first", annotations=slow))
        await cluster.wait(30)
        assert cluster.phases() == {"first": "Pending"}
        await cluster.wait(2)
        await cluster.create(pod("second", annotations=slow))
        await cluster.wait(2)
        assert cluster.phases() == {"first": "Running", "second": "Running"}


async def test_pods_fail_on_command_with_the_code_or_the_reason_given() -> None:
    async with running() as cluster:
        never: dict[str, Any] = {"restartPolicy": "Never"}
        await cluster.create(
            pod("coded", **never), pod("starved", **never), pod("always"), pod("evicted")
        )
        await cluster.wait(2)
        for name, value in (
            ("coded", "7"),
            ("starved", "OOMKilled"),
            ("always", "3"),
            ("evicted", "Evicted"),
        ):
            await cluster.annotate("pods", name, fail=value)
        await cluster.wait(2)
        ended = {}
        for found in cluster.all("pods"):
            [container] = found["status"]["containerStatuses"]
            state = {**container["lastState"], **container["state"]}["terminated"]
            ended[found["metadata"]["name"]] = (
                found["status"]["phase"],
                state["exitCode"],
                state["reason"],
                container["restartCount"],
            )
        assert ended == {
            "coded": ("Failed", 7, "Error", 0),
            "starved": ("Failed", 137, "OOMKilled", 0),
            "always": ("Running", 3, "Error", 1),
            "evicted": ("Failed", 137, "Error", 0),
        }
        evicted = cluster.one("pods", "evicted")["status"]
        assert evicted["reason"] == "Evicted"
        target = cluster.conditions("pods", "evicted")["DisruptionTarget"]
        assert target[:2] == ("True", "TerminationByKubelet")


async def test_an_image_that_cannot_be_pulled_keeps_the_pod_waiting() -> None:
    async with running() as cluster:
        await cluster.create(pod("p", annotations=sim(fail="ImagePullBackOff")))
        await cluster.wait(60)
        [container] = cluster.one("pods", "p")["status"]["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "ImagePullBackOff"}}
        await cluster.annotate("pods", "p", fail="no")
        await cluster.wait(2)
        assert cluster.phases() == {"p": "Running"}

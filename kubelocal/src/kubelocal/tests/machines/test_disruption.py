"""Budgets, failure policies of Jobs, and pods that no other removes."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.machines.informer import Key
from kubelocal.machines.node.podgarbage import PodGarbageCollector
from kubelocal.server.errors import StatusError
from kubelocal.tests.machines.cluster import (
    Cluster,
    gpu_node,
    job,
    pod,
    running,
    sim,
    template,
    workload,
)
from kubelocal.tests.machines.test_embedded import Embedded


def budget(name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, **spec},
    }


def counts(cluster: Cluster, name: str = "b") -> tuple[int, int, int, int]:
    """Return expected, healthy, desired and allowed."""
    status = cluster.one("poddisruptionbudgets.policy", name)["status"]
    return (
        status["expectedPods"],
        status["currentHealthy"],
        status["desiredHealthy"],
        status["disruptionsAllowed"],
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minAvailable": 3}, (4, 4, 3, 1)),
        ({"minAvailable": "60%"}, (4, 4, 3, 1)),
        ({"maxUnavailable": 1}, (4, 4, 3, 1)),
        ({"maxUnavailable": "30%"}, (4, 4, 2, 2)),
        ({"minAvailable": 9}, (4, 4, 9, 0)),
    ],
)
async def test_a_budget_says_how_many_of_its_pods_may_go(
    spec: dict[str, Any], said: tuple[int, int, int, int]
) -> None:
    async with running() as cluster:
        await cluster.create(budget("b", {"app": "web"}, **spec))
        await cluster.create(workload("Deployment", "web", 1, replicas=4), pod("other", 1))
        await cluster.wait(2)
        assert counts(cluster) == said
        allowed = cluster.conditions("poddisruptionbudgets.policy", "b")["DisruptionAllowed"]
        assert allowed[0] == str(said[3] > 0)


async def test_a_budget_counts_on_what_the_controller_wants_not_on_what_there_is() -> None:
    async with running([gpu_node("gpu-0", 2)]) as cluster:
        await cluster.create(workload("Deployment", "web", 1, replicas=4))
        await cluster.create(budget("b", {"app": "web"}, maxUnavailable=2))
        await cluster.wait(2)
        assert counts(cluster) == (4, 2, 2, 0)


async def test_a_budget_counts_a_deployment_once_in_the_middle_of_a_roll_out() -> None:
    async with running([gpu_node("gpu-0", 8)]) as cluster:
        await cluster.create(workload("Deployment", "web", 1, replicas=4))
        await cluster.create(budget("b", {"app": "web"}, maxUnavailable=1))
        await cluster.wait(2)
        settings = sim(start_latency="1h")
        body = template(1, labels={"app": "web"}, annotations=settings)
        await cluster.change("deployments.apps", "web", template=body)
        await cluster.wait(5)
        assert len(cluster.names("replicasets.apps")) == 2
        assert counts(cluster) == (4, 3, 3, 0)


async def test_pods_are_evicted_through_a_budget_until_it_forbids() -> None:
    embedded = Embedded()
    async with embedded.cluster:
        await embedded.machines.start()
        await embedded.create(workload("Deployment", "web", 1, replicas=3))
        await embedded.create(budget("b", {"app": "web"}, minAvailable=2))
        await embedded.wait(3)
        first, second, _ = sorted(embedded.phases())
        await embedded.cluster.api.evict("default", first, {})
        with pytest.raises(StatusError) as refused:
            await embedded.cluster.api.evict("default", second, {})
        assert refused.value.code == 429
        await embedded.wait(5)  # the replacement is ready
        await embedded.cluster.api.evict("default", second, {})
        await embedded.wait(5)
        assert first not in embedded.phases()
        assert second not in embedded.phases()
        assert list(embedded.phases().values()) == ["Running"] * 3
        await embedded.machines.stop()


IGNORE = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
FAIL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
COUNT = {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [42]}}


async def test_a_failure_that_the_policy_ignores_is_replaced_and_not_counted() -> None:
    async with running() as cluster:
        policy = {"rules": [IGNORE, FAIL]}
        await cluster.create(job("train", 1, podFailurePolicy=policy, backoffLimit=0))
        await cluster.wait(2)
        [name] = cluster.names("pods")
        await cluster.annotate("pods", name, fail="Evicted")
        await cluster.wait(2)
        assert sorted(cluster.phases().values()) == ["Failed", "Running"]
        status = cluster.one("jobs.batch", "train")["status"]
        assert status.get("failed", 0) == 0
        assert "Failed" not in cluster.conditions("jobs.batch", "train")


async def test_a_failure_that_the_policy_calls_fatal_ends_the_job() -> None:
    async with running() as cluster:
        policy = {"rules": [IGNORE, FAIL]}
        await cluster.create(job("train", 1, parallelism=2, completions=2, podFailurePolicy=policy))
        await cluster.wait(2)
        first = cluster.names("pods")[0]
        await cluster.annotate("pods", first, fail="42")
        await cluster.wait(5)
        assert cluster.conditions("jobs.batch", "train")["Failed"] == (
            "True",
            "PodFailurePolicy",
            (
                f"Container main for pod default/{first} failed with exit code 42 "
                "matching FailJob rule at index 1"
            ),
        )
        assert "Running" not in cluster.phases().values()


async def test_a_failure_that_the_policy_counts_is_one_of_the_backoff_limit() -> None:
    async with running() as cluster:
        policy = {"rules": [COUNT, FAIL]}
        spec: dict[str, Any] = {
            "podFailurePolicy": policy,
            "backoffLimit": 0,
            "annotations": sim(fail="1"),
        }
        await cluster.create(job("train", 1, **spec))
        await cluster.wait(3)
        ended = cluster.conditions("jobs.batch", "train")["Failed"]
        assert ended[:2] == ("True", "BackoffLimitExceeded")


async def test_an_evicted_pod_counts_once_although_it_is_gone() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1))
        await cluster.wait(2)
        [name] = cluster.names("pods")
        await cluster.delete("pods", name)
        await cluster.wait(30)
        assert cluster.one("jobs.batch", "train")["status"]["failed"] == 1
        assert list(cluster.phases().values()) == ["Running"]


async def test_pods_of_a_node_that_has_gone_are_removed_after_a_while() -> None:
    async with running([gpu_node("gpu-0"), gpu_node("gpu-1")]) as cluster:
        await cluster.create(
            workload("Deployment", "web", 8, replicas=1), pod("by-hand", nodeName="nowhere")
        )
        await cluster.wait(5)
        before = cluster.nodes_of()
        assert sorted(map(str, before.values())) == ["gpu-0", "nowhere"]
        await cluster.delete("nodes", "gpu-0")
        await cluster.wait(30)
        assert cluster.nodes_of() == before
        await cluster.wait(15)
        assert list(cluster.nodes_of().values()) == ["gpu-1"]
        assert ("update status", "pods", "by-hand") in cluster.store.writes


async def test_the_first_finished_pods_go_above_the_threshold() -> None:
    async with running(without=["pod-gc", "heartbeats"]) as cluster:
        collector = PodGarbageCollector(cluster.machines.informer, cluster.clock, threshold=2)
        keys: list[Key] = []
        cluster.machines.informer.listeners.append(
            lambda change, before: keys.extend(collector.concerns(change, before))
        )
        for index in range(4):
            settings = sim(run_time=f"{index + 1}s")
            await cluster.create(pod(f"p-{index}", annotations=settings, restartPolicy="Never"))
        await cluster.wait(10)
        for key in keys:
            await collector.reconcile(key)
        assert cluster.names("pods") == ["p-2", "p-3"]

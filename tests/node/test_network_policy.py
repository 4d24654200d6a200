"""The chart's NetworkPolicy, enforced: what it names gets through, and nothing else does."""

from __future__ import annotations

import textwrap

import pytest

from tests.node.cluster import EXPORTER, GPUS, Cluster, Machine
from tests.node.machine import ENFORCER, NAME, missing
from tests.node.network import SERVER, address_of
from tests.node.release import NAMESPACE, Object, Release, job
from tests.node.work import evicted, followed, queue, running

pytestmark = [pytest.mark.slow, pytest.mark.node]

SCRAPER, STRANGER = "scraper", "stranger"
#: Where the API server's connections come from: the node of the pod forwards none, so its own.
CALLERS = [f"{SERVER}/32"]
POLICY: Object = {
    "networkPolicy": {
        "enabled": True,
        "metrics": {"namespaces": [SCRAPER, NAMESPACE]},
        "webhooks": {"cidrs": CALLERS},
        "egress": {
            "enabled": True,
            "apiServer": {"cidrs": [f"{SERVER}/32"]},
            "metricSources": {"cidrs": [f"{SERVER}/32"], "ports": [5000]},
        },
    }
}
CONNECT = textwrap.dedent(
    """
    import socket, sys
    for address in sys.argv[1:]:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 5).close()
            print("open")
        except (ConnectionRefusedError, TimeoutError):  # enforcers do the one or the other
            print("closed")
    """
)


@pytest.fixture(scope="module")
def machine() -> Machine:
    if lacking := missing():
        pytest.skip(lacking)
    if not ENFORCER.exists():
        pytest.skip(f"no {ENFORCER.name}: `python -m tests.node.build enforcer` builds it")
    return Machine(enforces=True)


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    found = Release(cluster)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m", **POLICY)
    return found


def prober(cluster: Cluster, namespace: str) -> None:
    """Start a pod of another namespace that can connect."""
    container = {
        "name": "main",
        "image": NAME,
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000000"],
    }
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "prober", "namespace": namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        },
    )
    cluster.until(f"a pod of {namespace} runs", lambda: running(cluster, namespace))


def reached(cluster: Cluster, namespace: str, pod: str, *addresses: str) -> list[str]:
    """Return whether each address is open to a pod, or closed."""
    command = ("python", "-c", CONNECT, *addresses)
    return cluster.kubectl("exec", pod, "-n", namespace, "--", *command).split()


def test_only_what_the_policy_names_reaches_the_operator(release: Release) -> None:
    cluster = release.cluster
    for namespace in (SCRAPER, STRANGER):
        prober(cluster, namespace)
    address = release.pod()["status"]["podIP"]
    ports = [f"{address}:{port}" for port in (8080, 9443)]
    # The enforcer learns of a pod within seconds of its start.
    cluster.until(
        "who scrapes gets through",
        lambda: reached(cluster, SCRAPER, "prober", *ports) == ["open", "closed"],
    )
    assert reached(cluster, STRANGER, "prober", *ports) == ["closed", "closed"]
    # The kubelet probes all the while, and the API server reaches the webhooks.
    (status,) = release.pod()["status"]["containerStatuses"]
    assert status["ready"] and status["restartCount"] == 0
    made, _ = queue(STRANGER, "refused")
    made["spec"]["resourceGroups"][0]["coveredResources"] = ["cpu"]
    with pytest.raises(RuntimeError, match="denied the request"):
        cluster.apply(made)


def test_the_operator_reaches_only_what_the_policy_names(release: Release) -> None:
    cluster, pod = release.cluster, release.pod()["metadata"]["name"]
    named = (f"{SERVER}:6443", EXPORTER.split("/")[2])
    others = [f"{address_of(number)}:10250" for number in (1, 2)]  # the kubelets
    prober(cluster, STRANGER)
    assert reached(cluster, STRANGER, "prober", *others) == ["open", "open"]
    assert reached(cluster, NAMESPACE, pod, *named, *others) == ["open", "open", "closed", "closed"]


def test_idle_work_is_evicted_and_helm_test_passes_behind_the_policy(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    annotation = "kaiwo.silogen.ai/gpu-preemption.enabled=true"
    cluster.kubectl("annotate", "namespace", space, annotation)
    cluster.apply(job("idle-notebook", space, GPUS), job("busy-train", space, GPUS))
    followed(cluster, space, 2)
    cluster.apply(job("demand", space, GPUS))
    followed(cluster, space, 1, "job-name=demand")
    assert [name.rpartition("-")[0] for name in running(cluster, space)] == ["busy-train", "demand"]
    assert evicted(cluster, space) == []  # the idle plane deletes the Job, not its pods
    assert "Succeeded" in release.helm("test", "--timeout", "3m")

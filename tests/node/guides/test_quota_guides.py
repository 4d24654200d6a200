"""Both guides on quota, word for word, on two nodes with real kubelets.

Their ClusterQueues and their Configuration are used as they are. The Jobs are our own, as the
guides have none. Each node shows 20 CPUs, and has 4 `nvidia.com/gpu` by a device plugin.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.node.cluster import Cluster, Machine
from tests.node.guides.reading import apply, manifest
from tests.node.release import Object, Release

pytestmark = [pytest.mark.slow, pytest.mark.node]

NVIDIA = "nvidia.com/gpu"
VALUES: Object = {"controllers": ["quota"]}
BESIDE = textwrap.dedent(
    """
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: ResourceFlavor
    metadata: {name: default-flavor}
    ---
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: WorkloadPriorityClass
    metadata: {name: low}
    value: 100
    ---
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: WorkloadPriorityClass
    metadata: {name: high}
    value: 10000
    """
)
#: Status and reason of each condition, by the name of the Job.
Conditions = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def machine() -> Machine:
    manifest("quota-clusterqueues.yaml")
    return Machine(devices={NVIDIA: 4}, processors=20)


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    found = Release(cluster, VALUES)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m")
    cluster.kubectl("apply", "-f", "-", given=BESIDE)
    return found


def local_queue(space: str, name: str, queue: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": space},
        "spec": {"clusterQueue": queue},
    }


def job(space: str, queue: str, name: str, priority: str, **requests: int) -> Object:
    """Return a Job for a queue; `gpus` are those of its one pod."""
    limits = {NVIDIA: requests["gpus"]} if "gpus" in requests else {}
    # A ClusterQueue admits no work that requests what it does not cover.
    amounts = {"cpu": requests["cpu"], "memory": "40Mi"} if "cpu" in requests else {}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "365d"],
        "resources": {"requests": {**amounts, **limits}, "limits": limits},
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": priority}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": space, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": spec}},
    }


def workloads(cluster: Cluster, space: str) -> dict[str, Any]:
    """Return the Workloads, by the names of their Jobs."""
    return {
        each["metadata"]["ownerReferences"][0]["name"]: each
        for each in cluster.get("workloads.kueue.x-k8s.io", "-n", space)["items"]
    }


def stated(cluster: Cluster, space: str) -> Conditions:
    return {
        name: {
            each["type"]: f"{each['status']} {each['reason']}"
            for each in workload.get("status", {}).get("conditions", ())
        }
        for name, workload in workloads(cluster, space).items()
    }


def admitted(cluster: Cluster, space: str, *names: str) -> Conditions:
    """Wait until exactly these Jobs are admitted and have a pod that runs."""

    def pods() -> set[str]:
        found = cluster.get("pods", "-n", space)["items"]
        return {
            each["metadata"]["labels"]["job-name"]
            for each in found
            if each["status"].get("phase") == "Running"
        }

    def holds() -> Conditions | None:
        found = stated(cluster, space)
        have = {name for name, each in found.items() if each.get("Admitted") == "True Admitted"}
        return found if have == {*names} and pods() == {*names} else None

    result: Conditions = cluster.until(f"{names} are admitted", holds)
    return result


def states(cluster: Cluster, space: str, holds: Callable[[Conditions], object]) -> Conditions:
    """Wait until it holds for the conditions of all Workloads."""

    def found() -> Conditions | None:
        every = stated(cluster, space)
        return every if holds(every) else None

    result: Conditions = cluster.until("it is stated", found)
    return result


@pytest.mark.usefixtures("release")
def test_the_guide_on_configuring_preemption_word_for_word(cluster: Cluster, space: str) -> None:
    printed = apply(cluster, "quota-clusterqueues.yaml")
    assert printed == [
        f"clusterqueue.kueue.x-k8s.io/{name} created"
        for name in ("team-a-queue", "non-preemptive-queue")
    ]
    cluster.apply(
        local_queue(space, "hit", "team-a-queue"),
        local_queue(space, "spared", "non-preemptive-queue"),
    )
    low = {f"{queue}-{name}" for queue in ("hit", "spared") for name in ("first", "second")}
    for name in ("first", "second"):
        cluster.apply(
            job(space, "hit", f"hit-{name}", "low", cpu=8, gpus=2),
            job(space, "spared", f"spared-{name}", "low", cpu=8),
        )
    admitted(cluster, space, *low)

    cluster.apply(
        job(space, "hit", "hit-urgent", "high", cpu=8, gpus=2),
        job(space, "spared", "spared-urgent", "high", cpu=8),
    )
    found = states(cluster, space, lambda every: any("Evicted" in each for each in every.values()))
    (victim,) = (name for name, each in found.items() if "Evicted" in each)
    assert victim in ("hit-first", "hit-second")
    found = admitted(cluster, space, *(low - {victim}), "hit-urgent")
    assert (found[victim]["Evicted"], found[victim]["Preempted"]) == (
        "True Preempted",
        "True InClusterQueue",
    )
    every = workloads(cluster, space)
    uid = every["hit-urgent"]["metadata"]["uid"]
    messages = {
        each["message"].partition(";")[0]
        for each in every[victim]["status"]["conditions"]
        if each["type"] in ("Evicted", "Preempted")
    }
    # The guide's own text is of an older release, which named the Workload alone.
    assert all(
        each.startswith(f"Preempted to accommodate a workload (UID: {uid}") for each in messages
    )
    suspended = cluster.kubectl("get", "job", victim, "-n", space, "-o", "jsonpath={.spec.suspend}")
    assert suspended == "true"
    assert found["spared-urgent"]["QuotaReserved"].startswith("False")

    # What waits in the other queue gets quota only when work there ends.
    cluster.kubectl("delete", "job", "spared-first", "-n", space)
    found = admitted(
        cluster, space, *(low - {victim, "spared-first"}), "hit-urgent", "spared-urgent"
    )
    assert {name for name, each in found.items() if "Evicted" in each} == {victim}


def test_the_guide_on_fair_sharing_word_for_word(release: Release, space: str) -> None:
    cluster = release.cluster
    configuration = yaml.safe_load(manifest("quota-configuration.yaml").read_text())
    quota = {"configuration": configuration}
    release.helm("upgrade", "--wait", "--timeout", "5m", quota=quota)
    for name, nominal in (("lender", 4), ("team-x", 0), ("team-y", 0)):
        amount = {"name": NVIDIA, "nominalQuota": nominal}
        group = {
            "coveredResources": [NVIDIA],
            "flavors": [{"name": "default-flavor", "resources": [amount]}],
        }
        spec = {
            "cohortName": "research",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any"},
            "resourceGroups": [group],
        }
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
        cluster.apply({**kind, "metadata": {"name": name}, "spec": spec})
        cluster.apply(local_queue(space, name, name))
    first = [f"x-{number}" for number in range(4)]
    for name in first:
        cluster.apply(job(space, "team-x", name, "low", gpus=1))
    admitted(cluster, space, *first)

    second = [f"y-{number}" for number in range(3)]
    for name in second:
        cluster.apply(job(space, "team-y", name, "low", gpus=1))

    def halves(every: Conditions) -> bool:
        have = {name for name, each in every.items() if each.get("Admitted") == "True Admitted"}
        return [len(have & {*names}) for names in (first, second)] == [2, 2]

    found = states(cluster, space, halves)
    victims = {name for name, each in found.items() if "Evicted" in each}
    assert len(victims) == 2 and victims < {*first}
    assert {found[name]["Preempted"] for name in victims} == {"True InCohortFairSharing"}
    have = {name for name, each in found.items() if each.get("Admitted") == "True Admitted"}
    admitted(cluster, space, *have)
    shares = {
        name: cluster.get("clusterqueue", name)["status"]["fairSharing"]["weightedShare"]
        for name in ("team-x", "team-y")
    }
    assert shares["team-x"] == shares["team-y"] > 0

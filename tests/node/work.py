"""What runs on real nodes in the stories: work of low priority, gangs, and what became of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

from tests.node.cluster import GPU, GPUS, Cluster
from tests.node.release import NAMESPACE, Object, Worker, job, pod_spec

__all__ = [
    "ON_N1",
    "ON_N2",
    "WORKERS",
    "evicted",
    "evicting",
    "explained",
    "followed",
    "gang",
    "member",
    "queue",
    "records",
    "refused",
    "running",
    "sweep",
]

ON_N1: Final[Object] = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
ON_N2: Final[Object] = {"nodeSelector": {"kubernetes.io/hostname": "n2"}}
WORKERS: Final[list[Worker]] = []  # of the story that is played


def running(cluster: Cluster, space: str, selector: str = "") -> list[str]:
    """Return the pods that run, by name."""
    chosen = ("-l", selector) if selector else ()
    return sorted(
        pod["metadata"]["name"]
        for pod in cluster.get("pods", "-n", space, *chosen)["items"]
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    )


def followed(cluster: Cluster, space: str, count: int, selector: str = "") -> dict[str, Worker]:
    """Wait until so many pods run; return what follows each."""

    def enough() -> list[str]:
        found = running(cluster, space, selector)
        return found if len(found) == count else []

    names = cluster.until(f"{count} pods of {space} run", enough)
    workers = {name: Worker(cluster, space, name) for name in names}
    WORKERS.extend(workers.values())
    return workers


def records(cluster: Cluster, space: str) -> list[Object]:
    """Return the records of evictions of a namespace's work."""
    every = cluster.get("preemptions.reprieve.dev", "-n", NAMESPACE)["items"]
    return [each for each in every if space in str(each["spec"]["victims"])]


def evicted(cluster: Cluster, space: str) -> list[str]:
    """Return the pods that the operator evicted, by name, by the audit log: each as often."""
    found = []
    for each in cluster.requests():
        ref = each.get("objectRef") or {}
        verb, sub = each["verb"], ref.get("subresource", "")
        ends = (verb, sub) in (("delete", ""), ("create", "eviction"))
        accepted = each["responseStatus"].get("code", 500) < 300
        if ends and accepted and (ref["resource"], ref.get("namespace")) == ("pods", space):
            found.append(str(ref["name"]))
    return found


def evicting(cluster: Cluster, space: str, count: int) -> list[str]:
    """Wait until so many pods were evicted; return them."""

    def enough() -> list[str]:
        found = evicted(cluster, space)
        return found if len(found) >= count else []

    found: list[str] = cluster.until(f"{count} pods are evicted", enough)
    return sorted(found)


def refused(cluster: Cluster, space: str, name: str, reason: str) -> list[str]:
    """Return the pods of a Job that their kubelets refused for a reason."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.get("pods", "-n", space, "-l", f"job-name={name}")["items"]
        if pod["status"].get("reason") == reason
    ]


def explained(cluster: Cluster, space: str, what: str) -> str:
    """Return what `reprieve explain` states of an object, on one line."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "reprieve", "explain", what, "-n", space),
            *("--kubeconfig", str(cluster.kubeconfig)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr + done.stdout)
    return " ".join(done.stdout.split())


def gang(space: str, size: int, gpus: int) -> list[Object]:
    """Return a gang of high priority."""
    made: list[Object] = [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": space},
            "spec": {
                "priorityClassName": "high",
                "schedulingPolicy": {"gang": {"minCount": size}},
            },
        }
    ]
    for number in range(size):
        spec = pod_spec(gpus, saves=0, grace=5, schedulingGroup={"podGroupName": "train"})
        spec |= {"schedulerName": "reprieve-scheduler", "priorityClassName": "high"}
        metadata = {"name": f"train-{number}", "namespace": space, "labels": {"gang": "train"}}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


def member(space: str, gpus: int, where: Object) -> Object:
    """Return a Job whose pod is the member of the gang on one node."""
    (node,) = where["nodeSelector"].values()
    facts: dict[str, Any] = {
        "saves": 0,
        "schedulerName": "reprieve-scheduler",
        "priorityClassName": "high",
        "schedulingGroup": {"podGroupName": "train"},
    }
    made = job(f"train-{node}", space, gpus, **where, **facts)
    made["spec"]["backoffLimit"] = 30
    return made


def sweep(space: str, count: int, gpus: int, **facts: Any) -> list[Object]:
    """Return pods of low priority."""
    spec: dict[str, Any] = {"schedulerName": "reprieve-scheduler", "priorityClassName": "low"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"sweep-{i}", "namespace": space, "labels": {"app": "sweep"}},
            "spec": pod_spec(gpus, **spec, **facts),
        }
        for i in range(count)
    ]


def queue(space: str, name: str) -> list[Object]:
    """Return a ClusterQueue with the GPUs of a node, and its LocalQueue."""
    group = "kueue.x-k8s.io/v1beta2"
    amount = {"name": GPU, "nominalQuota": GPUS}
    flavors = [{"name": "gpus", "resources": [amount]}]
    spec = {
        "cohortName": "research",
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
    }
    local = {"name": name, "namespace": space}
    return [
        {"apiVersion": group, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": group,
            "kind": "LocalQueue",
            "metadata": local,
            "spec": {"clusterQueue": name},
        },
    ]

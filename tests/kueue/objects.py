"""Kueue's objects as users write them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

API = "/apis/kueue.x-k8s.io/v1beta2"
SINCE = "2026-03-04T10:00:00Z"


def kueue_object(kind: str, name: str, spec: Json | None = None, **more: Any) -> Json:
    version = more.pop("version", "v1beta2")
    namespace = more.pop("namespace", None)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    found = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata}
    return found | ({} if spec is None else {"spec": spec}) | more


def group(quotas: Json, flavor: str = "default-flavor", **limits: Any) -> Json:
    resources = [{"name": n, "nominalQuota": q, **limits} for n, q in quotas.items()]
    return {
        "coveredResources": list(quotas),
        "flavors": [{"name": flavor, "resources": resources}],
    }


def cluster_queue(name: str = "team", *groups: Json, **spec: Any) -> Json:
    listed = list(groups or [group({"cpu": 4})])
    return kueue_object("ClusterQueue", name, {"resourceGroups": listed, **spec})


def local_queue(name: str = "door", queue: str = "team", **spec: Any) -> Json:
    return kueue_object("LocalQueue", name, {"clusterQueue": queue, **spec}, namespace="default")


def pod_set(name: str = "main", count: int = 1, cpu: str = "1", **more: Any) -> Json:
    container = {"name": "c", "image": "registry.example/app:1"}
    container["resources"] = {"requests": {"cpu": cpu}}  # type: ignore[assignment]
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"name": name, "count": count, "template": template, **more}


def workload(name: str = "work", *pod_sets: Json, **spec: Any) -> Json:
    listed = list(pod_sets or [pod_set()])
    return kueue_object(
        "Workload", name, {"podSets": listed, "queueName": "door", **spec}, namespace="default"
    )


def condition(kind: str, status: str = "True", reason: str = "Because") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": SINCE,
    }


def admission(count: int = 1, cpu: str = "1", name: str = "main") -> Json:
    assigned = {
        "name": name,
        "count": count,
        "flavors": {"cpu": "default-flavor"},
        "resourceUsage": {"cpu": cpu},
    }
    return {"clusterQueue": "team", "podSetAssignments": [assigned]}


def reserved(**more: Any) -> Json:
    """The status of a workload that holds quota."""
    return {"conditions": [condition("QuotaReserved")], "admission": admission(), **more}

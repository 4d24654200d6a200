"""Objects of kinds that are no part of Kubernetes, and the chains from their pods to them."""

from __future__ import annotations

from typing import Any

from kubelocal.machines.objects import Object
from kubelocal.tests.machines.cluster import Cluster, template

RAY = "ray.io/v1"


def custom(api_version: str, kind: str, **spec: Any) -> Object:
    obj: Object = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "work"}}
    return {**obj, "spec": spec} if spec else obj


def ray_cluster(workers: int = 1) -> Object:
    return {
        "headGroupSpec": {"template": template(0)},
        "workerGroupSpecs": [
            {"groupName": "gpus", "replicas": workers, "template": template(2)},
        ],
    }


def ray_job(mode: str = "HTTPMode") -> Object:
    return {"rayClusterSpec": ray_cluster(), "submissionMode": mode}


def chains(cluster: Cluster) -> set[str]:
    """Return the kinds from each pod up to its root."""
    by_uid = {obj["metadata"]["uid"]: obj for obj in cluster.store.held.values()}
    found: set[str] = set()
    for obj in cluster.all("pods"):
        kinds = []
        owner: Object | None = obj
        while owner is not None:
            kinds.append(owner["kind"])
            references = owner["metadata"].get("ownerReferences")
            owner = by_uid.get(references[0]["uid"]) if references else None
        found.add(" -> ".join(kinds))
    return found

"""`kopf run with_kopf.py`: an operator that answers each Task with a ConfigMap of its own.

kopf itself lists, watches, patches (finalizers, annotations, status) and posts events; the
ConfigMap is applied with the official client, as kopf's handlers usually do it.
"""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient


@kopf.on.startup()
def connect(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.posting.level = 20


@kopf.on.create("example.com", "v1", "tasks")
@kopf.on.update("example.com", "v1", "tasks")
def show(body: kopf.Body, spec: kopf.Spec, name: str, **_: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-shown"},
        "data": {"replicas": str(spec["replicas"])},
    }
    kopf.adopt(shown, owner=body)
    configmaps = DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    configmaps.server_side_apply(body=shown, field_manager="kopf-story")
    return {"replicas": spec["replicas"]}


@kopf.on.delete("example.com", "v1", "tasks")
def forget(name: str, namespace: str | None, **_: Any) -> None:
    client.CoreV1Api().delete_namespaced_config_map(f"{name}-shown", namespace)

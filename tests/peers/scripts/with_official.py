"""`python with_official.py KUBECONFIG`: one story with the official client, informer included."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.informer import SharedInformer

SELECTOR = "app=story"


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"app": "story"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def main(kubeconfig: str) -> None:
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    for number in (2, 0, 1):
        core.create_namespaced_config_map("default", config_map(f"plan-{number}", step="created"))
    found = core.list_namespaced_config_map("default", label_selector=SELECTOR)
    listed = [one.metadata.name for one in found.items]

    # The informer lists and watches in its own thread from here on.
    informer = SharedInformer(
        core.list_namespaced_config_map, namespace="default", label_selector=SELECTOR
    )
    informed: list[str] = []
    synced, gone = threading.Event(), threading.Event()

    def added(one: Any) -> None:
        informed.append(one.metadata.name)
        if len(informed) == len(listed):
            synced.set()

    informer.add_event_handler("ADDED", added)
    informer.add_event_handler("DELETED", lambda one: gone.set())
    informer.start()
    synced.wait(60)

    configmaps = DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    applied = configmaps.server_side_apply(
        body=config_map("plan-3", step="applied"), namespace="default", field_manager="story"
    )
    taken = config_map("plan-3", step="taken")
    try:
        configmaps.server_side_apply(body=taken, namespace="default", field_manager="someone-else")
        conflict = ""
    except ApiException as error:
        conflict = f"{error.status} {error.reason}"
    forced = configmaps.server_side_apply(
        body=taken, namespace="default", field_manager="someone-else", force_conflicts=True
    )
    patched = core.patch_namespaced_config_map("plan-0", "default", {"data": {"step": "patched"}})
    core.create_namespaced_pod(
        "default",
        client.V1Pod(
            metadata=client.V1ObjectMeta(name="worker"),
            spec=client.V1PodSpec(
                containers=[client.V1Container(name="main", image="example.com/worker:1")]
            ),
        ),
    )
    running = core.patch_namespaced_pod_status(
        "worker", "default", {"status": {"phase": "Running"}}
    )
    core.delete_namespaced_config_map("plan-1", "default")
    gone.wait(60)
    cached = {one.metadata.name: one.data["step"] for one in informer.cache.list()}
    informer.stop()

    events = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        "default",
        label_selector=SELECTOR,
        resource_version=found.metadata.resource_version,
        timeout_seconds=60,
    ):
        one = event["object"]
        events.append([event["type"], one.metadata.name, one.data["step"]])
        if event["type"] == "DELETED":
            break
    print(
        json.dumps(
            {
                "listed": listed,
                "applied": applied.to_dict()["data"],
                "conflict": conflict,
                "forced": forced.to_dict()["data"],
                "patched": patched.data,
                "phase": running.status.phase,
                "events": events,
                "cached": cached,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])

"""`python with_lightkube.py KUBECONFIG`: one story with lightkube; prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

LABELS: dict[str, Any] = {"app": "story"}


def config_map(name: str, **data: str) -> ConfigMap:
    metadata = ObjectMeta(name=name, namespace="default", labels=LABELS)
    return ConfigMap(metadata=metadata, data=data)


def _name(found: ConfigMap) -> str:
    assert found.metadata is not None and found.metadata.name is not None
    return found.metadata.name


def main(kubeconfig: str) -> None:
    client = Client(config=KubeConfig.from_file(kubeconfig), field_manager="lightkube-story")
    for number in (2, 0, 1):
        client.create(config_map(f"plan-{number}", step="created"))
    listing = client.list(ConfigMap, labels=LABELS, chunk_size=2)
    listed = [_name(found) for found in listing]
    version = listing.resourceVersion

    events: list[list[str]] = []

    def watch() -> None:
        watcher = Client(config=KubeConfig.from_file(kubeconfig))
        for event, found in watcher.watch(ConfigMap, labels=LABELS, resource_version=version):
            events.append([event, _name(found), (found.data or {}).get("step", "")])
            if event == "DELETED":
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    applied = client.apply(config_map("plan-3", step="applied"))
    try:
        client.apply(config_map("plan-3", step="taken"), field_manager="someone-else")
        conflict = ""
    except ApiError as error:
        conflict = f"{error.status.code} {error.status.reason}"
    forced = client.apply(
        config_map("plan-3", step="taken"), field_manager="someone-else", force=True
    )
    merged = client.patch(
        ConfigMap, "plan-0", {"data": {"step": "patched"}}, patch_type=PatchType.MERGE
    )
    client.create(
        Pod(
            metadata=ObjectMeta(name="worker", namespace="default"),
            spec=PodSpec(containers=[Container(name="main", image="example.com/worker:1")]),
        )
    )
    status = {"status": {"phase": "Running"}}
    running = client.patch(Pod.Status, "worker", status, patch_type=PatchType.MERGE)
    client.delete(ConfigMap, "plan-1")
    watching.join(60)
    assert running.status is not None
    print(
        json.dumps(
            {
                "listed": listed,
                "applied": applied.data,
                "conflict": conflict,
                "forced": forced.data,
                "patched": merged.data,
                "phase": running.status.phase,
                "events": events,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])

"""With all planes on each kind is listed and watched once, whatever of them reads it and how."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from tests.scheduling.site import Site, site

PLANES = "idle,scheduling,quota"
#: Of Events those of one reason are read, and of ConfigMaps each reader's own object. Plans and
#: leases are read beside: of plans each plane lists its own when it begins and as it tidies up.
READ_BESIDE = {"configmaps", "events", "leases", "preemptionparts", "preemptions"}
_SETTLED_S = 30.0


def asked(cluster: Site, verb: str) -> dict[str, int]:
    """Return how often each kind that is served was asked for; others are looked for again."""
    served = cluster.embedded.cluster.registry.stored
    return {
        f"{resource}.{group}".rstrip("."): count
        for (user, said, group, resource), count in cluster.embedded.cluster.requests.items()
        if (user, said) == (OPERATOR_USER, verb)
        and resource not in READ_BESIDE
        and served(group, resource) is not None
    }


def quota_configuration(folder: Path, frameworks: list[str]) -> str:
    path = folder / "quota.yaml"
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": frameworks},
    }
    path.write_text(yaml.safe_dump(configuration))
    return str(path)


@pytest.mark.parametrize(
    "frameworks",
    [["batch/job"], ["batch/job", "pod"], ["batch/job", "pod", "deployment", "statefulset"]],
    ids=["jobs", "pods", "sets"],
)
async def test_all_planes_list_and_watch_each_kind_once(
    tmp_path: Path, frameworks: list[str]
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"quota": {"proveNodes": True, "idleFirst": True}}))
    nodes = [NodeSpec("node", {"cpu": "8", "memory": "32Gi", "pods": "110"})]
    async with site(nodes, tmp_path, kubelet=True, kueue=True) as cluster:
        await cluster.operator(
            *("--controllers", PLANES, "--watch-others", "--config", str(values)),
            *("--quota-config", quota_configuration(tmp_path, frameworks)),
            environment={
                "GPU_PREEMPTION_ENABLED": "true",
                "GPU_PREEMPTION_METRICS_ENDPOINT": cluster.embedded.metrics_endpoint,
                "GPU_PREEMPTION_FIT": "node",
            },
        )
        await asyncio.sleep(_SETTLED_S)
        lists, watches = asked(cluster, "list"), asked(cluster, "watch")
    assert {"pods", "nodes", "namespaces", "workloads.kueue.x-k8s.io"} <= watches.keys()
    assert "statefulsets.apps" in watches
    assert {kind: count for kind, count in watches.items() if count > 1} == {}
    assert {kind: count for kind, count in lists.items() if count > 1} == {}

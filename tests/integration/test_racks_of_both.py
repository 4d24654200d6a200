"""A rack that two planes free for one gang, on a real API server with the real Job controller.

Evictions are counted from the API server's audit log.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.kube.client import Client
from reprieve.kube.resource import PODS
from tests.integration.audited_planes import (
    create,
    decided,
    evictions,
    runs,
    store,
    until,
)
from tests.integration.control_plane import ControlPlane
from tests.together.site import KINDS, UNIT
from tests.together.test_disturbed_racks import BEST, low
from tests.together.test_racks import LEVELS, on, racks, wanted

pytestmark = pytest.mark.slow


async def test_a_rack_loses_work_of_the_queue_and_then_work_in_no_queue(
    audited: ControlPlane, tmp_path: Path
) -> None:
    config = tmp_path / "operator.yaml"
    config.write_text(BEST, encoding="utf-8")
    nodes, quotas = tuple(racks((8, 8), (8, 8))), {"a": 64, "b": 0}
    arguments = ("--config", str(config))
    async with decided(audited, tmp_path, nodes, quotas, arguments=arguments) as given:
        stage, client, _ = given
        await _placing(client)
        queued = [low("queued-0", "r0-0"), low("queued-1", "r1-0")]
        plain, busy = on("plain", "r1-1"), on("busy", "r0-1", priority="high")
        for unit in (*queued, plain, busy):
            await create(client, stage, unit)
        await until("all run", lambda: runs(client, "queued-0", "queued-1", "plain", "busy"))
        await create(client, stage, wanted())
        await until("the gang runs", lambda: _runs_on(client, "wanted", {"r1-0", "r1-1"}))
        await until("the others stay", lambda: runs(client, "queued-0", "busy"))
        # A stopped job is written a second time, with the pod template that it came with.
        evicted = [(each.namespace, each.resource, each.name) for each in evictions(tmp_path)]
    jobs = [name for _, resource, name in evicted if resource == "jobs"]
    pods = [name for _, resource, name in evicted if resource == "pods"]
    assert jobs == ["queued-1"]
    assert [name.rpartition("-")[0] for name in pods if not name.startswith("queued-1")] == [
        "plain"
    ]


async def _placing(client: Client) -> None:
    """Give the flavor a topology of racks and hosts."""
    levels = {"levels": [{"nodeLabel": each} for each in LEVELS]}
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology"}
    await store(client, {**made, "metadata": {"name": "racks"}, "spec": levels})
    spec = {"nodeLabels": {"gpu": "gpus"}, "topologyName": "racks"}
    await client.patch(KINDS["ResourceFlavor"], "", "gpus", {"spec": spec}, dict)


async def _runs_on(client: Client, unit: str, hosts: set[str]) -> bool:
    page = await client.list(PODS, dict, label_selector=f"{UNIT}={unit}")
    running = [p for p in page.items if (p.get("status") or {}).get("phase") == "Running"]
    return {each["spec"]["nodeName"] for each in running} == hosts

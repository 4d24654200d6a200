"""Subresources of pods, replaced pods, and a server without controllers of its own."""

from __future__ import annotations

from typing import Any

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, pod

MERGE = "application/strategic-merge-patch+json"
SIZED: dict[str, Any] = {
    "name": "main",
    "image": "example.com/worker:1",
    "resources": {"requests": {"cpu": "100m"}},
}


async def test_resizing_changes_the_resources_of_containers_and_nothing_else(
    client: Client,
) -> None:
    await client.create(PODS, pod(containers=[SIZED]))
    wanted = {"name": "main", "image": "other:2", "resources": {"requests": {"cpu": "150m"}}}
    body = {"spec": {"nodeName": "elsewhere", "containers": [wanted]}}
    code, resized = await client.request("PATCH", f"{PODS}/a/resize", body, content_type=MERGE)
    (container,) = resized["spec"]["containers"]

    assert code == 200
    assert container["resources"] == {"requests": {"cpu": "150m"}}
    assert container["image"] == "example.com/worker:1"
    assert "nodeName" not in resized["spec"]


async def test_a_refused_change_of_a_pod_shows_the_lines_that_differ(client: Client) -> None:
    await client.create(PODS, pod(containers=[SIZED]))
    code, status = await client.request(
        "PATCH", f"{PODS}/a", {"spec": {"hostname": "b"}}, content_type=MERGE
    )

    assert code == 422
    shown = status["message"].splitlines()
    assert [line for line in shown if line[:2] in ("- ", "+ ")] == [
        '- "Hostname": "",',
        '+ "Hostname": "b",',
    ]


async def test_a_replaced_pod_keeps_its_priority_and_default_tolerations(client: Client) -> None:
    await client.create(PODS, pod(containers=[SIZED]))
    changed = pod(containers=[{**SIZED, "image": "example.com/worker:2"}])
    code, replaced = await client.request("PUT", f"{PODS}/a", changed)

    assert code == 200
    assert replaced["spec"]["priority"] == 0
    assert [one["tolerationSeconds"] for one in replaced["spec"]["tolerations"]] == [300, 300]


async def test_without_controllers_a_deleted_namespace_stays_with_its_content() -> None:
    async with EmbeddedCluster(controllers=False) as cluster, Client(cluster) as client:
        names = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await client.create("/api/v1/namespaces", names)
        inside = CONFIG_MAPS.replace("default", "team")
        kept = config_map()
        kept["metadata"]["namespace"] = "team"
        await client.create(inside, kept)
        await client.request("DELETE", "/api/v1/namespaces/team")
        namespace = await client.get("/api/v1/namespaces/team")

        assert namespace["status"]["phase"] == "Terminating"
        assert (await client.get(f"{inside}/a"))["metadata"]["name"] == "a"

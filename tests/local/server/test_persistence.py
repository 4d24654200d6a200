"""A data folder: what a cluster keeps in it, and who may use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.local.cluster import EmbeddedCluster
from reprieve.units.errors import UsageError
from tests.local.server.builders import CONFIG_MAPS, Client, config_map, definition, kind_of, task

TASKS = "/apis/example.com/v1/namespaces/default/tasks"


async def test_objects_versions_tokens_and_definitions_outlive_a_restart(tmp_path: Path) -> None:
    async with EmbeddedCluster(data=tmp_path) as first, Client(first) as client:
        await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        await client.create(TASKS, task("a"))
        kept = await client.create(CONFIG_MAPS, config_map("a", x="1"))
        await client.create(CONFIG_MAPS, config_map("b"))
        await client.request("DELETE", f"{CONFIG_MAPS}/b")
        token, version = first.token("alice"), first.store.revision
    async with EmbeddedCluster(data=tmp_path) as second, Client(second) as client:
        listed = await client.get(CONFIG_MAPS)
        tasks = await client.get(TASKS)
        stale, _ = await client.request("GET", CONFIG_MAPS, watch="true", resourceVersion="3")
        fresh = await client.watch(CONFIG_MAPS, resourceVersion=str(version))
        await client.create(CONFIG_MAPS, config_map("c"))
        events = await fresh.take(1)
        fresh.close()
        again = second.token("alice")

    assert [one["data"] for one in listed["items"]] == [{"x": "1"}]
    assert listed["items"][0]["metadata"] == kept["metadata"]
    assert [one["metadata"]["name"] for one in tasks["items"]] == ["a"]
    assert (stale, token == again) == (410, True)
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) > version


async def test_an_interrupted_namespace_deletion_goes_on(tmp_path: Path) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    async with EmbeddedCluster(data=tmp_path) as first, Client(first) as client:
        await client.create("/api/v1/namespaces", space)
        held = {**config_map(), "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
        await client.create("/api/v1/namespaces/team/configmaps", held)
        await client.request("DELETE", "/api/v1/namespaces/team")
        left = await client.get("/api/v1/namespaces/team/configmaps")
        # As if the process had ended after the mark and before the last object went.
        first.store.remove("configmaps", left["items"][0])
    async with EmbeddedCluster(data=tmp_path) as second:
        kind = kind_of(second, "namespaces")
        names = [one["metadata"]["name"] for one in (await second.api.list(kind, "")).objects]

    assert "team" not in names


async def test_a_data_folder_belongs_to_one_cluster_at_a_time(tmp_path: Path) -> None:
    async with EmbeddedCluster(data=tmp_path):
        with pytest.raises(UsageError, match="no other process uses"):
            EmbeddedCluster(data=tmp_path)
    async with EmbeddedCluster(data=tmp_path) as again:
        assert again.url


async def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    path.write_text("this is no database" * 100)

    with pytest.raises(UsageError, match=r"objects\.sqlite: cannot be opened"):
        EmbeddedCluster(data=tmp_path)
    assert path.read_text().startswith("this is no database")

"""A data folder: what a cluster keeps in it, and who may use it."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.errors import UsageError
from kubelocal.server.selectors import parse_selectors
from kubelocal.tests.server.builders import (
    CONFIG_MAPS,
    Client,
    config_map,
    definition,
    kind_of,
    task,
)

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


async def test_nobody_else_may_read_what_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    before = os.umask(0o022)
    try:
        async with EmbeddedCluster(data=folder) as cluster, Client(cluster) as client:
            await client.create(CONFIG_MAPS, config_map("a"))
            found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
        assert {"objects.sqlite", "objects.sqlite-wal"} <= found.keys()
        assert set(found.values()) == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        # Files of a version that left them open.
        (folder / "objects.sqlite").chmod(0o644)
        async with EmbeddedCluster(data=folder):
            assert stat.S_IMODE((folder / "objects.sqlite").stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_nothing_is_shown_that_is_not_on_disk_yet(tmp_path: Path) -> None:
    """Writes that come between the end of a transaction and the answer of a reader."""
    async with EmbeddedCluster(data=tmp_path) as cluster:
        kind = kind_of(cluster, "configmaps")
        store = cluster.store
        store.put("configmaps", config_map("old", x="1"))
        await store.durable()
        store.put("configmaps", config_map("first"))

        async def writes_then() -> None:
            await store.durable()
            store.put("configmaps", config_map("second"))
            store.put("configmaps", config_map("old", x="2"))
            store.remove("configmaps", config_map("first"))

        async def names() -> list[tuple[str, str]]:
            listed = await cluster.api.list(kind, "default")
            assert int(listed.resource_version) == store.published < store.revision
            return [(obj["metadata"]["name"], obj["data"].get("x", "")) for obj in listed.objects]

        async def named(name: str) -> list[dict[str, Any]]:
            by_name = parse_selectors("configmaps", "", f"metadata.name={name}")
            return (await cluster.api.list(kind, "default", selectors=by_name)).objects

        async def initial() -> list[str]:
            seen: list[str] = []
            async for event in cluster.api.watch(kind, "default"):
                seen.append(event.object["metadata"]["name"])
                if len(seen) == 2:
                    break
            return seen

        _, listed, got, second, first, watched = await asyncio.gather(
            writes_then(),
            names(),
            cluster.api.get(kind, "default", "old"),
            named("second"),
            named("first"),
            initial(),
        )
        assert listed == [("first", ""), ("old", "1")]
        assert got["data"] == {"x": "1"}
        assert (second, len(first)) == ([], 1)
        assert watched == ["first", "old"]
        await store.durable()
        now = await cluster.api.list(kind, "default")
        assert [obj["metadata"]["name"] for obj in now.objects] == ["old", "second"]


async def test_a_full_disk_is_told_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    async with EmbeddedCluster(data=tmp_path) as cluster, Client(cluster) as client:
        await client.create(CONFIG_MAPS, config_map("kept", x="1"))
        disk = cluster.store._disk
        assert disk is not None
        pages = disk._connection.execute("PRAGMA page_count").fetchone()[0]
        disk._connection.execute(f"PRAGMA max_page_count={pages}")
        code, status = await client.request("POST", CONFIG_MAPS, config_map("a", x="y" * 500_000))
        listed = await client.get(CONFIG_MAPS)
        disk._connection.execute("PRAGMA max_page_count=100000")
        await client.create(CONFIG_MAPS, config_map("a", x="y" * 500_000))
    assert code == 500
    assert status["message"] == (
        f"Internal error occurred: no space is left on the disk of {tmp_path / 'objects.sqlite'}"
    )
    assert [one["metadata"]["name"] for one in listed["items"]] == ["kept"]


async def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    path.write_text("this is no database" * 100)

    with pytest.raises(UsageError, match=r"objects\.sqlite: cannot be opened"):
        EmbeddedCluster(data=tmp_path)
    assert path.read_text().startswith("this is no database")

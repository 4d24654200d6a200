"""A data folder: what was acknowledged is there after the process was killed at any moment."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import ClientError

from reprieve.local.cluster import EmbeddedCluster
from reprieve.units.errors import UsageError
from tests.local.server.builders import CONFIG_MAPS, Client, config_map, definition, kind_of, task

TASKS = "/apis/example.com/v1/namespaces/default/tasks"

SERVE = """
import asyncio, sys
from pathlib import Path
from reprieve.local.cluster import EmbeddedCluster

async def main() -> None:
    async with EmbeddedCluster(data=Path(sys.argv[1])) as cluster:
        print(cluster.url, cluster.token(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


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


@pytest.mark.parametrize("after", [1, 7, 23])
async def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, after: int) -> None:
    """Eight writers; the process is killed once `after` writes have been answered."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url, token = (await process.stdout.readline()).decode().split()
    acknowledged: dict[str, str] = {}
    cluster = EmbeddedCluster(data=tmp_path / "other")
    cluster.url = url

    async def write(writer: int, client: Client) -> None:
        for index in range(1_000):
            name = f"w{writer}-{index}"
            try:
                made = await client.create(CONFIG_MAPS, config_map(name))
            except (ClientError, OSError):
                return
            acknowledged[name] = made["metadata"]["resourceVersion"]
            if len(acknowledged) == after:
                process.send_signal(signal.SIGKILL)

    async with Client(cluster) as client:
        client.session.headers["Authorization"] = f"Bearer {token}"
        await asyncio.gather(*(write(writer, client) for writer in range(8)))
    await process.wait()
    cluster.store.close()
    async with EmbeddedCluster(data=tmp_path) as second, Client(second) as client:
        items = (await client.get(CONFIG_MAPS))["items"]
        found = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}
        later = await client.create(CONFIG_MAPS, config_map("later"))

    assert len(acknowledged) >= after
    assert acknowledged.items() <= found.items()
    assert int(later["metadata"]["resourceVersion"]) > max(map(int, found.values()))

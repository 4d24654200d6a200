"""Pods report their ordinary saves over HTTP: all that count lost work know it from there on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.kube.resource import PODS
from tests.scheduling.site import NAMESPACE, Site, node, pod, site

_SAVED = "reprieve.dev/last-checkpoint"


class Desk:
    """What a pod may say to the operator."""

    def __init__(self, cluster: Site, session: aiohttp.ClientSession, address: str) -> None:
        self._cluster, self._session, self._address = cluster, session, address

    async def report(self, name: str, body: Any, uid: str = "") -> int:
        found = (await self._cluster.pods()).get(name)
        uid = uid or (found["metadata"]["uid"] if found else "gone")
        account = f"system:serviceaccount:{NAMESPACE}:default"
        token = self._cluster.embedded.cluster.token(account, ("reprieve.dev",), uid, name)
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self._address}/v1/checkpoint"
        async with self._session.post(url, json=body, headers=headers) as answer:
            return answer.status

    async def said(self, name: str) -> str | None:
        found = (await self._cluster.pods())[name]["metadata"].get("annotations") or {}
        return found.get(_SAVED)


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[tuple[Site, Desk]]:
    config = folder / "config.yaml"
    config.write_text("scheduling: {notice: {max: 10m}}\n")
    async with site([node("node-0")], folder / "cluster") as cluster:
        await cluster.classes()
        for name in ("low-0", "low-1"):
            await cluster.create(pod(name, 2, priority="low"))
        await cluster.operator("--config", str(config), "--notice-port", "0", *flags)
        await cluster.until_placed({"low-0", "low-1"})
        await cluster.run()
        (line,) = (each for each in cluster.lines if "notice server listens on port" in each)
        address = f"http://127.0.0.1:{line.rpartition(' ')[2]}"
        async with aiohttp.ClientSession() as session:
            yield cluster, Desk(cluster, session, address)


async def test_a_save_stands_on_the_pod_that_reports_it(tmp_path: Path) -> None:
    async with running(tmp_path, "--notice-files") as (cluster, desk):
        await asyncio.sleep(600)
        saved = cluster.embedded.cluster.api.clock.wall() - 20 * SECOND
        assert await desk.report("low-0", {"ago": 20, "step": 7}) == 204

        async def written() -> bool:
            return await desk.said("low-0") is not None

        await cluster.until("the save is written", written)
        text = await desk.said("low-0")
        assert text is not None and abs(parse_instant(text) - saved) <= SECOND
        assert await desk.said("low-1") is None


async def test_many_reports_of_a_pod_are_few_writes_and_the_last_one_stands(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, "--notice-files") as (cluster, desk):
        versions = set()
        for _ in range(40):
            assert await desk.report("low-0", {}) == 204
            await asyncio.sleep(3)
            versions.add((await cluster.pods())["low-0"]["metadata"]["resourceVersion"])
        await asyncio.sleep(60)
        text = await desk.said("low-0")
        now = cluster.embedded.cluster.api.clock.wall()
        assert text is not None and 60 * SECOND <= now - parse_instant(text) <= 65 * SECOND
        assert 3 <= len(versions) <= 7


async def test_nobody_reports_for_another_pod_or_nonsense(tmp_path: Path) -> None:
    async with running(tmp_path, "--notice-files") as (cluster, desk):
        bodies: tuple[Any, ...] = ({"ago": -1}, {"ago": 1e9}, [], {"ago": "x"})
        for body in bodies:
            assert await desk.report("low-0", body) == 400
        # The pod of the token is gone, and another one has its name.
        assert await desk.report("low-0", {}, uid="of-the-pod-before") == 204
        await asyncio.sleep(60)
        assert await desk.said("low-0") is None
        assert "Traceback" not in "\n".join(cluster.lines)


async def test_without_the_option_nothing_is_taken_down(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, desk):
        assert await desk.report("low-0", {}) == 404
        await asyncio.sleep(60)
        assert await desk.said("low-0") is None
        assert len((await cluster.client.list(PODS, dict)).items) == 2

"""Notice end to end: pods of a gang ask over HTTP, save, and are released at once.

The API server reviews their tokens; time is virtual. Two nodes of four cpus are filled by a gang of
four pods of low priority that ask for ten minutes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeworld.units.instants import parse_instant
from reprieve.kube.resource import PODS, PREEMPTIONS
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve_notice import Notices
from reprieve_notice.http import HttpSource
from tests.scheduling.site import NAMESPACE, Site, group, node, pod, site

_NODES = [node("node-0"), node("node-1")]
_LOWS = [f"low-{number}" for number in range(4)]
_CONFIG = "scheduling: {notice: {max: 10m}}\n"


class Trainer:
    """The pods of the gang, as far as they speak HTTP."""

    def __init__(self, cluster: Site, session: aiohttp.ClientSession, address: str) -> None:
        self._cluster = cluster
        self._session = session
        self.address = address

    async def token(self, name: str, *audiences: str) -> str:
        uid = (await self._cluster.client.get(PODS, NAMESPACE, name, dict))["metadata"]["uid"]
        account = f"system:serviceaccount:{NAMESPACE}:default"
        found: str = self._cluster.embedded.cluster.token(
            account, audiences or ("reprieve.dev",), pod_uid=uid
        )
        return found

    async def asked(self, name: str, wait: int = 0, token: str = "") -> tuple[int, Any]:
        """Return status and notice of a poll."""
        return await self._sent("GET", f"?wait={wait}", token or await self.token(name))

    async def said(self, name: str, id: str, body: Any, token: str = "") -> tuple[int, Any]:
        """Return status and answer to a word about a notice."""
        return await self._sent("POST", f"/{id}", token or await self.token(name), body)

    async def _sent(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        url = f"{self.address}/v1/notice{path}"
        async with self._session.request(method, url, headers=headers, **data) as answer:
            return answer.status, await answer.json() if answer.status == 200 else ""


@asynccontextmanager
async def training(folder: Path, notice: str = "10m") -> AsyncIterator[tuple[Site, Trainer]]:
    """The gang runs, and an operator answers its pods."""
    config = folder / "config.yaml"
    config.write_text(_CONFIG)
    async with site(_NODES, folder / "cluster") as cluster, aiohttp.ClientSession() as session:
        await cluster.classes()
        await cluster.create(group("low", min_count=4, mode="all", priority="low"))
        for name in _LOWS:
            each = pod(name, 2, group="low", priority="low")
            each["metadata"]["annotations"] = {"reprieve.dev/notice": notice}
            await cluster.create(each)
        await cluster.operator("--config", str(config), "--notice-port", "0")
        await cluster.until_placed(set(_LOWS))
        await cluster.run()
        line = re.search(r"notice server listens on port (\d+)", "\n".join(cluster.lines))
        assert line is not None
        yield cluster, Trainer(cluster, session, f"http://127.0.0.1:{line[1]}")


async def phase(cluster: Site) -> str:
    (intent,) = await cluster.intents()
    found: str = intent["status"]["phase"]
    return found


async def until_told(cluster: Site, trainer: Trainer) -> dict[str, Any]:
    """Wait as a pod does until the gang is told."""
    while True:
        status, notice = await trainer.asked("low-0", wait=55)
        if status == 200:
            found: dict[str, Any] = notice
            return found
        assert status == 204


async def test_a_gang_is_told_saves_and_is_released_at_once(tmp_path: Path) -> None:
    async with training(tmp_path) as (cluster, trainer):
        polling = asyncio.create_task(until_told(cluster, trainer))
        high = await cluster.gang()
        notice = await polling

        (intent,) = await cluster.intents()
        deadlines = {each["notice"]["deadline"] for each in intent["spec"]["victims"]}
        assert deadlines == {notice["deadline"]}
        assert notice["state"] == "Noticed"
        assert 590e9 <= parse_instant(notice["deadline"]) - parse_instant(notice["now"]) <= 601e9
        assert await phase(cluster) == "Noticed"
        for name in _LOWS[:3]:
            status, said = await trainer.said(name, notice["id"], {"state": "saved", "step": 7})
            assert (status, said["state"]) == (200, "Noticed")
        await asyncio.sleep(30)
        assert not await cluster.victims()

        before = asyncio.get_running_loop().time()
        await trainer.said("low-3", notice["id"], {"state": "saving"})
        status, said = await trainer.said("low-3", notice["id"], {"state": "saved"})
        assert (status, said["state"]) == (200, "Saved")
        assert await cluster.until_victims(4) == set(_LOWS)
        assert asyncio.get_running_loop().time() - before <= 2
        await cluster.end()
        await cluster.until_placed(high)
        assert set(notice) == {"id", "state", "deadline", "now", "reason"}
        assert intent["spec"]["preemptor"]["uid"] not in str(notice)


async def test_a_gang_that_stays_silent_goes_at_its_deadline(tmp_path: Path) -> None:
    async with training(tmp_path, "1m") as (cluster, _):
        high = await cluster.gang()

        async def recorded() -> list[Any]:
            return await cluster.intents()

        await cluster.until("the plan is recorded", recorded)
        (intent,) = await cluster.intents()
        deadline = parse_instant(intent["spec"]["victims"][0]["notice"]["deadline"])
        page = await cluster.client.list(PREEMPTIONS, dict, namespace=OPERATOR_NAMESPACE)
        recorded_at = parse_instant(page.items[0]["metadata"]["creationTimestamp"])
        left = (deadline - recorded_at) / 1e9
        await asyncio.sleep(left - 5)
        assert not await cluster.victims()

        assert await cluster.until_victims(4) == set(_LOWS)
        await cluster.end()
        await cluster.until_placed(high)


async def test_a_gang_is_pardoned_when_its_preemptor_goes_away(tmp_path: Path) -> None:
    async with training(tmp_path, "1m") as (cluster, trainer):
        high = await cluster.gang()
        notice = await until_told(cluster, trainer)

        await cluster.end(*high)
        await asyncio.sleep(5)

        assert await phase(cluster) == "Abandoned"
        assert await trainer.asked("low-0") == (204, "")
        status, said = await trainer.said("low-0", notice["id"], {"state": "saved"})
        assert (status, said["state"]) == (200, "Pardoned")
        await asyncio.sleep(70)
        assert not await cluster.victims()


async def test_nobody_answers_for_others_and_nobody_floods(tmp_path: Path) -> None:
    async with training(tmp_path) as (cluster, trainer):
        await cluster.create(pod("stranger", 1))
        await cluster.gang()
        notice = await until_told(cluster, trainer)
        id, saved = notice["id"], {"state": "saved"}
        await asyncio.sleep(61)  # the polls of that minute do not count below

        assert await trainer.said("stranger", id, saved) == (404, "")
        assert await trainer.said("low-0", "0" * 32, saved) == (404, "")
        assert await trainer.said("low-0", id, saved, token="nobody") == (401, "")
        other = await trainer.token("low-0", "https://kubernetes.default.svc")
        assert await trainer.said("low-0", id, saved, token=other) == (401, "")
        assert await trainer.said("low-0", id, {"state": "keep"}) == (400, "")
        nested = b'{"state": "saved", "x": ' + b"[" * 4000
        for text in (b"{", b"\xff", b'{"state": "saved", "expected": "soon"}', nested):
            assert await trainer.said("low-0", id, text) == (400, "")
        assert await trainer.said("low-0", id, {"state": "saved", "message": "x" * 5000}) == (
            413,
            "",
        )
        answers = [(await trainer.asked("low-1"))[0] for _ in range(61)]
        assert answers == [200] * 60 + [429]
        assert not await cluster.victims()
        assert (await trainer.asked("low-2"))[1]["deadline"] == notice["deadline"]


async def test_the_library_saves_and_the_gang_is_released_at_once(tmp_path: Path) -> None:
    async with training(tmp_path) as (cluster, trainer):
        high = await cluster.gang()
        await until_told(cluster, trainer)

        def trained(token: Path) -> bool:
            notices = Notices(HttpSource(trainer.address, token))
            notices.ask()
            notice = notices.due(20, every=10)
            assert notice is not None
            assert 500 < notice.remaining <= 601
            notices.close()
            return notice.saved(step=20)

        for name in _LOWS:
            assert not await cluster.victims()
            token = tmp_path / name
            token.write_text(await trainer.token(name))
            assert await asyncio.to_thread(trained, token)

        assert await cluster.until_victims(4) == set(_LOWS)
        await cluster.end()
        await cluster.until_placed(high)


async def test_a_token_that_ended_counts_for_a_minute_and_its_successor_at_once(
    tmp_path: Path,
) -> None:
    """The kubelet renews it between told and saved; the deadline stands, nobody else is harmed."""
    async with training(tmp_path) as (cluster, trainer):
        high = await cluster.gang()
        old = {name: await trainer.token(name) for name in _LOWS}
        notice = await until_told(cluster, trainer)
        for token in old.values():
            await trainer.asked("", token=token)
            cluster.embedded.cluster.revoke(token)
        await asyncio.sleep(61)

        for name, token in old.items():
            said = await trainer.said(name, notice["id"], {"state": "saved"}, token=token)
            assert said == (401, "")
        assert not await cluster.victims()
        for name in _LOWS:
            token = await trainer.token(name, "reprieve.dev", "https://kubernetes.default.svc")
            assert (await trainer.asked(name, token=token))[1]["deadline"] == notice["deadline"]
            said = await trainer.said(name, notice["id"], {"state": "saved"}, token=token)
            assert said[0] == 200
        assert await cluster.until_victims(4) == set(_LOWS)
        await cluster.end()
        await cluster.until_placed(high)


@pytest.mark.parametrize("text", ["", "Basic x", "Bearer "])
async def test_who_shows_no_token_is_not_answered(text: str, tmp_path: Path) -> None:
    async with training(tmp_path) as (cluster, _), aiohttp.ClientSession() as session:
        line = re.search(r"notice server listens on port (\d+)", "\n".join(cluster.lines))
        assert line is not None
        url, headers = f"http://127.0.0.1:{line[1]}/v1/notice", {"Authorization": text}
        async with session.get(url, headers=headers) as answer:
            assert answer.status == 401

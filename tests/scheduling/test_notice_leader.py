"""Pods may reach any process: the one that does not lead passes what they ask on to the leader."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import Nanos
from reprieve.execution.notices import Notices
from reprieve.kube.errors import Unreachable
from reprieve.operator.notice_leader import ADDRESS, Leader, own_host, published
from reprieve.operator.notice_server import NoticeDesk, serve_notices
from reprieve.operator.notice_tls import NoticeTls, notice_contexts
from reprieve.operator.pod_tokens import ShownPod
from reprieve.planes.quota.webhooks.certificates import Certificates, new_certificates
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.telemetry.metrics import Metrics
from reprieve_notice.http import HttpSource
from reprieve_notice.notices import Notices as Library
from tests.scheduling.site import Site, group, node, pod, site
from tests.scheduling.test_notice_over_http import Trainer
from tests.scheduling.test_notice_polls import answered, request

pytestmark = pytest.mark.real_time  # sockets, also of other processes

_LOWS = [f"low-{number}" for number in range(4)]


class Cluster:
    """An API server that has nothing but the process lease."""

    def __init__(self) -> None:
        self.holder, self.annotations = "", dict[str, str]()
        self.away, self.reads = False, 0

    async def get(self, *_: object) -> dict[str, Any]:
        self.reads += 1
        if self.away:
            raise Unreachable("away")
        return {
            "metadata": {"annotations": self.annotations},
            "spec": {"holderIdentity": self.holder},
        }

    def led_by(self, identity: str, port: int, host: str = "127.0.0.1") -> None:
        self.holder, self.annotations = identity, {ADDRESS: published(identity, host, port)}


@asynccontextmanager
async def process(
    cluster: Cluster,
    identity: str,
    *,
    leads: bool,
    serving: ssl.SSLContext | None = None,
    leader: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve notices as a process does that leads or stands by; gives its port."""
    clock = SystemClock()
    notices = Notices(clock, Metrics())
    notices.expect("scheduling")
    if leads:
        notices.inherited("scheduling")

    async def pod_of(token: str) -> ShownPod:
        return ShownPod("" if token == "nobody" else f"{identity}-{token}")

    passing = Leader(cast("Any", cluster), clock, ("system", "reprieve"), identity, leader)
    desk = NoticeDesk(notices, pod_of, clock, leader=passing)
    async with serve_notices(desk, "127.0.0.1", 0, serving) as port:
        yield port


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Cluster, int]]:
    """A leader, and one that stands by, whose port this gives."""
    cluster = Cluster()
    async with (
        process(cluster, "a", leads=True) as first,
        process(cluster, "b", leads=False) as second,
    ):
        cluster.led_by("a", first)
        yield cluster, second


async def test_a_poll_of_another_process_gets_the_answer_of_the_leader() -> None:
    async with two() as (cluster, port):
        assert (await answered(port, request()))[0] == "HTTP/1.1 204 No Content"
        assert (await answered(port, request(pod="nobody")))[0] == "HTTP/1.1 401 Unauthorized"
        assert (await answered(port, request("/v1/notice?wait=x")))[0] == "HTTP/1.1 400 Bad Request"
        assert cluster.reads == 1, "the lease is read once a second"


@pytest.mark.parametrize("path", ["/v1/notice/abc", "/v1/notice/a%0D%0AX:%20y", "/v1/checkpoint"])
async def test_a_report_to_another_process_gets_the_answer_of_the_leader(path: str) -> None:
    async with two() as (_, port), aiohttp.ClientSession() as session:
        url, headers = f"http://127.0.0.1:{port}", {"Authorization": "Bearer one"}
        where = URL(url + path, encoded=True)
        async with session.post(where, headers=headers, json={"state": "saved"}) as answer:
            assert answer.status == 404
        body = {"state": "saved", "message": "x" * 5_000}
        async with session.post(where, headers=headers, json=body) as answer:
            assert answer.status == 413


@pytest.mark.parametrize("why", ["nobody leads", "it is gone", "it is another one", "away", "self"])
async def test_where_no_leader_answers_the_pod_is_sent_elsewhere(why: str) -> None:
    async with two() as (cluster, port):
        if why == "nobody leads":
            cluster.holder = ""
        elif why == "it is gone":
            cluster.led_by("a", 1)
        elif why == "it is another one":
            cluster.holder = "c"
        elif why == "self":
            cluster.led_by("b", port)
        cluster.away = why == "away"
        status, headers, _ = await answered(port, request())
        assert status == "HTTP/1.1 503 Service Unavailable"
        assert (headers["connection"], headers["retry-after"]) == ("close", "1")


async def test_a_request_is_passed_on_once() -> None:
    """Two processes that take one another for the leader do not ask one another for ever."""
    cluster = Cluster()
    async with (
        process(cluster, "a", leads=False) as first,
        process(cluster, "b", leads=False) as second,
    ):
        cluster.led_by("a", first)
        assert (await answered(second, request()))[0].startswith("HTTP/1.1 503")
        passed_on = request("/v1/notice", "Reprieve-Passed-On: 1")
        assert (await answered(first, passed_on))[0].startswith("HTTP/1.1 503")


async def test_a_new_leader_is_asked_as_soon_as_the_former_one_is_gone() -> None:
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(process(cluster, "b", leads=False))
        async with process(cluster, "a", leads=True) as first:
            cluster.led_by("a", first)
            waiting = asyncio.create_task(answered(second, request("/v1/notice?wait=55")))
            assert (await answered(second, request()))[0] == "HTTP/1.1 204 No Content"
        assert (await waiting)[0].startswith("HTTP/1.1 503")
        third = await stack.enter_async_context(process(cluster, "c", leads=True))
        cluster.led_by("c", third)
        assert (await answered(second, request()))[0].startswith("HTTP/1.1 503")
        assert (await answered(second, request()))[0] == "HTTP/1.1 204 No Content"


@pytest.mark.parametrize("fits", [True, False])
async def test_over_tls_only_a_process_with_our_certificate_is_believed(
    fits: bool, tmp_path: Path
) -> None:
    ours, other = (_stored(tmp_path / name) for name in ("ours", "other"))
    cluster, none = Cluster(), cast("Any", None)
    async with (
        notice_contexts(NoticeTls(folder=ours), none, SystemClock()) as mine,
        notice_contexts(NoticeTls(folder=ours if fits else other), none, SystemClock()) as theirs,
        process(cluster, "a", leads=True, serving=theirs.serving) as first,
        process(cluster, "b", leads=False, leader=mine.leader) as second,
    ):
        cluster.led_by("a", first)
        status = (await answered(second, request()))[0]
    assert status.split()[1] == ("204" if fits else "503")


def _stored(folder: Path) -> Path:
    made: Certificates = new_certificates(("reprieve-notice",), Nanos(SystemClock().wall()))
    folder.mkdir()
    (folder / "tls.crt").write_bytes(made.certificate + made.trusted)
    (folder / "tls.key").write_bytes(made.key)
    return folder


async def test_the_own_address_is_the_one_towards_the_api_server() -> None:
    assert await own_host("https://127.0.0.1:6443/some/path") == "127.0.0.1"
    assert await own_host("https://[::1]:6443") in ("::1", "")
    assert await own_host("https://no-such-host.invalid") == ""
    assert published("me", "::1", 80) == "me [::1]:80"


# Real processes.


async def _operator(cluster: Site, config: Path) -> tuple[OperatorProcesses, str]:
    operator = await cluster.operator_process("--config", str(config), "--notice-port", "0")
    await operator.until_said("notice server listens on port")
    said = "\n".join(operator.tail(400))
    (port,) = re.findall(r"notice server listens on port (\d+)", said)
    return operator, f"http://127.0.0.1:{port}"


async def _reported(trainer: Trainer, folder: Path, name: str) -> bool:
    """Report by the library that a pod has saved, from the first poll on."""
    token = folder / name
    token.write_text(await trainer.token(name))

    def run() -> bool:
        notices = Library(HttpSource(trainer.address, token))
        known = Event()
        while (notice := notices.due()) is None:  # its thread polls, and tries again
            known.wait(0.05)
        notices.close()
        return notice.saved()

    return await asyncio.to_thread(run)


async def test_what_a_leader_was_told_outlives_it_whomever_the_pods_reach(tmp_path: Path) -> None:
    """The leader is killed between told and saved; pods speak to the process that stood by."""
    config = tmp_path / "config.yaml"
    config.write_text("scheduling: {notice: {max: 10m}}\n")
    async with (
        site([node("node-0"), node("node-1")], tmp_path / "cluster") as cluster,
        aiohttp.ClientSession() as session,
    ):
        await cluster.classes()
        first, _ = await _operator(cluster, config)
        second, address = await _operator(cluster, config)
        await second.until_said("stands by")
        await cluster.create(group("low", min_count=4, mode="all", priority="low"))
        for name in _LOWS:
            each = pod(name, 2, group="low", priority="low")
            each["metadata"]["annotations"] = {"reprieve.dev/notice": "10m"}
            await cluster.create(each)
        await cluster.until_placed(set(_LOWS))
        await cluster.run()
        high = await cluster.gang()
        trainer = Trainer(cluster, session, address)
        for name in _LOWS[:3]:
            assert await _reported(trainer, tmp_path, name)
        assert not await cluster.victims()

        os.kill(first.pids[0], signal.SIGKILL)
        await second.until_said("leading, epoch")
        assert await _reported(trainer, tmp_path, _LOWS[3])
        assert await cluster.until_victims(4) == set(_LOWS)
        await cluster.end()
        await cluster.until_placed(high)
        (record,) = await cluster.intents()
        assert len(record["status"]["savedPods"]) == 3

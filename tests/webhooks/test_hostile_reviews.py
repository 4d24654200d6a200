"""What anybody who reaches the webhooks' port can send, and that the operator goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import test_utils, web

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import Nanos
from reprieve.api.kueue_conversion import KEPT, convert
from reprieve.planes.quota.webhooks import requests as webhook_requests
from reprieve.planes.quota.webhooks.certificates import Certificates, new_certificates
from reprieve.planes.quota.webhooks.registration import CONVERT
from reprieve.planes.quota.webhooks.requests import MOST_BYTES, PLACES, Desk
from reprieve.planes.quota.webhooks.reviews import Asked, Hook, Verdict
from reprieve.planes.quota.webhooks.server import serve_webhooks
from reprieve.planes.quota.webhooks.tenancy import TenancyOnTheLoop
from reprieve.telemetry import connections
from reprieve.telemetry.connections import Limits
from reprieve.units.errors import UsageError
from tests.kueue.objects import Json, workload
from tests.kueue.webhooks import OPTIONS
from tests.webhooks.clients import client

NAMES = ("127.0.0.1",)
V1BETA1, V1BETA2 = (f"kueue.x-k8s.io/{version}" for version in ("v1beta1", "v1beta2"))
PATH = "/validate-x"


def now() -> Nanos:
    return SystemClock().wall()


class Door:
    """A server that listens, and raw requests to it."""

    def __init__(self, port: int, authority: bytes) -> None:
        self.port = port
        self.authority = authority
        self.refused: Counter[str] = Counter()
        self.talks: list[Talk] = []
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.judge: Callable[[Asked], Verdict] = lambda asked: Verdict()

    async def connect(self, client: Certificates | None = None, folder: Path | None = None) -> Talk:
        context = ssl.create_default_context(cadata=self.authority.decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if client is not None and folder is not None:
            file = folder / "client.pem"
            file.write_bytes(client.key + b"\n" + client.certificate)
            context.load_cert_chain(file)
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        self.talks.append(Talk(*streams))
        return self.talks[-1]

    async def ask(self, path: str, body: bytes, *headers: str) -> tuple[int, Json]:
        talk = await self.connect()
        try:
            await talk.send(_head(path, f"Content-Length: {len(body)}", *headers) + body)
            return await talk.answer()
        finally:
            talk.close()


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.headers: dict[str, str] = {}

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, Json]:
        """Return the code and the JSON of an answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        self.headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(self.headers["Content-Length"]))
        return int(head[0].split()[1]), orjson.loads(body)

    async def closed(self) -> bool:
        """Wait until the other side closes; tell that it said nothing before."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return await self.reader.read(1) == b""
        return True

    def close(self) -> None:
        self.writer.close()
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Door]:
    certificates = new_certificates(NAMES, now())
    door = Door(0, certificates.trusted)
    hook = Hook("x.kb.io", PATH, "", "v1", ("x",), lambda asked: door.judge(asked))
    where = replace(OPTIONS, **options)

    def refused(why: str) -> None:
        door.refused[why] += 1
        door.heard.put_nowait(why)

    async with serve_webhooks([hook], certificates, where, refused) as server:
        door.port = server.port
        try:
            yield door
        finally:
            for talk in door.talks:
                talk.close()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with served() as found:
        yield found


def _head(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", *headers, "", "")).encode()


def conversion(*objects: Json, version: str = V1BETA1) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": version, "objects": list(objects)}
    return orjson.dumps({"kind": "ConversionReview", "request": request})


def admission(**more: Any) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "a"}}}
    return orjson.dumps({"kind": "AdmissionReview", "request": {**request, **more}})


async def test_a_review_of_three_mebibytes_does_not_hold_the_loop_up(door: Door) -> None:
    one = workload()
    body = conversion(*[one] * ((MOST_BYTES - 1000) // (len(orjson.dumps(one)) + 1)))
    assert MOST_BYTES * 0.9 < len(body) <= MOST_BYTES
    talk = await door.connect()
    await talk.send(_head(CONVERT, f"Content-Length: {len(body)}") + body)
    ticks = 0

    async def beat() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    heart = asyncio.create_task(beat())
    head = await talk.reader.readuntil(b"\r\n\r\n")
    heart.cancel()
    talk.close()
    assert head.startswith(b"HTTP/1.1 200")
    # It takes a second. On the loop there would be a tick or two.
    assert ticks >= 10


async def test_a_body_that_is_said_to_be_too_large_is_refused_unread(door: Door) -> None:
    talk = await door.connect()
    await talk.send(_head(CONVERT, f"Content-Length: {MOST_BYTES + 1}"))
    code, status = await talk.answer()
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert status["message"] == f"the body is too large; accepted: {MOST_BYTES} bytes"
    assert door.refused == {"too-large": 1}


async def test_chunks_without_end_are_refused_where_they_are_too_many(door: Door) -> None:
    talk = await door.connect()
    await talk.send(_head(CONVERT, "Transfer-Encoding: chunked"))
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = 0
    answer = asyncio.create_task(talk.answer())
    with contextlib.suppress(ConnectionError):
        while not answer.done():
            await talk.send(chunk)
            sent += 0x10000
            await asyncio.sleep(0)
    assert (await answer)[0] == 413
    assert await talk.closed()
    assert sent < 8 * MOST_BYTES


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 100_000, "not JSON"),
        (b'{"kind":"AdmissionReview","request":' + b'{"a":' * 500 + b"1" + b"}" * 501, "nested"),
        (b'{"kind":"AdmissionReview","request":[' + b"[]," * 900_000 + b"1]}", "too many values"),
        (admission(object=["a"]), "no object of Kubernetes"),
        (admission(object={"metadata": ["a"]}), "no object of Kubernetes"),
        (b"\xff\xfe", "not JSON"),
    ],
    ids=["brackets", "nested", "wide", "list", "metadata", "bytes"],
)
async def test_what_is_no_review_is_told_so(door: Door, body: bytes, why: str) -> None:
    code, status = await door.ask(PATH, body)
    assert (code, status["kind"], status["reason"]) == (400, "Status", "BadRequest")
    assert why in status["message"]
    assert "Traceback" not in status["message"]


async def test_a_compressed_body_is_not_unpacked(door: Door) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    code, status = await door.ask(CONVERT, bomb, "Content-Encoding: gzip")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_of_64_at_once_so_many_as_there_are_places_are_in_flight_and_the_rest_come_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_requests, "_WAIT_S", 0.2)
    go_on = threading.Event()
    judged: list[str] = []

    def judge(asked: Asked) -> Verdict:
        go_on.wait(60)
        judged.append(asked.operation)
        return Verdict()

    door.judge = judge
    talks = [await door.connect() for _ in range(64)]
    body = admission()
    for talk in talks:
        await talk.send(_head(PATH, f"Content-Length: {len(body)}") + body)
    answers = {asyncio.create_task(talk.answer()): talk for talk in talks}
    waiting = set(answers)
    while len(waiting) > PLACES:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    # A conversion has places of its own.
    assert (await door.ask(CONVERT, conversion(workload())))[0] == 200
    go_on.set()
    codes = Counter([(await answer)[0] for answer in answers])
    assert codes == {200: PLACES, 429: 64 - PLACES}
    assert len(judged) == PLACES
    refused = [talk for answer, talk in answers.items() if answer.result()[0] == 429]
    assert {talk.headers["Retry-After"] for talk in refused} == {"1"}
    assert door.refused == {"busy": 64 - PLACES}


async def test_who_finds_the_line_full_is_told_at_once(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_requests, "_WAIT_S", 600.0)
    monkeypatch.setattr(webhook_requests, "_WAITING", 3)
    go_on = threading.Event()

    def judge(asked: Asked) -> Verdict:
        go_on.wait(30)
        return Verdict()

    door.judge = judge
    body = admission()
    talks = [await door.connect() for _ in range(PLACES + 3 + 5)]
    for talk in talks:
        await talk.send(_head(PATH, f"Content-Length: {len(body)}") + body)
    waiting = {asyncio.create_task(talk.answer()) for talk in talks}
    answers: list[int] = []
    while len(answers) < 5:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert done, "whom there is no room for waits"
        answers += [task.result()[0] for task in done]
    assert answers == [429] * 5
    go_on.set()
    assert [(await task)[0] for task in waiting] == [200] * (PLACES + 3)


async def test_who_sends_slowly_is_left(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    body = admission()
    request = _head(PATH, f"Content-Length: {len(body)}") + body
    kept = await door.connect()
    await kept.send(request)
    assert (await kept.answer())[0] == 200
    monkeypatch.setattr(connections, "DEFAULT", Limits(head_s=0.2))
    monkeypatch.setattr(webhook_requests, "_BODY_S", 0.2)
    first, second = await door.connect(), await door.connect()
    await first.send(b"POST")
    await second.send(b"POST /convert HTTP/1.1\r\nHo")
    assert await first.closed() and await second.closed()
    assert door.refused == {"slow-head": 2}
    # A connection that is kept may be idle for longer; the next head may not take longer.
    await kept.send(request)
    assert (await kept.answer())[0] == 200
    await kept.send(b"POST /convert HT")
    assert await kept.closed()
    assert door.refused == {"slow-head": 3}
    monkeypatch.setattr(connections, "DEFAULT", Limits(head_s=60.0))
    slow = await door.connect()
    await slow.send(_head(CONVERT, "Content-Length: 10") + b"{")
    code, status = await slow.answer()
    assert (code, status["reason"]) == (408, "Timeout")
    assert door.refused == {"slow-head": 3, "slow-body": 1}


async def test_a_connection_may_wait_for_its_first_request_as_long_as_for_the_next(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = admission()
    monkeypatch.setattr(connections, "DEFAULT", Limits(head_s=0.2))
    unused, half = await door.connect(), await door.connect()
    await half.send(b"POST")
    assert await half.closed()
    await unused.send(_head(PATH, f"Content-Length: {len(body)}") + body)
    assert (await unused.answer())[0] == 200
    assert door.refused == {"slow-head": 1}
    monkeypatch.setattr(connections, "DEFAULT", Limits(idle_s=0.2))
    assert await (await door.connect()).closed()
    assert door.refused == {"slow-head": 1, "unused": 1}


async def test_there_are_only_so_many_connections(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "DEFAULT", Limits(most=3))
    first = [await door.connect() for _ in range(3)]
    assert await (await door.connect()).closed()
    assert door.refused == {"connections": 1}
    first[0].close()
    answered = False
    while not answered:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            answered = (await door.ask(PATH, admission()))[0] == 200


async def test_who_does_not_read_the_answer_is_left(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "DEFAULT", Limits(write_s=0.2))
    talk = await door.connect()
    one = workload()
    one["metadata"]["annotations"] = {"a": "x" * 2_900_000}
    body = conversion(one)
    # More answers than the buffers between the two hold.
    request = _head(CONVERT, f"Content-Length: {len(body)}") + body
    with contextlib.suppress(ConnectionError):
        for _ in range(20):
            await talk.send(request)
            await asyncio.sleep(0)
    assert await asyncio.wait_for(door.heard.get(), 60) == "slow-reader"


async def test_with_an_authority_reviews_are_answered_to_its_clients_alone(tmp_path: Path) -> None:
    theirs, trusted = client("kube-apiserver", "other.example")
    nobodys, _ = client("kube-apiserver")
    authority = tmp_path / "ca.crt"
    authority.write_bytes(trusted)
    for names, code in (
        ((), 200),
        (("kube-apiserver",), 200),
        (("other.example",), 200),
        (("somebody",), 403),
    ):
        async with served(client_authority=authority, client_names=names) as door:
            talk = await door.connect(theirs, tmp_path)
            body = admission()
            await talk.send(_head(PATH, f"Content-Length: {len(body)}") + body)
            assert (await talk.answer())[0] == code
            assert (await door.ask(PATH, body))[0] == 403
            # Kubernetes has no client certificate for conversions.
            assert (await door.ask(CONVERT, conversion(workload())))[0] == 200
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                forged = await door.connect(nobodys, tmp_path)
                await forged.send(_head(PATH, f"Content-Length: {len(body)}") + body)
                await forged.answer()
    with pytest.raises(UsageError, match=r"clientAuthority .*nowhere.* accepted: a file of"):
        async with served(client_authority=tmp_path / "nowhere"):
            pass


def slices(count: int, **level: Any) -> Json:
    obj = workload()
    topology = {"slices": [{"domainCount": count, "valuesPerLevel": [level]}]}
    assignment = {"name": "main", "topologyAssignment": {"levels": ["l"], **topology}}
    obj["status"] = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    return obj


@pytest.mark.parametrize(
    "bomb",
    [
        slices(10**9, universal="a"),
        slices(50_000, individual={"prefix": "x" * 100_000, "roots": ["a"]}),
        slices(10**12, individual={"roots": []}),
    ],
    ids=["domains", "prefix", "roots"],
)
async def test_what_is_short_here_and_endless_there_is_not_written_out(
    door: Door, bomb: Json
) -> None:
    code, answer = await door.ask(CONVERT, conversion(bomb))
    response = answer["response"]
    assert (code, response["convertedObjects"]) == (200, [])
    assert response["result"]["status"] == "Failure"
    assert "topology assignment" in response["result"]["message"]
    fine = slices(3, universal="a")
    _, answer = await door.ask(CONVERT, conversion(fine))
    (converted,) = answer["response"]["convertedObjects"]
    assert (
        len(
            converted["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"][
                "domains"
            ]
        )
        == 3
    )


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 60 + "1" + "}" * 60, "9" * 5_000, "{"])
def test_an_annotation_that_nobody_kept_hides_no_object(text: str) -> None:
    obj = {**workload(), "apiVersion": V1BETA2}
    obj["metadata"]["annotations"] = {KEPT: text}
    assert convert(obj, V1BETA1)["metadata"]["name"] == obj["metadata"]["name"]


async def test_what_judges_ask_is_answered_on_the_loop() -> None:
    threads: list[int] = []

    class Plane:
        def manages(self, namespace: str) -> bool:
            threads.append(threading.get_ident())
            return namespace == "mine"

        def has_ancestor(self, namespace: str, job: Json) -> bool:
            raise KeyError(namespace)

    tenancy = TenancyOnTheLoop(Plane(), asyncio.get_running_loop())  # type: ignore[arg-type]
    assert await asyncio.to_thread(tenancy.manages, "mine") is True
    assert await asyncio.to_thread(tenancy.manages, "other") is False
    assert set(threads) == {threading.get_ident()}
    with pytest.raises(KeyError):
        await asyncio.to_thread(tenancy.has_ancestor, "mine", {})


async def test_a_review_while_the_process_ends_is_refused_without_a_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the lease is lost: another replica answers the API server's next try."""
    began, go_on, refused = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def answer(body: bytes) -> dict[str, object]:
        loop.call_soon_threadsafe(began.set)
        go_on.wait()
        return {}

    desk = Desk("admission", refused.append)
    application = web.Application()
    application.router.add_post("/", desk.handler(answer))
    async with (
        test_utils.TestServer(application) as server,
        test_utils.TestClient[web.Request, web.Application](server) as asks,
    ):
        first = asyncio.create_task(asks.post("/", json={}))
        await began.wait()
        submit, in_line_now = desk._thread.submit, asyncio.Event()

        def submitted(*given: Any) -> Any:
            in_line_now.set()
            return submit(*given)

        monkeypatch.setattr(desk._thread, "submit", submitted)
        waiting = asyncio.create_task(asks.post("/", json={}))
        await in_line_now.wait()
        desk.close()
        late = await asks.post("/", json={})
        in_line = await waiting
        go_on.set()
        assert (await first).status == 200
    assert [late.status, in_line.status] == [503, 503]
    assert refused == ["stopping", "stopping"]
    assert "webhook failed" not in caplog.text

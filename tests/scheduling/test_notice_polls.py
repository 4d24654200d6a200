"""Polls that are answered in front of aiohttp get what aiohttp would answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.execution.notices import Notices
from reprieve.operator.notice_polls import Poll, poll_of
from reprieve.operator.notice_server import NoticeDesk, serve_notices
from reprieve.operator.pod_tokens import ShownPod, Undecided
from reprieve.telemetry.metrics import Metrics


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Notices, int]]:
    clock = SystemClock()
    notices = Notices(clock, Metrics())
    notices.expect("scheduling")
    notices.inherited("scheduling")

    async def pod_of(token: str) -> ShownPod:
        if token == "undecided":
            raise Undecided
        return ShownPod(token.removeprefix("nobody"))

    async with serve_notices(NoticeDesk(notices, pod_of, clock), "127.0.0.1", 0) as port:
        yield notices, port


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


def request(path: str = "/v1/notice?wait=0", *lines: str, pod: str = "one") -> bytes:
    head = [f"GET {path} HTTP/1.1", "Host: operator", f"Authorization: Bearer {pod}", *lines]
    return "\r\n".join([*head, "", ""]).encode()


async def answered(port: int, *sent: bytes) -> tuple[str, dict[str, str], str]:
    """Send pieces on a connection of its own; return the status line, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in sent:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    found = await read(reader)
    writer.close()
    return found


async def read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], str]:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return status, headers, body.decode()


def test_a_poll_in_its_usual_form_is_read() -> None:
    assert poll_of(request("/v1/notice?wait=55")) == Poll("55", "Bearer one", False)
    assert poll_of(request("/v1/notice", "connection: Close")) == Poll("0", "Bearer one", True)


@pytest.mark.parametrize(
    "other",
    [
        request("/v1/notice?wait=0&x=1"),
        request("/v1/notice/abc"),
        request("/v1/notice?wait=-1"),
        request("/v1/notice?wait=0", "Content-Length: 3"),
        request("/v1/notice?wait=0", "Transfer-Encoding: chunked"),
        request("/v1/notice?wait=0", "Authorization: Bearer two"),
        request("/v1/notice?wait=0", "Connection: upgrade"),
        request("/v1/notice?wait=0", " folded: 1"),
        request("/v1/notice?wait=0", "X: caf\u00e9"),
        request() + request(),
        request()[:-2],
        request("/v1/notice?wait=0", "X: " + "x" * 8_190),
        request().replace(b"HTTP/1.1", b"HTTP/1.0"),
        request().replace(b"GET", b"POST"),
    ],
)
def test_anything_else_is_left_to_the_http_server(other: bytes) -> None:
    assert poll_of(other) is None


@pytest.mark.parametrize("pod", ["one", "nobody", "undecided"])
@pytest.mark.parametrize("wait", ["0", "9999", "55"])
async def test_both_ways_give_the_same_answer(pod: str, wait: str) -> None:
    async with served() as (notices, port):
        sent = request(f"/v1/notice?wait={wait}", pod=pod)
        asking = [
            asyncio.create_task(answered(port, sent)),
            asyncio.create_task(answered(port, sent.replace(b" HTTP", b"&x=1 HTTP"))),
            asyncio.create_task(answered(port, sent[:20], sent[20:])),
        ]
        if pod == "one" and wait != "0":
            await until(lambda: notices.waiters.number("one") == len(asking))
        notices.waiters.wake("one")
        (status, headers, body), *others = await asyncio.gather(*asking)
        assert status.startswith("HTTP/1.1 ")
        for each in others:
            assert (each[0], each[2]) == (status, body)
            for name in ("content-type", "retry-after"):
                assert each[1].get(name) == headers.get(name)


async def test_a_connection_goes_on_from_polls_to_words_and_back() -> None:
    async with served() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        word = b'{"state": "saved"}'
        post = request("/v1/notice/abc", f"Content-Length: {len(word)}").replace(b"GET", b"POST")
        for sent, status in ((request(), 204), (post + word, 404), (request(), 204)):
            writer.write(sent)
            assert (await read(reader))[0].startswith(f"HTTP/1.1 {status} ")
        writer.close()


async def test_who_speaks_while_it_polls_and_who_asks_for_that_is_hung_up_on() -> None:
    async with served() as (notices, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/v1/notice?wait=55"))
        await until(lambda: bool(notices.waiters.number("one")))
        writer.write(request())
        assert await reader.read() == b""
        await until(lambda: not notices.waiters.number("one"))
        writer.close()
        assert not notices.waiters.alarms
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/v1/notice", "Connection: close"))
        assert (await reader.read()).startswith(b"HTTP/1.1 204 ")
        writer.close()

"""Answers as servers may send them, in whatever pieces, and connections that are used again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reprieve.kube.http1 import Connections, Incomplete, Malformed, Whole

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: t\r\n\r\n"
)
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\nhello"


class Server:
    """Answers every request with the same pieces; `closes` after each."""

    def __init__(self, *pieces: bytes, closes: bool = False) -> None:
        self.pieces, self.closes = pieces, closes
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def served(server: Server, limit: int = 4) -> AsyncIterator[Connections]:
    started = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = started.sockets[0].getsockname()[1]
    made: Callable[[Any], socket.socket] = lambda address: socket.socket(*address[:3])  # noqa: E731
    connections = Connections(f"http://127.0.0.1:{port}/prefix", None, None, limit, made)
    try:
        yield connections
    finally:
        connections.close()
        started.close()
        await started.wait_closed()


async def sent(connections: Connections, seconds: float = 60.0, **headers: str) -> Whole:
    return await connections.send("POST", "/a%2Fb", {"x": "y z"}, headers, b"{}", seconds)


def pieces(answer: bytes, size: int) -> list[bytes]:
    return [answer[start : start + size] for start in range(0, len(answer), size)]


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, EARLY + PLAIN], ids=["length", "chunks", "1xx"])
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
async def test_an_answer_is_the_same_in_any_pieces(answer: bytes, size: int) -> None:
    server = Server(*pieces(answer, size))
    async with served(server) as connections:
        for _ in range(3):
            whole = await sent(connections, Authorization="Bearer t")
            assert (whole.status, await whole.read()) == (200, b"hello")
            assert whole.headers["Content-Type"] == "a/b"
    assert server.connections == 1
    request = server.requests[0]
    assert request.startswith(b"POST /prefix/a%2Fb?x=y+z HTTP/1.1\r\nHost: 127.0.0.1:")
    assert request.endswith(b"\r\nAuthorization: Bearer t\r\nContent-Length: 2\r\n\r\n{}")


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    server = Server(UNTIL_CLOSED, closes=True)
    async with served(server) as connections:
        for _ in range(3):
            assert await (await sent(connections)).read() == b"hello"
    assert server.connections == 3


async def test_a_connection_that_says_close_is_not_used_again() -> None:
    server = Server(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    async with served(server) as connections:
        for _ in range(2):
            assert (await sent(connections)).status == 200
    assert server.connections == 2


async def test_an_answer_to_nothing_is_never_taken_for_the_next_one() -> None:
    server = Server(PLAIN + PLAIN.replace(b"200 OK", b"500 No"))
    async with served(server) as connections:
        for _ in range(2):
            assert (await sent(connections)).status == 200
    assert server.connections == 2


@pytest.mark.parametrize("answer", [PLAIN[:-1], CHUNKED[:-4], PLAIN[:20], b""])
async def test_an_answer_that_ends_too_early_is_no_answer(answer: bytes) -> None:
    async with served(Server(answer, closes=True)) as connections:
        with pytest.raises(Incomplete):
            await sent(connections)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
async def test_what_is_no_http_is_refused(answer: bytes) -> None:
    async with served(Server(answer)) as connections:
        with pytest.raises(Malformed):
            await sent(connections)


async def test_an_answer_that_does_not_come_times_out_and_its_connection_goes() -> None:
    server = Server(PLAIN[:-1])
    async with served(server, limit=1) as connections:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await sent(connections, 0.05)
    assert server.connections == 2


async def test_no_more_connections_than_the_limit() -> None:
    server = Server(*pieces(PLAIN, 9))
    async with served(server, limit=2) as connections:
        answers = await asyncio.gather(*(sent(connections) for _ in range(20)))
    assert [each.body for each in answers] == [b"hello"] * 20
    assert server.connections == 2


async def test_a_header_cannot_smuggle_another() -> None:
    server = Server(PLAIN)
    async with served(server) as connections:
        with pytest.raises(ValueError, match="line break"):
            await sent(connections, Authorization="t\r\nX-Remote-User: root")
    assert server.connections == 0

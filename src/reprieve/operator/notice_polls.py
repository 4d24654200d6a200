"""Connections on which pods poll for notices: a poll waits with little memory.

Thousands of polls are open at a time, and aiohttp holds some 8 KiB for each request that it has
read. A request that is nothing but a poll in its usual form, and comes in one piece, is answered
here; everything else is passed to aiohttp, which keeps the connection from then on. What is
answered is stated by the desk (`notice_server`) either way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast

from reprieve.telemetry.connections import IDLE_S, Connections

__all__ = ["PASSED_ON", "Answer", "Poll", "Polls", "poll_of"]

_LONGEST: Final = 8_190  # of a head, as for aiohttp
_NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_POLL: Final = re.compile(
    rb"GET /v1/notice(?:\?wait=([0-9]{1,4}+))?+ HTTP/1\.1\r\n"
    rb"((?:" + _NAME + rb":[\x20-\x7e\t]*+\r\n)*+)\r\n"
)
#: A request with one of these is more than a poll.
_BEYOND: Final = (b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer")
_AUTHORIZATION: Final = b"authorization"
#: The header of a request that another process passes on (`notice_leader`).
PASSED_ON: Final = "Reprieve-Passed-On"
_PASSED_ON: Final = PASSED_ON.lower().encode()


class Poll(NamedTuple):
    """A poll: the seconds that it waits, its header `Authorization`, and if it is the last one.

    `passed_on`: by a process that does not lead.
    """

    wait: str
    authorization: str
    closes: bool
    passed_on: bool = False


class Answer(NamedTuple):
    """What a request is answered."""

    status: int
    body: str = ""
    content_type: str = "text/plain"
    again: bool = False

    @property
    def closes(self) -> bool:
        """Whether the connection ends: the next one may reach a process that can answer."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE


#: Answers a poll, given its wait, its header `Authorization`, and whether it was passed on.
Desk: TypeAlias = Callable[[str, str, bool], Awaitable[Answer]]


class Polls:
    """Makes what listens to new connections; `speaking` makes what speaks HTTP for the others."""

    def __init__(
        self, desk: Desk, connections: Connections, speaking: Callable[[], asyncio.Protocol]
    ) -> None:
        self.desk = desk
        self.connections = connections
        self.speaking = speaking
        self.waiting: set[asyncio.Task[None]] = set()

    def __call__(self) -> asyncio.Protocol:
        """Return what listens to a new connection."""
        return _Connection(self)

    async def close(self) -> None:
        """End all polls without an answer."""
        waiting = list(self.waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class _Connection(asyncio.Protocol):
    """One connection, until it requests more than polls."""

    __slots__ = ("_http", "_idle", "_polls", "_task", "_transport")

    def __init__(self, polls: Polls) -> None:
        self._polls = polls
        self._transport: asyncio.Transport | None = None
        self._http: asyncio.Protocol | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._http is not None:
            self._http.data_received(data)
            return
        assert self._transport is not None
        if self._task is not None:  # who polls has nothing to state until it is answered
            self._transport.close()
            return
        poll = poll_of(data)
        if poll is None:
            self._http = self._polls.speaking()
            self._polls.connections.speaks(self._http, self)
            self._http.connection_made(self._transport)
            self._http.data_received(data)
            return
        self._polls.connections.began(self)
        self._task = asyncio.get_running_loop().create_task(self._answer(poll))
        self._polls.waiting.add(self._task)

    async def _answer(self, poll: Poll) -> None:
        assert self._transport is not None
        try:
            answer = await self._polls.desk(poll.wait, poll.authorization, poll.passed_on)
            closes = poll.closes or answer.closes
            self._transport.write(_written(answer, closes=closes))
            if closes:
                self._transport.close()
            else:
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(IDLE_S, self._transport.close)
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self._polls.connections.ended(self)
            if self._task is not None:
                self._polls.waiting.discard(self._task)
                self._task = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._http is not None:
            self._polls.connections.silent(self._http)
            self._http.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return None if self._http is None else self._http.eof_received()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()


def poll_of(data: bytes) -> Poll | None:
    """Return the poll that these bytes are as a whole, None for anything else."""
    found = _POLL.fullmatch(data) if len(data) <= _LONGEST else None
    if found is None:
        return None
    wait, authorization, closes, passed_on = found[1] or b"0", b"", False, False
    for line in found[2].splitlines():
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in _BEYOND or (name == _AUTHORIZATION and authorization):
            return None
        if name == _AUTHORIZATION:
            authorization = value.strip()
        elif name == b"connection":
            if value.strip().lower() not in (b"close", b"keep-alive"):
                return None
            closes = value.strip().lower() == b"close"
        elif name == _PASSED_ON:
            passed_on = True
    return Poll(wait.decode(), authorization.decode(), closes, passed_on)


def _written(answer: Answer, *, closes: bool) -> bytes:
    body = answer.body.encode()
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    if answer.status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Type: {answer.content_type}; charset=utf-8")
        lines.append(f"Content-Length: {len(body)}")
    if answer.again:
        lines.append("Retry-After: 1")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body

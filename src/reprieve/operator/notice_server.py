"""Where pods query whether they are evicted soon, and report that they have saved.

| request | answer |
|---|---|
| `GET /v1/notice?wait=55` | 200 with the pod's notice as soon as there is one, 204 without one |
| `POST /v1/notice/ID` | 200 with the notice after the pod's word about it |
| `POST /v1/checkpoint` | 204: the pod saved so many seconds ago; 404 where that is not recorded |

Refusals: 401 without a token of a pod (`pod_tokens`), 404 for a notice that is not of the pod's
unit, 400 for what is no word and for `keep` where work may not be kept, 413 for a body above 4 KiB,
429 for the 61st request of a pod in a minute and its 17th poll at a time, 503 while no process
leads or the API server does not review tokens. A process that does not lead passes requests on to
the one that does (`notice_leader`). Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import InvalidInstant, Nanos, format_instant, parse_instant
from kubeworld.units.untrusted import integer_or_none
from reprieve.execution.accounts.reported_checkpoints import ReportedCheckpoints, SavedPod
from reprieve.execution.notices import Notices, Notified, Word
from reprieve.operator.notice_leader import Leader, Passed
from reprieve.operator.notice_polls import PASSED_ON, Answer, Polls
from reprieve.operator.pod_tokens import ShownPod, Undecided
from reprieve.telemetry.connections import IDLE_S, Connections, Limits, listening
from reprieve.wording.displacements import notice_reason

__all__ = ["NoticeDesk", "serve_notices"]

log: Final = logging.getLogger(__name__)

_MOST_BYTES: Final = 4096
_MOST_CONNECTIONS: Final = 20_256  # 20,000 polls that wait, and others
_MOST_REQUESTS: Final = 60  # of a pod in a minute
_MOST_POLLS: Final = 16  # of a pod that wait: each process of a pod has one
_UNUSED_S: Final = 10.0  # a connection without a first request
_LONGEST_POLL: Final = 55
_LONGEST: Final = 256  # letters of what is reported to people
_BODY_S: Final = 5.0
_RECORDED: Final = 2 * SECOND  # how long an answer waits until the report is recorded
_BEARER: Final = "Bearer "
_Body = TypeVar("_Body", bound=msgspec.Struct)


class _Word(msgspec.Struct, frozen=True):
    """What a pod states; `checkpoint` and `message` are for people alone."""

    state: Literal["saving", "saved", "keep"]
    expected: str = ""
    step: int | None = None
    checkpoint: str = ""
    message: str = ""


class _Save(msgspec.Struct, frozen=True):
    """That a pod saved, so many seconds ago."""

    ago: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 0


class _Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NoticeDesk:
    """Answers pods. `pod_of` returns the pod that a token is of, without a uid for none.

    `checkpoints`: where ordinary saves are recorded, None where they are not. `leader`: who answers
    while this process does not lead.
    """

    def __init__(
        self,
        notices: Notices,
        pod_of: Callable[[str], Awaitable[ShownPod]],
        clock: Clock,
        checkpoints: ReportedCheckpoints | None = None,
        leader: Leader | None = None,
    ) -> None:
        self._notices = notices
        self._checkpoints = checkpoints
        self._pod_of = pod_of
        self._clock = clock
        self._leader = leader
        self._minute = 0
        self._requests: Counter[str] = Counter()  # of this minute, by pod

    async def polled(self, wait_s: str, authorization: str, passed_on: bool = False) -> Answer:
        """Answer the poll of a pod."""
        wait = integer_or_none(wait_s, least=0)
        try:
            if not self._notices.ready:
                seconds = min(wait or 0, _LONGEST_POLL)
                path = f"/v1/notice?wait={'x' if wait is None else seconds}"
                return await self._by_leader(
                    Passed("GET", path, authorization, wait=seconds), passed_on
                )
            uid = (await self._pod(authorization)).uid
            if wait is None:
                raise _Refused(400, "wait: accepted: seconds, 0 to 55")
        except _Refused as refusal:
            return _refusal(refusal)
        found = self._notices.of_pod(uid)
        if found is None and wait:
            if self._notices.waiters.number(uid) >= _MOST_POLLS:
                return _refusal(_Refused(429, f"more than {_MOST_POLLS} polls wait"))
            await self._notices.waiters.poll(uid, min(wait, _LONGEST_POLL) * SECOND)
            found = self._notices.of_pod(uid)
        return Answer(204) if found is None else self._shown(found)

    async def ask(self, request: web.Request) -> Answer:
        """Answer a poll that aiohttp has read."""
        wait, passed_on = request.query.get("wait", "0"), PASSED_ON in request.headers
        return await self.polled(wait, _authorization(request), passed_on)

    async def hear(self, request: web.Request) -> Answer:
        """Accept the report of a pod about its notice."""
        if not self._notices.ready:
            return await self._report_by_leader(request)
        uid = (await self._pod(_authorization(request))).uid
        found = self._notices.find(request.match_info["id"], uid)
        if found is None:
            raise _Refused(404, "this pod has no such notice")
        word, expected = await _word(request)
        if word.state == "keep":
            if not found.keeps:
                raise _Refused(400, "keep: only idle work may be kept, where that is allowed")
            self._notices.keep(found, uid)
        elif word.state == "saved":
            self._notices.saved(found, uid, _for_people(word))
        else:
            self._notices.saving(found, uid, expected, _for_people(word))
        await self._notices.settled(found, uid, _RECORDED)
        return self._shown(found)

    async def saved(self, request: web.Request) -> Answer:
        """Record that a pod saved, without any notice."""
        if not self._notices.ready:
            return await self._report_by_leader(request)
        pod = await self._pod(_authorization(request))
        if self._checkpoints is None or not pod.name:
            raise _Refused(404, "checkpoints are not recorded here: reprieve run --notice-files")
        save = await _decoded(request, _Save, '{"ago": seconds since the save, 0 to 86400}')
        at = Nanos(self._clock.wall() - save.ago * SECOND)
        if not self._checkpoints.saved(SavedPod(*pod), at):
            raise _Refused(503, "too many checkpoints are not written yet")
        return Answer(204)

    async def _report_by_leader(self, request: web.Request) -> Answer:
        body, path = await _body(request), quote(request.path)
        passed = Passed("POST", path, _authorization(request), body)
        return await self._by_leader(passed, PASSED_ON in request.headers)

    async def _by_leader(self, passed: Passed, passed_on: bool) -> Answer:
        """Return what the process answers that leads."""
        if self._leader is not None and not passed_on:
            answer = await self._leader.answer(passed)
            if answer is not None:
                return answer
        raise _Refused(503, "this process does not lead, and the one that leads does not answer")

    def _shown(self, reported: Notified) -> Answer:
        notice, now = reported.notice.at(self._clock.wall()), self._clock.wall()
        shown = {
            "id": reported.id,
            "state": notice.state.value,
            "deadline": format_instant(Nanos(notice.due)),
            "now": format_instant(now),
            "reason": notice_reason(reported.intent.spec.plane),
        }
        return Answer(200, msgspec.json.encode(shown).decode(), "application/json")

    async def _pod(self, given: str) -> ShownPod:
        pod = ShownPod()
        if given.startswith(_BEARER):
            try:
                pod = await self._pod_of(given.removeprefix(_BEARER).strip())
            except Undecided:
                raise _Refused(503, "the API server did not state who this is") from None
        if not pod.uid:
            raise _Refused(401, "a token of a pod with the audience reprieve.dev is needed")
        minute = self._clock.monotonic() // MINUTE
        if minute != self._minute:
            self._minute = minute
            self._requests.clear()
        self._requests[pod.uid] += 1
        if self._requests[pod.uid] > _MOST_REQUESTS:
            raise _Refused(429, f"more than {_MOST_REQUESTS} requests in a minute")
        return pod


def _authorization(request: web.Request) -> str:
    return request.headers.get("Authorization", "")


def _for_people(word: _Word) -> Word:
    step = -1 if word.step is None or word.step < 0 else word.step
    return Word(word.checkpoint[:_LONGEST], word.message[:_LONGEST], step)


async def _word(request: web.Request) -> tuple[_Word, int]:
    """Return what a pod states, and when it expects to have saved, 0 where it does not state it."""
    accepted = '{"state": "saving", "saved" or "keep", "expected": an instant}'
    word = await _decoded(request, _Word, accepted)
    try:
        return word, parse_instant(word.expected) if word.expected else 0
    except InvalidInstant:
        raise _Refused(400, f"accepted: {accepted}") from None


async def _decoded(request: web.Request, kind: type[_Body], accepted: str) -> _Body:
    """Return the fields of the body of a request."""
    try:
        return msgspec.json.decode(await _body(request), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Refused(400, f"accepted: {accepted}") from None


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise _Refused(408, "the body did not come in time") from None


@asynccontextmanager
async def serve_notices(
    desk: NoticeDesk, host: str | None, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve until the end of the block; gives the port, a free one when `port` is 0.

    `context`: of TLS, None without.

    Raises:
        UsageError: the port cannot be listened on.
    """
    connections = Connections(limits=Limits(most=_MOST_CONNECTIONS, idle_s=_UNUSED_S))
    application = web.Application(
        middlewares=[connections.middleware()], client_max_size=_MOST_BYTES
    )
    application.router.add_get("/v1/notice", _answered(desk.ask))
    application.router.add_post("/v1/notice/{id}", _answered(desk.hear))
    application.router.add_post("/v1/checkpoint", _answered(desk.saved))
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S
    )
    await runner.setup()
    assert runner.server is not None
    polls = Polls(desk.polled, connections, runner.server)
    try:
        async with listening(connections, polls, host, port, context, "--notice-port") as found:
            yield found
    finally:
        await polls.close()
        await runner.cleanup()


def _answered(answer: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            found = await answer(request)
        except _Refused as refusal:
            found = _refusal(refusal)
        again = {"Retry-After": "1"} if found.again else {}
        if found.status == 204:
            return web.Response(status=204)
        response = web.Response(
            text=found.body, status=found.status, content_type=found.content_type, headers=again
        )
        if found.closes:
            response.force_close()
        return response

    return handler


def _refusal(refused: _Refused) -> Answer:
    return Answer(refused.status, f"{refused}\n", again=refused.status in (429, 503))

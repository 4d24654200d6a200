"""Retries, errors and streams of the transport; over a scripted wire and over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubeworld.units.clock import SystemClock, VirtualClock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.kube.credentials import Connection, Headers
from reprieve.kube.errors import (
    ApiError,
    Call,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_from,
)
from reprieve.kube.transport import HttpWire, Request, Transport
from tests.kube.fakes import FakeAnswer, FakeWire, refusal, scripted


async def _at_once(clock: VirtualClock, transport: Transport, *args: Any, **rest: Any) -> bytes:
    """Make the request while time passes as fast as it can."""
    task = asyncio.ensure_future(transport.request(*args, **rest))
    while not task.done():
        await clock.advance(SECOND)
    return task.result()


def _transport(wire: FakeWire) -> tuple[VirtualClock, Transport]:
    clock = VirtualClock()
    return clock, Transport(wire, clock, jitter=Random(1))


@pytest.mark.parametrize("trouble", [refusal(500), refusal(429), Unreachable("refused")])
async def test_a_read_is_retried_until_it_succeeds(trouble: Any) -> None:
    wire = scripted(trouble, trouble, FakeAnswer(body=b"yes"))
    clock, transport = _transport(wire)
    assert await _at_once(clock, transport, Request("GET", "/x")) == b"yes"
    assert len(wire.requests) == 3


@pytest.mark.parametrize("trouble", [refusal(500), refusal(429), Unreachable("refused")])
async def test_a_write_is_sent_once_unless_the_caller_asks_for_more(trouble: Any) -> None:
    wire = scripted(trouble, trouble, FakeAnswer(body=b"yes"))
    clock, transport = _transport(wire)
    with pytest.raises((ServerError, TooManyRequests, Unreachable)):
        await transport.request(Request("POST", "/x"))
    assert len(wire.requests) == 1
    assert await _at_once(clock, transport, Request("POST", "/x"), retry=True) == b"yes"
    assert len(wire.requests) == 3


RBAC = 'pods "x" is forbidden: User "u" cannot delete resource "pods" in API group "" at all'
WEBHOOK = 'admission webhook "w" denied the request: no'


@pytest.mark.parametrize(
    ("answers", "seconds", "expected"),
    [
        ((Unreachable("refused"),), 29, ServerError),
        ((Unreachable("refused"),), 30, Forbidden),
        ((Unreachable("refused"), refusal(403, message=RBAC)), 29, ServerError),
        ((), 0, Forbidden),
        ((refusal(500),), 1, Forbidden),
    ],
)
async def test_for_a_while_after_it_had_no_answer_an_api_server_may_not_know_its_roles(
    answers: tuple[Any, ...], seconds: int, expected: type[Exception]
) -> None:
    """A refusal by RBAC says then that it starts, one by admission is the last word."""
    wire = scripted(*answers, refusal(403, message=RBAC), refusal(403, message=WEBHOOK))
    clock, transport = _transport(wire)
    for _ in answers:
        with pytest.raises((Unreachable, ServerError)):
            await transport.request(Request("DELETE", "/x"))
    await clock.advance(seconds * SECOND)
    with pytest.raises(expected) as found:
        await transport.request(Request("DELETE", "/x"))
    refused = found.value
    assert isinstance(refused, ApiError)
    assert isinstance(refused, Forbidden) or refused.code == 503
    with pytest.raises(Forbidden):
        await transport.request(Request("DELETE", "/x"))


@pytest.mark.parametrize("code", [400, 401, 404, 409, 410, 429, 500, 503, 504])
def test_a_webhook_that_denies_is_no_server_that_is_away_whatever_its_status(code: int) -> None:
    reasons = {404: "NotFound", 409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}
    said = {
        "reason": reasons.get(code, ""),
        "message": f"{WEBHOOK}: {RBAC}",
        "details": {"retryAfterSeconds": 60},
    }
    found = error_from(code, said, Call("delete", "pods", "", "team", "low"))
    assert type(found) is Forbidden and found.code == code
    assert found.rule is None and found.retry_after is None
    said["message"] = RBAC
    assert type(error_from(code, said)) is not Forbidden


async def test_an_api_server_starts_also_when_a_watch_has_broken() -> None:
    lines = asyncio.Queue[Any]()
    lines.put_nowait(Unreachable("reset"))
    _, transport = _transport(scripted(FakeAnswer(lines=lines), refusal(403, message=RBAC)))
    with pytest.raises(Unreachable):
        async for _ in transport.stream(Request("GET", "/x")):
            pass
    with pytest.raises(ServerError):
        await transport.request(Request("DELETE", "/x"))


async def test_the_servers_retry_after_is_waited_for() -> None:
    wire = scripted(refusal(429, headers={"Retry-After": "7"}), FakeAnswer(body=b"yes"))
    clock, transport = _transport(wire)
    task = asyncio.ensure_future(transport.request(Request("GET", "/x")))
    await clock.advance(7 * SECOND - 1)
    assert len(wire.requests) == 1
    await clock.advance(SECOND)
    assert len(wire.requests) == 2
    assert await task == b"yes"


async def test_after_five_attempts_the_last_error_is_raised() -> None:
    wire = scripted(*[refusal(503, message="not now")] * 5)
    clock, transport = _transport(wire)
    with pytest.raises(ServerError, match="not now"):
        await _at_once(clock, transport, Request("GET", "/x"))
    assert len(wire.requests) == 5


async def test_rejected_credentials_are_loaded_anew_once() -> None:
    wire = scripted(refusal(401), FakeAnswer(body=b"yes"), refusal(401), refusal(401))
    _, transport = _transport(wire)
    assert await transport.request(Request("POST", "/x")) == b"yes"
    assert wire.rejections == [False, True]
    with pytest.raises(Unauthorized):
        await transport.request(Request("POST", "/x"))
    assert wire.rejections == [False, True, False, True]


async def test_the_fence_is_asked_before_every_attempt_and_keeps_the_write_back() -> None:
    class Deposed(Exception):
        pass

    asked = []

    def fence() -> None:
        asked.append(len(wire.requests))
        if len(wire.requests) == 1:
            raise Deposed

    wire = scripted(refusal(500), FakeAnswer())
    clock, transport = _transport(wire)
    with pytest.raises(Deposed):
        await _at_once(clock, transport, Request("PUT", "/x"), retry=True, before_send=fence)
    assert asked == [0, 1]
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    ("answer", "family"),
    [
        (refusal(404, "NotFound"), NotFound),
        (refusal(409, "Conflict"), Conflict),
        (refusal(410, "Expired"), Expired),
        (refusal(410, "Gone"), Expired),
        (FakeAnswer(404, b"404 page not found"), NotFound),
        (FakeAnswer(403, b"<html>no</html>"), Forbidden),
        (FakeAnswer(418, b"[1]"), Exception),
    ],
)
async def test_every_refusal_is_its_own_exception(
    answer: FakeAnswer, family: type[Exception]
) -> None:
    _, transport = _transport(scripted(answer))
    with pytest.raises(family):
        await transport.request(Request("DELETE", "/x"))


def test_a_denial_names_verb_resource_and_the_rule_to_add() -> None:
    call = Call("delete", "rayjobs", "ray.io", "work", "big")
    error = Forbidden(
        'rayjobs.ray.io "big" is forbidden: User "system:serviceaccount:kaiwo-system:reprieve" '
        'cannot delete resource "rayjobs" in API group "ray.io" in the namespace "work"',
        code=403,
        call=call,
    )
    assert error.rule == '- {apiGroups: ["ray.io"], resources: ["rayjobs"], verbs: ["delete"]}'
    assert str(error).startswith("delete rayjobs.ray.io work/big: ")
    assert error.rule in str(error)


_BY_POLICY = (
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
)


@pytest.mark.parametrize(
    ("code", "reason", "family"),
    [
        (401, "Unauthorized", Forbidden),
        (403, "Forbidden", Forbidden),
        (413, "RequestEntityTooLarge", Forbidden),
        (422, "Invalid", Invalid),
    ],
)
@pytest.mark.parametrize(
    "words", [_BY_POLICY, 'pods is forbidden: ValidatingAdmissionPolicy "p" denied request: ']
)
def test_a_policys_refusal_is_about_no_right_and_no_credentials_whatever_it_states(
    code: int, reason: str, family: type[ApiError], words: str
) -> None:
    message = words + 'User "u" cannot delete resource "pods" in API group ""'
    error = error_from(code, {"reason": reason, "message": message}, Call("delete", "pods"))
    assert type(error) is family and error.code == code
    assert getattr(error, "rule", None) is None


@pytest.mark.parametrize(
    "before",
    [
        "exceeded quota: q, requested: pods=1: ",
        "PodSecurity: it ",
        'another admission plugin: User "u" ',
    ],
)
def test_the_words_of_an_authorizer_within_anothers_name_no_rule(before: str) -> None:
    said = f'pods "a" is forbidden: {before}cannot delete resource "pods" in API group ""'
    assert Forbidden(said, call=Call("delete", "pods")).rule is None


def test_a_refusal_by_admission_names_no_rule() -> None:
    error = Forbidden('pods "a" is forbidden: exceeded quota: gpus', call=Call("create", "pods"))
    assert error.rule is None
    assert "exceeded quota" in str(error)


# Over real HTTP


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def echo(request: web.Request) -> web.Response:
        return web.json_response(
            {
                "path": request.raw_path,
                "authorization": request.headers.get("Authorization"),
                "type": request.headers.get("Content-Type"),
                "body": (await request.read()).decode(),
            }
        )

    async def lines(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"a":')
        await response.write(b" 1}\n{}\n\n" + b"x" * 3_000_000 + b"\nlast")
        await response.write_eof()
        return response

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        assert request.transport is not None
        request.transport.close()
        return response

    app = web.Application()
    app.router.add_get("/slow", slow)
    app.router.add_get("/lines", lines)
    app.router.add_get("/broken", broken)
    app.router.add_route("*", "/echo/{rest:.*}", echo)
    started = TestServer(app)
    async with started:
        yield started


@pytest.fixture
async def transport(server: TestServer) -> AsyncIterator[Transport]:
    connection = Connection(
        server=str(server.make_url("")).rstrip("/"), tls=None, headers=Headers(lambda: "Bearer t")
    )
    made = Transport(HttpWire(connection), SystemClock())
    yield made
    await made.close()


async def test_requests_carry_credentials_body_and_escaped_names(transport: Transport) -> None:
    request = Request(
        "PATCH", "/echo/a%2Fb", {"labelSelector": "a=b,c"}, b"{}", "application/merge-patch+json"
    )
    assert await transport.request(request) == (
        b'{"path": "/echo/a%2Fb?labelSelector=a%3Db,c", "authorization": "Bearer t", '
        b'"type": "application/merge-patch+json", "body": "{}"}'
    )


async def test_a_server_that_is_silent_or_not_there_is_unreachable(transport: Transport) -> None:
    with pytest.raises(Unreachable, match="no answer in time"):
        await transport.request(Request("GET", "/slow", timeout=50 * MILLISECOND), retry=False)
    nobody = HttpWire(Connection("http://127.0.0.1:1", None, Headers(lambda: None)))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await Transport(nobody, SystemClock()).request(Request("GET", "/"), retry=False)
    await nobody.close()


async def test_a_stream_is_cut_into_lines_of_any_length(transport: Transport) -> None:
    seen = [line async for line in transport.stream(Request("GET", "/lines"))]
    assert seen == [b'{"a": 1}', b"{}", b"x" * 3_000_000]


async def test_a_stream_that_breaks_is_unreachable(transport: Transport) -> None:
    seen = []
    with pytest.raises(Unreachable):
        async for line in transport.stream(Request("GET", "/broken")):
            seen.append(line)
    assert seen == [b"one"]


@pytest.mark.parametrize("passes", [0, 1, 2])
async def test_the_fence_is_asked_again_until_the_request_is_written(passes: int) -> None:
    # The process may stand still while it connects, for longer than its lease.
    received: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        received.append(request.path)
        return web.Response(text="{}")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as there:
        address = str(there.make_url("")).rstrip("/")
        connection = Connection(server=address, tls=None, headers=Headers(lambda: "Bearer t"))
        transport = Transport(HttpWire(connection), SystemClock())
        asked = 0

        def open_at_first() -> None:
            nonlocal asked
            asked += 1
            if asked > passes:
                raise Expired("the lease is over")

        try:
            with pytest.raises(Expired, match="the lease is over"):
                await transport.request(
                    Request("DELETE", "/x", body=b"{}"), before_send=open_at_first
                )
            assert received == [] and asked == passes + 1
            # Nothing of it is left for other requests.
            await transport.request(Request("DELETE", "/y"))
            assert received == ["/y"]
        finally:
            await transport.close()

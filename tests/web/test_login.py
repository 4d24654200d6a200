"""Who is let in in the cluster, for how long, what they see, and what that costs the API server."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.transport import Request
from reprieve.web.login.attempts import address_of
from reprieve.web.login.door import COOKIE
from reprieve.web.login.reviews import Identity
from reprieve.web.login.rights import Rights
from reprieve.web.login.wire import ReviewingWire
from reprieve.web.server.door import TooManyAttempts, Unverified
from reprieve.web.tables import InvalidParameter, Viewer
from reprieve.whatif.copy.wire import WouldWrite
from tests.web.authority import Authority, SetClock
from tests.web.serving import Served, serving
from tests.web.stand_in import StandIn

_TOLD = (
    "/api/session",
    "/api/page/now",
    "/api/page/nowhere",
    "/api/live?page=now",
    "/api/download/now/holders.csv",
    "/api/download/now/holders.json",
)
_ANN = Identity("ann", b'{"user":"ann"}')


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _nothing_is_told(served: Served, headers: dict[str, str]) -> None:
    """Ask every route; none may tell anything."""
    for path in _TOLD:
        async with served.client.get(served.address + path, headers=headers) as answer:
            assert (answer.status, "a/x" in await answer.text()) == (401, False), path
    own = {"Origin": served.address, **headers}
    body = {"manifest": "kind: Job"}
    async with served.client.post(served.address + "/api/plan", json=body, headers=own) as answer:
        assert answer.status == 401


# Authentication: proof 3


@pytest.mark.parametrize(
    "headers",
    [
        {},
        _bearer(""),
        _bearer("invented"),
        _bearer("of-another-audience"),
        _bearer("of-a-server-without-audiences"),
        _bearer("x" * 20_000),
        {"Authorization": "Basic YW5uOmFubg=="},
        {"Cookie": f"{COOKIE}=invented"},
        {"Cookie": f"{COOKIE}=token-of-ann"},
    ],
)
async def test_who_brings_nothing_that_counts_is_told_nothing(headers: dict[str, str]) -> None:
    authority = Authority()
    authority.admit("ann", "*")
    authority.tokens["of-another-audience"] = ("ann", ("somebody-else",))
    authority.tokens["of-a-server-without-audiences"] = ("ann", ())
    door = authority.door(SetClock())
    async with serving(StandIn({"a/x": 1}), door=door, headers={}) as served:
        await _nothing_is_told(served, headers)


async def test_a_token_that_is_revoked_or_expired_holds_for_a_minute_at_most() -> None:
    authority, clock = Authority(), SetClock()
    token = authority.admit("ann", "*")
    async with serving(StandIn({"a/x": 1}), door=authority.door(clock), headers={}) as served:
        await served.json("/api/page/now", headers=_bearer(token))
        del authority.tokens[token]
        clock.now += 60 * SECOND
        await _nothing_is_told(served, _bearer(token))


async def test_a_session_that_is_over_cannot_be_used_again() -> None:
    authority, clock = Authority(), SetClock()
    token = authority.admit("ann", "*")
    async with serving(StandIn({"a/x": 1}), door=authority.door(clock), headers={}) as served:
        cookies = [await _login(served, token) for _ in range(3)]
        for cookie in cookies:
            await served.json("/api/page/now", headers=cookie)
        own = {"Origin": served.address, **cookies[0]}
        async with served.client.post(served.address + "/api/logout", headers=own) as answer:
            assert answer.status == 200
        await _nothing_is_told(served, cookies[0])
        clock.now += 14 * MINUTE
        await served.json("/api/page/now", headers=cookies[1])
        clock.now += 14 * MINUTE
        await served.json("/api/page/now", headers=cookies[1])
        await _nothing_is_told(served, cookies[2])
        del authority.tokens[token]
        clock.now += MINUTE
        await _nothing_is_told(served, cookies[1])


async def _login(served: Served, token: str) -> dict[str, str]:
    """Log in; return the cookie as a browser sends it."""
    path = served.address + "/api/login"
    async with served.client.post(path, json={"token": token}) as answer:
        assert answer.status == 200, await answer.text()
        cookie = answer.headers["Set-Cookie"]
    served.client.cookie_jar.clear()
    name, _, rest = cookie.partition("=")
    word, *flags = rest.split("; ")
    assert name == COOKIE
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} == set(flags)
    assert token not in cookie
    return {"Cookie": f"{name}={word}"}


async def test_every_login_has_a_word_of_its_own() -> None:
    authority = Authority()
    token = authority.admit("ann", "*")
    async with serving(StandIn(), door=authority.door(SetClock()), headers={}) as served:
        words = {(await _login(served, token))["Cookie"] for _ in range(20)}

    assert len(words) == 20
    assert all(len(word) > 40 for word in words)


async def test_no_token_comes_into_an_answer_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    authority = Authority()
    token = authority.admit("ann", "*")
    cluster = StandIn({"a/x": 1})
    async with serving(cluster, door=authority.door(SetClock()), headers={}) as served:
        cookie = await _login(served, token)
        for _ in range(2):
            for path in _TOLD[:3]:
                async with served.client.get(served.address + path, headers=cookie) as answer:
                    assert token not in f"{await answer.text()}{answer.headers}"
            cluster.fault = ZeroDivisionError()

    assert token not in caplog.text


async def test_a_header_that_is_too_long_is_refused_and_not_quoted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Authority().door(SetClock())
    async with (
        serving(StandIn({"a/x": 1}), door=door, headers=_bearer("a-secret" * 9_999)) as served,
        served.client.get(served.address + "/api/page/now") as answer,
    ):
        assert answer.status == 400

    assert "a-secret" not in caplog.text


async def test_an_address_that_is_wrong_ten_times_waits_and_keeps_out_nobody_who_is_known() -> None:
    authority, clock = Authority(), SetClock()
    token = authority.admit("ann", "*")
    async with serving(StandIn(), door=authority.door(clock), headers={}) as served:
        await served.json("/api/page/now", headers=_bearer(token))
        for number in range(10):
            await served.json("/api/page/now", 401, headers=_bearer(f"guess-{number}"))
        asked = authority.asked["token"]
        refused = await served.json("/api/page/now", 429, headers=_bearer("guess-10"))
        body = {"token": "guess-11"}
        async with served.client.post(served.address + "/api/login", json=body) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
        await served.json("/api/page/now", headers=_bearer(token))

        assert refused["error"].endswith("try again in 60 s")
        assert authority.asked["token"] == asked
        clock.now += 60 * SECOND
        await served.json("/api/page/now", 401, headers=_bearer("guess-12"))


async def test_an_api_server_that_does_not_answer_lets_nobody_in() -> None:
    authority = Authority(away=True)
    token = authority.admit("ann", "*")
    async with serving(StandIn({"a/x": 1}), door=authority.door(SetClock()), headers={}) as served:
        for path in _TOLD:
            answer = await served.json(path, 503, headers=_bearer(token))
            assert answer == {"error": "the API server does not answer a TokenReview: Unreachable"}


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("192.0.2.7", "", "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "not an address", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("2001:db8::1:2:3:4", "", "2001:db8::/64"),
        ("::ffff:192.0.2.7", "", "192.0.2.7"),
        ("fe80::1%eth0", "", "fe80::/64"),
        (None, "198.51.100.1", "unknown"),
    ],
)
def test_the_address_is_one_that_can_be_believed(
    peer: str | None, forwarded: str, counted: str
) -> None:
    proxies = [ipaddress.ip_network("10.0.0.0/8")]

    assert address_of(peer, forwarded, proxies) == counted


# What it costs the API server


async def test_an_identity_is_asked_about_once_a_minute_however_many_ask() -> None:
    authority, clock = Authority(), SetClock()
    token = authority.admit("ann", "*")
    door = authority.door(clock)
    async with serving(StandIn(), door=door, headers=_bearer(token)) as served:
        await asyncio.gather(*(served.json("/api/page/now") for _ in range(50)))
        assert authority.asked == {"token": 1, "*": 1}
        clock.now += 59 * SECOND
        await served.json("/api/page/now")
        assert authority.asked == {"token": 1, "*": 1}
        clock.now += 1 * SECOND
        await served.json("/api/page/now")

    assert authority.asked == {"token": 2, "*": 2}


async def test_a_token_that_is_nobodys_is_asked_about_again_after_five_seconds() -> None:
    authority, clock = Authority(), SetClock()
    async with serving(StandIn(), door=authority.door(clock), headers=_bearer("x")) as served:
        for wait, asked in ((0, 1), (4, 1), (1, 2)):
            clock.now += wait * SECOND
            await served.json("/api/page/now", 401)
            assert authority.asked["token"] == asked


def _rights(authority: Authority, clock: SetClock) -> Rights:
    return Rights(authority.reviews(clock), clock)


async def test_who_sees_everything_costs_one_review_and_names_nothing() -> None:
    authority, clock = Authority(rights={"ann": {"*"}}), SetClock()
    viewer = await _rights(authority, clock).viewer(_ANN, [f"team-{n}" for n in range(50)])

    assert viewer == Viewer(sees_all=True)
    assert authority.asked == {"*": 1}


async def test_namespaces_are_asked_about_when_they_are_named_and_not_otherwise() -> None:
    authority, clock = Authority(rights={"ann": {"a", "b", "c"}}), SetClock()
    rights = _rights(authority, clock)

    assert await rights.viewer(_ANN, []) == Viewer(False)
    assert await rights.viewer(_ANN, ["a", "x", "a"]) == Viewer(False, frozenset({"a"}))
    assert await rights.viewer(_ANN, ["b"]) == Viewer(False, frozenset({"a", "b"}))
    assert await rights.viewer(_ANN, []) == Viewer(False, frozenset({"a", "b"}))
    assert authority.asked == {"*": 1, "a": 1, "x": 1, "b": 1}


@pytest.mark.parametrize(
    ("name", "seen", "cost"),
    [
        ("system:serviceaccount:a:ann", {"a"}, {"*": 1, "a": 1}),
        ("system:serviceaccount:b:ann", set(), {"*": 1, "b": 1}),
        ("system:serviceaccount:a", set(), {"*": 1}),
        ("a:ann", set(), {"*": 1}),
    ],
)
async def test_a_service_account_begins_with_its_own_namespace_if_it_may_see_that(
    name: str, seen: set[str], cost: dict[str, int]
) -> None:
    authority, clock = Authority(rights={name: {"a"}}), SetClock()
    rights, identity = (
        _rights(authority, clock),
        Identity(name, msgspec.json.encode({"user": name})),
    )

    assert await rights.viewer(identity, []) == Viewer(False, frozenset(seen))
    assert await rights.viewer(identity, []) == Viewer(False, frozenset(seen))
    assert authority.asked == cost


async def test_fifty_namespaces_are_named_at_most_and_twenty_new_ones_a_minute() -> None:
    names = [f"team-{n}" for n in range(50)]
    authority, clock = Authority(rights={"ann": set(names)}), SetClock()
    rights = _rights(authority, clock)

    with pytest.raises(InvalidParameter, match="51 namespaces; accepted: 50"):
        await rights.viewer(_ANN, [*names, "one-more"])
    with pytest.raises(InvalidParameter, match="at most 63"):
        await rights.viewer(_ANN, ["x" * 64])
    for left in (30, 10):
        with pytest.raises(TooManyAttempts, match=f"{left} namespaces left"):
            await rights.viewer(_ANN, names)
        assert authority.asked["*"] <= 2
        clock.now += 60 * SECOND
    viewer = await rights.viewer(_ANN, names)

    assert viewer == Viewer(False, frozenset(names))
    clock.now += 60 * SECOND
    assert await rights.viewer(_ANN, names) == viewer, "what was named before is not new"


async def test_others_can_go_on_while_one_has_named_too_many() -> None:
    authority, clock = Authority(rights={"bob": {"a"}}), SetClock()
    rights = _rights(authority, clock)
    with pytest.raises(TooManyAttempts):
        await rights.viewer(_ANN, [f"team-{n}" for n in range(21)])

    assert await rights.viewer(Identity("bob", b'{"user":"bob"}'), ["a"]) == Viewer(
        False, frozenset({"a"})
    )


async def test_a_server_that_stops_answering_is_no_right() -> None:
    authority, clock = Authority(rights={"ann": {"a"}}), SetClock()
    rights = _rights(authority, clock)
    await rights.viewer(_ANN, ["a"])
    authority.away = True
    clock.now += 60 * SECOND

    with pytest.raises(Unverified):
        await rights.viewer(_ANN, ["a"])


# Rights that are taken away


async def test_a_right_that_is_lost_ends_the_stream_and_what_was_foreign_stays_so() -> None:
    """With pauses fifty times as short as they are: 30 s are 0.6 s."""

    class Quick(SystemClock):
        def monotonic(self) -> Any:
            return super().monotonic() * 50

        async def sleep(self, nanoseconds: int) -> None:
            await super().sleep(nanoseconds // 50)

    authority, clock = Authority(), Quick()
    token = authority.admit("ann", "a")
    cluster = StandIn({"a/x": 1, "b/y": 2})
    door = authority.door(clock)
    async with serving(cluster, door=door, headers=_bearer(token), clock=clock) as served:
        path = served.address + "/api/live?page=now&ns=a"
        async with served.client.get(path) as stream:
            first = await stream.content.readuntil(b"\n\n")
            authority.rights["ann"].clear()
            async with asyncio.timeout(35 / 50 + 2):
                rest = await stream.content.read()
        cluster.set("a/z", 3)
        lost = await served.json("/api/page/workload?namespace=a&name=x", 404)
        missing = await served.json("/api/page/workload?namespace=a&name=none", 404)

    assert b"job/a/x" in first
    assert b"b/y" not in first
    assert rest.count(b"event: ended") == 1
    assert rest.endswith(b'{"error":"your rights have changed: load the page again"}\n\n')
    assert lost == missing


async def test_a_foreign_object_answers_as_one_that_is_not_there_and_costs_as_much() -> None:
    authority = Authority()
    token = authority.admit("ann", "a")
    door = authority.door(SetClock())
    answers, costs = [], []
    async with serving(StandIn({"b/y": 2}), door=door, headers=_bearer(token)) as served:
        await served.json("/api/page/now?ns=a")
        for name in ("y", "none"):
            before = authority.asked.total()
            path = f"{served.address}/api/page/workload?namespace=b&name={name}"
            async with served.client.get(path) as answer:
                told = {k: v for k, v in answer.headers.items() if k != "Date"}
                answers.append((answer.status, told, await answer.text()))
            costs.append(authority.asked.total() - before)

    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert costs == [1, 0], "one question about the namespace, whatever is in it"


# What can be sent


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/a/pods/x/eviction"),
        ("POST", "/api/v1/namespaces/a/pods"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x"),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews"),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/x/token"),
        ("PUT", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("PATCH", "/api/v1/nodes/x"),
        ("DELETE", "/api/v1/namespaces/a/pods/x"),
    ],
)
async def test_the_servers_wire_refuses_whatever_changes_something(method: str, path: str) -> None:
    wire = ReviewingWire(Authority())

    with pytest.raises(WouldWrite):
        await wire.send(Request(method, path, {"dryRun": "All"}, b"{}"), False, False)

"""Who may read metrics: the API server is asked, its answers are kept, and probes stay open."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from typing import Any, cast

import aiohttp
import pytest

from kubelocal.tests.server.late_handshake import late_handshake
from kubeworld.units.clock import SystemClock, VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.cli.run import _metrics_host
from reprieve.kube.client import Client
from reprieve.kube.errors import ServerError
from reprieve.kube.resource import Resource
from reprieve.operator import metrics_access
from reprieve.operator.metrics_access import MetricsAccess, metrics_protection
from reprieve.telemetry.http import Access, serve_telemetry
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.probes import Page
from reprieve.units.errors import UsageError

USERS = {
    "prometheus": "reader",
    "tenant": "stranger",
    "barred": "barred",
    "expired": "reader",
}


class Reviews:
    """An API server that reviews tokens and access."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.out_of_order = False

    async def create(self, resource: Resource, body: dict[str, Any], kind: type) -> dict[str, Any]:
        self.asked[resource.kind] += 1
        if self.out_of_order:
            raise ServerError("out of order", code=500)
        spec = body["spec"]
        if resource.kind == "TokenReview":
            name = USERS.get(spec["token"])
            user = {"username": name, "groups": ["g"], "extra": {"a": ["b"]}}
            known = {"authenticated": spec["token"] != "expired", "user": user}
            return {"status": known if name else {}}
        assert spec["groups"] == ["g"] and spec["extra"] == {"a": ["b"]}
        assert spec["nonResourceAttributes"]["verb"] == "get"
        allowed = spec["nonResourceAttributes"]["path"] == "/metrics" and spec["user"] != "stranger"
        return {"status": {"allowed": allowed, "denied": spec["user"] == "barred"}}


def client(reviews: Reviews) -> Client:
    return cast("Client", reviews)


def untrusting() -> ssl.SSLContext:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


async def test_a_handshake_that_ends_after_the_server_leaves_no_connection_open() -> None:
    protection = metrics_protection(client(Reviews()), SystemClock())
    registry = Metrics().registry
    serving = serve_telemetry(registry, list, list, 0, "127.0.0.1", protection=protection)
    async with late_handshake(serving, untrusting()) as read:
        assert read == b""


async def test_only_those_who_may_get_the_path_read_it_and_probes_are_open() -> None:
    reviews = Reviews()
    protection = metrics_protection(client(reviews), SystemClock())
    pages = {"a": Page(document={"b": 1})}
    trust = untrusting()
    found: dict[tuple[str, str], int] = {}
    async with (
        serve_telemetry(
            Metrics().registry, list, list, 0, "127.0.0.1", pages.__getitem__, protection
        ) as port,
        aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
    ):
        for token in ("", "prometheus", "tenant", "nobody"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            for path in ("/metrics", "/apis/v1/plugins/a", "/healthz", "/readyz", "/elsewhere"):
                async with session.get(path, headers=headers, ssl=trust) as response:
                    found[token, path] = response.status
        basic = {"Authorization": "Basic prometheus"}
        async with session.get("/metrics", headers=basic, ssl=trust) as response:
            assert response.status == 401
        for token, status in (("barred", 403), ("expired", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get("/metrics", headers=headers, ssl=trust) as response:
                assert response.status == status, token
        reviews.out_of_order = True
        headers = {"Authorization": "Bearer another"}
        async with session.get("/metrics", headers=headers, ssl=trust) as response:
            assert response.status == 503
    assert {found[token, path] for token, path in found if path in ("/healthz", "/readyz")} == {200}
    assert [found[token, "/metrics"] for token in ("", "prometheus", "tenant", "nobody")] == [
        401,
        200,
        403,
        401,
    ]
    assert {found[token, "/apis/v1/plugins/a"] for token in ("prometheus", "tenant")} == {403}
    # Who is nobody does not learn either what there is.
    assert found["", "/elsewhere"] == 401


async def test_answers_are_kept_for_a_while_and_only_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reviews, clock = Reviews(), VirtualClock()
    access = MetricsAccess(client(reviews), clock)
    for _ in range(3):
        assert await access("prometheus", "/metrics") is Access.ALLOWED
        assert await access("nobody", "/metrics") is Access.UNKNOWN
        assert await access("tenant", "/metrics") is Access.DENIED
    assert reviews.asked == {"TokenReview": 3, "SubjectAccessReview": 2}
    await clock.advance(11 * SECOND)
    assert await access("prometheus", "/metrics") is Access.ALLOWED
    assert await access("nobody", "/metrics") is Access.UNKNOWN
    assert await access("tenant", "/metrics") is Access.DENIED
    assert reviews.asked == {"TokenReview": 5, "SubjectAccessReview": 3}
    await clock.advance(50 * SECOND)
    assert await access("prometheus", "/metrics") is Access.ALLOWED
    assert reviews.asked["TokenReview"] == 6
    monkeypatch.setattr(metrics_access, "_KEPT", 10)
    for number in range(50):
        await access(f"invented-{number}", "/metrics")
    assert len(access._known) == 10


async def test_who_invents_tokens_has_four_asked_about_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_access, "_WAIT_S", 0.05)
    reviews, answered = Reviews(), asyncio.Event()
    create = reviews.create

    async def slow(resource: Resource, body: dict[str, Any], kind: type) -> dict[str, Any]:
        found = await create(resource, body, kind)
        await answered.wait()
        return found

    reviews.create = slow  # type: ignore[method-assign]
    access = MetricsAccess(client(reviews), VirtualClock())
    asking = {asyncio.create_task(access(f"invented-{n}", "/metrics")) for n in range(10)}
    while len(asking) > 4:
        done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert {task.result() for task in done} == {Access.UNDECIDED}
    assert reviews.asked == {"TokenReview": 4}
    answered.set()
    assert set(await asyncio.gather(*asking)) == {Access.UNKNOWN}


async def test_while_the_api_server_does_not_say_nobody_is_let_in() -> None:
    reviews, clock = Reviews(), VirtualClock()
    access = MetricsAccess(client(reviews), clock)
    reviews.out_of_order = True
    assert await access("prometheus", "/metrics") is Access.UNDECIDED
    reviews.out_of_order = False
    await clock.advance(2 * SECOND)
    assert await access("prometheus", "/metrics") is Access.ALLOWED


def test_outside_of_a_pod_telemetry_is_for_this_machine_alone() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert [_metrics_host(None, {}), _metrics_host(None, pod)] == ["127.0.0.1", None]
    assert [_metrics_host("all", {}), _metrics_host("::1", pod)] == [None, "::1"]
    with pytest.raises(UsageError, match=r"'here' is no address; accepted: .*, or all"):
        _metrics_host("here", {})

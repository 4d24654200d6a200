"""A webhook that fails the deletion of one pod keeps its preemptor waiting on no real API server.

For each way in which a webhook may deny there are two nodes, full of pods of low priority, of which
the pod that is chosen first is the one that the webhook keeps. Evictions are counted from the audit
log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import EVENTS, PODS, Resource
from reprieve.planes.quota.webhooks.certificates import load_chain, new_certificates
from reprieve.scenarios.model import NodeSpec
from tests.integration.audited_planes import audited_plane, evictions
from tests.integration.control_plane import Binaries
from tests.integration.group_plane import on_plane
from tests.integration.test_immune import bound, create_priorities, filler, until

_NAMESPACE: Final = "default"
_SCHEDULER: Final = "reprieve-scheduler"
_HOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
_REASONS: Final = {
    "403": "Forbidden",
    "404": "NotFound",
    "409": "Conflict",
    "410": "Gone",
    "429": "TooManyRequests",
    "500": "InternalError",
    "503": "ServiceUnavailable",
}
#: What the label of a pod requests: a status, the same as the status of the webhook's own answer to
#: the API server, or no answer in time.
_WAYS: Final = (*_REASONS, "http-429", "http-503", "silence")
_KEEPS: Final = "keeps"

Object = dict[str, Any]


async def _review(request: web.Request) -> web.Response:
    review: Object = await request.json()
    asked = review["request"]
    way = ((asked.get("oldObject") or {}).get("metadata", {}).get("labels") or {}).get(_KEEPS, "")
    if way == "silence":
        await asyncio.sleep(20)
    if way.startswith("http-"):
        return web.Response(status=int(way.removeprefix("http-")), text="not now")
    response: Object = {"uid": asked["uid"], "allowed": not way}
    if way:
        # Its words look like those of a missing right, and it requests a long pause.
        response["status"] = {
            "code": int(way) if way.isdigit() else 504,
            "reason": _REASONS.get(way, "Timeout"),
            "message": 'it cannot delete resource "pods" in API group "" now',
            "details": {"retryAfterSeconds": 60},
        }
    return web.json_response({**review, "request": None, "response": response})


@asynccontextmanager
async def _refusing_webhook(client: Client) -> AsyncIterator[None]:
    """Serve and register the webhook, and wait until it denies."""
    certificates = new_certificates(["127.0.0.1"], SystemClock().wall())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, certificates)
    app = web.Application()
    app.router.add_post("/", _review)
    runner = web.AppRunner(app)
    await runner.setup()
    served = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await served.start()
    assert runner.addresses
    port = runner.addresses[0][1]
    hook = {
        "name": "immune.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": certificates.bundle,
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["DELETE"],
                "resources": ["pods"],
            }
        ],
        "failurePolicy": "Fail",
        "timeoutSeconds": 30,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    await client.create(_HOOKS, {"metadata": {"name": "immune"}, "webhooks": [hook]}, dict)
    await client.create(PODS, filler("probe", "low", 99, keeps="403"), dict)

    async def denies() -> bool:
        try:
            await client.delete(PODS, _NAMESPACE, "probe")
        except ApiError as denial:
            return "denied the request" in str(denial)
        await client.create(PODS, filler("probe", "low", 99, keeps="403"), dict)
        return False

    try:
        await until("the webhook denies", denies)
        yield
    finally:
        await runner.cleanup()


@pytest.mark.slow
async def test_whose_deletion_a_webhook_fails_in_whatever_way_is_passed_by(
    with_alpha_pod_groups: Binaries, tmp_path: Path
) -> None:
    amounts: dict[str, str | int] = {"cpu": "4", "memory": "16Gi", "pods": "20"}
    nodes = [NodeSpec(f"node-{number}", amounts) for number in range(2 * len(_WAYS))]
    flags = ("--controllers", "scheduling", "--scheduler-name", _SCHEDULER)
    with audited_plane(with_alpha_pod_groups, tmp_path) as plane:
        async with on_plane(plane, tmp_path, nodes, *flags) as stage:
            client = connect(await load_connection(str(tmp_path / "kubeconfig")), SystemClock())
            operator = stage.launch({}, 1)
            await operator.start()
            try:
                await create_priorities(client)
                async with _refusing_webhook(client):
                    await _story(client)
                    told = (await client.list(EVENTS, dict, namespace=_NAMESPACE)).items
            finally:
                await operator.stop()
                await client.close()
    gone = [each.name for each in evictions(tmp_path)]
    assert sorted(gone) == sorted(f"beside-{way}" for way in _WAYS)
    about = {e["involvedObject"]["name"] for e in told if e["reason"] == "EvictionRefused"}
    assert about >= {f"kept-{way}" for way in _WAYS}


async def _story(client: Client) -> None:
    kept, beside, high = set[str](), set[str](), set[str]()
    for number, way in enumerate(_WAYS):
        at = 2 * number
        # Of two, whose priority is lower is chosen first.
        await client.create(PODS, filler(f"kept-{way}", "lower", at, keeps=way), dict)
        await client.create(PODS, filler(f"beside-{way}", "low", at + 1), dict)
        kept.add(f"kept-{way}")
        beside.add(f"beside-{way}")
        high.add(f"high-{way}")

    async def full() -> bool:
        return await bound(client) >= kept | beside

    await until("all nodes are full", full)
    for number, way in enumerate(_WAYS):
        at = 2 * number
        await client.create(PODS, filler(f"high-{way}", "high", at, at + 1), dict)

    async def placed() -> bool:
        return await bound(client) == kept | high

    await until("each preemptor is bound, and the kept pods stay", placed)

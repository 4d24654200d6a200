"""A webhook server over TLS in this process, with a certificate of its own authority."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from kubelocal.server.wire.tls import issue, new_authority, server_context

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass
class Webhook:
    """`asked` are the requests of the reviews so far; `answer` makes the response to one."""

    answer: Answer
    port: int = 0
    bundle: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{self.port}/review", "caBundle": self.bundle}


@asynccontextmanager
async def serving(answer: Answer, *names: str) -> AsyncIterator[Webhook]:
    authority = new_authority("webhooks")
    hook = Webhook(answer, bundle=base64.b64encode(authority.certificate).decode())

    async def handle(request: web.BaseRequest) -> web.Response:
        review = orjson.loads(await request.read())
        hook.asked.append(review["request"])
        response = {"uid": review["request"]["uid"], **await hook.answer(review["request"])}
        head = {name: review[name] for name in ("apiVersion", "kind")}
        return web.json_response({**head, "response": response})

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    context = server_context(issue(authority, names or ["127.0.0.1"]))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    hook.port = runner.addresses[0][1]
    try:
        yield hook
    finally:
        await runner.cleanup()


def json_patch(*operations: dict[str, Any]) -> dict[str, Any]:
    """The response of a mutating webhook."""
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def configuration(
    kind: str, hook: Webhook, name: str = "a", resources: str = "configmaps", **more: Any
) -> dict[str, Any]:
    """A Mutating- or ValidatingWebhookConfiguration for creates and updates in the core group."""
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [resources],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "clientConfig": hook.config,
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **more,
            }
        ],
    }

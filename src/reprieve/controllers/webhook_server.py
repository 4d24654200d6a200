"""The server that webhooks are asked at, over TLS, and what keeps it known and certified.

`serve_webhooks` listens; `run_webhooks` gets the certificates, listens, registers, and looks once
an hour whether they have to be renewed, for as long as the process lives. While the API server
refuses the registration, it is tried again and what is registered stays.

Source: specification of the quota plane, section 12.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from reprieve.controllers.webhook_certificates import (
    Certificates,
    certificates_in,
    kept_certificates,
    load_chain,
)
from reprieve.controllers.webhook_registration import CONVERT, Place, register_webhooks
from reprieve.controllers.webhook_reviews import (
    Hook,
    Json,
    MalformedReview,
    admission_review,
    conversion_review,
)
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.settings.quota import QuotaSettings
from reprieve.units.clock import Clock
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.errors import UsageError

__all__ = [
    "WebhookOptions",
    "WebhookServer",
    "run_webhooks",
    "serve_webhooks",
    "webhook_options",
]

log: Final = logging.getLogger(__name__)

# Where the reference looks for files.
DEFAULT_FOLDER: Final = "/tmp/k8s-webhook-server/serving-certs"
_MOST_BYTES: Final = 64 * 2**20  # conversions come by the list
_AGAIN: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Where the webhooks are served and found.

    `folder`: certificate files that somebody else keeps, such as cert-manager; None has our own
    authority in the Secret `secret`. `place.url` makes the server known by that address instead
    of the Service; its port 0 is filled in.
    """

    place: Place
    name: str = "reprieve-quota"
    secret: str = "reprieve-webhook-certificates"
    folder: Path | None = None
    port: int = 9443
    host: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that the certificate is for."""
        service = f"{self.place.service}.{self.place.namespace}"
        own = (f"{service}.svc", f"{service}.svc.cluster.local", service)
        address = self.place.url.removeprefix("https://").rpartition(":")[0]
        return (address, *own) if address else own


def webhook_options(settings: QuotaSettings, namespace: str) -> WebhookOptions:
    """Return what the settings say of webhooks, for an operator in this namespace."""
    secret = settings.configuration.webhook_secret
    folder = settings.certificate_folder
    if not folder and not settings.configuration.own_certificates:
        folder = settings.configuration.certificate_folder or DEFAULT_FOLDER
    return WebhookOptions(
        Place(namespace, settings.webhook_service, annotations=dict(settings.webhook_annotations)),
        secret=secret or "reprieve-webhook-certificates",
        folder=Path(folder) if folder else None,
        port=settings.webhook_port,
    )


class WebhookServer:
    """A server that listens; its certificate can be replaced while it does."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.port = port
        self._context = context

    def renew(self, certificates: Certificates) -> None:
        """Serve new connections with these certificates."""
        load_chain(self._context, certificates)


@asynccontextmanager
async def serve_webhooks(
    hooks: Sequence[Hook], certificates: Certificates, port: int, host: str | None = None
) -> AsyncIterator[WebhookServer]:
    """Serve until the end of the block; port 0 takes a free one.

    Raises:
        UsageError: the port cannot be listened on, or the certificates cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, certificates)
    application = web.Application(client_max_size=_MOST_BYTES)
    application.router.add_post(CONVERT, _handler(conversion_review))
    for hook in hooks:
        application.router.add_post(hook.path, _handler(_admission(hook)))
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except OSError as error:
            raise UsageError(
                f"webhook port {port}: cannot listen: {error.strerror or error}; "
                "accepted: a free port, 0 takes any"
            ) from None
        yield WebhookServer(runner.addresses[0][1], context)
    finally:
        await runner.cleanup()


async def run_webhooks(
    client: Client,
    options: WebhookOptions,
    hooks: Sequence[Hook],
    clock: Clock,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve, register and renew until cancelled; `ready` is called once all is registered.

    Raises:
        UsageError: the port cannot be listened on, or mounted files cannot be used.
    """
    certificates = await _certificates(client, options, clock)
    async with serve_webhooks(hooks, certificates, options.port, options.host) as server:
        place = _at(options.place, server.port)
        while True:
            pause = HOUR
            try:
                found = await _certificates(client, options, clock)
                trusted = replace(place, bundle=found.bundle)
                foreign = await register_webhooks(client, options.name, hooks, trusted)
                # Only now does the API server trust a new authority.
                if found != certificates:
                    server.renew(found)
                    certificates = found
                    log.info("serving webhooks with a new certificate")
                if foreign:
                    log.warning("not converting, being another's or missing: %s", foreign)
                ready()
            except ApiError as error:
                log.warning("cannot register the webhooks: %s", error)
                pause = _AGAIN
            await clock.sleep(pause)


async def _certificates(client: Client, options: WebhookOptions, clock: Clock) -> Certificates:
    if options.folder is not None:
        return certificates_in(options.folder)
    while True:
        try:
            return await kept_certificates(
                client, options.place.namespace, options.secret, options.hosts, clock.wall()
            )
        except ApiError as error:
            log.warning("cannot keep the webhooks' certificates: %s", error)
            await clock.sleep(_AGAIN)


def _at(place: Place, port: int) -> Place:
    if not place.url.endswith(":0"):
        return place
    return replace(place, url=f"{place.url.removesuffix('0')}{port}")


def _admission(hook: Hook) -> Callable[[bytes], Json]:
    return lambda body: admission_review(body, hook.judge)


def _handler(
    answer: Callable[[bytes], Json],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            found = answer(await request.read())
        except MalformedReview as error:
            return web.Response(text=f"{error}\n", status=400)
        return web.Response(body=orjson.dumps(found), content_type="application/json")

    return handle

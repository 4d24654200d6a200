"""The server that webhooks are called at, over TLS, and what keeps it known and certified.

`serve_webhooks` listens; `run_webhooks` gets the certificates, listens, and in the process whose
turn it is registers, and looks once an hour whether they have to be renewed. The others look once a
minute for what that one made. While the API server refuses the registration, it is tried again and
what is registered stays. What a request may cost is for `webhook_requests`, what a connection may
for `webhook_connections`.

Source: specification of the quota plane, section 12.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from aiohttp import web

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.planes.quota.webhooks.certificates import (
    Certificates,
    certificates_in,
    kept_certificates,
    load_chain,
    stored_certificates,
)
from reprieve.planes.quota.webhooks.registration import (
    CONFIGURATIONS,
    CONVERT,
    Place,
    register_webhooks,
)
from reprieve.planes.quota.webhooks.requests import MOST_BYTES, ClientRule, Desk
from reprieve.planes.quota.webhooks.reviews import (
    Hook,
    Json,
    admission_review,
    conversion_review,
)
from reprieve.settings.quota import QuotaSettings
from reprieve.telemetry.connections import IDLE_S, Connections, listening
from reprieve.units.errors import UsageError

__all__ = [
    "Standing",
    "WebhookOptions",
    "WebhookServer",
    "run_webhooks",
    "serve_webhooks",
    "webhook_options",
]

log: Final = logging.getLogger(__name__)

# Where the reference looks for files.
DEFAULT_FOLDER: Final = "/tmp/k8s-webhook-server/serving-certs"
# Of a request's head: each line, and how many; the API server sends some ten short ones.
_LONGEST_LINE: Final = 4096
_MOST_LINES: Final = 32
_READ_AHEAD: Final = 2**16
_LINGER_S: Final = 1.0  # so that who sends too much still reads the answer
_AGAIN: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Where the webhooks are served and found.

    `folder`: certificate files that another tool keeps, such as cert-manager; None has our own
    authority in the Secret `secret`. `place.url` makes the server known by that address instead of
    the Service; its port 0 is filled in. `client_authority`: a file with the authorities of
    clients; with it reviews are answered to holders of a certificate alone, and of these to those
    that `client_names` names where there are any. Conversions are answered to all clients, since
    Kubernetes has no client certificate for them.
    """

    place: Place
    name: str = CONFIGURATIONS
    secret: str = "reprieve-webhook-certificates"
    folder: Path | None = None
    port: int = 9443
    host: str | None = None
    client_authority: Path | None = None
    client_names: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that the certificate is for."""
        service = f"{self.place.service}.{self.place.namespace}"
        own = (f"{service}.svc", f"{service}.svc.cluster.local", service)
        address = self.place.url.removeprefix("https://").rpartition(":")[0].strip("[]")
        return (address, *own) if address else own


def webhook_options(settings: QuotaSettings, namespace: str) -> WebhookOptions:
    """Return what the settings state of webhooks, for an operator in this namespace."""
    secret = settings.configuration.webhook_secret
    folder = settings.certificate_folder
    if not folder and not settings.configuration.own_certificates:
        folder = settings.configuration.certificate_folder or DEFAULT_FOLDER
    said = settings.webhook_client_authority
    authority = Path(said) if said else None
    port = settings.webhook_port
    if settings.webhook_url:
        port = int(settings.webhook_url.rpartition(":")[2])
    return WebhookOptions(
        Place(
            namespace,
            settings.webhook_service,
            url=settings.webhook_url,
            annotations=dict(settings.webhook_annotations),
        ),
        secret=secret or "reprieve-webhook-certificates",
        folder=Path(folder) if folder else None,
        port=port,
        client_authority=authority,
        client_names=settings.webhook_client_names,
    )


class Standing(StrEnum):
    """How far a process has come with its webhooks."""

    SERVING = "serving"
    REGISTERED = "registered"
    REFUSED = "refused"


async def _at_once() -> None:
    """The turn of a process that is alone."""


class WebhookServer:
    """A server that listens; its certificate can be replaced while it does."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.port = port
        self._context = context

    def renew(self, certificates: Certificates) -> None:
        """Serve new connections with these certificates."""
        load_chain(self._context, certificates)


def _unheard(why: str) -> None:
    """Refused requests are not counted."""


@asynccontextmanager
async def serve_webhooks(
    hooks: Sequence[Hook],
    certificates: Certificates,
    options: WebhookOptions,
    refused: Callable[[str], None] = _unheard,
) -> AsyncIterator[WebhookServer]:
    """Serve until the end of the block; port 0 uses a free one.

    Args:
        hooks: judged in a thread, so that what they query of others has to be safe there.
        certificates: to begin with.
        options: where, and for whom.
        refused: hears a word for each request or connection that is not answered.

    Raises:
        UsageError: the port cannot be listened on, or the certificates cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, certificates)
    rule = _client_rule(context, options)
    admissions, conversions = Desk("admission", refused, rule), Desk("conversion", refused)
    connections = Connections(refused)
    application = web.Application(
        client_max_size=MOST_BYTES, middlewares=[connections.middleware()]
    )
    application.router.add_post(CONVERT, conversions.handler(conversion_review))
    for hook in hooks:
        application.router.add_post(hook.path, admissions.handler(_admission(hook)))
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=1.0,
        keepalive_timeout=IDLE_S,
        lingering_time=_LINGER_S,
        auto_decompress=False,
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
        max_headers=_MOST_LINES,
        read_bufsize=_READ_AHEAD,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        async with listening(
            connections, runner.server, options.host, options.port, context
        ) as port:
            yield WebhookServer(port, context)
    finally:
        await runner.cleanup()
        admissions.close()
        conversions.close()


async def run_webhooks(
    client: Client,
    options: WebhookOptions,
    hooks: Sequence[Hook],
    clock: Clock,
    turn: Callable[[], Awaitable[None]] = _at_once,
    reported: Callable[[Standing, str], None] = lambda standing, why: None,
    refused: Callable[[str], None] = _unheard,
) -> None:
    """Serve until cancelled; once `turn` has returned, register and renew.

    Until then certificates are read and never made, so that one process of a deployment makes them.
    `reported` hears how far it is, and why the API server refuses; `refused` what was not answered.

    Raises:
        UsageError: the port cannot be listened on, or mounted files cannot be used.
    """
    leading = asyncio.ensure_future(turn())
    try:
        certificates = await _first_certificates(client, options, clock, leading)
        async with serve_webhooks(hooks, certificates, options, refused) as server:
            reported(Standing.SERVING, "")
            place = _at(options.place, server.port)
            shift = _Shift(client, options, hooks, clock, place, server, certificates, reported)
            while not leading.done():
                await _pause(clock, MINUTE, leading)
                await shift.follow()
            while True:
                await clock.sleep(HOUR if await shift.lead() else _AGAIN)
    finally:
        leading.cancel()


class _Shift:
    """One process that serves: first beside the leader, then as the leader."""

    def __init__(
        self,
        client: Client,
        options: WebhookOptions,
        hooks: Sequence[Hook],
        clock: Clock,
        place: Place,
        server: WebhookServer,
        certificates: Certificates,
        reported: Callable[[Standing, str], None],
    ) -> None:
        self._client = client
        self._options = options
        self._hooks = hooks
        self._clock = clock
        self._place = place
        self._server = server
        self._certificates = certificates
        self._reported = reported
        self._trouble = ""

    async def follow(self) -> None:
        """Serve with what the leader made."""
        try:
            found = await _read(self._client, self._options)
        except (ApiError, UsageError) as error:
            self._warn(f"cannot read the webhooks' certificates: {error}")
            return
        if found is not None:
            self._serve(found)

    async def lead(self) -> bool:
        """Renew what is old, register what is served; return whether that succeeded."""
        try:
            if self._options.folder is not None:
                found = certificates_in(self._options.folder)
                await self._register(found)
            else:
                found = await kept_certificates(
                    self._client,
                    self._place.namespace,
                    self._options.secret,
                    self._options.hosts,
                    self._clock.wall(),
                    self._certificates,
                    self._register,
                )
            # Only now does the API server trust a new authority.
            self._serve(found)
            self._trouble = ""
            self._reported(Standing.REGISTERED, "")
        except (ApiError, UsageError) as error:
            self._warn(f"cannot register the webhooks: {error}")
            self._reported(Standing.REFUSED, str(error))
            return False
        return True

    async def _register(self, certificates: Certificates) -> None:
        trusted = replace(self._place, bundle=certificates.bundle)
        foreign = await register_webhooks(self._client, self._options.name, self._hooks, trusted)
        if foreign:
            self._warn(f"not converting, being another's or missing: {', '.join(foreign)}")

    def _serve(self, certificates: Certificates) -> None:
        if certificates != self._certificates:
            self._server.renew(certificates)
            self._certificates = certificates
            log.info("serving webhooks with a new certificate")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s", trouble)


async def _first_certificates(
    client: Client, options: WebhookOptions, clock: Clock, leading: asyncio.Future[None]
) -> Certificates:
    """Wait for certificates, or make them where this process leads.

    Raises:
        UsageError: mounted files cannot be used.
    """
    while True:
        try:
            found = await _read(client, options)
            if found is not None:
                return found
            if leading.done():
                namespace, now = options.place.namespace, clock.wall()
                return await kept_certificates(
                    client, namespace, options.secret, options.hosts, now
                )
        except ApiError as error:
            log.warning("cannot keep the webhooks' certificates: %s", error)
            await clock.sleep(_AGAIN)
        else:
            await _pause(clock, SECOND, leading)


async def _read(client: Client, options: WebhookOptions) -> Certificates | None:
    if options.folder is not None:
        return certificates_in(options.folder)
    return await stored_certificates(client, options.place.namespace, options.secret)


async def _pause(clock: Clock, nanoseconds: int, leading: asyncio.Future[None]) -> None:
    """Return after that much time, or as soon as this process leads."""
    pause = asyncio.ensure_future(clock.sleep(nanoseconds))
    try:
        await asyncio.wait((pause, leading), return_when=asyncio.FIRST_COMPLETED)
    finally:
        pause.cancel()


def _at(place: Place, port: int) -> Place:
    if not place.url.endswith(":0"):
        return place
    return replace(place, url=f"{place.url.removesuffix('0')}{port}")


def _admission(hook: Hook) -> Callable[[bytes], Json]:
    return lambda body: admission_review(body, hook.judge)


def _client_rule(context: ssl.SSLContext, options: WebhookOptions) -> ClientRule | None:
    """Request certificates of clients, which they need not have; report who needs one.

    Raises:
        UsageError: the file of authorities cannot be used.
    """
    if options.client_authority is None:
        return None
    try:
        context.load_verify_locations(options.client_authority)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"webhooks.clientAuthority {options.client_authority}: {error.strerror or error}; "
            "accepted: a file of certificates of authorities, as PEM"
        ) from None
    context.verify_mode = ssl.CERT_OPTIONAL
    return ClientRule(options.client_names)

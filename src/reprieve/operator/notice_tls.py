"""TLS for pods that request notices: a certificate of our own authority, or another's files.

1. Our own authority and its certificate lie in the Secret `SERVICE-tls` of the operator's
   namespace, so that every process serves with the same ones. Any process makes or renews them: the
   Secret's version lets one of several win, and the others serve with what it wrote.
2. The authorities that pods have to trust stand in the ConfigMap `SERVICE-ca`, key `ca.crt`. They
   are there before a certificate of a new authority is served.
3. With a folder, another tool (cert-manager, for one) keeps `tls.crt` and `tls.key` up to date.

Until the first certificate is there, every handshake fails, and a pod tries again. A certificate
that cannot be read leaves the one that is held in use. Source: `docs/notice.md`; the threat model
in `docs/security.md`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.resource import CONFIG_MAPS
from reprieve.planes.quota.webhooks.certificates import (
    Certificates,
    certificates_in,
    kept_certificates,
    load_chain,
)
from reprieve.units.errors import UsageError

__all__ = ["Contexts", "NoticeTls", "notice_contexts"]

log: Final = logging.getLogger(__name__)

_AUTHORITY: Final = "ca.crt"
_AGAIN: Final = 10 * SECOND
_LOOKED: Final = MINUTE


@dataclass(frozen=True, slots=True)
class NoticeTls:
    """How notices are served over TLS: as `service` of `namespace`, or with the files of `folder`.

    With files the other two have no effect.
    """

    service: str = ""
    namespace: str = ""
    folder: Path | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that the certificate is for; the last two for a forwarded port."""
        own = f"{self.service}.{self.namespace}"
        return (own, f"{own}.svc", f"{own}.svc.cluster.local", "localhost", "127.0.0.1")


class Contexts(NamedTuple):
    """For `serving` pods, and for requests to the process that leads (`leader`)."""

    serving: ssl.SSLContext
    leader: ssl.SSLContext


@asynccontextmanager
async def notice_contexts(tls: NoticeTls, client: Client, clock: Clock) -> AsyncIterator[Contexts]:
    """Give what processes need for TLS; the certificate is kept up to date.

    Raises:
        UsageError: the files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    leader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The leader is called by its address: who has a key of ours is one of us.
    leader.check_hostname = False
    leader.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    contexts = Contexts(context, leader)
    keeper = _Keeper(tls, client, clock, contexts)
    if tls.folder is not None:
        keeper.serve(certificates_in(tls.folder))
    keeping = asyncio.create_task(keeper.run())
    try:
        yield contexts
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


class _Keeper:
    """Keeps the certificate of one server up to date."""

    def __init__(self, tls: NoticeTls, client: Client, clock: Clock, contexts: Contexts) -> None:
        self._tls = tls
        self._client = client
        self._clock = clock
        self._contexts = contexts
        self._served: Certificates | None = None
        self._trouble = ""

    def serve(self, found: Certificates) -> None:
        """Serve new connections with this certificate.

        Raises:
            UsageError: it is no certificate with its key.
        """
        if found != self._served:
            load_chain(self._contexts.serving, found)
            self._contexts.leader.load_verify_locations(cadata=_first(found))
            if self._tls.folder is None:
                self._contexts.leader.load_verify_locations(cadata=found.trusted.decode())
            self._served = found
            log.info("notices are served with a new certificate")

    async def run(self) -> None:
        """Renew what is old and follow what others renew, until cancelled."""
        while True:
            try:
                if self._tls.folder is not None:
                    self.serve(certificates_in(self._tls.folder))
                else:
                    self.serve(await self._kept())
            except (ApiError, UsageError) as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("the certificate of notices cannot be kept: %s", error)
                await self._clock.sleep(_AGAIN)
            else:
                self._trouble = ""
                await self._clock.sleep(_LOOKED if self._tls.folder is not None else HOUR)

    async def _kept(self) -> Certificates:
        return await kept_certificates(
            self._client,
            self._tls.namespace,
            f"{self._tls.service}-tls",
            self._tls.hosts,
            self._clock.wall(),
            self._served,
            self._publish,
        )

    async def _publish(self, found: Certificates) -> None:
        """Show pods which authorities to trust."""
        name, data = f"{self._tls.service}-ca", {_AUTHORITY: found.trusted.decode()}
        try:
            kept: dict[str, Any] = await self._client.get(
                CONFIG_MAPS, self._tls.namespace, name, dict
            )
        except NotFound:
            metadata = {"name": name, "namespace": self._tls.namespace}
            await self._client.create(CONFIG_MAPS, {"metadata": metadata, "data": data}, dict)
            return
        if kept.get("data") != data:
            await self._client.replace(CONFIG_MAPS, {**kept, "data": data}, dict)


def _first(found: Certificates) -> str:
    """Return the certificate that is served, without those of the authorities that follow it."""
    text, end = found.certificate.decode("ascii", "replace"), "-----END CERTIFICATE-----"
    return text[: text.index(end) + len(end)] + "\n"

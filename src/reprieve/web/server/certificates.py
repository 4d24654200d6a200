"""The certificate of a server that outlives it: read again when its file changes.

A renewer of certificates (cert-manager, for one) replaces files; connections that are made from
then on get the new one. A file that cannot be read leaves the one that is held in use.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.units.errors import UsageError

__all__ = ["followed_certificate"]

log: Final = logging.getLogger(__name__)

_LOOKED: Final = 30 * SECOND


@asynccontextmanager
async def followed_certificate(
    certificate: Path | None, key: Path | None, clock: Clock
) -> AsyncIterator[ssl.SSLContext | None]:
    """Give what a server needs for TLS, None where no certificate is named.

    Raises:
        UsageError: the files cannot be used.
    """
    if certificate is None or key is None:
        yield None
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    stamps = _stamps(certificate, key)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-cert {certificate}, --tls-key {key}: {error.strerror or error}; accepted: a "
            "chain of certificates and its key, PEM"
        ) from None
    following = asyncio.create_task(_follow(context, certificate, key, stamps, clock))
    try:
        yield context
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(
    context: ssl.SSLContext, certificate: Path, key: Path, stamps: tuple[int, ...], clock: Clock
) -> None:
    while True:
        await clock.sleep(_LOOKED)
        now = _stamps(certificate, key)
        if now == stamps:
            continue
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate %s cannot be read: %s", certificate, error)
        else:
            stamps = now


def _stamps(*paths: Path) -> tuple[int, ...]:
    """Return when the files were changed; nothing for those that are not there."""
    found = []
    for path in paths:
        try:
            found.append(path.stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)

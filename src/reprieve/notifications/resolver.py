"""Looks up hosts of webhooks: one that was not named in full is at public addresses alone.

The connection is made to what is returned here, so that a name cannot stand for another address
between the check and the call. Source: `settings`, rule 3.
"""

from __future__ import annotations

import ipaddress
import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from reprieve.notifications.settings import AllowedHosts

__all__ = ["PublicResolver"]


class PublicResolver(AbstractResolver):
    """Resolves names; of a host that was not named in full to public addresses alone."""

    def __init__(self, allowed: AllowedHosts, resolver: AbstractResolver | None = None) -> None:
        self._named = frozenset(host for host, _ in allowed.hosts)
        self._resolver = resolver or aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return where a host is.

        Raises:
            OSError: it has no address, or none that may be called.
        """
        found = await self._resolver.resolve(host, port, family)
        if host.rstrip(".").lower() in self._named:
            return found
        public = [each for each in found if ipaddress.ip_address(each["host"]).is_global]
        if not public:
            raise OSError(None, f"{host} is at no public address; name it in full (--notify)")
        return public

    async def close(self) -> None:
        """Let the resolver go."""
        await self._resolver.close()

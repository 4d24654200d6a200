"""Looks up hosts of webhooks: one that was not named in full is at public addresses alone.

The connection is made to what is returned here, so that a name cannot stand for another address
between the check and the call. Source: `settings`, rule 3.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from reprieve.notifications.settings import AllowedHosts

__all__ = ["PublicResolver"]


#: Where a translator of the network stands for IPv4 addresses, in the last 32 bits (RFC 6052).
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


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
        public = [each for each in found if _is_public(each["host"])]
        if not public:
            raise OSError(None, f"{host} is at no public address; name it in full (--notify)")
        return public

    async def close(self) -> None:
        """Release the resolver."""
        await self._resolver.close()


def _is_public(text: str) -> bool:
    """Whether an address, or the IPv4 address that it carries, is one of the internet."""
    address = ipaddress.ip_address(text)
    carried = None
    if isinstance(address, ipaddress.IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour
        if carried is None and address in _TRANSLATED:
            carried = ipaddress.IPv4Address(address.packed[-4:])
    if carried is not None:
        return carried.is_global and not carried.is_multicast
    return address.is_global and not address.is_multicast

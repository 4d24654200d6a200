"""How often an address may be wrong: ten unknown credentials in a minute.

Only questions that need a query of the API server count, so that a known user is
never kept out by a neighbour. An IPv6 address counts with its network of 64 bits, of which one
machine has all addresses. Behind a proxy that is named, the address is the last one that the proxy
was given by a peer that is no such proxy.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.server.door import TooManyAttempts

__all__ = ["Attempts", "Network", "address_of"]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST: Final = 10
_WINDOW: Final = 60 * SECOND
_KEPT: Final = 4096  # addresses
_MOST_HOPS: Final = 20
_UNKNOWN: Final = "unknown"


class Attempts:
    """Counts failures by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[Nanos]] = OrderedDict()

    def check(self, address: str) -> None:
        """Refuse an address that was wrong too often.

        Raises:
            TooManyAttempts: with the seconds after which it may try again.
        """
        failures = self._failures.get(address)
        now = self._clock.monotonic()
        while failures and now - failures[0] >= _WINDOW:
            failures.popleft()
        if failures is not None and len(failures) >= _MOST:
            wait = max(1, -(-(failures[0] + _WINDOW - now) // SECOND))
            raise TooManyAttempts(
                f"too many credentials from your address that no user has; try again in {wait} s",
                wait,
            )

    def failed(self, address: str) -> None:
        """Note a failure."""
        self._failures.setdefault(address, deque(maxlen=_MOST)).append(self._clock.monotonic())
        self._failures.move_to_end(address)
        while len(self._failures) > _KEPT:
            self._failures.popitem(last=False)


def address_of(peer: str | None, forwarded: str, proxies: Sequence[Network]) -> str:
    """Return the user, as far as that is to be believed.

    Args:
        peer: who opened the connection.
        forwarded: the header `X-Forwarded-For`.
        proxies: those whose `X-Forwarded-For` is trusted.
    """
    hops = [hop.strip() for hop in forwarded.split(",")[-_MOST_HOPS:]]
    for hop in (peer or "", *reversed(hops)):
        try:
            address = ipaddress.ip_address(hop.partition("%")[0])
        except ValueError:
            break
        if not any(address in network for network in proxies):
            return _counted(address)
    return _UNKNOWN if peer is None else peer


def _counted(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))

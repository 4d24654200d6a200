"""What is refused before any route, and the headers that every answer has.

1. Only names that were stated are answered: a foreign page whose name is made to lead here (DNS
   rebinding) brings its own name in `Host`.
2. Requests that another site's page makes are refused, by `Sec-Fetch-Site`, and POSTs by `Origin`.
   One without `Origin` comes from no browser; it may bring no cookie.
3. Scripts, styles and data come from here alone; no other page frames this one or learns its
   address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reprieve.units.errors import ReprieveError

__all__ = ["Misdirected", "add_headers", "guard", "is_loopback_name"]

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class Misdirected(ReprieveError):
    """The request is not for this server, or not from its own page; `status` is 403 or 421."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers for browsers; what a route has set stands."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "reprieve"


def guard(names: Collection[str] | None) -> Middleware:
    """Return what refuses requests that are not for here or not from here.

    `names`: as which this server is known; None answers to any name, an empty one to those of the
    loopback interface.
    """
    known = _known(names)

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = _host_name(request.host)
        if host is None or not known(host):
            raise Misdirected(
                "this server does not answer under the name in Host; accepted: the address that "
                "it printed",
                421,
            )
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and (
            request.path.startswith("/api/")
        ):
            raise Misdirected("requests of other sites' pages are not answered", 403)
        if request.method not in ("GET", "HEAD"):
            _check_origin(request)
        return await handler(request)

    return guarded


def is_loopback_name(name: str) -> bool:
    """Return whether a name or an address is the loopback interface's own."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _known(names: Collection[str] | None) -> Callable[[str], bool]:
    if names is None:
        return lambda name: True
    accepted = frozenset(name.lower() for name in names)
    return lambda name: name in accepted or (not accepted and is_loopback_name(name))


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    if origin is None:
        if "Cookie" in request.headers:
            raise Misdirected("a request with a cookie that changes something needs Origin", 403)
    elif urlsplit(origin).netloc.lower() != request.host.lower():
        raise Misdirected("requests of other sites' pages are not answered", 403)


def _host_name(host: str) -> str | None:
    """Return the name without the port, None where it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None

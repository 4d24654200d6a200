"""Under which names the server answers over plain HTTP.

There a request without a token is the administrator's, so that a web page must not get a browser
to send one: neither under the page's own name that now leads to this machine (DNS rebinding, seen
in `Host`) nor from another site (seen in `Origin`). Who has a loopback address, or
`localhost`, means this server; other names have to be given.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kubelocal.server.errors import StatusError

__all__ = ["Hosts"]

_REMEMBERED: Final = 256


class Hosts:
    """The names that are answered to, at any port."""

    def __init__(self, names: Collection[str] = ()) -> None:
        """`names`: allowed beside the loopback names and addresses."""
        self._names = frozenset(_plain(name) for name in names)
        # What was accepted: every request states the same few, and parsing one is what costs most.
        self._accepted: set[tuple[str, str]] = set()

    def check(self, host: str, origin: str) -> None:
        """Refuse requests for another name or site; empty where the request has no such header.

        Raises:
            StatusError: 403.
        """
        if (host, origin) in self._accepted:
            return
        for header, value, name in (
            ("Host", host, _without_port(host)),
            ("Origin", origin, _of_origin(origin)),
        ):
            if value and not self._ours(name):
                raise StatusError(
                    403,
                    "Forbidden",
                    f"{header} {value[:200]!r} is not a name of this server; accepted: localhost, "
                    "addresses such as 127.0.0.1, and what --allow-host names",
                )
        if len(self._accepted) < _REMEMBERED:
            self._accepted.add((host, origin))

    def _ours(self, name: str) -> bool:
        name = _plain(name)
        if name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _of_origin(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""

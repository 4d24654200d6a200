"""Where notifications may be sent: allowed hosts, and no address inside by accident.

A namespace names the URL, the administrator of the operator the hosts (`--notify`):

1. `hooks.example.com` allows https on port 443, `hooks.example.com:8443` http and https on that
   port, `*.example.com` (and `*.example.com:8443`) every host below a domain.
2. A URL has no user, password or fragment, and at most 2,000 characters.
3. A host that is allowed by a pattern alone is reached at public addresses only, whatever its name
   stands for at the moment; one that is named in full is reached wherever it is. Addresses are
   checked where the connection is made (`resolver`), so that a name that changes between two looks
   gains nothing.
4. Redirects are not followed (`notifier`).

Otherwise any user who may annotate a namespace could have the operator call services of the
cluster, or the metadata address of its machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubeworld.units.untrusted import Form, bounded, integer_or_none, shown
from reprieve.units.errors import UsageError

__all__ = ["AllowedHosts", "NotAllowed", "NotificationSettings", "Target", "notification_settings"]

_LONGEST: Final = 2_000
_HOST: Final = Form(r"(?:\*\.)?+[a-z0-9_-]++(?:\.[a-z0-9_-]++)*+", 255)
_HTTPS: Final = 443
_SHORTEST_KEY: Final = 16
_ACCEPTED: Final = (
    "accepted: a host such as hooks.example.com, one with a port such as hooks.example.com:8443, "
    "or all hosts below a domain such as *.example.com"
)


class NotAllowed(ValueError):
    """A URL that no notification is sent to; the text states why, without the URL, a secret."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that notifications may be sent to. `named`: its host was named in full."""

    url: str
    host: str
    named: bool


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts in full, and domains; with the port each, 443 meaning https alone."""

    hosts: frozenset[tuple[str, int]]
    domains: frozenset[tuple[str, int]]

    def target(self, text: str) -> Target:
        """Return where a URL leads.

        Raises:
            NotAllowed: it is none, or not to one of the hosts.
        """
        try:
            parts = urlsplit(bounded(text, _LONGEST))
            port = parts.port
            host = (parts.hostname or "").rstrip(".")
        except ValueError as error:
            raise NotAllowed("it is no URL, or longer than 2,000 characters") from error
        if parts.scheme not in ("https", "http") or not host or "@" in parts.netloc:
            raise NotAllowed("it is no URL such as https://hooks.example.com/path")
        if port is None:
            port = _HTTPS if parts.scheme == "https" else 80
        if parts.scheme == "http" and port == _HTTPS:
            raise NotAllowed("it has to begin with https://")
        if (host, port) in self.hosts:
            return Target(parts._replace(fragment="").geturl(), host, named=True)
        above = host
        while "." in above:
            above = above.partition(".")[2]
            if (above, port) in self.domains:
                return Target(parts._replace(fragment="").geturl(), host, named=False)
        raise NotAllowed(f"the operator may not call {shown(f'{host}:{port}')} (--notify)")


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Where messages may be sent, and what they are signed with; empty: they are not."""

    allowed: AllowedHosts
    key: bytes = b""


def notification_settings(hosts: Sequence[str], key: Path | None) -> NotificationSettings | None:
    """Return the settings of the flags `--notify` and `--notify-key`; None: no notifications.

    Raises:
        UsageError: a host is none, or the key cannot be read or is too short.
    """
    if not hosts:
        if key is not None:
            raise UsageError("--notify-key: there is no --notify HOST whose messages it would sign")
        return None
    allowed = _allowed(hosts)
    if key is None:
        return NotificationSettings(allowed)
    try:
        content = key.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"--notify-key {key}: {error.strerror or error}") from None
    if len(content) < _SHORTEST_KEY:
        raise UsageError(
            f"--notify-key {key}: {len(content)} bytes are too few; "
            f"accepted: {_SHORTEST_KEY} or more"
        )
    return NotificationSettings(allowed, content)


def _allowed(patterns: Sequence[str]) -> AllowedHosts:
    found: dict[bool, set[tuple[str, int]]] = {False: set(), True: set()}
    for pattern in patterns:
        name, _, digits = pattern.lower().partition(":")
        port = integer_or_none(digits, 1, 65_535) if digits else _HTTPS
        if port is None or not _HOST.fullmatch(name):
            raise UsageError(f"--notify: {pattern!r} is no host; {_ACCEPTED}")
        found[name.startswith("*.")].add((name.removeprefix("*."), port))
    return AllowedHosts(frozenset(found[False]), frozenset(found[True]))

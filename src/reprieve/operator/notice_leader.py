"""Passes requests about notices on to the process that leads, which alone knows the answers.

1. The leader's address stands in an annotation of the process lease, after its identity, so that an
   address that a former holder left is not used.
2. A request is passed on once: a process that does not lead refuses one that was passed on.
3. The leader identifies the pod and counts its requests; nothing is decided here.
4. Over TLS the leader has to show a certificate of the same authority, or the same certificate.

Pods reach any process through the Service, and need not know which one leads. Source: the contract
of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.untrusted import integer_or_none
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import LEASES
from reprieve.operator.notice_polls import PASSED_ON, Answer

__all__ = ["ADDRESS", "Leader", "Passed", "own_host", "published"]

#: The annotation of the lease.
ADDRESS: Final = "reprieve.dev/notice-address"
_KNOWN: Final = SECOND  # for how long what the lease states is not read again
_CONNECT_S: Final = 2.0
_SLACK_S: Final = 10.0  # beyond the length of a poll
_MOST_BYTES: Final = 16_384  # of an answer


class Passed(NamedTuple):
    """A request as it is passed on; `wait`: the seconds that a poll lasts."""

    method: str
    path: str
    authorization: str
    body: bytes = b""
    wait: int = 0


def published(identity: str, host: str, port: int) -> str:
    """Return what the lease states of the address of its holder."""
    return f"{identity} {f'[{host}]' if ':' in host else host}:{port}"


async def own_host(server: str) -> str:
    """Return the address by which this machine reaches the API server; empty where that fails."""
    url = urlsplit(server)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            url.hostname or "", url.port or 443, type=socket.SOCK_DGRAM, proto=socket.IPPROTO_UDP
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""


class Leader:
    """The process that leads, as another one knows it from the lease."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        lease: tuple[str, str],
        identity: str,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`lease`: its namespace and name; `identity` of this process; `context` for TLS."""
        self._client = client
        self._clock = clock
        self._lease = lease
        self._identity = identity
        self._context = context
        self._reading = asyncio.Lock()
        self._address: tuple[str, int] | None = None
        self._read_at: int | None = None

    async def answer(self, passed: Passed) -> Answer | None:
        """Return the leader's answer; None where it cannot be had."""
        address = await self._where()
        if address is None:
            return None
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    *address, ssl=self._context, limit=_MOST_BYTES
                )
        except (OSError, TimeoutError):
            self._read_at = None  # another one may lead by now
            return None
        try:
            writer.write(_written(passed))
            async with asyncio.timeout(passed.wait + _SLACK_S):
                return await _read(reader)
        except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError):
            return None
        finally:
            writer.close()

    async def _where(self) -> tuple[str, int] | None:
        """Return the leader's address, None where no other process leads that states one."""
        async with self._reading:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= _KNOWN:
                try:
                    lease: dict[str, Any] = await self._client.get(LEASES, *self._lease, dict)
                except ApiError:
                    return None
                self._address, self._read_at = self._stated(lease), now
            return self._address

    def _stated(self, lease: dict[str, Any]) -> tuple[str, int] | None:
        annotations = (lease.get("metadata") or {}).get("annotations") or {}
        identity, _, address = str(annotations.get(ADDRESS) or "").partition(" ")
        holder = (lease.get("spec") or {}).get("holderIdentity")
        host, _, number = address.rpartition(":")
        port = integer_or_none(number, least=1)
        if identity in ("", self._identity) or identity != holder or port is None or not host:
            return None
        return host.removeprefix("[").removesuffix("]"), port


def _written(passed: Passed) -> bytes:
    lines = [
        f"{passed.method} {passed.path} HTTP/1.1",
        "Host: operator",
        f"Authorization: {passed.authorization}",
        f"{PASSED_ON}: 1",
        "Connection: close",
    ]
    if passed.method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(passed.body)}"]
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape") + passed.body


async def _read(reader: asyncio.StreamReader) -> Answer:
    """Return an answer of our own server.

    Raises:
        EOFError: the connection ended.
        ValueError: it is no such answer.
        LimitOverrunError: it is too long.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    status = integer_or_none(first.split(" ")[1] if " " in first else "", least=100)
    length = integer_or_none(headers.get("content-length", "0"), least=0)
    if status is None or length is None or length > _MOST_BYTES:
        raise ValueError(first)
    body = (await reader.readexactly(length)).decode()
    kind = headers.get("content-type", "text/plain").partition(";")[0]
    return Answer(status, body, kind, again="retry-after" in headers)

"""Who may read metrics and pages: the API server is queried whose token it is, and its rights.

A token is reviewed (TokenReview), then its user's right to `get` the path (SubjectAccessReview), as
other components of Kubernetes do for their metrics. Answers are kept for a while, so that a scrape
every few seconds costs the API server nothing: those that allow access for longer, and of all only
the last ones, since any client of the port can invent tokens and paths. At most a few questions are
in flight at once; a client that has to wait for long gets the answer that this is undecided.

Source: the API's TokenReview and SubjectAccessReview; the threat model in `docs/security.md`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import ssl
from collections import OrderedDict
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import Resource
from reprieve.telemetry.http import Access, Protection

__all__ = ["MetricsAccess", "metrics_protection"]

log: Final = logging.getLogger(__name__)

TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_KEPT: Final = 256
_AT_ONCE: Final = 4
_WAIT_S: Final = 2.0
_LIFE: Final = {
    Access.ALLOWED: 60 * SECOND,
    Access.DENIED: 10 * SECOND,
    Access.UNKNOWN: 10 * SECOND,
    Access.UNDECIDED: 1 * SECOND,
}


def metrics_protection(client: Client, clock: Clock) -> Protection:
    """Return what protects the telemetry of this process, with a certificate of its own making."""
    # Here, since what makes certificates uses 8 MiB, and most operators have none made.
    from reprieve.planes.quota.webhooks.certificates import load_chain, new_certificates

    names = (socket.gethostname()[:63] or "reprieve", "localhost", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, new_certificates(names, clock.wall()))
    return Protection(MetricsAccess(client, clock), context)


class MetricsAccess:
    """Called with a token and a path; never raises for what the API server states."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Access, Nanos]] = OrderedDict()
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._trouble = ""

    async def __call__(self, token: str, path: str) -> Access:
        """Return whether the bearer of `token` may get `path`."""
        key = hashlib.sha256(f"{path}\n{token}".encode(errors="replace")).digest()
        found, until = self._known.get(key, (Access.UNDECIDED, 0))
        if until > self._clock.monotonic():
            self._known.move_to_end(key)
            return found
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._asking.acquire()
        except TimeoutError:
            return Access.UNDECIDED
        try:
            found = await self._asked(token, path)
        finally:
            self._asking.release()
        self._known[key] = found, Nanos(self._clock.monotonic() + _LIFE[found])
        self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found

    async def _asked(self, token: str, path: str) -> Access:
        try:
            status = await self._review(TOKEN_REVIEWS, {"token": token})
            user = status.get("user") or {}
            if not status.get("authenticated") or not user.get("username"):
                return Access.UNKNOWN
            question = {
                "user": user["username"],
                "uid": user.get("uid", ""),
                "groups": user.get("groups") or [],
                "extra": user.get("extra") or {},
                "nonResourceAttributes": {"path": path, "verb": "get"},
            }
            status = await self._review(ACCESS_REVIEWS, question)
        except ApiError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("readers of metrics cannot be authenticated: %s", error)
            return Access.UNDECIDED
        self._trouble = ""
        allowed = status.get("allowed") is True and not status.get("denied")
        return Access.ALLOWED if allowed else Access.DENIED

    async def _review(self, resource: Resource, spec: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await self._client.create(resource, {"spec": spec}, dict)
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

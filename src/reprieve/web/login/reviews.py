"""Two questions to the API server: whose token is this, and may they list pods there?

A token counts only where the server states that it was made for one of our audiences: a server that
knows no audiences answers without any, and a token that was made for another service must
not open this page. Source: the API's TokenReview and SubjectAccessReview.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeworld.units.durations import SECOND
from reprieve.kube.errors import ApiError
from reprieve.kube.transport import Request, Transport
from reprieve.web.login.wire import ACCESS_REVIEWS, TOKEN_REVIEWS
from reprieve.web.server.door import Unverified

__all__ = ["Identity", "Reviews"]

_TIMEOUT: Final = 4 * SECOND
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the API server knows them; `attributes` are sent in its reviews as they came."""

    name: str
    attributes: bytes

    @property
    def key(self) -> bytes:
        """What separates users, groups and all."""
        return hashlib.sha256(self.attributes).digest()


class Reviews:
    """Queries the API server; nothing is remembered here.

    Args:
        transport: to the API server, with the rights to create the two reviews.
        audiences: for which tokens must have been made.
    """

    def __init__(self, transport: Transport, audiences: Sequence[str]) -> None:
        self._transport = transport
        self._audiences = list(audiences)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def identity(self, token: str) -> Identity | None:
        """Return whose token this is, None where it is of no user or was not made for us.

        Raises:
            Unverified: the API server does not state.
        """
        spec = {"token": token, "audiences": self._audiences}
        status = await self._asked(TOKEN_REVIEWS, "TokenReview", "authentication.k8s.io/v1", spec)
        user = status.get("user") or {}
        meant = set(self._audiences) & set(status.get("audiences") or ())
        if status.get("authenticated") is not True or not user.get("username") or not meant:
            return None
        attributes = {
            "user": user["username"],
            "uid": user.get("uid") or "",
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }
        return Identity(user["username"], msgspec.json.encode(attributes))

    async def may_list_pods(self, identity: Identity, namespace: str) -> bool:
        """Return whether a user may list pods in a namespace, in all of them where it is empty.

        Raises:
            Unverified: the API server does not state.
        """
        wanted = {"verb": "list", "resource": "pods"}
        if namespace:
            wanted["namespace"] = namespace
        spec = {**msgspec.json.decode(identity.attributes), "resourceAttributes": wanted}
        kind = "SubjectAccessReview"
        status = await self._asked(ACCESS_REVIEWS, kind, "authorization.k8s.io/v1", spec)
        return status.get("allowed") is True and not status.get("denied")

    async def _asked(self, path: str, kind: str, version: str, spec: Any) -> dict[str, Any]:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        request = Request("POST", path, body=body, timeout=_TIMEOUT)
        try:
            async with self._turns:
                answer = msgspec.json.decode(await self._transport.request(request))
        except (ApiError, msgspec.DecodeError) as error:
            raise Unverified(f"the API server does not answer a {kind}: {_why(error)}") from None
        status = answer.get("status") if isinstance(answer, dict) else None
        return status if isinstance(status, dict) else {}


def _why(error: Exception) -> str:
    """Return the kind of an error: the server's text about it may name the queried object."""
    return type(error).__name__

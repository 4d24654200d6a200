"""Who the user is, and what they may see: the interface between the routes and both logins.

On the user's own machine a word that is printed at the start admits (`reprieve.web.server.local`),
and the API server enforces the user's rights; in the cluster a token of the cluster's does, and
access reviews state what its owner may see (`reprieve.web.login`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from reprieve.units.errors import ReprieveError
from reprieve.web.tables import Viewer

__all__ = ["Door", "TooManyAttempts", "Unauthenticated", "Unverified", "Visit"]


class Unauthenticated(ReprieveError):
    """The user is not known: 401."""


class TooManyAttempts(ReprieveError):
    """Too many failed or new questions: 429, after `retry_after` seconds again."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unverified(ReprieveError):
    """The API server did not state who this is or what they may see: 503."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A user who was admitted.

    Attributes:
        name: of the user, for the page.
        viewer: what may be shown of the cluster.
        token: with which the user queries the API server; empty where the server has the user's
            kubeconfig.
    """

    name: str
    viewer: Viewer
    token: str = ""


class Door(Protocol):
    """Admits users."""

    #: What the page calls this way of running it.
    mode: str
    #: Whether users are admitted without identification.
    insecure: bool

    async def visit(self, request: web.Request, *, anew: bool = False) -> Visit:
        """Return the user.

        Args:
            request: with a cookie or a bearer token.
            anew: query the API server, whatever was answered before.

        Raises:
            Unauthenticated: no user is known by it.
            TooManyAttempts: from there, or with that many namespaces.
            Unverified: the API server does not answer.
        """
        ...

    async def login(self, request: web.Request, token: str) -> web.Response:
        """Answer with a cookie for the bearer of a token.

        Raises:
            Unauthenticated: it is the token of no user.
            TooManyAttempts: from there.
            Unverified: the API server does not answer.
        """
        ...

    async def logout(self, request: web.Request) -> web.Response:
        """Forget the user, and have the browser do so."""
        ...

    def arrival(self, request: web.Request) -> web.Response | None:
        """Return what is answered instead of the page to users whom the address itself admits."""
        ...

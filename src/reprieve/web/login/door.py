"""The door in the cluster: a token of the cluster's, or a session that one has begun.

A request brings `Authorization: Bearer`, or the cookie of a session. A request with neither, or
with a token or cookie of no user, gets 401 from every route that discloses anything. Tokens are in
no address, no cookie and no log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aiohttp import web

from reprieve.web.login.attempts import Attempts, Network, address_of
from reprieve.web.login.reviews import Identity
from reprieve.web.login.rights import Rights
from reprieve.web.login.sessions import Sessions
from reprieve.web.login.tokens import Tokens
from reprieve.web.server.door import Unauthenticated, Visit

__all__ = ["COOKIE", "ClusterDoor"]

#: A browser accepts a cookie of this name over TLS alone, for this host alone.
COOKIE: Final = "__Host-reprieve"
_BEARER: Final = "Bearer "
_WANTED: Final = (
    "log in with a token of the cluster that was made for this page and for the API server, which "
    "plans query with it: kubectl create token NAME"
)
#: Parameters that name namespaces.
_NAMING: Final = ("ns", "namespace")


class ClusterDoor:
    """Admits users whom the API server knows.

    Args:
        tokens: whose they are.
        rights: what their owners may see.
        sessions: that tokens have begun.
        attempts: how often an address was wrong.
        proxies: those that are trusted to state the address of the user.
        audiences: for which the login requests a token to be made.
    """

    mode = "web"
    insecure = False

    def __init__(
        self,
        tokens: Tokens,
        rights: Rights,
        sessions: Sessions,
        attempts: Attempts,
        proxies: Sequence[Network] = (),
        audiences: Sequence[str] = (),
    ) -> None:
        self._wanted = "".join((_WANTED, *(f" --audience {each}" for each in audiences)))
        self._tokens = tokens
        self._rights = rights
        self._sessions = sessions
        self._attempts = attempts
        self._proxies = proxies

    async def visit(self, request: web.Request, *, anew: bool = False) -> Visit:
        token = self._token(request)
        identity = await self._identity(request, token, anew=anew)
        viewer = await self._rights.viewer(identity, _named(request), anew=anew)
        return Visit(identity.name, viewer, token)

    async def login(self, request: web.Request, token: str) -> web.Response:
        if not token:
            raise Unauthenticated(self._wanted)
        await self._identity(request, token)
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.json_response({})
        # Without an age: this process knows when the session was used last, the browser does not.
        response.set_cookie(
            COOKIE,
            self._sessions.begin(token),
            path="/",
            secure=True,
            httponly=True,
            samesite="Strict",
        )
        return response

    async def logout(self, request: web.Request) -> web.Response:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = web.json_response({})
        response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return response

    def arrival(self, request: web.Request) -> web.Response | None:
        return None

    def _token(self, request: web.Request) -> str:
        given = request.headers.get("Authorization", "")
        if given.startswith(_BEARER):
            token = given.removeprefix(_BEARER).strip()
        else:
            token = self._sessions.token(request.cookies.get(COOKIE, "")) or ""
        if not token:
            raise Unauthenticated(self._wanted)
        return token

    async def _identity(self, request: web.Request, token: str, *, anew: bool = False) -> Identity:
        known, identity = self._tokens.remembered(token, anew=anew)
        if not known:
            address = self._address(request)
            self._attempts.check(address)
            identity = await self._tokens.identity(token, anew=anew)
            if identity is None:
                self._attempts.failed(address)
        if identity is None:
            raise Unauthenticated(self._wanted)
        return identity

    def _address(self, request: web.Request) -> str:
        forwarded = request.headers.get("X-Forwarded-For", "")
        return address_of(request.remote, forwarded, self._proxies)


def _named(request: web.Request) -> Iterator[str]:
    for name in _NAMING:
        yield from request.query.getall(name, ())

"""The dashboard's door: a word drawn at each start, in the address that is printed.

Loopback alone keeps out no other user of the same machine, so that the address carries a token, as
Jupyter's does: `/?token=...`. It is exchanged at once for a cookie of this port and an address
without it, so that neither history nor the page's own requests have it. Any holder of the token has
what the user's kubeconfig may read, until the command ends. `Authorization: Bearer` works, too.
"""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import quote

from aiohttp import web

from reprieve.web.server.door import Unauthenticated, Visit
from reprieve.web.tables import Viewer

__all__ = ["LocalDoor"]

_AS_IS: Final = "/?&=%:;,@!$'()*+~#"
_BEARER: Final = "Bearer "
_WANTED: Final = (
    "open the address that reprieve dashboard printed, or give the token that stands in it"
)


class LocalDoor:
    """Admits every user who has the token.

    Args:
        token: drawn at random for this start; empty admits every user.
        user: the viewer that the page names.
    """

    mode = "dashboard"

    def __init__(self, token: str, user: str) -> None:
        self._token = token
        self._user = user
        self.insecure = not token

    async def visit(self, request: web.Request, *, anew: bool = False) -> Visit:
        given = request.headers.get("Authorization", "")
        if given.startswith(_BEARER):
            self._check(given.removeprefix(_BEARER).strip())
        else:
            self._check(request.cookies.get(_cookie_name(request), ""))
        # The API server has judged already: the mirror holds what the kubeconfig may list.
        return Visit(self._user, Viewer(True))

    async def login(self, request: web.Request, token: str) -> web.Response:
        self._check(token)
        response = web.json_response({})
        self._remember(request, response)
        return response

    async def logout(self, request: web.Request) -> web.Response:
        response = web.json_response({})
        response.del_cookie(_cookie_name(request))
        return response

    def arrival(self, request: web.Request) -> web.Response | None:
        given = request.query.get("token")
        if given is None:
            return None
        rest = request.rel_url.without_query_params("token")
        # A location that began with two slashes would be another server's, and browsers read a
        # backslash as a slash and leave out tabs: nothing stands in it as it came.
        path = quote(str(rest), safe=_AS_IS).lstrip("/")
        response = web.Response(status=303, headers={"Location": f"/{path}"})
        if self._is(given):
            self._remember(request, response)
        return response

    def _remember(self, request: web.Request, response: web.Response) -> None:
        if self._token:
            response.set_cookie(
                _cookie_name(request), self._token, httponly=True, samesite="Strict", path="/"
            )

    def _check(self, given: str) -> None:
        if self._token and not self._is(given):
            raise Unauthenticated(_WANTED)

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode())


def _cookie_name(request: web.Request) -> str:
    """Return the cookie's name: browsers send cookies of a host to all of its ports."""
    address = request.transport.get_extra_info("sockname") if request.transport else None
    return f"reprieve-{address[1] if address else 0}"

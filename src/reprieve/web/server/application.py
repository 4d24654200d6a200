"""The routes of the page, and what each of them answers.

A viewer who may not see an object gets the answer for one that does not exist, made by the same
code. An error is reported in one sentence as `{"error": ...}`; a fault of ours is reported as one,
and the log has the rest. Only `plan`, `login` and `logout` are POSTs, and none of them writes to
the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

import reprieve
from kubeworld.units.clock import Clock
from reprieve.telemetry.connections import Connections
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.web.live.topic import read_position
from reprieve.web.live.watching import Key, TooManyStreams, Watching
from reprieve.web.server.assets import Assets
from reprieve.web.server.door import (
    Door,
    TooManyAttempts,
    Unauthenticated,
    Unverified,
)
from reprieve.web.server.downloads import csv_of, json_of
from reprieve.web.server.explaining import Explanations, RowExplanations
from reprieve.web.server.guarding import Misdirected, add_headers, guard
from reprieve.web.server.objects import Objects
from reprieve.web.server.packing import json_answer
from reprieve.web.server.planning import Plans, Question
from reprieve.web.server.streams import CHECKED, LINES, send_lines, send_stream
from reprieve.web.tables import NotFound, Viewer

__all__ = ["Site", "application"]

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of a request.
_BODY: Final = 2**20
_BODY_S: Final = 10.0
#: Parameters that state how a page is sent, not which.
_OURS: Final = ("from", "token")
_NO_PAGE: Final = "there is no such page"


@dataclass(frozen=True, slots=True)
class Site:
    """What is served.

    Attributes:
        watching: the pages.
        door: who may see them.
        assets: the built files.
        plans: runs `reprieve plan`.
        clock: for pauses.
        cluster: what the page calls the cluster.
        names: as which this server is known; None answers to all, an empty one to loopback names.
        part: the namespaces that are read, where this server may not read all; None: it may.
        objects: reads single objects with the rights of the user; None: they are not shown.
        rows: runs `reprieve explain` for rows of tables; None: with the rights of plans.
        explanations: runs `reprieve explain`; None: with the rights of plans.
        checked: how often it is checked that the reader of a stream may still read, nanoseconds.
    """

    watching: Watching
    door: Door
    assets: Assets
    plans: Plans
    clock: Clock
    cluster: str
    names: Collection[str] | None = ()
    checked: int = CHECKED
    explanations: Explanations | None = None
    part: Sequence[str] | None = None
    objects: Objects | None = None
    rows: RowExplanations | None = None


def application(site: Site, connections: Connections) -> web.Application:
    """Return the server of the page; it runs no task of its own."""
    middlewares = [connections.middleware(), _reported_errors, guard(site.names)]
    result = web.Application(middlewares=middlewares, client_max_size=_BODY)
    result.on_response_prepare.append(add_headers)
    routes = _Routes(site)
    add = result.router.add_route
    add("GET", "/api/session", routes.session)
    add("GET", "/api/page/{page}", routes.page)
    add("GET", "/api/live", routes.live)
    add("GET", r"/api/download/{page}/{table}.{form:csv|json}", routes.download)
    add("POST", "/api/plan", routes.plan)
    add("GET", "/api/explain", routes.explain_rows)
    add("GET", "/api/explain/{kind}/{namespace}/{name}", routes.explain)
    add("GET", "/api/object/{what}/{kind}/{namespace}/{name}", routes.object)
    add("POST", "/api/login", routes.login)
    add("POST", "/api/logout", routes.logout)
    add("*", "/api/{rest:.*}", routes.nothing)
    add("GET", "/assets/{name}", routes.asset)
    add("GET", "/healthz", routes.healthy)
    add("GET", "/{address:.*}", routes.index)
    return result


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class _Routes:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._explanations = site.explanations or Explanations(site.plans.rights)
        self._rows = site.rows or RowExplanations(site.plans.rights, site.clock)

    async def session(self, request: web.Request) -> web.Response:
        site = self._site
        visit = await site.door.visit(request)
        part = site.part if visit.viewer.sees_all else visit.viewer.namespaces
        document = {
            "mode": site.door.mode,
            "cluster": site.cluster,
            "viewer": visit.name,
            "namespaces": None if visit.viewer.sees_all else sorted(visit.viewer.namespaces),
            "version": reprieve.__version__,
            "insecure": site.door.insecure,
            # A user with a part of the cluster wants to see his own work first.
            "home": "mine" if part is not None else "now",
            "own": sorted(part or ()),
        }
        return json_answer(request, msgspec.json.encode(document))

    async def page(self, request: web.Request) -> web.Response:
        visit = await self._site.door.visit(request)
        key = _key(request, request.match_info["page"], visit.viewer)
        return json_answer(request, self._site.watching.snapshot(key))

    async def live(self, request: web.Request) -> web.StreamResponse:
        site = self._site
        visit = await site.door.visit(request)
        # The header is of a stream that broke, the parameter of a page that was loaded before.
        reported = request.headers.get("Last-Event-ID") or request.query.get("from")
        key = _key(request, request.query.get("page", ""), visit.viewer)
        events = site.watching.stream(key, read_position(reported), visit.name)
        return await send_stream(request, events, site.door, visit, site.clock, site.checked)

    async def download(self, request: web.Request) -> web.Response:
        visit = await self._site.door.visit(request)
        page, name, form = (request.match_info[part] for part in ("page", "table", "form"))
        state = self._site.watching.state(_key(request, page, visit.viewer))
        table = state.tables.get(name)
        if table is None:
            raise NotFound(_NO_PAGE)
        # Both names are ours: others were not found.
        headers = {"Content-Disposition": f'attachment; filename="reprieve-{page}-{name}.{form}"'}
        if form == "csv":
            return json_answer(request, csv_of(table), headers=headers, content_type="text/csv")
        return json_answer(request, json_of(table), headers=headers)

    async def plan(self, request: web.Request) -> web.Response:
        visit = await self._site.door.visit(request)
        question = await _body(request, Question)
        return json_answer(request, await self._site.plans.ask(question, visit))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        visit = await self._site.door.visit(request)
        kind, namespace, name = (request.match_info[p] for p in ("kind", "namespace", "name"))
        if LINES in request.headers.get("Accept", ""):
            lines = self._explanations.watch(kind, namespace, name, visit)
            return await send_lines(request, lines)
        answer = await self._explanations.ask(kind, namespace, name, visit)
        return json_answer(request, answer)

    async def explain_rows(self, request: web.Request) -> web.StreamResponse:
        units = request.query.getall("unit", [])
        visit = await self._site.door.visit(request)
        return await send_lines(request, self._rows.watch(units, visit))

    async def object(self, request: web.Request) -> web.Response:
        visit = await self._site.door.visit(request)
        if self._site.objects is None:
            raise NotFound(_NO_PAGE)
        asked = request.match_info
        answer = await self._site.objects.ask(
            asked["what"], asked["kind"], asked["namespace"], asked["name"], visit
        )
        return json_answer(request, answer)

    async def login(self, request: web.Request) -> web.Response:
        given = await _body(request, _Login)
        return await self._site.door.login(request, given.token.strip())

    async def logout(self, request: web.Request) -> web.Response:
        return await self._site.door.logout(request)

    async def nothing(self, request: web.Request) -> web.Response:
        raise NotFound(_NO_PAGE)

    async def asset(self, request: web.Request) -> web.Response:
        found = self._site.assets.asset(request)
        if found is None:
            raise NotFound(_NO_PAGE)
        return found

    async def healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def index(self, request: web.Request) -> web.Response:
        return self._site.door.arrival(request) or self._site.assets.index(request)


def _key(request: web.Request, page: str, viewer: Viewer) -> Key:
    parameters = {
        name: tuple(request.query.getall(name))
        for name in request.query
        if name not in _OURS and not (name == "page" and request.path == "/api/live")
    }
    return Key.of(page, parameters, viewer)


async def _body(request: web.Request, type: type[T]) -> T:
    """Read a body.

    Raises:
        UsageError: it is too long, or not what is wanted.
    """
    if request.content_type != "application/json":
        raise UsageError("body: accepted: JSON, with Content-Type: application/json")
    try:
        async with asyncio.timeout(_BODY_S):
            body = await request.read()
        return msgspec.json.decode(body, type=type)
    except TimeoutError:
        raise UsageError(f"body: not there within {_BODY_S:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise UsageError(f"body: longer than {_BODY} bytes, which is the most") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"body: {error}") from None


@web.middleware
async def _reported_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with what failed, in words."""
    try:
        return await handler(request)
    except (ReprieveError, web.HTTPException) as error:
        status, headers = _status_of(error)
        text = error.reason if isinstance(error, web.HTTPException) else str(error)
    except Exception:
        log.exception("a request failed: %s", request.path)
        status, headers = 500, {}
        text = "a fault of ours; the log of the server has it"
    document = msgspec.json.encode({"error": text})
    return json_answer(request, document, status=status, headers=headers)


def _status_of(error: Exception) -> tuple[int, dict[str, str]]:
    match error:
        case web.HTTPException():
            return error.status, {}
        case Misdirected():
            return error.status, {}
        case NotFound():
            return 404, {}
        case Unauthenticated():
            return 401, {"WWW-Authenticate": "Bearer"}
        case TooManyAttempts():
            return 429, {"Retry-After": str(error.retry_after)}
        case Unverified() | TooManyStreams():
            return 503, {"Retry-After": "5"}
        case UsageError():
            return 400, {}
    return 502, {}

"""A server that answers as the real one does, with made-up pages: for the page's own tests.

`python -m tests.frontend.stand_in [SIZE]` serves it and prints its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

import reprieve
from tests.frontend.pages_made_up import PAGES, Made, Rows

STATIC = Path(reprieve.__file__).parent / "web" / "static"
POLICY = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".html": "text/html",
}


class StandIn:
    """What is served, and what tests may do to it."""

    def __init__(self, size: str = "small") -> None:
        self.size = size
        self.tick = 0
        self.streams = 0
        #: Streams that were opened, with where they began.
        self.opened: list[str] = []
        self.epoch = "e1"
        self.ended = False
        self.session: dict[str, Any] | None = {
            "mode": "dashboard",
            "cluster": "kind-a",
            "viewer": "alice",
            "namespaces": None,
            "version": "1.0.0rc1",
            "insecure": False,
            "home": "now",
        }
        self.changed = asyncio.Condition()

    async def advance(self) -> None:
        """Have something change on every page."""
        async with self.changed:
            self.tick += 1
            self.changed.notify_all()

    async def news(self, told: int) -> None:
        """Return once something changed since then."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.ended or self.tick > told)

    async def end(self) -> None:
        """Take the viewer's rights away."""
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    def made(self, page: str) -> Made:
        values, tables = PAGES[page](self.size, self.tick)
        return {**values, "tick": self.tick}, tables

    def snapshot(self, page: str) -> dict[str, Any]:
        values, tables = self.made(page)
        return {
            "page": page,
            "epoch": self.epoch,
            "sequence": self.tick,
            "now": time.time(),
            "values": values,
            "tables": {
                name: {
                    "columns": columns,
                    "slots": list(range(len(rows))),
                    "data": _turned(columns, rows),
                }
                for name, (columns, rows) in tables.items()
            },
        }

    def difference(self, page: str) -> dict[str, Any]:
        """Return what the latest tick changed."""
        _, tables = self.made(page)
        changed: dict[str, Any] = {}
        if page == "now" and tables["holders"][1]:
            changed["holders"] = {"set": [[3, [0], [tables["holders"][1]["h0"][3]]]]}
        return {
            "sequence": self.tick,
            "now": time.time(),
            "values": {"tick": self.tick},
            "gone": [],
            "tables": changed,
        }


def _turned(columns: list[list[str]], rows: Rows) -> list[list[Any]]:
    if not rows:
        return [[] for _ in columns]
    return [list(column) for column in zip(*rows.values(), strict=True)]


def application(stand_in: StandIn) -> web.Application:
    """Return the server's routes."""
    app = web.Application()

    async def session(_: web.Request) -> web.Response:
        if stand_in.session is None:
            return web.json_response({"error": "Log in."}, status=401)
        return web.json_response(stand_in.session)

    async def login(request: web.Request) -> web.Response:
        if (await request.json())["token"] != "good":
            return web.json_response({"error": "That token is not known."}, status=401)
        stand_in.session = StandIn().session
        return web.json_response({})

    async def asset(request: web.Request) -> web.Response:
        path = STATIC / request.match_info["name"]
        return web.Response(body=path.read_bytes(), content_type=_TYPES[path.suffix])

    async def index(_: web.Request) -> web.Response:
        return web.Response(body=(STATIC / "index.html").read_bytes(), content_type="text/html")

    async def security(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = POLICY

    async def live(request: web.Request) -> web.StreamResponse:
        return await _live(stand_in, request)

    async def page(request: web.Request) -> web.Response:
        return web.json_response(stand_in.snapshot(request.match_info["page"]))

    async def about(request: web.Request) -> web.Response:
        asked = request.match_info
        return web.json_response({"text": f"{asked['what']} of {asked['name']}\n" * 40})

    async def plan(request: web.Request) -> web.Response:
        body = await request.json()
        if "kind:" not in body["manifest"]:
            said = "manifest, line 1: no kind; accepted: Kubernetes manifests in YAML"
            return web.json_response({"error": said}, status=400)
        return web.json_response(PLAN)

    app.router.add_get("/api/session", session)
    app.router.add_post("/api/login", login)
    app.router.add_get("/api/live", live)
    app.router.add_get("/api/page/{page}", page)
    app.router.add_get("/api/object/{what}/{kind}/{namespace}/{name}", about)
    app.router.add_post("/api/plan", plan)
    app.router.add_get("/assets/{name}", asset)
    app.router.add_get("/{path:.*}", index)
    app.on_response_prepare.append(security)
    return app


async def _live(stand_in: StandIn, request: web.Request) -> web.StreamResponse:
    page = request.query["page"]
    if page not in PAGES or request.query.get("name") == "missing":
        return web.json_response({"error": f"no {page} of that name"}, status=404)
    stand_in.opened.append(request.query.get("from", ""))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)

    async def send(event: str, document: dict[str, Any]) -> None:
        name = f"{stand_in.epoch}.{stand_in.tick}"
        text = json.dumps(document)
        await response.write(f"id: {name}\nevent: {event}\ndata: {text}\n\n".encode())

    told = stand_in.tick
    stand_in.streams += 1
    try:
        if request.query.get("from", "") != f"{stand_in.epoch}.{told}":
            await send("snapshot", stand_in.snapshot(page))
        while not stand_in.ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stand_in.news(told), 15)
            if stand_in.tick == told + 1:
                await send("difference", stand_in.difference(page))
            elif stand_in.tick > told:
                await send("snapshot", stand_in.snapshot(page))
            else:
                await response.write(b": still here\n\n")
            told = stand_in.tick
        await send("ended", {"error": "You may no longer list pods."})
    except ConnectionResetError:
        pass  # The reader has gone.
    finally:
        stand_in.streams -= 1
    return response


@contextlib.asynccontextmanager
async def served(stand_in: StandIn) -> AsyncIterator[str]:
    """Serve on a free port of this machine; yield the address."""
    runner = web.AppRunner(application(stand_in), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


PLAN: dict[str, Any] = {
    "version": "reprieve.dev/plan/v1",
    "verdict": "StartsWithVictims",
    "reason": "",
    "message": "It starts, and 1 unit is preempted.",
    "submitted": [
        {
            "kind": "Job", "namespace": "team-a", "name": "train", "verdict": "StartsWithVictims",
            "reason": "", "message": "all of 8 pods start", "conditionReason": "",
            "conditionMessage": "", "queue": "main", "clusterQueue": "team-a-queue",
            "priority": 0, "pods": 8, "placed": 8, "podsRequested": None, "fixes": [],
            "podsSubmitted": 8, "steps": [],
            "podsWithoutVictims": 3,
            "requests": {"nvidia.com/gpu": "64"}, "missing": {"nvidia.com/gpu": "40"},
            "podsOnEmptyCluster": None, "idle": None,
            "estimate": {
                "basis": "VictimsLeave", "notLaterThan": "2026-11-23T12:05:00Z", "holder": "",
                "field": "", "withinSeconds": None, "quantile": None, "confidence": None,
                "cases": 0, "why": "",
            },
        }
    ],
    "victims": [
        {
            "kind": "Job", "namespace": "team-b", "name": "sweep-17", "uid": "u1",
            "rule": "Borrowed", "devices": 24, "lostDeviceSeconds": 23040, "plane": "quota",
            "why": "it borrows over nominal", "amounts": {"nvidia.com/gpu": 24}, "saved": "",
        }
    ],
    "placement": [{"pod": "train-0", "node": "node-3"}],
    "fixes": [
        {
            "change": "devices", "field": "spec.parallelism", "before": "8", "after": "6",
            "victims": 0, "text": "with 6 pods it starts without preemption",
        }
    ],
    "snapshot": {
        "at": "2026-11-23T12:00:00Z", "nodes": 8, "pods": 31, "namespaces": None, "unseen": [],
    },
    "controllers": ["quota", "scheduling"],
    "reserved": False,
    "complete": True,
    "warnings": [],
    "fragile": {
        "resource": "nvidia.com/gpu", "amount": "2", "kind": "Node", "name": "node-3",
        "flavor": "", "verdict": "StartsWithVictims",
    },
    "borrowed": [
        {
            "clusterQueue": "team-a-queue", "amounts": {"nvidia.com/gpu": "8"},
            "reclaimers": ["team-b-queue"],
        }
    ],
}  # fmt: skip


async def main(size: str) -> None:
    """Serve until interrupted, with a change each second."""
    stand_in = StandIn(size)
    async with served(stand_in) as address:
        print(address, flush=True)
        while True:
            await asyncio.sleep(1)
            await stand_in.advance()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "small"))

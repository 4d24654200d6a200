"""An API server with a full cluster in it, as far as the start of an operator and a binding go.

`python -m bench.start_server NODES` prints its port. Objects are made when their page is asked for,
and none is held. Watches are accepted and stay silent, leases and events are taken, lists of all
other kinds are empty. `GET /bound` waits for the first binding and answers with its node; `GET
/begun` is answered with the number of lists and watches that were begun, by verb and path.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from bench.made_on_request import asked_page, run_server, silent_watch
from bench.start_objects import (
    NAMESPACES,
    PODS_PER_NODE,
    group_text,
    groups_of,
    namespace_of,
    node_text,
    pod_text,
)

__all__: list[str] = []

_VERSION: Final = "1000000000"
_GROUPS: Final = "/apis/scheduling.k8s.io/v1beta1"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class ApiServer:
    """Knows how many nodes there are, the leases, and who was bound."""

    def __init__(self, nodes: int) -> None:
        self._bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._leases: dict[str, Any] = {}
        self._writes = 0
        self._begun: Counter[str] = Counter()
        self.lists: dict[str, tuple[int, Callable[[int], str]]] = {
            "/api/v1/nodes": (nodes, node_text),
            "/api/v1/pods": (nodes * PODS_PER_NODE, lambda index: pod_text(index, nodes)),
            "/api/v1/namespaces": (NAMESPACES, _namespace_text),
            f"{_GROUPS}/podgroups": (groups_of(nodes), group_text),
        }

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Answer lists and watches, single objects with nothing but their name."""
        if "watch" in request.query:
            self._begun[f"watch {request.path}"] += 1
            return await silent_watch(request)
        count, made = self.lists.get(request.path, (0, str))
        start, end, following = asked_page(request, count)
        self._begun[f"list {request.path}"] += not start
        metadata = json.dumps({"resourceVersion": _VERSION, "continue": following})
        items = ",".join(made(index) for index in range(start, end))
        body = f'{{"metadata":{metadata},"items":[{items}]}}'
        return web.Response(text=body, content_type="application/json")

    async def namespace(self, request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": request.match_info["name"]}})

    async def resources(self, _: web.Request) -> web.Response:
        found = [{"name": "podgroups", "kind": "PodGroup", "namespaced": True, "singularName": ""}]
        return web.json_response({"groupVersion": _GROUPS[len("/apis/") :], "resources": found})

    async def lease(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if request.method == "GET":
            if name not in self._leases:
                return _refused(404, "NotFound")
            return web.json_response(self._leases[name])
        return self._written(await request.json())

    async def new_lease(self, request: web.Request) -> web.Response:
        return self._written(await request.json(), 201)

    def _written(self, lease: dict[str, Any], code: int = 200) -> web.Response:
        self._writes += 1
        lease["metadata"] |= {"uid": "lease", "resourceVersion": str(self._writes)}
        self._leases[lease["metadata"]["name"]] = lease
        return web.json_response(lease, status=code)

    async def bind(self, request: web.Request) -> web.Response:
        binding = await request.json()
        if not self._bound.done():
            self._bound.set_result(f"{request.match_info['name']} {binding['target']['name']}")
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def bound(self, _: web.Request) -> web.Response:
        return web.Response(text=await asyncio.shield(self._bound))

    async def begun(self, _: web.Request) -> web.Response:
        return web.json_response(self._begun)

    async def write(self, request: web.Request) -> web.Response:
        """Take anything else as written, and allow what is asked for."""
        body = await request.json()
        if request.path.endswith("/selfsubjectaccessreviews"):
            body["status"] = {"allowed": True}
        self._writes += 1
        body.setdefault("metadata", {})["resourceVersion"] = f"{_VERSION}{self._writes}"
        return web.json_response(body, status=201 if request.method == "POST" else 200)


def _namespace_text(number: int) -> str:
    name = namespace_of(number)
    return json.dumps({"metadata": {"name": name, "uid": f"namespace-{number}", "labels": {}}})


def _refused(code: int, reason: str) -> web.Response:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
    return web.json_response(status, status=code)


async def _serve(nodes: int) -> None:
    server = ApiServer(nodes)
    application = web.Application(client_max_size=2**24)
    routes = application.router
    routes.add_get("/bound", server.bound)
    routes.add_get("/begun", server.begun)
    routes.add_get(_GROUPS, server.resources)
    routes.add_get("/api/v1/namespaces/{name}", server.namespace)
    routes.add_post(_LEASES, server.new_lease)
    for method in ("GET", "PUT", "PATCH"):
        routes.add_route(method, f"{_LEASES}/{{name}}", server.lease)
    routes.add_post("/api/v1/namespaces/{namespace}/pods/{name}/binding", server.bind)
    routes.add_get("/{path:.*}", server.read)
    routes.add_route("*", "/{path:.*}", server.write)
    await run_server(application)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))

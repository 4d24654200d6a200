"""The GPU exporter: a real HTTP server with what the vendors' exporters would serve.

| path | devices |
|---|---|
| `/metrics` | of all nodes, as behind a collector |
| `/nodes/NAME/metrics` | of one node, as its own exporter would give |
"""

from __future__ import annotations

import socket
from typing import Final

from aiohttp import web

from kubelocal.machines.node.exposition import exposition
from kubelocal.machines.node.gpus import Gpu, Gpus, Target

__all__ = ["Exporter"]

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """Serves the devices on one port, which stays its own from the first start until it is closed.

    While it is stopped a socket that does not listen is bound to the port: connections are refused,
    and the system gives it to no other server and to no connection in between.
    """

    def __init__(self, gpus: Gpus, host: str = "127.0.0.1", port: int = 0) -> None:
        self._gpus = gpus
        self.host = host
        self.port = port
        """0 until the first start, if the system shall choose."""
        self.scrapes = 0
        """How often it has been requested."""
        self._runner: web.AppRunner | None = None
        self._reserved: socket.socket | None = None

    @property
    def url(self) -> str:
        """The address with the devices of all nodes."""
        return f"http://{self.host}:{self.port}/metrics"

    def node_url(self, node: str) -> str:
        """Return the address with the devices of this node."""
        return f"http://{self.host}:{self.port}/nodes/{node}/metrics"

    def set_utilization(
        self,
        target: Target,
        value: float | str,
        *,
        gpu: int | None = None,
        pod_index: int | None = None,
    ) -> None:
        """Report this from now on; see `Gpus.set_utilization`."""
        self._gpus.set_utilization(target, value, gpu=gpu, pod_index=pod_index)

    def gpus(self) -> list[Gpu]:
        """Return the devices of all nodes as they are now."""
        return [gpu for node in self._gpus.nodes() for gpu in self._gpus.on(node)]

    async def start(self) -> None:
        """Accept connections; nothing when it does already.

        Raises:
            OSError: the port is in use.
        """
        if self._runner is not None:
            return
        app = web.Application()
        app.router.add_get("/metrics", self._all)
        app.router.add_get("/nodes/{node}/metrics", self._one)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            self._reserve_port()
            await web.TCPSite(runner, self.host, self.port, reuse_address=True).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    def _reserve_port(self) -> None:
        if self._reserved is not None:
            return
        reserved = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((self.host, self.port))
        except OSError:
            reserved.close()
            raise
        self._reserved = reserved
        self.port = reserved.getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and close those that are open; the port stays reserved."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def close(self) -> None:
        """Stop for good: the port is free."""
        await self.stop()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def _all(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        return _answer(self.gpus())

    async def _one(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        node = request.match_info["node"]
        if node not in self._gpus.nodes():
            raise web.HTTPNotFound(text=f"no node is named {node!r}\n")
        return _answer(list(self._gpus.on(node)))


def _answer(gpus: list[Gpu]) -> web.Response:
    return web.Response(body=exposition(gpus).encode(), headers={"Content-Type": _CONTENT_TYPE})

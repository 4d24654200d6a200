"""A way to the API server that can be cut: connections go through, until all of them are ended.

What was asked in that moment may have been done, and its answer is lost with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

__all__ = ["Proxy", "through"]

_CHUNK = 65_536


class Proxy:
    """Listens on a free port of 127.0.0.1. `cuts` counts connections that were ended by `cut`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusing = False
        self.cuts = 0

    @property
    def port(self) -> int:
        assert self._server is not None, "started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End all connections at once."""
        for writer in list(self._open):
            self.cuts += 1
            writer.transport.abort()
        self._open.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.refusing:
            writer.transport.abort()
            return
        try:
            upstream, sink = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, sink}
        try:
            await asyncio.gather(_copy(reader, sink), _copy(upstream, writer))
        finally:
            self._open -= {writer, sink}
            for each in (writer, sink):
                each.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()


@asynccontextmanager
async def through(kubeconfig: Path, port: int, written: Path) -> AsyncIterator[Proxy]:
    """Run a proxy to a port, and write a kubeconfig that goes by it."""
    proxy = Proxy(port)
    await proxy.start()
    _rewrite(kubeconfig, written, proxy.port)
    try:
        yield proxy
    finally:
        await proxy.stop()


def _rewrite(kubeconfig: Path, written: Path, port: int) -> None:
    content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for cluster in content["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    written.write_text(yaml.safe_dump(content), encoding="utf-8")

"""HTTPS with the certificates of a kubeconfig; `tls/` holds a key pair made for tests alone."""

from __future__ import annotations

import asyncio
import base64
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import Unreachable
from reprieve.kube.resource import PODS
from reprieve.kube.transport import HttpWire, Request, Transport
from tests.kube.fakes import list_body, pod

FOLDER = Path(__file__).parent / "tls"
CERTIFICATE = FOLDER / "test-only-certificate.pem"
KEY = FOLDER / "test-only-key.pem"


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A server that asks for a client certificate and takes none but its own."""

    async def pods(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        return web.json_response(list_body([pod(dict(peer["subject"][0])["commonName"])], 1))

    app = web.Application()
    app.router.add_get("/api/v1/pods", pods)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(CERTIFICATE))
    tls.load_cert_chain(CERTIFICATE, KEY)
    tls.verify_mode = ssl.CERT_REQUIRED
    started = TestServer(app, scheme="https")
    await started.start_server(ssl=tls)
    yield f"https://127.0.0.1:{started.port}"
    await started.close()


def _kubeconfig(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "c", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("inline", [True, False], ids=["data", "files"])
async def test_client_certificates_prove_who_we_are(
    server: str, tmp_path: Path, inline: bool
) -> None:
    if inline:
        cluster = {"certificate-authority-data": _data(CERTIFICATE)}
        user = {"client-certificate-data": _data(CERTIFICATE), "client-key-data": _data(KEY)}
    else:
        cluster = {"certificate-authority": str(CERTIFICATE)}
        user = {"client-certificate": str(CERTIFICATE), "client-key": str(KEY)}
    connection = await load_connection(_kubeconfig(tmp_path, server, cluster, user))
    client = connect(connection, SystemClock())
    page = await client.list(PODS, dict)
    await client.close()
    names = [item["metadata"]["name"] for item in page.items]
    assert names == ["reprieve tests"]


async def test_a_server_with_an_unknown_certificate_is_not_talked_to(
    server: str, tmp_path: Path
) -> None:
    connection = await load_connection(_kubeconfig(tmp_path, server, {}, {"token": "secret"}))
    transport = Transport(HttpWire(connection), SystemClock())
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await transport.request(Request("GET", "/api/v1/pods"), retry=False)
    await transport.close()


def test_a_watch_ends_without_the_goodbye_of_a_server_that_fell_silent(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATE, KEY)
    over = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        with tls.wrap_socket(accepted, server_side=True) as stream:
            stream.recv(65_536)
            stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            over.wait()

    async def watch_and_leave() -> None:
        opened = asyncio.Event()
        client = connect(await load_connection(kubeconfig), SystemClock())

        async def watch() -> None:
            async for _ in client.watch(PODS, dict, resource_version="1", opened=opened.set):
                pass

        watching = asyncio.create_task(watch())
        await opened.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        cluster = {"certificate-authority": str(CERTIFICATE)}
        kubeconfig = _kubeconfig(tmp_path, address, cluster, {})
        serving = threading.Thread(target=serve)
        serving.start()
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            asyncio.run(watch_and_leave())
            gc.collect()
        over.set()
        serving.join()

    assert [str(one.message) for one in left] == []

"""`reprieve dashboard` as people start it: a process, an address, and nothing left when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NODES, PODS
from reprieve.scenarios import with_parent
from tests.web.reading import Browser


@contextlib.asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[tuple[Path, Client]]:
    cluster = EmbeddedCluster(clock=SystemClock())
    await cluster.start()
    kubeconfig = folder / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig, name="here")
    client = connect(await load_connection(str(kubeconfig)), SystemClock())
    try:
        yield kubeconfig, client
    finally:
        await client.close()
        await cluster.stop()


@contextlib.asynccontextmanager
async def _dashboard(
    *arguments: str, environment: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "dashboard", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


async def test_it_prints_an_address_shows_the_cluster_live_and_ends_with_a_signal(
    tmp_path: Path,
) -> None:
    async with _cluster(tmp_path) as (kubeconfig, client):
        await client.create(NODES, _node("node-1"), dict)
        async with _dashboard("--kubeconfig", str(kubeconfig), "--no-open") as process:
            address = URL(await _line(process))
            assert address.host == "127.0.0.1"
            headers = {"Authorization": f"Bearer {address.query['token']}"}
            async with aiohttp.ClientSession(address.origin(), headers=headers) as page:
                browser = await _seen(page, client)
            unknown = aiohttp.ClientSession(address.origin())
            async with unknown, unknown.get("/api/page/now") as answer:
                assert answer.status == 401
            process.send_signal(signal.SIGINT)
            output, errors = await process.communicate()

    assert (process.returncode, output, errors) == (0, b"", b"")
    assert [row[0] for row in browser.tables["nodes"].values()] == ["node-1"]
    assert [row[0] for row in browser.tables["holders"].values()] == ["pod/default/work"]


async def _seen(page: aiohttp.ClientSession, client: Client) -> Browser:
    """Return what a page shows that sees a pod come."""
    browser = Browser()
    async with page.get("/api/live?page=now") as stream:
        browser.hear(await stream.content.readuntil(b"\n\n"))
        await client.create(PODS, _pod("work", "node-1"), dict)
        async with asyncio.timeout(60):
            while not browser.tables["holders"]:
                browser.hear(await stream.content.readuntil(b"\n\n"))
    return browser


async def test_a_browser_is_opened_without_the_token_in_its_arguments(tmp_path: Path) -> None:
    program, seen = tmp_path / "browser", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}.arguments\ncp "${{1#file://}}" {seen}\n')
    program.chmod(0o700)
    environment = {"BROWSER": str(program), "DISPLAY": ":none"}
    async with _cluster(tmp_path) as (kubeconfig, _):
        arguments = ("--kubeconfig", str(kubeconfig))
        async with _dashboard(*arguments, environment=environment) as process:
            address = await _line(process)
            async with asyncio.timeout(60):
                while not seen.exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    assert "token" not in seen.with_suffix(".arguments").read_text()
    assert f"url={address}" in seen.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--kubeconfig", "/nowhere"), 2, "no file /nowhere"),
        (("--context", "none"), 2, "no context 'none'"),
        (("--port", "70000"), 2, "70000"),
    ],
)
async def test_what_cannot_be_used_is_said_in_one_line(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    async with _cluster(tmp_path) as (kubeconfig, _):
        given = arguments if "--kubeconfig" in arguments else ("--kubeconfig", str(kubeconfig))
        async with _dashboard("--no-open", *given, *arguments) as process:
            output, errors = await process.communicate()

    assert (process.returncode, output) == (code, b"")
    assert said in errors.decode()
    assert "Traceback" not in errors.decode()


async def test_a_cluster_that_does_not_answer_is_said_in_one_line(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as (kubeconfig, _):
        pass
    async with _dashboard("--kubeconfig", str(kubeconfig), "--no-open") as process:
        output, errors = await process.communicate()

    assert (process.returncode, output) == (1, b"")
    assert errors.decode().startswith("Error: the API server cannot be read: ")
    assert errors.count(b"\n") == 1


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "amd.com/gpu": "8"}
    return {
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _pod(name: str, node: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"limits": {"amd.com/gpu": "2"}},
    }
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [container]},
    }

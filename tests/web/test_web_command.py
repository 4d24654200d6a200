"""`reprieve web` as a Deployment runs it: a process, TLS, a login, and nothing without one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.planes.quota.webhooks.certificates import new_certificates
from reprieve.scenarios import with_parent

_GROUP = "rbac.authorization.k8s.io"
_ROLES = Resource(_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDINGS = Resource(_GROUP, "v1", "rolebindings", "RoleBinding")
_API = "https://kubernetes.default.svc.cluster.local"


@contextlib.asynccontextmanager
async def _running(cluster: EmbeddedCluster, folder: Path, *arguments: str) -> AsyncIterator[URL]:
    kubeconfig = folder / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig, name="here")
    given = ("--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1", "--port", "0", *arguments)
    process = await _started(given)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield URL((await process.stdout.readline()).decode().strip())
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
        assert (process.returncode, b"Traceback" in errors) == (0, False), errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _started(arguments: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "web", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def _certificate(folder: Path) -> tuple[tuple[str, ...], ssl.SSLContext]:
    """Return the flags of a certificate for the loopback address, and who trusts it."""
    made = new_certificates(("localhost", "127.0.0.1"), SystemClock().wall())
    (folder / "tls.crt").write_bytes(made.certificate)
    (folder / "tls.key").write_bytes(made.key)
    trusting = ssl.create_default_context(cadata=made.trusted.decode())
    flags = ("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"))
    return flags, trusting


async def _give_ann_the_namespace(kubeconfig: Path) -> None:
    client = connect(await load_connection(str(kubeconfig)), SystemClock())
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await client.create(NAMESPACES, {"metadata": {"name": "team-a"}}, dict)
    await client.create(_ROLES, {"metadata": {"name": "reads"}, "rules": [rule]}, dict)
    binding = {
        "metadata": {"name": "ann", "namespace": "team-a"},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "reads"},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": "ann"}],
    }
    await client.create(_BINDINGS, binding, dict)
    await client.close()


async def test_by_default_nothing_is_told_without_a_login_and_with_one_what_is_allowed(
    tmp_path: Path,
) -> None:
    flags, trusting = _certificate(tmp_path)
    async with (
        EmbeddedCluster(rbac=True, tls=True) as cluster,
        _running(cluster, tmp_path, *flags) as address,
    ):
        await _give_ann_the_namespace(tmp_path / "kubeconfig")
        known = cluster.token("ann", ["reprieve-web", _API])
        secure = aiohttp.TCPConnector(ssl=trusting)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(address, connector=secure, cookie_jar=jar) as page:
            for path in ("session", "page/now", "live?page=now", "download/now/nodes.csv"):
                async with page.get(f"/api/{path}") as answer:
                    assert answer.status == 401, path
            for token in ("", "invented", cluster.token("ann"), cluster.token("admin")):
                assert await _login(page, token) == 401, token
            assert await _login(page, known) == 200
            session = await _json(page, "/api/session?ns=team-a&ns=team-b")
            plan = await _plan(page, address)

    assert session["viewer"] == "ann"
    assert (session["mode"], session["namespaces"], session["insecure"]) == (
        "web",
        ["team-a"],
        False,
    )
    # The plan was asked with ann's own rights, and she may create nothing.
    assert 'User "ann" cannot create resource "jobs"' in plan["error"]


async def _login(page: aiohttp.ClientSession, token: str) -> int:
    async with page.post("/api/login", json={"token": token}) as answer:
        return answer.status


async def _json(page: aiohttp.ClientSession, path: str) -> Any:
    async with page.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def _plan(page: aiohttp.ClientSession, address: URL) -> Any:
    manifest = """
        apiVersion: batch/v1
        kind: Job
        metadata: {name: work}
        spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
    """
    body = {"manifest": manifest, "namespace": "team-a"}
    headers = {"Origin": str(address.origin())}
    async with page.post("/api/plan", json=body, headers=headers) as answer:
        return await answer.json()


async def test_without_a_login_it_is_open_on_a_loopback_name_alone(tmp_path: Path) -> None:
    foreign = {"Host": "evil.example"}
    async with (
        EmbeddedCluster() as cluster,
        _running(cluster, tmp_path, "--insecure-no-auth") as address,
        aiohttp.ClientSession(address) as page,
    ):
        assert (await _json(page, "/api/session"))["insecure"]
        async with page.get("/api/page/now", headers=foreign) as answer:
            assert answer.status == 421


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--insecure-no-auth",), "--insecure-no-auth: --listen (all addresses); accepted: a loop"),
        (("--insecure-no-auth", "--listen", "0.0.0.0"), "--listen 0.0.0.0; accepted: a loopback"),
        (("--tls-cert", "/none"), "--tls-cert and --tls-key: accepted: both, or neither"),
        (("--tls-cert", "/none", "--tls-key", "/none"), "--tls-cert /none, --tls-key /none: No su"),
        (("--trust-proxy", "10.0.0.1/8"), "--trust-proxy: 10.0.0.1/8 has host bits set; accepted"),
    ],
)
async def test_what_cannot_be_used_is_said_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(kubeconfig, name="here")
        process = await _started(("--kubeconfig", str(kubeconfig), *arguments))
        output, errors = await process.communicate()

    assert (process.returncode, output) == (2, b"")
    assert said in errors.decode()
    assert errors.count(b"\n") == 1

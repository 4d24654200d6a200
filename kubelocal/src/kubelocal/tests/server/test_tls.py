"""TLS: clients trust the cluster's own authority, and tokens state who they are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import ClientConnectorCertificateError, ClientSession

from kubelocal.cluster import EmbeddedCluster
from kubelocal.errors import UsageError
from kubelocal.tests.server.late_handshake import late_handshake

pytestmark = pytest.mark.real_time  # kubectl is a process of its own


async def kubectl_as(
    kubectl: Path, cluster: EmbeddedCluster, user: str, folder: Path, *arguments: str
) -> tuple[int, str]:
    cluster.write_kubeconfig(folder / user, user=user)
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *arguments,
        env={"KUBECONFIG": str(folder / user), "HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode().strip()


async def test_kubectl_is_known_by_its_token(kubectl: Path, tmp_path: Path) -> None:
    who = ("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    async with EmbeddedCluster(tls=True, rbac=True) as cluster:
        answers = [
            await kubectl_as(kubectl, cluster, "admin", tmp_path, *who),
            await kubectl_as(kubectl, cluster, "alice", tmp_path, *who),
            await kubectl_as(kubectl, cluster, "alice", tmp_path, "get", "pods"),
        ]
    credentials = yaml.safe_load((tmp_path / "alice").read_text())["users"][0]["user"]

    assert answers == [
        (0, "admin"),
        (0, "alice"),
        (
            1,
            (
                'Error from server (Forbidden): pods is forbidden: User "alice" cannot list '
                'resource "pods" in API group "" in the namespace "default"'
            ),
        ),
    ]
    assert set(credentials) == {"token"}


@pytest.mark.parametrize(("rbac", "code"), [(False, 401), (True, 403)])
async def test_nobody_without_a_token_is_the_administrator(rbac: bool, code: int) -> None:
    async with EmbeddedCluster(tls=True, rbac=rbac) as cluster:
        assert cluster.certificate_authority is not None
        trust = ssl.create_default_context(cadata=cluster.certificate_authority.decode())
        async with ClientSession(cluster.url) as session:
            async with session.get("/api/v1/namespaces", ssl=trust) as response:
                refused = response.status
            async with session.get("/version", ssl=trust) as response:
                public = response.status

    assert (refused, public) == (code, 200)


async def test_who_does_not_know_the_authority_does_not_connect() -> None:
    async with EmbeddedCluster(tls=True) as cluster, ClientSession() as session:
        with pytest.raises(ClientConnectorCertificateError):
            await session.get(cluster.url + "/version")


async def test_the_authority_outlives_a_restart_and_is_never_replaced(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with EmbeddedCluster(tls=True, data=tmp_path) as cluster:
            seen.append(cluster.certificate_authority)
    (tmp_path / "ca.crt").write_text("nothing")
    broken = EmbeddedCluster(tls=True, data=tmp_path)
    with pytest.raises(UsageError, match=r"ca\.crt, .*no certificate authority"):
        await broken.start()
    await broken.stop()

    assert seen[0] == seen[1] is not None
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "ca.crt").read_text() == "nothing"


async def test_a_handshake_that_ends_after_the_server_leaves_no_connection_open() -> None:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    @asynccontextmanager
    async def serving() -> AsyncIterator[int]:
        async with EmbeddedCluster(tls=True) as cluster:
            yield int(cluster.url.rpartition(":")[2])

    async with late_handshake(serving(), trust) as read:
        assert read == b""

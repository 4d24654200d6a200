"""A real API server from `$KUBEBUILDER_ASSETS`: etcd and kube-apiserver, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import NAMESPACES
from reprieve.units.clock import SystemClock

TOKEN = "administrators-token"
READY_S = 60


def assets() -> Path | None:
    """Return the folder with the binaries, None where there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(named) if named else None
    complete = folder is not None and all(
        (folder / binary).is_file() for binary in ("etcd", "kube-apiserver")
    )
    return folder if complete else None


@contextlib.asynccontextmanager
async def control_plane(binaries: Path, folder: Path) -> AsyncIterator[Path]:
    """Run both processes and give the path of an administrator's kubeconfig."""
    client_port, peer_port, api_port = (free_port() for _ in range(3))
    etcd = f"http://127.0.0.1:{client_port}"
    peer = f"http://127.0.0.1:{peer_port}"
    key, tokens, kubeconfig = folder / "sa.key", folder / "tokens.csv", folder / "kubeconfig"
    async with running(Path("openssl"), "genrsa", "-out", key, log=folder / "key.log") as made:
        await made.wait()
    tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="utf-8")
    kubeconfig.write_text(json.dumps(configuration(api_port)), encoding="utf-8")
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            running(
                binaries / "etcd",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                log=folder / "etcd.log",
            )
        )
        await stack.enter_async_context(
            running(
                binaries / "kube-apiserver",
                f"--etcd-servers={etcd}",
                f"--secure-port={api_port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={folder / 'certificates'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                f"--token-auth-file={tokens}",
                "--authorization-mode=RBAC",
                # Nobody makes the accounts that it would ask for.
                "--disable-admission-plugins=ServiceAccount",
                log=folder / "kube-apiserver.log",
            )
        )
        await asyncio.wait_for(ready(kubeconfig), READY_S)
        yield kubeconfig


@contextlib.asynccontextmanager
async def running(
    binary: Path, *arguments: str | Path, log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            binary, *arguments, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ready(kubeconfig: Path) -> None:
    client = connect(await load_connection(str(kubeconfig)), SystemClock())
    try:
        while True:
            with contextlib.suppress(ApiError):
                names = [
                    item["metadata"]["name"] for item in (await client.list(NAMESPACES, dict)).items
                ]
                if "default" in names:
                    return
            await asyncio.sleep(0.2)
    finally:
        await client.close()


def configuration(port: int) -> dict[str, object]:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", server),
        "users": named("user", {"token": TOKEN}),
        "contexts": named("context", {"cluster": "real", "user": "real"}),
        "current-context": "real",
    }


def named(kind: str, body: dict[str, object]) -> Sequence[dict[str, object]]:
    return [{"name": "real", kind: body}]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

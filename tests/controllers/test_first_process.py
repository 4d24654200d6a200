"""As a container's first process: the keeper outlives the operator, and gives the lease back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import LEASES
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from tests import with_parent
from tests.scheduling.site import node

# A process id namespace of its own, as a container has it; its first process is the operator.
_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
PATIENCE_S = 120


def can_be_first() -> bool:
    """Whether this machine lets a process be the first one of a namespace."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_CONTAINER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_be_first(), reason="no process id namespaces may be made here"),
]


@asynccontextmanager
async def contained(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, Client]]:
    """Run the operator as a container's first process, until it leads; with the operator's pid."""
    async with embedded_stage([node("node-0", 8)], folder, scheduler=False) as embedded:
        connection = await load_connection(str(embedded.kubeconfig))
        client = connect(connection, SystemClock())
        unshare = shutil.which(_CONTAINER[0]) or ""
        process = await asyncio.create_subprocess_exec(
            *with_parent.program(unshare, *_CONTAINER[1:]),
            *(sys.executable, "-m", "reprieve", "run"),
            *("--controllers", "scheduling", "--metrics-port", "0"),
            # Much longer than anything here takes: nobody gets it by waiting.
            *("--lease-duration", "10m"),
            *("--kubeconfig", str(embedded.operator_kubeconfig)),
            env={**os.environ, "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            start_new_session=True,
        )
        try:
            await until_held(client, held=True)
            (first,) = children(process.pid)
            (operator,) = children(first)
            yield process, operator, client
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await client.close()


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in found.split()]


async def until_held(client: Client, *, held: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(NotFound):
                lease = await client.get(LEASES, OPERATOR_NAMESPACE, "reprieve", dict)
                if bool(lease["spec"].get("holderIdentity")) is held:
                    return
            await asyncio.sleep(0.05)


async def test_the_lease_is_given_back_when_the_operator_is_killed(tmp_path: Path) -> None:
    async with contained(tmp_path) as (process, operator, client):
        os.kill(operator, signal.SIGKILL)
        await until_held(client, held=False)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 128 + signal.SIGKILL


async def test_a_signal_to_the_first_process_ends_the_operator(tmp_path: Path) -> None:
    async with contained(tmp_path) as (process, _operator, client):
        (first,) = children(process.pid)
        os.kill(first, signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        await until_held(client, held=False)

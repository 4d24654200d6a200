"""What people meet: a cluster, machines, the operator as a process, and a kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.staging import OPERATOR_NAMESPACE
from tests.walkthrough.clusters import KINDS, Cluster, cluster_of

NODES = [NodeSpec("gpu-node-0", {"amd.com/gpu": "4"})]


@dataclass(frozen=True)
class Answer:
    stdout: str
    stderr: str
    code: int


@dataclass(frozen=True)
class Site:
    """A cluster and the kubectl that talks to it."""

    cluster: Cluster
    binary: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "HOME": str(self.cluster.kubeconfig.parent),
            "PATH": os.defpath,
        }

    async def kubectl(self, *arguments: str, stdin: str = "") -> Answer:
        process = await asyncio.create_subprocess_exec(
            self.binary,
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Answer(stdout.decode(), stderr.decode(), process.returncode)

    async def says(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of a command that has to succeed."""
        answer = await self.kubectl(*arguments, stdin=stdin)
        assert answer.code == 0, f"kubectl {' '.join(arguments)}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    async def until_says(self, holds: Callable[[str], object], *arguments: str) -> str:
        """Return the output of a command once it is as wanted."""
        said = ""
        for _ in range(240):
            said = await self.says(*arguments)
            if holds(said):
                return said
            await asyncio.sleep(0.25)
        raise AssertionError(f"kubectl {' '.join(arguments)} never said it: {said}")

    @contextlib.asynccontextmanager
    async def watching(self, *arguments: str) -> AsyncIterator[asyncio.Queue[str]]:
        """Give the lines that `kubectl get ... --watch` prints meanwhile."""
        process = await asyncio.create_subprocess_exec(
            self.binary,
            "get",
            *arguments,
            "--watch",
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        lines: asyncio.Queue[str] = asyncio.Queue()

        async def read() -> None:
            assert process.stdout is not None
            async for raw in process.stdout:
                lines.put_nowait(raw.decode().rstrip())

        reading = asyncio.create_task(read())
        try:
            yield lines
        finally:
            process.terminate()
            await process.wait()
            await reading

    async def gpuworkload_of(self, kind: str, name: str, namespace: str) -> str:
        """Return the name that the naming rule gives the GpuWorkload of a live object."""
        uid = await self.says("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
        return f"{kind}-{name}-{uid[:8]}"

    async def until(self, condition: str, name: str, namespace: str) -> None:
        """Wait for a condition of a GpuWorkload, as people do."""
        reference = f"gpuworkload/{name}"
        await self.says("wait", reference, "-n", namespace, "--for=create", "--timeout=60s")
        await self.says("wait", reference, "-n", namespace, f"--for={condition}", "--timeout=60s")


@pytest.fixture(params=KINDS)
async def bare_site(
    request: pytest.FixtureRequest, tmp_path: Path, kubectl: Path
) -> AsyncIterator[Site]:
    """Without the operator."""
    async with cluster_of(request.param, NODES, tmp_path) as cluster:
        yield Site(cluster, kubectl)


@pytest.fixture
async def site(bare_site: Site) -> AsyncIterator[Site]:
    """With the operator, which polls every second."""
    operator = bare_site.cluster.stage.launch(
        {"GPU_PREEMPTION_ENABLED": "true", "GPU_PREEMPTION_POLLING_INTERVAL": "1s"}, 1
    )
    await operator.start()
    try:
        yield bare_site
    finally:
        await operator.stop()


async def explained(site: Site, *arguments: str) -> tuple[int | None, str]:
    """Return the exit code and the output of `reprieve explain`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reprieve", "explain", "-n", OPERATOR_NAMESPACE),
        *("--kubeconfig", str(site.cluster.kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


def normalised(text: str) -> str:
    """Return the text without what differs from run to run, and columns two blanks apart."""
    for pattern, replacement in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\b(job-[a-z-]+|deployment-[a-z-]+)-[0-9a-f]{8}\b", r"\1-<id>"),
        (r"\b(batch-inference|high-priority-demand)-[a-z0-9]{5}\b", r"\1-<pod>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"(Resource Version:\s+)\d+", r"\1<version>"),
        (r"(Generation:\s+)\d+", r"\1<generation>"),
        (r"(?<=\S) {2,}", "  "),
        (r"(?<=  )(?<!Period:  )\d+s(?=\s|$)", "<age>"),
        (r"[ ]+$", ""),
    ):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text

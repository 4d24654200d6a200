"""`python -m bench.web [--quick]`: the web page's server, measured from outside.

5,000 nodes of 8 GPUs, 50,000 pods of which 5,000 wait, 10 viewers. `first`: bytes of the first load
(page, script and style) and of the page Now and Waiting, packed. `live`: 100 changes a second, of
pods that start, end and change; the server's CPU as a share of one core, bytes of a stream a second
and its longest silence while something changes. All look at the same page; `apart`: each at their
own namespace. `memory`: resident memory of the server.

The server is a process of its own that holds the mirror; what a watch would bring is decoded there
and taken over as a reflector does. `--quick` takes small inputs and asserts results, never times.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import secrets
import sys
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from bench.measuring import print_line
from kubeworld.units.clock import SystemClock
from reprieve.api.core import Node, Pod
from reprieve.operator.collector import relax_collector
from reprieve.web.live.watching import Watching
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.server.application import Site
from reprieve.web.server.assets import load_assets
from reprieve.web.server.local import LocalDoor
from reprieve.web.server.mirrored import MirroredCluster
from reprieve.web.server.planning import Plans, with_kubeconfig
from reprieve.web.server.process import page_runner

__all__ = ["main"]

GPU: Final = "amd.com/gpu"
VIEWERS: Final = 10
CHANGES: Final = 100
_PODS_OF_NODE: Final = 9
_PODS_OF_JOB: Final = 8


def main(arguments: list[str] | None = None) -> int:
    """Measure; with `--serve` be the server that is measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs")
    parser.add_argument("--serve", metavar="NODES,PODS", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        nodes, _, pods_of_job = chosen.serve.partition(",")
        asyncio.run(_serve(int(nodes), int(pods_of_job)))
    else:
        asyncio.run(_measure(*((50, 2.0) if chosen.quick else (5_000, 30.0))))
    return 0


# The server


def node_text(number: int) -> bytes:
    """Return a node as a watch brings it."""
    amounts = {GPU: "8", "cpu": "128", "memory": "1024Gi", "pods": "110"}
    return json.dumps(
        {
            "metadata": {
                "name": f"node-{number}",
                "uid": f"node-{number}",
                "resourceVersion": str(number + 1),
                "labels": {"node.kubernetes.io/instance-type": f"type-{number % 4}"},
            },
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
    ).encode()


def pod_text(
    number: int, version: int, node: str, phase: str, pods_of_job: int = _PODS_OF_JOB
) -> bytes:
    """Return a pod of a job, as a watch brings it."""
    job = f"job-{number // pods_of_job}"
    conditions = [{"type": "PodScheduled", "status": "True"}]
    if not node:
        text = "0/5000 nodes are available: 5000 Insufficient amd.com/gpu."
        conditions = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        ]
    return json.dumps(
        {
            "metadata": {
                "name": f"pod-{number}",
                "namespace": f"team-{number // pods_of_job % 40}",
                "uid": f"pod-{number}",
                "resourceVersion": str(version),
                "creationTimestamp": "2026-11-23T12:00:00Z",
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": job,
                        "uid": job,
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "nodeName": node,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/train:1",
                        "resources": {"requests": {GPU: "1", "cpu": "8", "memory": "64Gi"}},
                    }
                ],
            },
            "status": {
                "phase": phase,
                "conditions": conditions,
                "startTime": "2026-11-23T12:00:01Z",
            },
        }
    ).encode()


async def _serve(nodes: int, pods_of_job: int) -> None:
    """Serve a mirror with so many nodes; its port and token are printed."""
    relax_collector()
    clock = SystemClock()
    mirror = Mirror("bench")
    decode_pod = msgspec.json.Decoder(Pod, strict=False).decode
    decode_node = msgspec.json.Decoder(Node, strict=False).decode
    for number in range(nodes):
        mirror.nodes.applied(decode_node(node_text(number)))
    running = nodes * _PODS_OF_NODE
    for number in range(running):
        node = f"node-{number // _PODS_OF_NODE}"
        mirror.pods.applied(decode_pod(pod_text(number, number + 1, node, "Running", pods_of_job)))
    for number in range(running, running + nodes):
        mirror.pods.applied(decode_pod(pod_text(number, number + 1, "", "Pending", pods_of_job)))
    watching = Watching(MirroredCluster(mirror), clock, lambda: secrets.token_hex(6))
    door, plans = LocalDoor("bench", "bench"), Plans(with_kubeconfig(None, None))
    runner = page_runner(Site(watching, door, load_assets(), plans, clock, "bench"))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    making = asyncio.create_task(watching.run())
    print(runner.addresses[0][1], flush=True)
    events = _changes(running, nodes)
    commands = await _lines_of_input()
    while (command := (await commands.readline()).strip()) in (b"changes", b"mark"):
        if command == b"mark":
            mirror.pods.applied(decode_pod(_mark()))
        start = time.monotonic()
        for turn in itertools.count():
            if commands_waiting(commands):
                break
            mirror.pods.applied(decode_pod(next(events)))
            await asyncio.sleep(max(0.0, start + (turn + 1) / CHANGES - time.monotonic()))
    assert command in (b"", b"end")
    making.cancel()
    await runner.cleanup()


def commands_waiting(commands: asyncio.StreamReader) -> bool:
    """Return whether the next command has come."""
    return bool(commands._buffer) or commands.at_eof()  # type: ignore[attr-defined]


def _changes(running: int, nodes: int) -> Iterator[bytes]:
    """Yield pods that change, start and wait again, each newer than all before."""
    random = Random(18)
    for version in itertools.count(10_000_000):
        number = random.randrange(running + nodes)
        on = f"node-{random.randrange(nodes)}" if random.random() < 0.9 else ""
        yield pod_text(number, version, on, "Running" if on else "Pending")


def _mark() -> bytes:
    """Return a pod that is named after this millisecond, and holds more than any other."""
    at = time.time_ns() // 1_000_000
    meta = {"name": f"mark-{at}", "namespace": "marks", "uid": f"{at}", "resourceVersion": f"{at}"}
    asked = {"resources": {"requests": {GPU: str(1_000 + at % 1_000_000)}}}
    spec = {"nodeName": "node-0", "containers": [asked]}
    return json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}).encode()


async def _lines_of_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


# Those who look


async def _measure(nodes: int, seconds: float) -> None:
    known = aiohttp.ClientSession(headers={"Authorization": "Bearer bench"})
    async with known as session, served(nodes) as (process, address):
        assert process.stdin is not None
        await _first_load(session, address, nodes)
        _print_memory("idle", process.pid)
        process.stdin.write(b"changes\n")  # until the end
        await _live("live", ("",) * VIEWERS, address, process, seconds)
        apart = tuple(f"&ns=team-{number}" for number in range(VIEWERS))
        await _live("apart", apart, address, process, seconds)
        _print_memory("watched", process.pid)


@asynccontextmanager
async def served(
    nodes: int, pods_of_job: int = _PODS_OF_JOB
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Yield a server with its address; `changes`, `mark` and `end` are its commands."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.web", "--serve", f"{nodes},{pods_of_job}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = int(await process.stdout.readline())
        yield process, f"http://127.0.0.1:{port}"
        process.stdin.write(b"end\n")
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _first_load(session: aiohttp.ClientSession, address: str, nodes: int) -> None:
    """Print what a first visit loads: files, then the data of two pages."""
    files = [(await _packed(session, f"{address}/"))[0]]
    shell = await _plain(session, f"{address}/")
    for part in shell.decode().split('"'):
        if part.startswith("/assets/"):
            files.append((await _packed(session, address + part))[0])
    figures: dict[str, Any] = {"files": len(files), "file_bytes": sum(files)}
    for page in ("now", "waiting", "queues"):
        size, took = await _packed(session, f"{address}/api/page/{page}")
        figures[f"{page}_bytes"] = size
        figures[f"{page}_ms"] = round(took * 1e3, 1)
    document = json.loads(await _plain(session, f"{address}/api/page/now"))
    assert len(document["tables"]["nodes"]["slots"]) == nodes
    print_line("web", "first", nodes=nodes, **figures)


async def _packed(session: aiohttp.ClientSession, path: str) -> tuple[int, float]:
    """Return the bytes of an answer as they travel, and the seconds until they were there."""
    start = time.monotonic()
    async with session.get(path) as answer:
        await answer.read()
        took = time.monotonic() - start
        return int(answer.headers.get("Content-Length", "0")), took


async def _plain(session: aiohttp.ClientSession, path: str) -> bytes:
    async with session.get(path) as answer:
        return await answer.read()


async def _live(
    case: str,
    asked: tuple[str, ...],
    address: str,
    process: asyncio.subprocess.Process,
    seconds: float,
) -> None:
    """Print what the server does for so many viewers while the cluster changes."""
    viewers = [_Viewer(address, parameters) for parameters in asked]
    reading = [asyncio.create_task(viewer.read()) for viewer in viewers]
    await asyncio.gather(*(viewer.here.wait() for viewer in viewers))
    await asyncio.sleep(1.0 if seconds > 5 else 0.2)
    for viewer in viewers:
        viewer.begin()
    cpu, start = _cpu_seconds(process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    used, took = _cpu_seconds(process.pid) - cpu, time.monotonic() - start
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    events = [viewer.events for viewer in viewers]
    assert min(events) > 0, events
    print_line(
        "web",
        case,
        viewers=VIEWERS,
        topics=len(set(asked)),
        changes_per_s=CHANGES,
        cpu_percent=round(100 * used / took, 1),
        bytes_per_s=round(sum(viewer.bytes for viewer in viewers) / VIEWERS / took),
        bytes_per_event=round(sum(viewer.bytes for viewer in viewers) / sum(events)),
        events_per_s=round(sum(events) / VIEWERS / took, 2),
        longest_silence_ms=round(1e3 * max(viewer.silence for viewer in viewers)),
    )


class _Viewer:
    """One stream of the page Now, read as packed bytes."""

    def __init__(self, address: str, parameters: str) -> None:
        self._path = f"{address}/api/live?page=now{parameters}"
        self.here = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self.bytes = self.events = 0
        self.silence = 0.0
        self._heard = time.monotonic()

    async def read(self) -> None:
        headers = {"Authorization": "Bearer bench", "Accept-Encoding": "gzip"}
        unpack = zlib.decompressobj(wbits=31)
        looking = aiohttp.ClientSession(auto_decompress=False, headers=headers)
        async with looking as session, session.get(self._path) as answer:
            async for part in answer.content.iter_any():
                text = unpack.decompress(part)
                self.bytes += len(part)
                self.events += text.count(b"event: ")
                now = time.monotonic()
                self.silence = max(self.silence, now - self._heard)
                self._heard = now
                self.here.set()


def _print_memory(when: str, pid: int) -> None:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
    resident, peak = found["VmRSS"] / 1024, found["VmHWM"] / 1024
    print_line("web", "memory", when=when, mib=round(resident, 1), peak_mib=round(peak, 1))


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, to the tick of the system's clock (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())

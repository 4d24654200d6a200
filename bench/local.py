"""`python -m bench.local [--quick] [CASE...]`: the embedded cluster, measured from outside.

`requests`: creates, status patches, gets and lists of pods, as requests per second of server CPU.
`watch`: what it costs to tell 20 watchers of 1,000 events.
`memory`: resident memory per pod of 5.6 kB.
`up`: the CPU time of `reprieve up` until its cluster answers and its machines run.
The server is a process of its own with everything on: admission, validation, field ownership and
a data folder with synchronous transactions; its CPU time is read from outside. `--quick` takes
small inputs: a smoke test that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.lean_client import Connection, Watcher, request_bytes
from bench.local_objects import namespaces, new_pod, path_of, running_status
from bench.measuring import print_line

__all__ = ["main"]

CASES = ("requests", "watch", "memory", "up")
CONNECTIONS = 32
WATCHERS = 20
STRATEGIC = "application/strategic-merge-patch+json"


def main(arguments: list[str] | None = None) -> int:
    """Run the cases one after the other; each has a server of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.local", description=__doc__)
    parser.add_argument("case", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; else all")
    parser.add_argument("--quick", action="store_true", help="small inputs")
    chosen = parser.parse_args(arguments)
    for case in chosen.case:
        if case not in CASES:
            parser.error(f"unknown case {case!r}; accepted: {', '.join(CASES)}")
    for case in chosen.case or CASES:
        asyncio.run(_run(case, chosen.quick))
    return 0


async def _run(case: str, quick: bool) -> None:
    match case:
        case "requests":
            await run_requests(*((60, 2) if quick else (5_000, 20)))
        case "watch":
            await run_watch(50 if quick else 5_000)
        case "memory":
            await run_memory(100 if quick else 20_000)
        case _:
            await run_up()


@dataclass
class Server:
    """A server process and connections to it that are not in use."""

    pid: int
    port: int
    free: list[Connection]

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self.pid)

    def resident_kib(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    async def send(self, request: bytes) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            AssertionError: it was refused.
        """
        connection = self.free.pop()
        code, body = await connection.send(request)
        self.free.append(connection)
        assert code < 300, (request[:300], code, body[:300])
        return body

    async def get(self, path: str) -> Any:
        return orjson.loads(await self.send(request_bytes("GET", path)))


@contextlib.asynccontextmanager
async def running_server() -> AsyncIterator[Server]:
    """Start a server with an empty data folder and the namespaces that pods go to."""
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.local_server", folder), stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            port = int(await process.stdout.readline())
            loop = asyncio.get_running_loop()
            free = [
                (await loop.create_connection(Connection, "127.0.0.1", port))[1]
                for _ in range(CONNECTIONS)
            ]
            server = Server(process.pid, port, free)
            for name in namespaces():
                body = orjson.dumps({"metadata": {"name": name}})
                await server.send(request_bytes("POST", "/api/v1/namespaces", body))
            yield server
            for connection in free:
                connection.transport.close()
        finally:
            process.terminate()
            await process.wait()


async def at_once(server: Server, requests: Iterable[bytes]) -> None:
    """Send all requests, as many at a time as there are connections."""
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            await server.send(request)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work())


def creates(indexes: Iterable[int]) -> list[bytes]:
    return [
        request_bytes("POST", path_of(index).rpartition("/")[0], orjson.dumps(new_pod(index)))
        for index in indexes
    ]


def status_patches(indexes: Iterable[int]) -> list[bytes]:
    return [
        request_bytes(
            "PATCH", f"{path_of(index)}/status", orjson.dumps(running_status(index)), STRATEGIC
        )
        for index in indexes
    ]


async def run_requests(pods: int, lists: int) -> None:
    """Create, patch, get and list so many pods; prints a line for each.

    Raises:
        AssertionError: a result is wrong.
    """
    async with running_server() as server:
        every = range(pods)
        await _measure(server, "create", pods, creates(every))
        await _measure(server, "status-patch", pods, status_patches(every))
        gets = [request_bytes("GET", path_of(index)) for index in every]
        await _measure(server, "get", pods, gets)
        whole = [request_bytes("GET", "/api/v1/pods")] * lists
        await _measure(server, "list", pods * lists, whole, unit="objects")
        found = [one for page in await _pages(server) for one in page]
        meant = {path_of(index).rpartition("/")[2]: running_status(index) for index in every}
        assert len(found) == len({one["metadata"]["uid"] for one in found}) == pods, len(found)
        for one in found:
            status = meant[one["metadata"]["name"]]["status"]
            assert {key: one["status"][key] for key in ("phase", "podIP")} == {
                key: status[key] for key in ("phase", "podIP")
            }, one["status"]


async def _pages(server: Server) -> list[list[Any]]:
    pages, token = [], ""
    while True:
        page = await server.get(f"/api/v1/pods?limit=500&continue={token}")
        pages.append(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            return pages


async def _measure(
    server: Server, case: str, count: int, requests: list[bytes], unit: str = "requests"
) -> None:
    before = server.cpu_seconds()
    await at_once(server, requests)
    used = server.cpu_seconds() - before
    rate = round(count / used) if used else None
    print_line("local", case, **{unit: count}, cpu_ms=round(used * 1e3, 1), per_cpu_second=rate)


async def run_watch(events: int) -> None:
    """Tell 20 watchers of so many changes; the same number of changes without any is taken off."""
    async with running_server() as server:
        path = path_of(0)
        await at_once(server, creates([0]))
        alone = await _changes(server, path, "alone", events)
        version = (await server.get(path))["metadata"]["resourceVersion"]
        query = request_bytes("GET", f"/api/v1/pods?watch=true&resourceVersion={version}")
        loop = asyncio.get_running_loop()
        before = server.cpu_seconds()
        watchers = []
        for _ in range(WATCHERS):
            _, watcher = await loop.create_connection(
                lambda: Watcher(query, events), "127.0.0.1", server.port
            )
            watchers.append(watcher)
            await watcher.began
        await _changes(server, path, "watched", events)
        for watcher in watchers:
            await watcher.done
        used = server.cpu_seconds() - before
        assert [watcher.events for watcher in watchers] == [events] * WATCHERS
        print_line(
            "local",
            "watch",
            watchers=WATCHERS,
            events=events,
            cpu_ms=round(used * 1e3, 1),
            cpu_ms_per_1000_events=round(used * 1e6 / events, 1),
            without_the_writes_ms_per_1000=round((used - alone) * 1e6 / events, 1),
        )


async def _changes(server: Server, path: str, word: str, count: int) -> float:
    """Change one pod so often and return the server's CPU seconds."""
    before = server.cpu_seconds()
    kind = "application/merge-patch+json"
    bodies = (
        orjson.dumps({"metadata": {"annotations": {"bench.example/step": f"{word}-{number}"}}})
        for number in range(count)
    )
    await at_once(server, [request_bytes("PATCH", path, body, kind) for body in bodies])
    return server.cpu_seconds() - before


async def run_memory(pods: int) -> None:
    """Create and start so many pods and see what the server's memory grew by."""
    async with running_server() as server:
        # What grows once is there before, and a history that is as full as afterwards.
        first = pods // 2
        await _fill(server, range(first))
        before = server.resident_kib()
        await _fill(server, range(first, first + pods))
        grown = server.resident_kib() - before
        size = len(await server.send(request_bytes("GET", path_of(first))))
        found = sum(len(page) for page in await _pages(server))
        assert found == first + pods, found
        print_line(
            "local",
            "memory",
            objects=pods,
            bytes_each=size,
            kib_per_object=round(grown / pods, 2),
            resident_mib=round(server.resident_kib() / 1024, 1),
        )


async def _fill(server: Server, indexes: range) -> None:
    await at_once(server, creates(indexes))
    await at_once(server, status_patches(indexes))


async def run_up() -> None:
    """Start `reprieve up` with a scenario of nodes alone, until its first line."""
    scenario = "name: empty\ncluster: {nodes: [{name: gpu-0, allocatable: {amd.com/gpu: '8'}}]}\n"
    scenario += "namespace: default\noperator_env: {}\nsteps: []\n"
    best: float | None = None
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as folder:
        file = Path(folder) / "empty.yaml"
        file.write_text(scenario, encoding="utf-8")
        for run in range(3):
            data = Path(folder) / f"data-{run}"
            command = [sys.executable, "-m", "reprieve", "up", "--headless", "--without-web"]
            command += ["--data", str(data), "--scenario", str(file)]
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            try:
                assert process.stdout is not None
                line = (await process.stdout.readline()).decode()
                assert line.startswith("export KUBECONFIG="), line
                used = _cpu_seconds(process.pid)
            finally:
                process.terminate()
                await process.wait()
            best = used if best is None else min(best, used)
    assert best is not None
    print_line("local", "up", cpu_ms=round(best * 1e3, 1), runs=3)


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, to the tick of the system's clock (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())

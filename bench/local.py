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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

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
    """A server process and a client session with so many connections."""

    pid: int
    session: aiohttp.ClientSession

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self.pid)

    def resident_kib(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    async def send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Any:
        """Send one request and return the decoded answer.

        Raises:
            AssertionError: it was refused.
        """
        headers = {"Content-Type": kind or "application/json"} if body else {}
        async with self.session.request(method, path, data=body or None, headers=headers) as answer:
            read = await answer.read()
            assert answer.status < 300, (method, path, answer.status, read[:300])
            return orjson.loads(read)


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
            async with aiohttp.ClientSession(
                f"http://127.0.0.1:{port}",
                connector=aiohttp.TCPConnector(limit=CONNECTIONS + WATCHERS),
            ) as session:
                server = Server(process.pid, session)
                for name in namespaces():
                    body = orjson.dumps({"metadata": {"name": name}})
                    await server.send("POST", "/api/v1/namespaces", body)
                yield server
        finally:
            process.terminate()
            await process.wait()


async def at_once(jobs: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Run all jobs, as many at a time as there are connections."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work())


async def run_requests(pods: int, lists: int) -> None:
    """Create, patch, get and list so many pods; prints a line for each.

    Raises:
        AssertionError: a result is wrong.
    """
    async with running_server() as server:
        bodies = [(path_of(index), orjson.dumps(new_pod(index))) for index in range(pods)]
        statuses = [orjson.dumps(running_status(index)) for index in range(pods)]

        async def create(index: int) -> None:
            path, body = bodies[index]
            await server.send("POST", path.rpartition("/")[0], body)

        async def patch(index: int) -> None:
            await server.send("PATCH", f"{bodies[index][0]}/status", statuses[index], STRATEGIC)

        async def get(index: int) -> None:
            got = await server.send("GET", bodies[index][0])
            assert got["metadata"]["name"] == bodies[index][0].rpartition("/")[2]
            assert got["status"]["phase"] == "Running"

        for case, job in (("create", create), ("status-patch", patch), ("get", get)):
            await _measure(server, case, pods, [lambda i=i, job=job: job(i) for i in range(pods)])

        seen: set[str] = set()

        async def listed() -> None:
            for page in await _pages(server):
                seen.update(one["metadata"]["uid"] for one in page)

        async def fetched() -> None:
            async with server.session.get("/api/v1/pods") as answer:
                assert answer.status == 200
                await answer.read()

        await _measure(server, "list", pods * lists, [fetched] * lists, unit="objects")
        await listed()
        assert len(seen) == pods, len(seen)


async def _pages(server: Server) -> list[list[Any]]:
    pages, token = [], ""
    while True:
        page = await server.send("GET", f"/api/v1/pods?limit=500&continue={token}")
        pages.append(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            return pages


async def _measure(
    server: Server,
    case: str,
    count: int,
    jobs: list[Callable[[], Awaitable[Any]]],
    unit: str = "requests",
) -> None:
    before = server.cpu_seconds()
    await at_once(jobs)
    used = server.cpu_seconds() - before
    rate = round(count / used) if used else None
    print_line("local", case, **{unit: count}, cpu_ms=round(used * 1e3, 1), per_cpu_second=rate)


async def run_watch(events: int) -> None:
    """Tell 20 watchers of so many changes; the same number of changes without any is taken off."""
    async with running_server() as server:
        path = path_of(0)
        await server.send("POST", path.rpartition("/")[0], orjson.dumps(new_pod(0)))
        alone = await _changes(server, path, events)
        version = (await server.send("GET", path))["metadata"]["resourceVersion"]
        counts = [0] * WATCHERS
        query = f"/api/v1/pods?watch=true&resourceVersion={version}"

        async def follow(watcher: int) -> None:
            async with server.session.get(query, timeout=aiohttp.ClientTimeout()) as answer:
                ready.release()
                tail = b""
                async for part in answer.content.iter_any():
                    tail += part
                    *lines, tail = tail.split(b"\n")
                    counts[watcher] += len(lines)
                    if counts[watcher] >= events:
                        assert orjson.loads(lines[-1])["type"] == "MODIFIED"
                        return

        ready = asyncio.Semaphore(0)
        before = server.cpu_seconds()
        async with asyncio.TaskGroup() as group:
            for watcher in range(WATCHERS):
                group.create_task(follow(watcher))
            for _ in range(WATCHERS):
                await ready.acquire()
            await _changes(server, path, events)
        used = server.cpu_seconds() - before
        assert counts == [events] * WATCHERS, counts
        print_line(
            "local",
            "watch",
            watchers=WATCHERS,
            events=events,
            cpu_ms=round(used * 1e3, 1),
            cpu_ms_per_1000_events=round(used * 1e6 / events, 1),
            without_the_writes_ms_per_1000=round((used - alone) * 1e6 / events, 1),
        )


async def _changes(server: Server, path: str, count: int) -> float:
    before = server.cpu_seconds()

    async def change(number: int) -> None:
        body = orjson.dumps({"metadata": {"annotations": {"bench.example/step": str(number)}}})
        await server.send("PATCH", path, body, "application/merge-patch+json")

    stamp = os.urandom(2)[0]
    await at_once([lambda n=n: change(stamp * 1_000_000 + n) for n in range(count)])
    return server.cpu_seconds() - before


async def run_memory(pods: int) -> None:
    """Create and start so many pods and see what the server's memory grew by."""
    async with running_server() as server:

        async def fill(start: int, end: int) -> None:
            async def both(index: int) -> None:
                path = path_of(index)
                await server.send("POST", path.rpartition("/")[0], orjson.dumps(new_pod(index)))
                status = orjson.dumps(running_status(index))
                await server.send("PATCH", f"{path}/status", status, STRATEGIC)

            await at_once([lambda i=i: both(i) for i in range(start, end)])

        # What grows once and what history holds in any case is there before.
        first = pods // 4
        await fill(0, first)
        before = server.resident_kib()
        await fill(first, first + pods)
        grown = server.resident_kib() - before
        async with server.session.get(path_of(first)) as answer:
            size = len(await answer.read())
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
            command = [sys.executable, "-m", "reprieve", "up", "--headless"]
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

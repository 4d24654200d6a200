"""Pods that poll for notices: `python -m bench.notice_polls [--polls 20000] [--minutes 2] [--tls]`.

A process serves the operator's notices; another one keeps so many long polls open, each of a pod of
its own, with `wait=55`, and asks again as soon as it is answered 204. Whose token it is is known at
once: reviews of tokens are the API server's. The server runs on the operator's event loop, with
`--tls` over TLS. Measured is the server's CPU time and largest resident
size once all polls are open, for whole minutes. Both processes need as many open files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import ssl
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import uvloop

from kubeworld.units.clock import SystemClock
from reprieve.execution.notices import Notices
from reprieve.operator.notice_server import NoticeDesk, serve_notices
from reprieve.operator.pod_tokens import ShownPod
from reprieve.planes.quota.webhooks.certificates import load_chain, new_certificates
from reprieve.telemetry.metrics import Metrics

__all__ = ["main"]

_FILES: Final = 65_536
_AT_ONCE: Final = 50
_TICKS: Final = 100  # of /proc/PID/stat, a second


def _served(pipe: Connection, tls: bool) -> None:
    _more_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(pipe, _context() if tls else None))


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, new_certificates(("127.0.0.1",), SystemClock().wall()))
    return context


async def _serve(pipe: Connection, context: ssl.SSLContext | None) -> None:
    clock = SystemClock()
    notices = Notices(clock, Metrics())
    notices.expect("scheduling")
    notices.inherited("scheduling")

    async def pod_of(token: str) -> ShownPod:
        return ShownPod(token)

    desk = NoticeDesk(notices, pod_of, clock)
    async with serve_notices(desk, "127.0.0.1", 0, context) as port:
        pipe.send(port)
        await asyncio.Event().wait()


async def _poll(
    port: int,
    pod: int,
    opened: asyncio.Semaphore,
    counts: list[int],
    ready: asyncio.Event,
    polls: int,
    context: ssl.SSLContext | None,
) -> None:
    request = (
        f"GET /v1/notice?wait=55 HTTP/1.1\r\nHost: operator\r\n"
        f"Authorization: Bearer pod-{pod:06}\r\n\r\n"
    ).encode()
    reader = writer = None
    while True:
        if writer is None:
            try:
                async with opened:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except ConnectionError:
                continue  # the handshake lasted too long
            counts[0] += 1
            if counts[0] == polls:
                ready.set()
        assert reader is not None
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            writer = None
            counts[0] -= 1
            continue
        assert head.startswith(b"HTTP/1.1 204"), head
        counts[1] += 1


async def _measured(
    port: int, pid: int, polls: int, minutes: int, *, tls: bool
) -> dict[str, float]:
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    counts, opened, ready = [0, 0], asyncio.Semaphore(_AT_ONCE), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_poll(port, pod, opened, counts, ready, polls, context))
            for pod in range(polls)
        ]
        await ready.wait()
        # From here on each poll is answered and asked again about once a minute.
        answered, cpu, start = counts[1], _cpu_s(pid), time.monotonic()
        await asyncio.sleep(60 * minutes)
        took = time.monotonic() - start
        found = {
            "polls": polls,
            "tls": tls,
            "open": counts[0],
            "answered": counts[1] - answered,
            "cpu_percent_of_a_core": round(100 * (_cpu_s(pid) - cpu) / took, 2),
            "peak_mib": _peak_mib(pid),
        }
        for task in tasks:
            task.cancel()
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1_024, 1)
    return 0.0


def _more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, max(hard, _FILES)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--polls", type=int, default=20_000)
    parser.add_argument("--minutes", type=int, default=2)
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    _more_files()
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    server = context.Process(target=_served, args=(its, given.tls), daemon=True)
    server.start()
    try:
        port = int(mine.recv())
        assert server.pid is not None
        measuring = _measured(port, server.pid, given.polls, given.minutes, tls=given.tls)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(measuring)))
    finally:
        server.terminate()


if __name__ == "__main__":
    main()

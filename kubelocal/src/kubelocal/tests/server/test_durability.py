"""A server that is killed at any moment has lost nothing that it acknowledged.

One data folder, many rounds: a server process, writers that create, replace, patch and delete, a
SIGKILL while they write, and a comparison of what is there afterwards with what they were told.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import CONFIG_MAPS, config_map

pytestmark = pytest.mark.real_time  # the server is a process of its own

SERVE = """
import asyncio, sys
from pathlib import Path
from kubelocal.cluster import EmbeddedCluster

async def main() -> None:
    async with EmbeddedCluster(data=Path(sys.argv[1])) as cluster:
        print(cluster.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
WRITERS = 8
NAMES = 6

# An object as writers know it: its value and its resourceVersion; None where there is none.
State = tuple[str, str] | None


@dataclass
class Memory:
    """What writers know: `known` by name; `pending`, what each has requested without an answer."""

    known: dict[str, State] = field(default_factory=dict)
    pending: dict[str, str | None] = field(default_factory=dict)
    acknowledged: int = 0
    highest: int = 1


class Lost(Exception):
    """The connection broke, or the process had ended before it stood."""


async def ask(session: ClientSession, method: str, path: str, body: Any = None) -> dict[str, Any]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        async with session.request(
            method, path, json=body, headers={"Content-Type": kind}
        ) as response:
            answer: dict[str, Any] = await response.json()
    except (ClientError, OSError) as error:
        raise Lost from error
    assert response.status in (200, 201), answer
    return answer


async def write(
    session: ClientSession, memory: Memory, name: str, source: random.Random, value: str
) -> None:
    """One write that fits what the object is."""
    state, path = memory.known.get(name), f"{CONFIG_MAPS}/{name}"
    how = "create" if state is None else source.choice(("replace", "patch", "patch", "delete"))
    memory.pending[name] = None if how == "delete" else value
    obj = config_map(name, value=value, padding="x" * source.randrange(4_000))
    if how == "create":
        answer = await ask(session, "POST", CONFIG_MAPS, obj)
    elif how == "replace":
        assert state is not None
        obj["metadata"]["resourceVersion"] = state[1]
        answer = await ask(session, "PUT", path, obj)
    elif how == "patch":
        answer = await ask(session, "PATCH", path, {"data": {"value": value}})
    else:
        answer = await ask(session, "DELETE", path)
    memory.acknowledged += 1
    if how == "delete":
        memory.known[name] = None
    else:
        version = answer["metadata"]["resourceVersion"]
        assert int(version) > memory.highest - WRITERS
        memory.highest = max(memory.highest, int(version))
        memory.known[name] = value, version
    del memory.pending[name]


async def round_of_writes(folder: Path, memory: Memory, source: random.Random) -> None:
    """Start the server, compare, and kill it under load."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, str(folder), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        async with ClientSession(url) as session:
            listed = await ask(session, "GET", CONFIG_MAPS)
            compare(listed, memory)
            end = memory.acknowledged + source.randrange(1, 120)
            seeds = [source.random() for _ in range(WRITERS)]

            async def writer(number: int) -> None:
                mine = random.Random(seeds[number])
                while True:
                    name = f"w{number}-{mine.randrange(NAMES)}"
                    try:
                        await write(session, memory, name, mine, f"{memory.acknowledged}-{number}")
                    except Lost:
                        return
                    if memory.acknowledged >= end:
                        process.send_signal(signal.SIGKILL)

            await asyncio.gather(*(writer(number) for number in range(WRITERS)))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def compare(listed: dict[str, Any], memory: Memory) -> None:
    """Everything is as its writer knows it, or as its last request wanted it; then learn it."""
    found: dict[str, State] = {
        one["metadata"]["name"]: (one["data"]["value"], one["metadata"]["resourceVersion"])
        for one in listed["items"]
    }
    for name in sorted({*found, *memory.known, *memory.pending}):
        there, told = found.get(name), memory.known.get(name)
        if there == told:
            continue
        assert name in memory.pending, f"{name}: told {told}, found {there}"
        assert (there and there[0]) == memory.pending[name], f"{name}: told {told}, found {there}"
    assert int(listed["metadata"]["resourceVersion"]) >= memory.highest
    memory.known, memory.pending = found, {}
    memory.highest = int(listed["metadata"]["resourceVersion"])


@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost_by_kills_under_load(tmp_path: Path, kills: int) -> None:
    memory, source = Memory(), random.Random(kills)
    for number in range(kills):
        before = memory.acknowledged
        await round_of_writes(tmp_path, memory, source)
        assert memory.acknowledged > before, f"round {number} wrote nothing"
    async with EmbeddedCluster(data=tmp_path) as cluster, ClientSession(cluster.url) as session:
        compare(await ask(session, "GET", CONFIG_MAPS), memory)

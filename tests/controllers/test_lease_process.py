"""The keeper of the lease, played in the test's own process and in virtual time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict

import pytest

from kubeworld.units.durations import SECOND
from reprieve.operator import lease_process
from reprieve.operator.lease_link import Shared, WantedLease
from reprieve.operator.lease_process import Keeping
from tests.virtual_time import LoopClock, VirtualTimeLoop

WANTED = WantedLease("kaiwo-system", "reprieve", "us", 15 * SECOND, 5 * SECOND)


class Elector:
    """An elector whose API server hangs: it never leads, and a release takes 20 s."""

    holder = identity = ""

    def __init__(self, *about: object, **more: object) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def renew_now(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await asyncio.sleep(20)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The operator's end of the link and the keeper's."""

    async def nowhere(*about: object) -> None:
        pass

    class Client:
        close = nowhere

    monkeypatch.setattr(lease_process, "load_connection", nowhere)
    monkeypatch.setattr(lease_process, "HttpWire", lambda connection, limit: None)
    monkeypatch.setattr(lease_process, "connect", lambda *about, wire: Client())
    monkeypatch.setattr(lease_process, "LeaderElector", Elector)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def play(story: Callable[[LoopClock], Awaitable[None]]) -> None:
    async def played() -> None:
        await story(LoopClock())

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(played())


def line() -> bytes:
    return json.dumps(asdict(WANTED)).encode() + b"\n"


def test_a_keeper_whose_operator_goes_in_mid_line_goes_too(
    links: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = links

    async def story(clock: LoopClock) -> None:
        keeping = Keeping(theirs, Shared(), os.getppid(), None, None, clock)
        ours.sendall(line()[:20])
        ours.close()
        await lease_process._keep(keeping)

    play(story)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_keeper_ends_nobody_once_the_operator_closed_its_end_of_the_link(
    links: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    ours, theirs = links
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, number: signalled.append(process))

    async def story(clock: LoopClock) -> None:
        shared = Shared()
        keeping = Keeping(theirs, shared, os.getppid(), None, None, clock)
        ours.sendall(line())
        shared.answer(clock.monotonic())
        keeper = asyncio.create_task(lease_process._keep(keeping))
        await asyncio.sleep(1)
        if closed:
            # From here on another program may run under the same process id.
            ours.shutdown(socket.SHUT_WR)
            await keeper
        else:
            await asyncio.sleep(30)
            keeper.cancel()

    play(story)
    assert set(signalled) == (set() if closed else {os.getppid()})

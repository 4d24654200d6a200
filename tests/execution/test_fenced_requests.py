"""Promise 4, one decider: no byte of a guarded write leaves when the lease may have passed on.

Real leader election, fence, gate, retries and aiohttp, over connections of this process and a clock
turned by hand. Credentials, connections, answers and renewals take as long as chance has it;
renewals and answers are lost, connections are closed, and between any two turns of the event loop
the process may stand still, for longer than its lease lasts. The rival is as quick as it can be: it
leads as soon as the lease has stood still for its duration.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.execution.fence import Deposed, Fence
from reprieve.kube import transport as transports
from reprieve.kube.client import Client
from reprieve.kube.connections import Connections
from reprieve.kube.credentials import Connection
from reprieve.kube.errors import ApiError, Unreachable
from reprieve.kube.lease import LeaderElector, LeaseTimes
from reprieve.kube.resource import LEASES, PODS
from reprieve.kube.transport import HttpWire, Request, Transport
from reprieve.kube.writes import Priority, WriteGate
from tests.background import ended
from tests.kube.fakes import Collection, FakeAnswer, FakeWire, client_over

TIMES = LeaseTimes()
ROUNDS, WRITERS, WRITES = 12, 6, 8
LEAST = {"sent": 100, "refused": 100, "closed": 5, "stalls": 10, "passed on": 5}


class LeaseServer:
    """The lease as it is stored, and the rival who takes it the moment that he may."""

    def __init__(self, clock: VirtualClock, chance: Random) -> None:
        self.leases = Collection(LEASES)
        self.cut_off_at: int | None = None  # from then on nothing is renewed
        self._clock = clock
        self._chance = chance
        self._renewed: int | None = None  # monotonic time at which a renewal was stored

    @property
    def ends(self) -> int:
        """When the rival may lead, unless it is renewed before; 0 while nobody has led."""
        return 0 if self._renewed is None else self._renewed + TIMES.duration

    @property
    def passed_on(self) -> bool:
        return self._renewed is not None and self._clock.monotonic() >= self.ends

    async def answer(self, request: Request) -> FakeAnswer:
        await self._clock.sleep(self._delay())
        if self._chance.random() < 0.1 or (
            self.cut_off_at is not None and self._clock.monotonic() > self.cut_off_at
        ):
            raise Unreachable("the renewal is lost")
        if self.passed_on:
            self._taken()
        found = self.leases.handle(request)
        if request.method in ("POST", "PUT") and found.status < 300:
            self._renewed = self._clock.monotonic()
        await self._clock.sleep(self._delay())
        if self._chance.random() < 0.1:
            raise Unreachable("the answer is lost")
        return found

    def _delay(self) -> int:
        long = self._chance.random() < 0.1
        return self._chance.randrange(6 * SECOND if long else 300 * MILLISECOND)

    def _taken(self) -> None:
        lease = self.leases.objects["ops", "reprieve"]
        if lease["spec"]["holderIdentity"] != "rival":
            self.leases.put({**lease, "spec": {**lease["spec"], "holderIdentity": "rival"}})


class World:
    """One process with guarded writes under way, until the lease is another's."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.chance = Random(seed)
        self.clock = VirtualClock()
        self.counts = counts
        self.late: list[str] = []
        self.server = LeaseServer(self.clock, self.chance)
        self.elector = LeaderElector(
            client_over(FakeWire(self.server.answer), self.clock),
            self.clock,
            namespace="ops",
            name="reprieve",
            identity="operator",
            jitter=Random(seed),
        )
        self.fence = Fence(self.elector, self.clock, TIMES.duration)

    def pause(self) -> int:
        """Return how long something takes: mostly little, sometimes longer than the lease."""
        if self.chance.random() < 0.15:
            return self.chance.randrange(TIMES.duration)
        return self.chance.randrange(200 * MILLISECOND)

    def left(self, data: bytes) -> None:
        """Bytes of a request leave: they must have come and be given up before a rival leads."""
        now = self.clock.monotonic()
        self.counts["sent"] += 1
        if now + self.fence.request_timeout > self.server.ends:
            by = (now + self.fence.request_timeout - self.server.ends) / SECOND
            self.late.append(f"{data.split(maxsplit=1)[0]!r}: {by:.3f} s too late at {now}")


class Line(asyncio.Transport):
    """A connection of this process: notes what is written, and answers after a while."""

    def __init__(self, world: World, protocol: ResponseHandler) -> None:
        super().__init__()
        self._world = world
        self._protocol = protocol
        self._closed = False
        self._answered = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, data: Any) -> None:
        self._world.left(bytes(data))
        # Bodies have been counted with their heads: both leave in one piece.
        task = asyncio.ensure_future(self._answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    async def _answer(self) -> None:
        world = self._world
        # One that was kept open may turn out to be closed: then aiohttp sends again by itself.
        if self._answered and world.chance.random() < 0.2:
            world.counts["closed"] += 1
            self.close()
            return
        await world.clock.sleep(world.pause())
        fate = world.chance.random()
        if self._closed:
            return
        if fate < 0.1:
            self.close()
        elif fate < 0.3:
            self._say(b"503 Service Unavailable", b'{"kind": "Status"}')
        else:
            self._say(b"200 OK", b"{}")

    def _say(self, status: bytes, body: bytes) -> None:
        self._answered += 1
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._protocol.data_received(head % (status, len(body)) + body)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connector_of(world: World) -> type[Connections]:
    """Return a connector whose connections take their time."""

    class Connector(Connections):
        async def _create_connection(self, *ignored: Any) -> ResponseHandler:
            await world.clock.sleep(world.pause())
            made: ResponseHandler = self._factory()
            made.connection_made(Line(world, made))
            return made

    return Connector


def connection_of(world: World) -> Connection:
    """Return a server whose credentials take their time, as a plugin's do."""

    async def headers(rejected: bool = False) -> Mapping[str, str]:
        await world.clock.sleep(world.pause())
        return {"Authorization": "Bearer t"}

    return Connection("http://api.test", None, headers)  # type: ignore[arg-type]


async def _writing(world: World, client: Client) -> None:
    """Send writes of all forms one after the other, whatever becomes of each."""
    for number in range(WRITES):
        await world.clock.sleep(world.pause() * 2)
        with contextlib.suppress(ApiError):
            try:
                await _write(world.chance.randrange(4), client, f"x-{number}")
            except Deposed:
                world.counts["refused"] += 1


async def _write(form: int, client: Client, name: str) -> None:
    if form == 0:
        await client.delete(PODS, "team", name, uid="u")
    elif form == 1:
        await client.create(PODS, {"metadata": {"name": name, "namespace": "team"}}, dict)
    elif form == 2:
        await client.patch_status(PODS, "team", name, {"phase": "Failed"}, dict)
    else:
        # As those who may be told twice are: again after a failure, with a pause before.
        request = Request("DELETE", f"/api/v1/namespaces/team/pods/{name}", body=b"{}")
        await client.transport.request(request, retry=True, before_send=client._fence)


async def _played(world: World) -> None:
    connection = connection_of(world)
    transport = Transport(HttpWire(connection, limit=3), world.clock, jitter=Random(1))
    client = Client(transport, gate=WriteGate(4)).at(
        Priority.EVICT, world.fence.check, timeout=world.fence.request_timeout
    )
    leading = asyncio.ensure_future(world.elector.run())
    while not world.elector.leading:
        await world.clock.advance(100 * MILLISECOND)
    ends = world.chance.randrange(5 * SECOND, 60 * SECOND)
    world.server.cut_off_at = world.clock.monotonic() + ends
    writers = [asyncio.ensure_future(_writing(world, client)) for _ in range(WRITERS)]
    try:
        while not all(each.done() for each in writers):
            await _turn(world)
        await asyncio.gather(*writers)
        world.counts["passed on"] += world.server.passed_on
    finally:
        for task in (leading, *writers):
            await ended(task)
        await transport.close()


async def _turn(world: World) -> None:
    """Let the loop have a turn or a few, then time go on: a little, or as in a long stall."""
    for _ in range(world.chance.randrange(1, 5)):
        await asyncio.sleep(0)
    stall = world.chance.random() < 0.004
    step = world.chance.randrange(2 * TIMES.duration if stall else 100 * MILLISECOND)
    world.counts["stalls"] += stall
    await world.clock.advance(step, settle=0)


async def _rounds(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    late: list[str] = []
    for seed in range(ROUNDS):
        world = World(seed, counts)
        monkeypatch.setattr(transports, "Connections", connector_of(world))
        await _played(world)
        late += [f"round {seed}: {each}" for each in world.late]
    return counts, late


async def test_no_guarded_write_leaves_when_the_lease_may_have_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts, late = await _rounds(monkeypatch)
    assert not late, late[:5]
    assert all(counts[name] >= least for name, least in LEAST.items()), counts


async def test_a_fence_that_is_asked_only_before_the_connection_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("send", "write_bytes"):
        asked_no_more = getattr(aiohttp.ClientRequest, name)
        monkeypatch.setattr(transports._CheckedRequest, name, asked_no_more)
    _, late = await _rounds(monkeypatch)
    assert late

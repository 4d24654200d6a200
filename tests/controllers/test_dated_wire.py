"""The dates of the API server's answers are read now and then, and only of those that came soon."""

from __future__ import annotations

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.kube.transport import Answer, Request
from reprieve.operator.dated_wire import DatedWire
from tests.kube.fakes import FakeAnswer

_DATE = "Wed, 04 Mar 2026 10:00:00 GMT"
_INSTANT = parse_instant("2026-03-04T10:00:00.5Z")


class Slow:
    """A wire whose answers take a time and have a date."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.date, self.took = clock, _DATE, 0

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        await self.clock.advance(self.took)
        return FakeAnswer(headers={"Date": self.date})

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("date", "took", "heard"),
    [
        (_DATE, 0, [_INSTANT]),
        (_DATE, 2 * SECOND, [_INSTANT]),
        (_DATE, 2 * SECOND + 1, []),
        ("", 0, []),
        ("yesterday", 0, []),
        ("Wed, 04 Mar 99999 10:00:00 GMT", 0, []),
        ("Wed, 99 Mar 2026 10:00:00 GMT", 0, []),
    ],
)
async def test_a_date_is_of_now_where_it_can_be_read_and_the_answer_came_soon(
    date: str, took: int, heard: list[Nanos]
) -> None:
    clock, found = VirtualClock(), list[Nanos]()
    slow = Slow(clock)
    slow.date, slow.took = date, took
    wire = DatedWire(slow, clock, found.append)
    await wire.send(Request("GET", "/x"), False, False)
    assert found == heard


async def test_one_date_in_five_seconds_is_read() -> None:
    clock, found = VirtualClock(), list[Nanos]()
    wire = DatedWire(Slow(clock), clock, found.append)
    for _ in range(11):
        await wire.send(Request("GET", "/x"), False, False)
        await clock.advance(SECOND)
    assert len(found) == 3

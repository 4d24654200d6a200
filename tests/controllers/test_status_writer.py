"""The one writer of statuses: the newest wish, one write of an object at a time, and what fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.api.core import ObjectMeta
from reprieve.execution.fence import Deposed
from reprieve.execution.writes.statuses import StatusChange
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request
from reprieve.planes.common.status_writer import StatusWriter
from tests.kube.fakes import FakeAnswer, FakeWire, Handler, client_over, refusal

OVER = ObjectMeta("one", "work", "uid-1", "7")


class Shown(msgspec.Struct, omit_defaults=True):
    said: str = ""
    amounts: dict[str, int] | None = None


class Site:
    """A writer whose wishes are the words of a status that says "" so far."""

    def __init__(self, handler: Handler) -> None:
        self.sent: list[dict[str, Any]] = []
        self.written: list[str] = []
        self.failed: list[str] = []
        self.faults: list[int] = []  # when
        self.change: Callable[[str, str], StatusChange | None] = lambda key, said: (
            StatusChange.over(PODS, OVER, Shown(), Shown(said))
        )
        self.writes = True
        self.clock = VirtualClock()

        def take(request: Request) -> Awaitable[FakeAnswer] | FakeAnswer:
            assert request.body is not None
            self.sent.append(msgspec.json.decode(request.body))
            return handler(request)

        self.writer: StatusWriter[str, str, dict[str, Any]] = StatusWriter(
            client_over(FakeWire(take), self.clock),
            self.clock,
            change=lambda key, said: self.change(key, said),
            wire=dict,
            written=lambda key, said, answer: self.written.append(said),
            failed=lambda key, said: self.failed.append(said),
            fault=lambda: self.faults.append(self.clock.monotonic() // SECOND),
            reported=logging.getLogger("reprieve.test"),
            writes=lambda: self.writes,
        )
        self.task = asyncio.create_task(self.writer.run())

    @property
    def said(self) -> list[str]:
        return [body["status"]["said"] for body in self.sent]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def stored(request: Request) -> FakeAnswer:
    return FakeAnswer(200, {"metadata": {"resourceVersion": "8"}})


async def test_the_newest_wish_counts_over_the_version_that_was_judged() -> None:
    site = Site(stored)
    first = site.writer.ask("one", "old")
    assert site.writer.wish("one") == "old"
    assert site.writer.ask("one", "new") is first, "over when the newest is"
    await first.wait()
    assert site.sent == [
        {"metadata": {"uid": "uid-1", "resourceVersion": "7"}, "status": {"said": "new"}}
    ]
    assert site.written == ["new"]
    await site.end()


async def test_an_older_wish_is_never_on_its_way_beside_a_newer_one() -> None:
    pending, begun, most = 0, asyncio.Event(), 0
    release = asyncio.Event()

    async def slow(request: Request) -> FakeAnswer:
        nonlocal pending, most
        pending += 1
        most = max(most, pending)
        begun.set()
        await release.wait()
        pending -= 1
        return stored(request)

    site = Site(slow)
    site.writer.ask("one", "old")
    await begun.wait()
    over = site.writer.ask("one", "new")
    for _ in range(20):
        await asyncio.sleep(0)
    release.set()
    await over.wait()
    assert (site.said, most) == (["old", "new"], 1)
    await site.end()


@pytest.mark.parametrize("code", [409, 403, 404])
async def test_what_is_refused_is_told_to_the_plane_but_not_what_is_gone(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(lambda request: refusal(code))
    await site.writer.ask("one", "word").wait()
    assert len(site.sent) == 1
    assert site.failed == ([] if code == 404 else ["word"])
    assert bool(caplog.records) == (code == 403), "a conflict and a deletion are everyday"
    await site.end()


async def test_while_the_server_is_away_the_change_is_worked_out_and_sent_again() -> None:
    answers = [refusal(503), FakeAnswer(200, {"metadata": {"resourceVersion": "8"}})]
    site = Site(lambda request: answers.pop(0))
    worked_out = []
    change = site.change

    def counted(key: str, said: str) -> StatusChange | None:
        worked_out.append(said)
        return change(key, said)

    site.change = counted
    over = site.writer.ask("one", "word")
    while not over.is_set():
        await site.clock.advance(SECOND)
    assert (worked_out, site.failed, site.written) == (["word", "word"], [], ["word"])
    await site.end()


async def test_nothing_is_sent_where_nothing_differs_nor_in_a_dry_run() -> None:
    site = Site(stored)
    await site.writer.ask("one", "").wait()
    site.writes = False
    await site.writer.ask("one", "word").wait()
    assert (site.sent, site.written) == ([], [])
    await site.end()


async def test_a_wish_that_is_forgotten_or_put_off_is_not_written_before() -> None:
    site = Site(stored)
    forgotten = site.writer.ask("one", "word")
    site.writer.forget("one")
    await forgotten.wait()
    later = site.writer.ask("two", "later", pause=SECOND)
    for _ in range(20):
        await asyncio.sleep(0)
    assert site.sent == []
    await site.clock.advance(2 * SECOND)
    await later.wait()
    assert site.said == ["later"]
    await site.end()


def break_for(site: Site, broken: set[str]) -> None:
    """Have each change fail whose key, or whose wish, is one of these."""
    change = site.change

    def maybe(key: str, said: str) -> StatusChange | None:
        if {key, said} & broken:
            raise RuntimeError("a fault of ours")
        return change(key, said)

    site.change = maybe


async def test_a_fault_of_ours_stops_nobody_else_and_holds_up_no_one_who_waits() -> None:
    site = Site(stored)
    break_for(site, {"bad"})
    await site.writer.ask("bad", "word").wait()
    await site.writer.ask("good", "word").wait()
    assert (site.said, site.failed, len(site.faults)) == (["word"], [], 1)
    await site.end()


async def test_after_a_fault_of_ours_a_wish_is_tried_again_ever_later_until_it_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, broken = Site(stored), {"one"}
    break_for(site, broken)
    start = site.clock.monotonic() // SECOND
    await site.writer.ask("one", "word").wait()
    for _ in range(80):
        await site.clock.advance(SECOND)
    assert [at - start for at in site.faults] == [0, 5, 15, 35, 75]
    assert len(caplog.records) == 5
    assert caplog.messages[0] == "the status of one is retried later after a fault of the operator"
    broken.clear()
    for _ in range(80):
        await site.clock.advance(SECOND)
    assert (site.said, site.written, len(site.faults)) == (["word"], ["word"], 5)
    await site.end()


async def test_after_a_fault_of_ours_the_newest_wish_counts() -> None:
    site = Site(stored)
    break_for(site, {"old"})
    await site.writer.ask("one", "old").wait()
    assert site.writer.wish("one") == "old"
    await site.writer.ask("one", "new").wait()
    for _ in range(10):
        await site.clock.advance(SECOND)
    assert (site.said, len(site.faults)) == (["new"], 1)
    await site.end()


async def test_of_many_wishes_that_faults_put_off_the_oldest_are_let_go() -> None:
    site = Site(stored)
    break_for(site, {"word"})
    overs = [site.writer.ask(f"{number}", "word") for number in range(4_100)]
    for over in overs:
        await over.wait()
    kept = [number for number in range(4_100) if site.writer.wish(f"{number}") is not None]
    assert kept == list(range(4, 4_100))
    await site.end()


async def test_the_loss_of_the_lease_ends_the_writer() -> None:
    def closed(key: str, said: str) -> StatusChange | None:
        raise Deposed("the test holds no lease")

    site = Site(stored)
    site.change = closed
    site.writer.ask("one", "word")
    with pytest.raises(ExceptionGroup) as ended:
        await site.task
    assert [type(each) for each in ended.value.exceptions] == [Deposed]


def test_a_change_names_what_differs_alone_down_to_the_entries_of_a_map() -> None:
    before = Shown("same", {"a": 1, "b": 2, "c": 3})
    found = StatusChange.over(PODS, OVER, before, Shown("same", {"a": 1, "b": 5}))
    assert found is not None
    assert found.changes == {"amounts": {"b": 5, "c": None}}
    assert StatusChange.over(PODS, OVER, before, before) is None
    gone = StatusChange.over(PODS, OVER, before, Shown())
    assert gone is not None
    assert gone.changes == {"said": None, "amounts": None}

"""Streams tell what changed, at a pace that the making of pages allows, and hold no memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import Nanos
from reprieve.web.live import watching
from reprieve.web.live.pace import Pace
from reprieve.web.live.topic import RING_AGE, read_position
from reprieve.web.live.watching import BEAT, Key, TooManyStreams, Watching
from reprieve.web.tables import InvalidParameter, NotFound, Viewer
from tests.web.reading import Browser, meant
from tests.web.stand_in import StandIn

_NOW = Key.of("now", {}, Viewer(True))


class _Clock(SystemClock):
    """The machine's clock, that can be moved on."""

    moved = 0

    def monotonic(self) -> Nanos:
        return Nanos(super().monotonic() + self.moved)

    async def sleep(self, nanoseconds: int) -> None:
        await super().sleep(nanoseconds // 50)


@contextlib.asynccontextmanager
async def _running(cluster: StandIn) -> AsyncIterator[tuple[Watching, _Clock]]:
    clock, epochs = _Clock(), itertools.count()
    result = Watching(cluster, clock, lambda: f"e{next(epochs)}")
    making = asyncio.create_task(result.run())
    yield result, clock
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)


async def test_a_stream_tells_a_snapshot_and_then_each_change() -> None:
    cluster = StandIn({"a/x": 1})
    async with _running(cluster) as (served, _):
        stream, browser = served.stream(_NOW, None), Browser()
        browser.hear(await anext(stream))
        for turn in range(5):
            cluster.set(f"a/{turn}", turn)
            cluster.set("a/x", turn + 2)
            browser.hear(await anext(stream))
            assert browser.shown() == meant(cluster.page(_NOW, Nanos(0)))
        await stream.aclose()

    assert browser.snapshots == 1
    assert served.streams == 0


async def test_changes_that_come_close_together_are_told_at_once() -> None:
    cluster = StandIn({"a/x": 0})
    async with _running(cluster) as (served, _):
        stream, browser = served.stream(_NOW, None), Browser()
        browser.hear(await anext(stream))
        made = cluster.made
        for count in range(1, 1000):
            cluster.set("a/x", count)
        browser.hear(await anext(stream))
        await stream.aclose()

    assert browser.values == {"gpus": 999}
    assert cluster.made == made + 1


async def test_a_stream_goes_on_where_a_page_or_another_stream_ended() -> None:
    cluster = StandIn({"a/x": 1})
    async with _running(cluster) as (served, _):
        browser = Browser()
        first = served.stream(_NOW, None)
        browser.hear(await anext(first))
        await first.aclose()
        cluster.set("a/y", 4)
        second = served.stream(_NOW, read_position(browser.position))
        browser.hear(await anext(second))
        third = served.stream(_NOW, read_position(browser.position))

        assert await anext(third) == BEAT
        await second.aclose()
        await third.aclose()

    assert browser.snapshots == 1
    assert browser.values == {"gpus": 5}


async def test_what_nobody_watches_is_not_made() -> None:
    cluster = StandIn({"a/x": 1})
    async with _running(cluster) as (served, _):
        stream = served.stream(_NOW, None)
        await anext(stream)
        await stream.aclose()
        made = cluster.made
        for count in range(20):
            cluster.set("a/x", count)
            await asyncio.sleep(0.01)

    assert cluster.made <= made + 1


async def test_a_page_asked_for_once_is_up_to_date_and_forgotten_when_it_is_old() -> None:
    cluster = StandIn({"a/x": 1})
    async with _running(cluster) as (served, clock):
        browser = Browser()
        for count in (1, 2, 3):
            cluster.set("a/x", count)
            browser.snapshot(json.loads(served.snapshot(_NOW)))
            assert browser.values == {"gpus": count}
        assert browser.position == "e0.2"
        clock.moved += RING_AGE + 1
        other = Key.of("now", {"namespace": ("a",)}, Viewer(True))
        served.snapshot(other)

        assert served.topics == 1


async def test_topics_that_nobody_watches_are_bounded_in_number() -> None:
    async with _running(StandIn({"a/x": 1})) as (served, _):
        for number in range(500):
            served.snapshot(Key.of("now", {"search": (str(number),)}, Viewer(True)))

        assert served.topics <= 33


async def test_viewers_with_other_rights_share_no_topic() -> None:
    cluster = StandIn({"a/x": 1, "b/y": 2})
    async with _running(cluster) as (served, _):
        of_a = served.snapshot(Key.of("now", {}, Viewer(False, frozenset({"a"}))))
        of_b = served.snapshot(Key.of("now", {}, Viewer(False, frozenset({"b"}))))

    assert b"b/y" not in of_a
    assert b"a/x" not in of_b


async def test_a_stream_ends_when_its_page_is_no_more() -> None:
    cluster = StandIn({"a/x": 1})
    key = Key.of("workload", {"namespace": ("a",), "name": ("x",)}, Viewer(True))
    async with _running(cluster) as (served, _):
        stream = served.stream(key, None)
        await anext(stream)
        del cluster.units["a/x"]
        cluster.touched()

        with pytest.raises(NotFound, match="no such workload"):
            await anext(stream)
        with pytest.raises(NotFound, match="no such workload"):
            served.snapshot(key)


@pytest.mark.parametrize(
    ("page", "parameters", "refusal"),
    [("nowhere", {}, NotFound), ("now", {"namespace": ("",)}, InvalidParameter)],
)
async def test_what_cannot_be_shown_is_refused_before_the_first_event(
    page: str, parameters: dict[str, tuple[str, ...]], refusal: type[Exception]
) -> None:
    async with _running(StandIn()) as (served, _):
        with pytest.raises(refusal):
            await anext(served.stream(Key.of(page, parameters, Viewer(True)), None))

        assert (served.streams, served.topics) == (0, 0)


async def test_a_fault_in_one_page_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    cluster = StandIn({"a/x": 1})
    async with _running(cluster) as (served, _):
        stream, browser = served.stream(_NOW, None), Browser()
        browser.hear(await anext(stream))
        cluster.fault = ZeroDivisionError("a fault of ours")
        cluster.set("a/x", 2)
        async with asyncio.timeout(60):
            while cluster.made < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        cluster.fault = None
        cluster.set("a/x", 3)
        browser.hear(await anext(stream))
        await stream.aclose()

    assert browser.values == {"gpus": 3}
    assert "the page now could not be rendered" in caplog.text


async def test_streams_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_MOST_STREAMS", 2)
    async with _running(StandIn()) as (served, _):
        open_ones = [served.stream(_NOW, None) for _ in range(2)]
        for stream in open_ones:
            await anext(stream)

        with pytest.raises(TooManyStreams, match="2 streams are open"):
            await anext(served.stream(_NOW, None))
        for stream in open_ones:
            await stream.aclose()


async def test_one_viewer_leaves_streams_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_MOST_OF_ONE", 2)
    async with _running(StandIn()) as (served, _):
        mine = [served.stream(_NOW, None, "me") for _ in range(2)]
        for stream in mine:
            await anext(stream)

        with pytest.raises(TooManyStreams, match="2 pages of yours are open"):
            await anext(served.stream(_NOW, None, "me"))
        another = served.stream(_NOW, None, "you")
        await anext(another)
        await mine.pop().aclose()
        again = served.stream(_NOW, None, "me")
        await anext(again)
        for stream in (*mine, another, again):
            await stream.aclose()


def test_pages_that_take_long_to_make_are_made_less_often() -> None:
    def pause(cost: int) -> int:
        pace = Pace()
        for _ in range(50):
            pace.took(cost)
        return pace.pause // MILLISECOND

    assert [pause(each * MILLISECOND) for each in (0, 10, 50, 90, 500)] == [
        250,
        250,
        999,
        1799,
        2000,
    ]


def test_one_slow_turn_does_not_slow_the_pages_for_long() -> None:
    pace = Pace()
    pace.took(1 * SECOND)
    for _ in range(15):
        pace.took(5 * MILLISECOND)

    assert pace.pause == 250 * MILLISECOND

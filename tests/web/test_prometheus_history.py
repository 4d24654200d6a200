"""The history of teams is read from a Prometheus, by its range API, and falls back with a reason.

The server here is a small one that speaks that API over HTTP: what the page exports is scraped into
it, and range queries of the forms that the page sends are evaluated on the scraped points.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.history.model import MOST_TEAMS, Eviction
from reprieve.web.history.prometheus import Prometheus
from reprieve.web.history.series import TeamSeries
from reprieve.web.tables import Viewer
from tests.web.cluster import GPU, START, mirror, node
from tests.web.test_history import EVERYTHING, after, moment, row, shown

_GAUGE = re.compile(r"max by \(([\w, ]+)\) \(avg_over_time\((\w+)\[(\d+)s\]\)\)")
_COUNTER = re.compile(r"max by \(([\w, ]+)\) \((\w+)\)")
Labels = tuple[tuple[str, str], ...]


@dataclass
class RangeServer:
    """Scraped points, and range queries on them. `answer`: instead of an evaluation."""

    points: dict[tuple[str, Labels], list[tuple[int, float]]] = field(default_factory=dict)
    answer: tuple[int, str] | None = None
    queries: list[dict[str, str]] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)
    url: str = ""

    def scrape(self, series: TeamSeries, at: Nanos) -> None:
        """Read an exposition as a scraper does."""
        registry = CollectorRegistry()
        registry.register(series)
        text = generate_latest(registry).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                self.points.setdefault(key, []).append((at // SECOND, sample.value))

    async def range(self, request: web.Request) -> web.Response:
        asked = {name: str(value) for name, value in (await request.post()).items()}
        self.queries.append(asked)
        self.authorized.append(request.headers.get("Authorization", ""))
        if self.answer is not None:
            return web.Response(status=self.answer[0], text=self.answer[1])
        result = [
            {"metric": dict(labels), "values": values} for labels, values in self.evaluated(asked)
        ]
        document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return web.json_response(document)

    def evaluated(self, asked: dict[str, str]) -> Iterator[tuple[Labels, list[list[Any]]]]:
        """Yield the series of `max by (...)` of a mean over a window, or of a counter."""
        gauge, counter = _GAUGE.fullmatch(asked["query"]), _COUNTER.fullmatch(asked["query"])
        found = gauge or counter
        assert found is not None, asked["query"]
        by, name = found[1].split(", "), found[2]
        window = int(gauge[3]) if gauge else 300
        start, end, step = (int(asked[each]) for each in ("start", "end", "step"))
        grouped: dict[Labels, dict[int, float]] = {}
        for (scraped, labels), points in self.points.items():
            if scraped != name:
                continue
            kept = grouped.setdefault(tuple((k, v) for k, v in labels if k in by), {})
            for at in range(start, end + 1, step):
                inside = [value for when, value in points if at - window < when <= at]
                if inside:
                    value = sum(inside) / len(inside) if gauge else inside[-1]
                    kept[at] = max(kept.get(at, value), value)
        for labels, values in grouped.items():
            yield labels, [[at, repr(values[at])] for at in sorted(values)]


@asynccontextmanager
async def serving() -> AsyncIterator[RangeServer]:
    server = RangeServer()
    application = web.Application()
    application.router.add_post("/prom/api/v1/query_range", server.range)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prom"
    try:
        yield server
    finally:
        await runner.cleanup()


async def queried(elsewhere: Prometheus) -> None:
    async with aiohttp.ClientSession() as session:
        await elsewhere.query_due(session)


def filled(history: History, server: RangeServer | None, minutes: int = 60) -> None:
    """Sample an hour: a training that becomes idle, one that waits, and one eviction."""
    for minute in range(1, minutes + 1):
        at = after(minute)
        idled = 4 if minute > 30 else 0
        evicted = [Eviction(GPU, "team-b", "", 7200)] if minute == 20 else []
        rows = (
            row("jobs/team-a/train", held=4, queue="cq", idled=idled),
            row("j/team-b/w", waiting=2),
        )
        history.add(moment(at, *rows), evicted)
        if server is not None:
            server.scrape(history.series, at)


async def test_prometheus_has_the_history_that_a_new_process_has_not() -> None:
    now = after(60)
    async with serving() as server:
        before = History()
        filled(before, server)
        elsewhere = Prometheus(server.url, None, VirtualClock(now))
        cluster = mirror(node("n1"))
        cluster.history = History(elsewhere=elsewhere)

        asked, _ = shown(cluster, EVERYTHING, now)
        assert (asked["lines"], "has not answered yet" in asked["source"]) == ({}, True)
        await queried(elsewhere)

        own = mirror(node("n1"))
        own.history = before
        for measure in ("working", "idle", "waiting", "preempted", "lost"):
            for by in ("team", "queue"):
                asked, teams = shown(cluster, EVERYTHING, now, measure=measure, by=by)
                kept, kept_teams = shown(own, EVERYTHING, now, measure=measure, by=by)
                assert (asked["lines"], teams) == (kept["lines"], kept_teams)
        assert asked["source"] == f"The sums come from Prometheus at {server.url}."
        assert {each["team"] for each in teams} == {"cq", "without a queue"}
        # Others' teams are hidden from a viewer of one namespace, as they are in our own samples.
        narrow = Viewer(sees_all=False, namespaces=frozenset({"team-a"}))
        _, teams = shown(cluster, narrow, now)
        assert [each["team"] for each in teams] == ["team-a"]


async def test_each_range_is_queried_when_it_is_due_and_by_nobodys_view() -> None:
    async with serving() as server:
        clock = VirtualClock(after(60))
        elsewhere = Prometheus(server.url, None, clock)
        filled(History(), server)
        async with aiohttp.ClientSession() as session:
            await elsewhere.query_due(session)
            assert len(server.queries) == 9
            await clock.advance(MINUTE)
            await elsewhere.query_due(session)
            assert len(server.queries) == 12
            await clock.advance(10 * MINUTE)
            await elsewhere.query_due(session)
            assert len(server.queries) == 18
        spans = {int(each["end"]) - int(each["start"]) for each in server.queries}
        steps = {each["step"] for each in server.queries}
        assert spans == {HOUR // SECOND, 24 * HOUR // SECOND, 7 * 24 * HOUR // SECOND}
        assert steps == {"60", "600", "3600"}


async def test_a_counter_that_begins_again_loses_no_preemption(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with serving() as server:
        for minutes, evictions in (((1, 2), 2), ((3, 4), 1)):
            series = History()  # a process that was started again counts from 0
            for minute in minutes:
                lost = [Eviction(GPU, "team-b", "", 60)] * (evictions if minute in (2, 3) else 0)
                series.add(moment(after(minute), row("j/team-a/t", held=1)), lost)
                server.scrape(series.series, after(minute))
        elsewhere = Prometheus(server.url, token, VirtualClock(after(4)))
        await queried(elsewhere)
        found = [
            sums.preempted
            for sample in elsewhere.between(START, after(4))
            for team, sums in sample.teams
            if team.namespace == "team-b"
        ]
        assert sum(found) == 3
        assert set(server.authorized) == {"Bearer secret"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, "busy"), "HTTP 503, which is no answer of its API"),
        ((400, '{"status": "error", "error": "parse error"}'), "HTTP 400: parse error"),
        ((302, ""), "HTTP 302, which is no answer of its API"),
        ((200, '{"status": "success", "data": {"result": 7}}'), "HTTP 200, which is no answer"),
        ((200, " " * (17 << 20)), "its answer exceeds 16 MiB"),
    ],
)
async def test_without_an_answer_the_pages_own_samples_are_shown_with_the_reason(
    answer: tuple[int, str], why: str
) -> None:
    now = after(60)
    async with serving() as server:
        server.answer = answer
        elsewhere = Prometheus(server.url.replace("//", "//user:pass@"), None, VirtualClock(now))
        cluster = mirror(node("n1"))
        cluster.history = History(elsewhere=elsewhere)
        filled(cluster.history, None)
        await queried(elsewhere)
        asked, teams = shown(cluster, EVERYTHING, now)
        assert [each["team"] for each in teams] == ["team-a", "team-b"]
        assert asked["source"].startswith(f"Prometheus at {server.url} gave no history: {why}")
        assert asked["source"].endswith("These are the samples of this page's own server.")
        # It answers again, and is shown again.
        server.answer = None
        await queried(elsewhere)
        assert "come from Prometheus" in cluster.history.source


async def test_impossible_numbers_and_too_many_teams_are_left_out() -> None:
    async with serving() as server:
        at = after(60) // SECOND
        values = [[at, each] for each in ("NaN", "+Inf", "-1", "x", "9" * 400)]
        labels: dict[str, str] = {"resource": GPU, "cluster_queue": "", "state": "working"}
        many: list[dict[str, Any]] = [
            {"metric": {**labels, "team": f"team-{n}"}, "values": [[at, "2"]]}
            for n in range(2 * MOST_TEAMS)
        ]
        odd = {"metric": {**labels, "team": "odd"}, "values": values}
        stray = {"metric": {**labels, "state": "?"}, "values": [[at, "5"]]}
        result = [*many, odd, stray]
        server.answer = (200, json.dumps({"status": "success", "data": {"result": result}}))
        elsewhere = Prometheus(server.url, None, VirtualClock(after(60)))
        await queried(elsewhere)
        (sample,) = elsewhere.between(START, after(60))
        assert len(sample.teams) == MOST_TEAMS + 1
        assert sum(sums[0] for _, sums in sample.teams) == 4 * MOST_TEAMS
        assert not [team for team, _ in sample.teams if team[1] in ("odd", "")]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://p", "http://", "http://p?query=up"])
def test_an_address_that_cannot_be_used_is_named_with_what_is_accepted(url: str) -> None:
    with pytest.raises(UsageError, match=r"--prometheus .*: accepted: http\(s\)://HOST"):
        Prometheus(url, None, VirtualClock())

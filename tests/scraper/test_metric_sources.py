"""One URL: what is fetched, what is read, and how each way to fail is called."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from kubeworld.units.clock import SystemClock
from reprieve.engine.idle.vendors import AMD, INTEL, NVIDIA, Vendor
from reprieve.planes.idle.measures.metric_sources import (
    Failure,
    MetricReader,
    Reading,
    ReadyAddress,
    Target,
    metric_source,
    open_session,
    targets_of,
)
from reprieve.planes.idle.measures.prometheus_answer import VectorParser
from reprieve.units.errors import UsageError
from tests.scraper.servers import Handler, busy, serving, text


class NoServices:
    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        return ()


class OneService:
    def __init__(self, *addresses: ReadyAddress) -> None:
        self._addresses = addresses

    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        return self._addresses if (namespace, name) == ("gpu", "exporter") else ()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with open_session() as session:
        yield session


async def read(
    session: aiohttp.ClientSession,
    url: str,
    vendors: Sequence[Vendor] = (AMD,),
    limit: int = 1 << 20,
    timeout: float = 5.0,
) -> Reading:
    (target,) = targets_of(metric_source(url), NoServices())
    reader = MetricReader(session, vendors, SystemClock(), limit, timeout_seconds=timeout)
    return await reader.read(target)


def pods(reading: Reading) -> list[tuple[str, float]]:
    assert reading.exposition is not None, reading.detail
    return [(sample.pod, sample.utilization) for sample in reading.exposition.samples]


async def test_a_url_is_fetched_as_it_is(session: aiohttp.ClientSession) -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path_qs)
        return web.Response(text=busy("a", "7"))

    async with serving(handler) as url:
        reading = await read(session, f"{url}/some/path?node=x")
    assert (asked, pods(reading), reading.failure) == (["/some/path?node=x"], [("a", 7.0)], None)
    assert reading.size == len(busy("a", "7"))


async def test_gzip_is_unpacked(session: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert "gzip" in request.headers["Accept-Encoding"]
        return web.Response(
            body=gzip.compress(busy("a").encode()), headers={"Content-Encoding": "gzip"}
        )

    async with serving(handler) as url:
        assert pods(await read(session, f"{url}/metrics")) == [("a", 5.0)]


async def test_a_redirect_is_a_failure_and_nothing_else_is_asked(
    session: aiohttp.ClientSession,
) -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/metrics":
            raise web.HTTPFound("/elsewhere")
        return web.Response(text=busy("a"))

    async with serving(handler) as url:
        reading = await read(session, f"{url}/metrics")
    assert (asked, reading.exposition, reading.failure) == (
        ["/metrics"],
        None,
        Failure.HTTP_STATUS,
    )
    assert reading.detail == "HTTP status 302: redirects are not followed, to '/elsewhere'"


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def broken_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(busy("a").encode())
    assert request.transport is not None
    request.transport.abort()
    return response


async def trickling(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(busy("a").encode())
    await asyncio.Event().wait()
    return response


async def not_gzip(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"plain", headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("handler", "failure", "detail"),
    [
        (text("down for a while", 503), Failure.HTTP_STATUS, "HTTP status 503: down for a while"),
        (text(busy("a") + "<html>"), Failure.MALFORMED, "'<html>'"),
        (text(busy("a") * 20_000), Failure.TOO_LARGE, "larger than 1 MiB"),
        (never, Failure.TIMEOUT, "within 0.2 s"),
        (trickling, Failure.TIMEOUT, "within 0.2 s"),
        (broken_off, Failure.UNREACHABLE, ""),
        (not_gzip, Failure.UNREACHABLE, ""),
    ],
    ids=["status", "malformed", "too large", "silent", "trickling", "broken off", "not gzip"],
)
async def test_each_way_to_fail_gives_no_exposition_and_has_a_name(
    session: aiohttp.ClientSession, handler: Handler, failure: Failure, detail: str
) -> None:
    async with serving(handler) as url:
        patience = 0.2 if failure is Failure.TIMEOUT else 30.0
        reading = await read(session, f"{url}/metrics", timeout=patience)
    assert (reading.exposition, reading.failure) == (None, failure)
    assert detail in reading.detail
    assert "\n" not in reading.detail


async def test_a_refused_connection_is_unreachable(session: aiohttp.ClientSession) -> None:
    async with serving(never) as url:
        pass
    reading = await read(session, f"{url}/metrics")
    assert (reading.exposition, reading.failure) == (None, Failure.UNREACHABLE)
    assert reading.detail


async def test_endpoints_that_hang_do_not_keep_others_waiting(
    session: aiohttp.ClientSession,
) -> None:
    hanging = asyncio.Event()
    waiting = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        if request.path == "/slow":
            waiting += 1
            await hanging.wait()
        return web.Response(text=busy("a"))

    async with serving(handler) as url:
        reader = MetricReader(session, (AMD,), SystemClock(), concurrent_reads=2)
        (slow,) = targets_of(metric_source(f"{url}/slow"), NoServices())
        (quick,) = targets_of(metric_source(f"{url}/quick"), NoServices())
        stuck = [asyncio.create_task(reader.read(slow)) for _ in range(4)]
        await asyncio.sleep(0)
        reading = await reader.read(quick)
        assert (waiting, any(task.done() for task in stuck)) == (4, False)
        hanging.set()
        readings = await asyncio.gather(*stuck)
    assert [pods(one) for one in (reading, *readings)] == [[("a", 5.0)]] * 5


def target_urls(url: str, service: OneService) -> list[str | None]:
    return [target.url for target in targets_of(metric_source(url), service)]


def test_a_service_is_followed_to_each_of_its_ready_addresses() -> None:
    service = OneService(
        ReadyAddress("10.0.0.1", {"metrics": 5000}),
        ReadyAddress("10.0.0.2", {"metrics": 5001}),
        ReadyAddress("fd00::1", {"metrics": 5000}),
        ReadyAddress("10.0.0.1", {"metrics": 5000}),
    )
    assert target_urls("service://gpu/exporter:metrics/m?x=1", service) == [
        "http://10.0.0.1:5000/m?x=1",
        "http://10.0.0.2:5001/m?x=1",
        "http://[fd00::1]:5000/m?x=1",
    ]
    assert target_urls("service://gpu/exporter:9400", service) == [
        "http://10.0.0.1:9400/metrics",
        "http://10.0.0.2:9400/metrics",
        "http://[fd00::1]:9400/metrics",
    ]


@pytest.mark.parametrize(
    "url", ["service://gpu/exporter:other/metrics", "service://gpu/unknown:5000/metrics"]
)
async def test_a_service_that_leads_nowhere_fails_by_name(
    session: aiohttp.ClientSession, url: str
) -> None:
    service = OneService(ReadyAddress("10.0.0.1", {"metrics": 5000}))
    (target,) = targets_of(metric_source(url), service)
    reading = await MetricReader(session, (AMD,), SystemClock()).read(target)
    assert (target.shown, reading.failure) == (url, Failure.NO_ADDRESS)


def many(count: int, pod: str = "a") -> str:
    return "".join(busy(pod, gpu=str(gpu)) for gpu in range(count))


async def test_more_samples_than_an_endpoint_may_send_are_a_failure_by_name(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(text(many(30))) as url:
        (target,) = targets_of(metric_source(f"{url}/metrics"), NoServices())
        kept = await MetricReader(session, (AMD,), SystemClock(), maximum_samples=30).read(target)
        over = await MetricReader(session, (AMD,), SystemClock(), maximum_samples=29).read(target)
    assert len(pods(kept)) == 30
    assert (over.exposition, over.failure) == (None, Failure.TOO_MANY)
    assert over.detail == "more than 29 samples of this endpoint; none is used"


async def test_all_endpoints_of_a_poll_share_one_bound_and_the_next_poll_begins_anew(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(text(many(20))) as url:
        reader = MetricReader(session, (AMD,), SystemClock(), maximum_samples_at_once=50)
        targets = [
            targets_of(metric_source(f"{url}/{name}"), NoServices())[0] for name in ("a", "b", "c")
        ]
        for _ in range(2):
            readings = await asyncio.gather(*(reader.read(target) for target in targets))
            assert sorted(reading.failure or "" for reading in readings) == [
                "",
                "",
                Failure.TOO_MANY,
            ]
        assert len(pods(await reader.read(targets[0]))) == 20


async def test_names_that_no_pod_can_have_are_not_held(session: aiohttp.ClientSession) -> None:
    long = busy("a" * 254) + busy("a", namespace="n" * 64) + busy("a", gpu="g" * 257) + busy("b")
    async with serving(text(long)) as url:
        reading = await read(session, f"{url}/metrics")
    assert pods(reading) == [("b", 5.0)]
    assert reading.exposition is not None
    assert reading.exposition.unassigned == 3


def vector(*series: tuple[dict[str, str], str]) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        result = [{"metric": labels, "value": [1772618400.1, value]} for labels, value in series]
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data})

    return handler


async def test_a_prometheus_server_is_asked_and_its_labels_understood(
    session: aiohttp.ClientSession,
) -> None:
    asked = []
    answer = vector(
        (
            {
                "__name__": "gpu_gfx_activity",
                "exported_pod": "a",
                "pod": "exporter-x",
                "exported_namespace": "team",
                "namespace": "gpu",
                "gpu_id": "3",
            },
            "12.5",
        ),
        ({"__name__": "gpu_gfx_activity", "pod": "b", "namespace": "team"}, "NaN"),
        ({"__name__": "gpu_gfx_activity", "gpu_id": "1"}, "1"),
        ({"__name__": "up", "pod": "c", "namespace": "team"}, "1"),
    )

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append((request.path, dict(request.query)))
        return await answer(request)

    query = "max_over_time(gpu_gfx_activity%5B30m%5D)&lookback_delta=1m"
    async with serving(handler) as url:
        reading = await read(session, f"prometheus+{url}/prefix/?query={query}")
    assert asked == [
        (
            "/prefix/api/v1/query",
            {"query": "max_over_time(gpu_gfx_activity[30m])", "lookback_delta": "1m"},
        )
    ]
    assert pods(reading) == [("a", 12.5)]
    assert reading.exposition is not None
    assert [sample.namespace for sample in reading.exposition.samples] == ["team"]
    assert [bad.pod for bad in reading.exposition.invalid] == ["b"]
    assert reading.exposition.unassigned == 1


async def test_an_answer_is_read_series_by_series_whatever_the_pieces() -> None:
    series = [
        {
            "metric": {"__name__": "gpu_gfx_activity", "namespace": "t{e]a", "pod": f'p"{n}\\'},
            "value": [1772618400.1, str(n)],
        }
        for n in range(50)
    ]
    histogram = {
        "metric": {"__name__": "gpu_gfx_activity", "namespace": "t", "pod": "h"},
        "histogram": [1.5, {"count": "1", "buckets": [[0, "1", "2", "3"]]}],
    }
    data = {"resultType": "vector", "result": [*series, histogram]}
    answer = {"status": "success", "data": data, "warnings": ["one"], "stats": {"a": [1]}}
    for spaced in (True, False):
        separators = (", ", ": ") if spaced else (",", ":")
        body = json.dumps(answer, separators=separators).encode()
        for size in (1, 7, 1000, len(body)):
            parser = VectorParser((AMD,))
            for start in range(0, len(body), size):
                parser.feed(body[start : start + size])
                assert size == len(body) or parser.held_bytes <= size + 300
            samples = parser.finish().samples
            assert [(s.pod, s.utilization) for s in samples] == [
                (f'p"{n}\\', float(n)) for n in range(50)
            ]


@pytest.mark.parametrize("cut", [1, 40, 90, 200])
async def test_an_answer_that_breaks_off_is_not_used(
    session: aiohttp.ClientSession, cut: int
) -> None:
    series = {"metric": {"__name__": "gpu_gfx_activity", "pod": "a", "namespace": "t"}}
    data = {"resultType": "vector", "result": [{**series, "value": [1, "5"]}] * 2}
    body = json.dumps({"status": "success", "data": data})
    async with serving(text(body[:-cut])) as url:
        reading = await read(session, f"prometheus+{url}?query=q")
    assert (reading.exposition, reading.failure) == (None, Failure.MALFORMED)


BEHIND = {"__name__": "gpu_gfx_activity", "exported_pod": "forged", "exported_namespace": "team"}


@pytest.mark.parametrize(
    ("vendor", "labels", "expected"),
    [
        (AMD, {"pod": "exporter", "namespace": "gpu"}, "forged"),
        (
            replace(AMD, namespace_labels=("namespace",), pod_labels=("pod",)),
            {"pod": "mine", "namespace": "team"},
            "mine",
        ),
        (
            replace(INTEL, metrics=AMD.metrics),
            {"kube_pod": "own", "kube_namespace": "team", "pod": "exporter", "namespace": "gpu"},
            "own",
        ),
    ],
    ids=["general", "configured", "the exporter's own"],
)
async def test_labels_of_an_exporter_stand_above_those_that_prometheus_renames(
    session: aiohttp.ClientSession, vendor: Vendor, labels: dict[str, str], expected: str
) -> None:
    async with serving(vector(({**BEHIND, **labels}, "5"))) as url:
        reading = await read(session, f"prometheus+{url}?query=q", (vendor,))
    assert pods(reading) == [(expected, 5.0)]


UNNAMED = vector(({"pod": "a", "namespace": "team"}, "0.5"))


async def test_series_without_a_name_belong_to_the_only_metric(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(UNNAMED) as url:
        assert pods(await read(session, f"prometheus+{url}?query=q")) == [("a", 0.5)]


async def test_series_without_a_name_belong_to_the_metric_that_the_url_names(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(UNNAMED) as url:
        source = f"prometheus+{url}?query=q&metric=DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        assert pods(await read(session, source, (AMD, NVIDIA))) == [("a", 50.0)]


async def test_series_without_a_name_are_refused_where_the_scale_would_be_a_guess(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(UNNAMED) as url:
        reading = await read(session, f"prometheus+{url}?query=q", (AMD, NVIDIA))
        unknown = await read(session, f"prometheus+{url}?query=q&metric=busy")
    assert (reading.failure, unknown.failure) == (Failure.MALFORMED, Failure.MALFORMED)
    assert "&metric=NAME" in reading.detail
    assert "gpu_gfx_activity" in unknown.detail


NO_NUMBER = (
    '{"status":"success","data":{"resultType":"vector",'
    '"result":[{"metric":{"pod":"a","namespace":"b"},"value":[1,"x"]}]}}'
)


NESTED = NO_NUMBER.replace('"a"', "[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"status":"error","error":"parse error"}', "parse error"),
        ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "gives a matrix"),
        ('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "a scalar"),
        ('{"status":"success","data":{"resultType":"vector","result":[7]}}', "not an answer"),
        (
            NO_NUMBER,
            "'x' is not a number",
        ),
        ("<html>", "not an answer"),
        ("", "not an answer"),
        pytest.param(NESTED, "not an answer", id="nested deeply"),
    ],
)
async def test_an_answer_that_is_no_instant_vector_is_malformed(
    session: aiohttp.ClientSession, body: str, detail: str
) -> None:
    async with serving(text(body)) as url:
        reading = await read(session, f"prometheus+{url}?query=q")
    assert reading.failure == Failure.MALFORMED
    assert detail in reading.detail


def test_user_and_password_are_never_shown() -> None:
    for url in ("http://me:secret@host/m", "prometheus+https://me:secret@host?query=q"):
        source = metric_source(url)
        assert "secret" in source.url
        (target,) = targets_of(source, NoServices())
        assert isinstance(target, Target)
        assert "secret" not in target.shown
        assert "secret" not in source.shown


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/metrics",
        "host:5000/metrics",
        "http:///metrics",
        "service://gpu",
        "service://gpu/exporter",
        "service:///exporter:5000/metrics",
        "prometheus+http://host",
        "prometheus+http://host?metric=a",
        "prometheus+http://?query=a",
        "http://[::1/metrics",
    ],
)
def test_another_url_is_refused_with_the_accepted_forms(url: str) -> None:
    with pytest.raises(UsageError, match="accepted: http"):
        metric_source(url)


async def test_a_thousand_endpoints_do_not_run_into_the_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with open_session():
            raised, kept = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert (raised > 256 or hard <= 256, kept) == (True, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

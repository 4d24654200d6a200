"""Where utilisation comes from: one URL of `GPU_PREEMPTION_METRICS_ENDPOINT` -> readings.

Three kinds of source: a URL that serves an exposition (`http`, `https`, used as it is), all ready
addresses of a Service (`service://NAMESPACE/NAME:PORT/PATH`, PORT being the number that the pods
listen on or the name of a port of the EndpointSlice), and an instant query to a Prometheus server
(`prometheus+http(s)://HOST?query=QUERY`). A reading is either complete or a failure with its class:
nothing of a body that breaks off, is too large or malformed is ever used, and a failing endpoint
does not affect the others. Bodies are read in pieces, so memory grows with the samples only, of
which one endpoint and all endpoints of one poll together may send so many; too much is silence.
Redirects are not followed: an endpoint must not choose what the operator requests next.

Source: specification of the idle plane, section 10; requests time out after 5 s there as here.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import aiohttp

from kubeworld.units.clock import Clock
from reprieve import __version__
from reprieve.engine.idle.vendors import Vendor
from reprieve.intake.exposition import Exposition, ExpositionParser, MalformedExposition
from reprieve.planes.idle.measures.prometheus_answer import VectorParser
from reprieve.units.errors import UsageError

__all__ = [
    "Failure",
    "MetricReader",
    "MetricSource",
    "Reading",
    "ReadyAddress",
    "ServiceAddresses",
    "StandInReader",
    "Target",
    "metric_source",
    "open_session",
    "targets_of",
]

TIMEOUT_SECONDS: Final = 5.0
# One collector in front of 10,000 GPUs sends about 100 MiB, some 20,000 samples among them.
MAXIMUM_BODY_BYTES: Final = 128 << 20
# A sample needs less than a KiB; the chart's limit of memory is 512 MiB.
MAXIMUM_SAMPLES: Final = 50_000
MAXIMUM_SAMPLES_AT_ONCE: Final = 100_000
# Bodies of so many endpoints are in flight at once; each holds up to two read buffers.
CONCURRENT_READS: Final = 64
READ_BUFFER_BYTES: Final = 1 << 16
# An endpoint that has not finished by then no longer keeps others waiting for its turn.
TURN_SECONDS: Final = 0.25
_SHOWN_BODY: Final = 300
OPEN_FILES: Final = 65_536

_HEADERS: Final = {
    "User-Agent": f"reprieve/{__version__}",
    # Plain text costs less CPU than the bytes that compression saves within a cluster.
    "Accept-Encoding": "identity;q=1, gzip;q=0.5",
}
_EXPOSITION: Final = "text/plain;version=0.0.4;q=1, text/plain;q=0.9, */*;q=0.1"


class Failure(StrEnum):
    """Why an endpoint gave no reading."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    HTTP_STATUS = "http-status"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    TOO_MANY = "too-many-samples"
    NO_ADDRESS = "no-address"  # the Service has no ready address, or no port of that name


@dataclass(frozen=True, slots=True)
class ReadyAddress:
    """A ready address of an EndpointSlice and the slice's ports by name ("" for the only one)."""

    address: str
    ports: Mapping[str, int]


class ServiceAddresses(Protocol):
    """What is known of Services; wired to the cache of EndpointSlices."""

    def addresses(self, namespace: str, name: str) -> Sequence[ReadyAddress]:
        """Return the ready addresses behind a Service; none when it is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class MetricSource:
    """One configured URL, split into its parts.

    `shown`: the URL without user and password. `url`: what is fetched; for a Service the path.
    `service`: namespace, name and port (number or name). `query`: parameters of the instant query.
    `metric`: for series without a name, the metric whose scale and vendor they have.
    """

    shown: str
    url: str
    service: tuple[str, str, str] | None = None
    query: tuple[tuple[str, str], ...] | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fetch for a source; `url` is None when the source leads nowhere now."""

    source: MetricSource
    shown: str
    url: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one target gave; `exposition` is None when it failed. `duration` in nanoseconds."""

    target: Target
    exposition: Exposition | None
    failure: Failure | None = None
    detail: str = ""
    duration: int = 0
    size: int = 0  # bytes of the body, unpacked


def metric_source(url: str) -> MetricSource:
    """Split one URL of `GPU_PREEMPTION_METRICS_ENDPOINT` into its parts.

    Raises:
        UsageError: not one of the three kinds.
    """
    try:
        parts = urlsplit(url)
        shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if parts.scheme == "service":
            name, colon, port = parts.path.removeprefix("/").partition("/")[0].partition(":")
            path = "/" + parts.path.removeprefix("/").partition("/")[2]
            if parts.netloc and name and colon and port:
                path = "/metrics" if path == "/" else path
                query = f"?{parts.query}" if parts.query else ""
                return MetricSource(shown, path + query, service=(parts.netloc, name, port))
        elif parts.scheme in ("prometheus+http", "prometheus+https") and parts.hostname:
            return _prometheus(url, shown)
        elif parts.scheme in ("http", "https") and parts.hostname:
            return MetricSource(shown, url)
    except ValueError:
        shown = url
    raise UsageError(
        f"metrics endpoint {shown!r}; accepted: http(s)://HOST[:PORT]/PATH, "
        "service://NAMESPACE/NAME:PORT/PATH, prometheus+http(s)://HOST[:PORT]?query=QUERY"
    )


def _prometheus(url: str, shown: str) -> MetricSource:
    parts = urlsplit(url.removeprefix("prometheus+"))
    parameters = parse_qsl(parts.query)
    query = tuple((key, value) for key, value in parameters if key != "metric")
    if not any(key == "query" for key, _ in query):
        raise ValueError
    path = parts.path.rstrip("/")
    if not path.endswith("/api/v1/query"):
        path += "/api/v1/query"
    return MetricSource(
        shown,
        urlunsplit((parts.scheme, parts.netloc, path, "", "")),
        query=query,
        metric=dict(parameters).get("metric"),
    )


def targets_of(source: MetricSource, services: ServiceAddresses) -> list[Target]:
    """Return what has to be fetched for `source` now; a single one without URL for no address."""
    if source.service is None:
        return [Target(source, source.shown, source.url)]
    namespace, name, port = source.service
    urls: dict[str, None] = {}
    for ready in services.addresses(namespace, name):
        number = int(port) if port.isdecimal() else ready.ports.get(port)
        if number is not None:
            host = f"[{ready.address}]" if ":" in ready.address else ready.address
            urls[f"http://{host}:{number}{source.url}"] = None
    return [Target(source, url, url) for url in urls] or [Target(source, source.shown, None)]


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Give the session that a `MetricReader` needs: connections stay open between polls.

    Each endpoint keeps one, so the process's limit of open files is raised as far as it may be.
    """
    _raise_open_files()
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=75.0, ttl_dns_cache=30)
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        read_bufsize=READ_BUFFER_BYTES,
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
    ) as session:
        yield session


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems allow less than they state; then the limit stays as it is.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class StandInReader:
    """Gives every target what something else knows; nothing is fetched."""

    def __init__(self, measured: Callable[[], Exposition]) -> None:
        self._measured = measured

    async def read(self, target: Target) -> Reading:
        """Return what is known now."""
        return Reading(target, self._measured())


class MetricReader:
    """Reads targets, so many at a time.

    A slot is held for at most a quarter of a second: endpoints that hang cost the others no more
    than that, while bodies of healthy ones never pile up in memory.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        vendors: Sequence[Vendor],
        clock: Clock,
        maximum_body_bytes: int = MAXIMUM_BODY_BYTES,
        maximum_samples: int = MAXIMUM_SAMPLES,
        maximum_samples_at_once: int = MAXIMUM_SAMPLES_AT_ONCE,
        concurrent_reads: int = CONCURRENT_READS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._session = session
        self._vendors = vendors
        self._clock = clock
        self._maximum_body_bytes = maximum_body_bytes
        self._maximum_samples = maximum_samples
        self._maximum_samples_at_once = maximum_samples_at_once
        # Of the reads that overlap, which are those of one poll: how many, and their samples.
        self._reads = 0
        self._held = 0
        self._slots = asyncio.Semaphore(concurrent_reads)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._timeout_seconds = timeout_seconds

    async def read(self, target: Target) -> Reading:
        """Fetch one target; every way to fail ends in the reading, never in an exception."""
        if target.url is None:
            detail = "the Service has no ready address with this port"
            return Reading(target, None, Failure.NO_ADDRESS, detail)
        self._held = self._held if self._reads else 0
        self._reads += 1
        try:
            return await self._read(target, target.url)
        finally:
            self._reads -= 1

    async def _read(self, target: Target, url: str) -> Reading:
        async with _turn(self._slots):
            started = self._clock.monotonic()
            size = 0
            exposition: Exposition | None = None
            failure: Failure | None = None
            detail = ""
            try:
                exposition, size = await self._fetch(target.source, url)
            except _Failed as error:
                failure, detail = error.failure, error.detail
            except MalformedExposition as error:
                failure, detail = Failure.MALFORMED, str(error)
            except TimeoutError:
                detail = f"no complete answer within {self._timeout_seconds:g} s"
                failure = Failure.TIMEOUT
            except (aiohttp.ClientError, OSError, ValueError) as error:
                failure, detail = Failure.UNREACHABLE, _one_line(error)
            duration = self._clock.monotonic() - started
        return Reading(target, exposition, failure, detail, duration, size)

    async def _fetch(self, source: MetricSource, url: str) -> tuple[Exposition, int]:
        parser: ExpositionParser | VectorParser
        if source.query is None:
            parser = ExpositionParser(self._vendors)
            accept = _EXPOSITION
        else:
            parser = VectorParser(self._vendors, source.metric)
            accept = "application/json"
        size = counted = 0
        async with self._session.get(
            url,
            params=source.query,
            headers={"Accept": accept},
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            if not 200 <= response.status < 300:
                raise _Failed(Failure.HTTP_STATUS, await _status_text(response))
            async for piece in response.content.iter_any():
                size += len(piece)
                if size > self._maximum_body_bytes:
                    detail = f"the body is larger than {self._maximum_body_bytes >> 20} MiB"
                    raise _Failed(Failure.TOO_LARGE, detail)
                parser.feed(piece)
                self._held += parser.held - counted
                counted = parser.held
                self._check_samples(counted)
        return parser.finish(), size

    def _check_samples(self, counted: int) -> None:
        if counted > self._maximum_samples:
            limit, whose = self._maximum_samples, "of this endpoint"
        elif self._held > self._maximum_samples_at_once:
            limit, whose = self._maximum_samples_at_once, "of all endpoints together"
        else:
            return
        self._held -= counted
        raise _Failed(Failure.TOO_MANY, f"more than {limit:,} samples {whose}; none is used")


async def _status_text(response: aiohttp.ClientResponse) -> str:
    if 300 <= response.status < 400:
        where = response.headers.get("Location", "")[:_SHOWN_BODY]
        return f"HTTP status {response.status}: redirects are not followed, to {where!r}"
    start = (await response.content.read(_SHOWN_BODY)).decode(errors="replace")
    return f"HTTP status {response.status}: {' '.join(start.split())}".rstrip(": ")


class _Failed(Exception):
    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure, self.detail = failure, detail


@asynccontextmanager
async def _turn(slots: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a slot until the end of the block or of the turn, whichever comes first."""
    await slots.acquire()
    held = True

    def give_up() -> None:
        nonlocal held
        if held:
            held = False
            slots.release()

    # Real time, not the injected clock's: like the timeout of the request it bounds real sockets.
    timer = asyncio.get_running_loop().call_later(TURN_SECONDS, give_up)
    try:
        yield
    finally:
        timer.cancel()
        give_up()


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__

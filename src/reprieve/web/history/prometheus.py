"""The past of teams from a Prometheus that scrapes `series`, in place of the samples kept here.

The last hour is queried each minute, the last day every ten minutes, the last week every hour, each
by three range queries: what viewers do changes nothing of that. An answer is bounded in time, bytes
and teams. Where none comes, `fault` states why and the samples that are kept here are shown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import read_float
from reprieve.units.errors import UsageError
from reprieve.web.history.model import Sample, Sums, Team, bounded
from reprieve.web.history.series import DEVICES, LABELS, LOST, PREEMPTED, STATES

__all__ = ["MOST_BYTES", "Prometheus"]

#: How far each query reaches back, and its step, which is how often it is made.
_REACH: Final = ((HOUR, MINUTE), (24 * HOUR, 10 * MINUTE), (7 * 24 * HOUR, HOUR))
_TIMEOUT_S: Final = 10.0
MOST_BYTES: Final = 16 * 2**20
_BY: Final = ", ".join(LABELS)


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Matrix | None = None
    error: str = ""


class _Failed(Exception):
    """The query has no usable answer; the text states why."""


@dataclass(frozen=True, slots=True)
class _Known:
    at: Nanos
    samples: list[Sample]


class Prometheus:
    """Answers of one server.

    Args:
        url: of its API, with or without a path before `/api/v1`.
        token: file with a bearer token, read for each query.
        clock: whose time is queried.

    Raises:
        UsageError: the address cannot be used.
    """

    def __init__(self, url: str, token: Path | None, clock: Clock) -> None:
        parts = urlsplit(url)
        self.shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"--prometheus {self.shown}: accepted: http(s)://HOST[:PORT][/PATH]")
        self.fault = ""
        self._url = f"{url.rstrip('/')}/api/v1/query_range"
        self._token = token
        self._clock = clock
        self._known: dict[int, _Known] = {}

    @property
    def answers(self) -> bool:
        """Whether its last answer could be used."""
        return bool(self._known) and not self.fault

    def between(self, start: Nanos, end: Nanos) -> Iterator[Sample]:
        """Yield the sums of a time, the oldest first, by the finest query that reaches it."""
        reaches = [reach for reach, _ in _REACH if reach in self._known]
        reach = next((each for each in reaches if each >= end - start), max(reaches, default=0))
        for sample in self._known[reach].samples if reach else ():
            if start < sample.at <= end:
                yield sample

    async def keep_asking(self) -> None:
        """Query each range when it is due, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            while True:
                await self.query_due(session)
                await self._clock.sleep(MINUTE)

    async def query_due(self, session: aiohttp.ClientSession) -> None:
        """Query the ranges whose last answer is older than a step; note why one has no answer."""
        now = self._clock.wall()
        try:
            for reach, step in _REACH:
                known = self._known.get(reach)
                if known is None or now - known.at >= step:
                    self._known[reach] = _Known(now, await self._samples(session, reach, step, now))
        except (_Failed, aiohttp.ClientError, TimeoutError, OSError) as failure:
            why = str(failure) or "no answer in time"
            self.fault = f"Prometheus at {self.shown} gave no history: {why}"
        else:
            self.fault = ""

    async def _samples(
        self, session: aiohttp.ClientSession, reach: int, step: int, now: Nanos
    ) -> list[Sample]:
        end = now // step * step
        span = (end - reach, end, step)
        window = f"{step // SECOND}s"
        gauges = f"max by ({_BY}, state) (avg_over_time({DEVICES}[{window}]))"
        devices, preempted, lost = await asyncio.gather(
            self._matrix(session, gauges, span),
            self._matrix(session, f"max by ({_BY}) ({PREEMPTED}_total)", span),
            self._matrix(session, f"max by ({_BY}) ({LOST}_total)", span),
        )
        found: dict[int, dict[Team, list[float]]] = {}
        for series in devices:
            state = series.metric.get("state", "")
            if state in STATES:
                for at, amount in _values(series):
                    found.setdefault(at, {}).setdefault(_team(series.metric), [0.0] * 5)[
                        STATES.index(state)
                    ] = amount
        for index, counters in ((3, preempted), (4, lost)):
            for series in counters:
                for at, amount in _increases(series, end - reach):
                    if at in found:
                        sums = found[at].setdefault(_team(series.metric), [0.0] * 5)
                        sums[index] = round(amount)
        # A point at the begin of the range is of the time before it.
        return [_sample(at, step, found[at]) for at in sorted(found) if at > end - reach]

    async def _matrix(
        self, session: aiohttp.ClientSession, query: str, span: tuple[int, int, int]
    ) -> list[_Series]:
        start, end, step = (each // SECOND for each in span)
        asked = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        async with session.post(
            self._url, data=asked, headers=self._headers(), allow_redirects=False
        ) as answer:
            body = await answer.content.read(MOST_BYTES + 1)
            while len(body) <= MOST_BYTES and not answer.content.at_eof():
                body += await answer.content.read(MOST_BYTES + 1 - len(body))
        if len(body) > MOST_BYTES:
            raise _Failed(f"its answer exceeds {MOST_BYTES >> 20} MiB")
        try:
            found = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _Failed(f"HTTP {answer.status}, which is no answer of its API") from None
        if answer.status != 200 or found.status != "success" or found.data is None:
            raise _Failed(f"HTTP {answer.status}: {found.error[:200] or found.status}")
        return [each for each in found.data.result if _is_of_team(each.metric)]

    def _headers(self) -> Mapping[str, str]:
        if self._token is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self._token.read_text(encoding='utf-8').strip()}"}
        except (OSError, UnicodeDecodeError):
            raise _Failed(f"the token in {self._token} cannot be read") from None


def _sample(at: int, step: int, teams: Mapping[Team, list[float]]) -> Sample:
    rows = [
        (team, Sums(found[0], found[1], found[2], int(found[3]), int(found[4])))
        for team, found in teams.items()
    ]
    return Sample(at, step, bounded(rows))


def _is_of_team(labels: Mapping[str, str]) -> bool:
    return bool(labels.get("resource") and labels.get("team"))


def _team(labels: Mapping[str, str]) -> Team:
    return Team(*(labels.get(name, "") for name in LABELS))


def _values(series: _Series) -> Iterable[tuple[int, float]]:
    """Yield instants in nanoseconds with amounts; what is no amount is left out."""
    for at, text in series.values:
        try:
            amount = read_float(text)
        except ValueError:
            continue
        if math.isfinite(amount) and amount >= 0 and math.isfinite(at):
            yield round(at) * SECOND, amount


def _increases(series: _Series, begun: int) -> Iterable[tuple[int, float]]:
    """Yield by how much a counter grew until each instant; one that fell began at 0 again.

    What a counter had at the begin of the range is not of the range; one that appears later counts
    from 0.
    """
    before = 0.0
    for at, amount in _values(series):
        if at > begun:
            yield at, amount - before if amount >= before else amount
        before = amount

"""An answer of Prometheus' instant query API -> utilisation samples.

Series are read as lines of an exposition are: the family gives vendor and scale, the first label
that is not empty gives namespace, pod and GPU. A server that scrapes without `honorLabels` renames
the exporter's labels; in which order they are read is in `engine.idle.vendors`. Functions such as
`max_over_time` drop the family's name; such series belong to the first metric where all in use are
of one vendor and scale, or to the one that the source names.

The instant of a series is that of the query: an answer that a proxy has stored is an old one, like
a line with a time of its own. Each series is read as soon as it is complete and then dropped, so
that no more than one of them is held; what stands around them is small. Any user whose targets the
server scrapes can publish series about other people's pods, which is why a query should name the
exporters' `job` or `namespace`.
Source: Prometheus HTTP API, instant queries; idle signals, 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from reprieve.engine.idle.vendors import Vendor
from reprieve.intake.exposition import (
    Exposition,
    InvalidSample,
    MalformedExposition,
    Sample,
    read_value,
    without_less_preferred,
)

__all__ = ["VectorParser"]

#: The most bytes of one series, or of all that is no series; both are held as a whole.
MAXIMUM_PART_BYTES: Final = 1 << 20

#: Seconds of an instant that nanoseconds can state in 64 bits.
_FARTHEST_S: Final = 9e9

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = rb"[^{}\[\]\"]++|" + _TEXT


def _nested(depth: int) -> bytes:
    """Return an expression for what stands between two brackets, so many levels deep."""
    if not depth:
        return b"(?:" + _FLAT + b")*+"
    inner = _nested(depth - 1)
    return b"(?:" + _FLAT + rb"|\{" + inner + rb"\}|\[" + inner + rb"\])*+"


# Native histograms, which are skipped, are the deepest: an object with a list of buckets.
_SERIES: Final = re.compile(rb"[\s,]*+(\{" + _nested(4) + rb"\})", re.DOTALL)
_RESULT: Final = re.compile(rb'"result"\s*+:\s*+\[')
_BETWEEN: Final = re.compile(rb"[\s,]*+")


class _Series(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None  # instant and number; None for native histograms


class _Data(msgspec.Struct, gc=False, rename="camel"):
    result_type: str
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, gc=False):
    status: str
    data: _Data | None = None
    error: str = ""


# The decoder recurses, and its input may be nested more deeply than Python allows.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class VectorParser:
    """Reads one answer that comes in pieces, in the manner of `ExpositionParser`.

    `metric`: the metric that series without a name, or with another one (a recording rule), have.
    """

    def __init__(self, vendors: Sequence[Vendor], metric: str | None = None) -> None:
        self._vendors = vendors
        self._families = {m.name: (vendor, m) for vendor in self._vendors for m in vendor.metrics}
        self._metric = metric
        # The answer without its series; complete up to the bracket before them once they begin.
        self._around = bytearray()
        self._begun = False
        # The beginning of a series that is not complete yet; None before and after the series.
        self._series: bytes | None = None
        self._samples: list[Sample] = []
        self._invalid: list[InvalidSample] = []
        self._unassigned = 0

    @property
    def held(self) -> int:
        """The number of samples that were read so far."""
        return len(self._samples) + len(self._invalid)

    @property
    def held_bytes(self) -> int:
        """The bytes that wait for what comes next, and those around the series."""
        return len(self._around) + len(self._series or b"")

    def feed(self, piece: bytes) -> None:
        """Read the complete series of what came so far.

        Raises:
            MalformedExposition: a series is none, or longer than 1 MiB; or it has no name where
                several metrics are in use.
        """
        if self._series is not None:
            self._read(self._series + piece)
            return
        self._around += piece
        found = None if self._begun else _RESULT.search(self._around)
        if found is not None:
            self._begun = True
            rest = bytes(self._around[found.end() :])
            del self._around[found.end() :]
            self._read(rest)
        elif len(self._around) > MAXIMUM_PART_BYTES:
            raise MalformedExposition("not an answer of the Prometheus query API: too long")

    def finish(self) -> Exposition:
        """Return the samples of the answer.

        Raises:
            MalformedExposition: not a successful answer with an instant vector.
        """
        self._around += self._series or b""
        try:
            answer = msgspec.json.decode(self._around, type=_Answer)
        except _UNREADABLE as error:
            raise _no_answer(error) from None
        if answer.status != "success" or answer.data is None:
            raise MalformedExposition(f"the query failed: {answer.error or answer.status}")
        if answer.data.result_type != "vector":
            raise MalformedExposition(
                f"the query gives a {answer.data.result_type}; accepted: an instant vector"
            )
        if bytes(answer.data.result).strip(b"[] \t\r\n,"):
            raise _no_answer("a series is not an object")
        samples = without_less_preferred(self._samples, self._vendors)
        return Exposition(samples, self._invalid, self._unassigned)

    def _read(self, text: bytes) -> None:
        position = 0
        while found := _SERIES.match(text, position):
            self._consume(found[1])
            position = found.end()
        after = _BETWEEN.match(text, position)
        position = after.end() if after else position
        rest = text[position:]
        if rest and not rest.startswith(b"{"):
            self._around += rest
            self._series = None
        elif len(rest) > MAXIMUM_PART_BYTES:
            raise _no_answer("a series is longer than 1 MiB")
        else:
            self._series = rest

    def _consume(self, text: bytes) -> None:
        try:
            series = msgspec.json.decode(text, type=_Series)
        except _UNREADABLE as error:
            raise _no_answer(error) from None
        family = self._families.get(self._name_of(series))
        if family is None or series.value is None:
            return
        vendor, metric = family
        outcome = read_value(
            vendor,
            metric.name,
            metric.scale,
            series.metric,
            _number(series.value[1]),
            _milliseconds(series.value[0]),
        )
        if outcome is None:
            self._unassigned += 1
        elif isinstance(outcome, Sample):
            self._samples.append(outcome)
        else:
            self._invalid.append(outcome)

    def _name_of(self, series: _Series) -> str:
        name = series.metric.get("__name__")
        if name in self._families or (name is not None and self._metric is None):
            return name
        if self._metric in self._families:
            return self._metric
        alike = {(vendor.name, metric.scale) for vendor, metric in self._families.values()}
        if self._metric is None and len(alike) == 1:
            return next(iter(self._families))
        raise MalformedExposition(
            f"the query gives a series named {name!r}; accepted: a query that keeps the metric's "
            f"name, or &metric=NAME in the URL, one of {', '.join(self._families)}"
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MalformedExposition(f"{text[:40]!r} is not a number of the query API") from None


def _milliseconds(instant: float) -> int:
    if not abs(instant) < _FARTHEST_S:
        raise MalformedExposition(f"{instant!r} is not an instant of the query API")
    return round(instant * 1_000)


def _no_answer(why: object) -> MalformedExposition:
    return MalformedExposition(f"not an answer of the Prometheus query API: {why}")

"""An answer of Prometheus' instant query API -> utilisation samples.

Series are read as lines of an exposition are: the family gives vendor and scale, the first label
that is not empty gives namespace, pod and GPU. A server that scrapes without `honorLabels` renames
the exporter's labels, so `exported_namespace` and `exported_pod` come before all others. Functions
such as `max_over_time` drop the family's name; such series belong to the one metric in use, or to
the one that the source names. Source: Prometheus HTTP API, instant queries; idle signals, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


class VectorParser:
    """Reads one answer that comes in pieces, in the manner of `ExpositionParser`.

    `metric`: the metric that series without a name, or with another one (a recording rule), have.
    """

    def __init__(self, vendors: Sequence[Vendor], metric: str | None = None) -> None:
        self._vendors = [_behind_prometheus(vendor) for vendor in vendors]
        self._families = {m.name: (vendor, m) for vendor in self._vendors for m in vendor.metrics}
        self._metric = metric
        self._body = bytearray()

    def feed(self, piece: bytes) -> None:
        self._body += piece

    def finish(self) -> Exposition:
        """Return what the answer says.

        Raises:
            MalformedExposition: not a successful answer with an instant vector, or a series
                without name where several metrics are in use.
        """
        samples: list[Sample] = []
        invalid: list[InvalidSample] = []
        unassigned = 0
        for series in self._vector():
            family = self._families.get(self._name_of(series))
            if family is None or series.value is None:
                continue
            vendor, metric = family
            outcome = read_value(
                vendor, metric.name, metric.scale, series.metric, _number(series.value[1])
            )
            if outcome is None:
                unassigned += 1
            elif isinstance(outcome, Sample):
                samples.append(outcome)
            else:
                invalid.append(outcome)
        return Exposition(without_less_preferred(samples, self._vendors), invalid, unassigned)

    def _name_of(self, series: _Series) -> str:
        name = series.metric.get("__name__")
        if name in self._families or (name is not None and self._metric is None):
            return name
        if self._metric in self._families:
            return self._metric
        if self._metric is None and len(self._families) == 1:
            return next(iter(self._families))
        raise MalformedExposition(
            f"the query gives a series named {name!r}; accepted: a query that keeps the metric's "
            f"name, or &metric=NAME in the URL, one of {', '.join(self._families)}"
        )

    def _vector(self) -> list[_Series]:
        try:
            answer = msgspec.json.decode(self._body, type=_Answer)
            if answer.status != "success" or answer.data is None:
                raise MalformedExposition(f"the query failed: {answer.error or answer.status}")
            if answer.data.result_type != "vector":
                raise MalformedExposition(
                    f"the query gives a {answer.data.result_type}; accepted: an instant vector"
                )
            return msgspec.json.decode(answer.data.result, type=list[_Series])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedExposition(
                f"not an answer of the Prometheus query API: {error}"
            ) from None


def _behind_prometheus(vendor: Vendor) -> Vendor:
    return replace(
        vendor,
        namespace_labels=("exported_namespace", *vendor.namespace_labels),
        pod_labels=("exported_pod", *vendor.pod_labels),
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MalformedExposition(f"{text!r} is not a number of the query API") from None

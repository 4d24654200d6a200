"""Metrics with many series: a number for each, where the client library has several objects.

With a thousand queues there are a hundred thousand series, and what the library keeps of one, with
a lock of its own, needs more memory than the queue. These are updated, read and forgotten on the
event loop alone. They claim no names: the reference has counters and gauges of the same name.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["Counters", "Gauges", "Histograms"]

Labels = tuple[str, ...]
_INFINITE: Final = "+Inf"


class Counters(Collector):
    """A counter; `labels` name those of each series, `fixed` come after them in all."""

    def __init__(self, name: str, text: str, labels: Labels, fixed: Mapping[str, str]) -> None:
        self.labels = labels
        self._said = (name, text)
        self._fixed = fixed
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, by: float = 1) -> None:
        """Count."""
        self._values[labels] = self._values.get(labels, 0) + by

    def __iter__(self) -> Iterator[Labels]:
        return iter(list(self._values))

    def remove(self, labels: Labels) -> None:
        """Remove a series."""
        self._values.pop(labels, None)

    def collect(self) -> Iterable[Metric]:
        """Return all series, for the registry."""
        family = CounterMetricFamily(*self._said, labels=(*self.labels, *self._fixed))
        for labels, value in self._values.items():
            family.add_metric((*labels, *self._fixed.values()), value)
        return [family]


class Gauges(Collector):
    """A gauge; arguments as of `Counters`."""

    def __init__(self, name: str, text: str, labels: Labels, fixed: Mapping[str, str]) -> None:
        self._said = (name, text)
        self._labels = labels
        self._fixed = fixed
        self._values: dict[Labels, float] = {}

    def set(self, labels: Labels, value: float) -> None:
        """Show a value."""
        self._values[labels] = value

    def remove(self, labels: Labels) -> None:
        """Remove a series."""
        self._values.pop(labels, None)

    def collect(self) -> Iterable[Metric]:
        """Return all series, for the registry."""
        family = GaugeMetricFamily(*self._said, labels=(*self._labels, *self._fixed))
        for labels, value in self._values.items():
            family.add_metric((*labels, *self._fixed.values()), value)
        return [family]


class Histograms(Collector):
    """A histogram; `bounds` are the upper ends of its buckets without the infinite one."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Labels,
        fixed: Mapping[str, str],
        bounds: Sequence[float],
    ) -> None:
        self.labels = labels
        self._said = (name, text)
        self._fixed = fixed
        self._bounds = tuple(bounds)
        # How many observations are in each bucket, and their sum.
        self._counts: dict[Labels, array[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Count an observation."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = array("Q", bytes(8 * (len(self._bounds) + 1)))
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def __iter__(self) -> Iterator[Labels]:
        return iter(list(self._counts))

    def remove(self, labels: Labels) -> None:
        """Remove a series."""
        self._counts.pop(labels, None)
        self._sums.pop(labels, None)

    def collect(self) -> Iterable[Metric]:
        """Return all series, for the registry."""
        family = HistogramMetricFamily(*self._said, labels=(*self.labels, *self._fixed))
        # The client has no types for it.
        ends = [floatToGoString(each) for each in self._bounds]  # type: ignore[no-untyped-call]
        for labels, counts in self._counts.items():
            total, buckets = 0, []
            for end, count in zip((*ends, _INFINITE), counts, strict=True):
                total += count
                buckets.append((end, float(total)))
            values = (*labels, *self._fixed.values())
            family.add_metric(values, buckets=buckets, sum_value=self._sums[labels])
        return [family]

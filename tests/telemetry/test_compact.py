"""Compact metrics say what those of the client library say."""

from __future__ import annotations

from random import Random

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from reprieve.telemetry.compact import Counters, Gauges, Histograms

BOUNDS = (0.5, 1.0, 2.5, 10.0)
ROLE = {"role": "leader"}
NAMES = ("queue", "role")


def lines(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode()
    return sorted(line for line in text.splitlines() if "_created" not in line)


def test_the_exposition_is_that_of_the_client_library() -> None:
    ours, theirs, random = CollectorRegistry(), CollectorRegistry(), Random(1)
    counters = Counters("c", "Counted.", ("queue",), ROLE)
    gauges = Gauges("g", "Shown.", ("queue",), ROLE)
    histograms = Histograms("h", "Observed.", ("queue",), ROLE, BOUNDS)
    for each in (counters, gauges, histograms):
        ours.register(each)
    counter = Counter("c", "Counted.", NAMES, registry=theirs)
    gauge = Gauge("g", "Shown.", NAMES, registry=theirs)
    histogram = Histogram("h", "Observed.", NAMES, buckets=BOUNDS, registry=theirs)
    for _ in range(200):
        queue, value = random.choice("abc"), random.choice((*BOUNDS, 0.0, 0.7, 99.5))
        counters.add((queue,), value)
        counter.labels(queue, "leader").inc(value)
        gauges.set((queue,), value)
        gauge.labels(queue, "leader").set(value)
        histograms.observe((queue,), value)
        histogram.labels(queue, "leader").observe(value)
    assert lines(ours) == lines(theirs)
    assert sorted(counters) == sorted(histograms) == [("a",), ("b",), ("c",)]
    for metric in (counters, gauges, histograms):
        metric.remove(("a",))
        metric.remove(("nobody",))
    for one in (counter, gauge, histogram):
        one.remove("a", "leader")
    assert lines(ours) == lines(theirs)

"""What polls and API requests leave in metrics and log."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.intake.exposition import Defect, InvalidSample
from reprieve.kube.errors import Unreachable
from reprieve.kube.transport import Answer, Request
from reprieve.operator.counted_wire import CountedWire
from reprieve.planes.idle.measures.metric_sources import Failure, Reading, Target, metric_source
from reprieve.planes.idle.measures.poll_report import PollReport
from reprieve.planes.idle.measures.scraper import Conflict, PodKey, Poll, SourceHealth
from reprieve.telemetry.metrics import Metrics

SOURCE = metric_source("http://me:secret@exporter:5000/metrics")
SHOWN = "http://exporter:5000/metrics"
BAD = {PodKey("team", "p"): [InvalidSample("team", "p", "0", Defect.NAN)]}


def poll(*failures: Failure, invalid: Mapping[PodKey, list[InvalidSample]] | None = None) -> Poll:
    target = Target(SOURCE, SHOWN, SOURCE.url)
    failed = tuple(Reading(target, None, failure, "a detail") for failure in failures)
    return Poll(
        at=Nanos(100 * SECOND),
        monotonic=Nanos(0),
        invalid=invalid or {},
        sources=(SourceHealth(SOURCE, targets=3, samples=8, failures=failed),),
        unassigned=2,
        readings=failed,
    )


def test_a_poll_is_counted_by_source_and_reason() -> None:
    metrics = Metrics()
    PollReport(metrics).report(poll(Failure.TIMEOUT, Failure.TIMEOUT, invalid=BAD))
    value = metrics.registry.get_sample_value
    of = {"source": SHOWN}
    assert value("reprieve_scrape_failures_total", of | {"reason": "timeout"}) == 2
    assert value("reprieve_scrape_targets", of | {"state": "up"}) == 1
    assert value("reprieve_scrape_targets", of | {"state": "down"}) == 2
    assert value("reprieve_samples_total", of) == 8
    assert value("reprieve_samples_dropped_total", {"reason": "NaN"}) == 1
    assert value("reprieve_samples_dropped_total", {"reason": "Unassigned"}) == 2
    assert value("reprieve_scrape_seconds_count", of) == 2
    assert value("reprieve_last_poll_timestamp_seconds") == 100


def test_a_pod_that_somebody_else_may_speak_for_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    report = PollReport(metrics)
    contradicted = replace(poll(), conflicts={PodKey("team", "p"): Conflict("3", 0.0, 97.5)})
    for each in (contradicted, contradicted, poll(), contradicted):
        report.report(each)
    told = [r.getMessage() for r in caplog.records if "higher value counts" in r.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("pod team/p: GPU 3 is reported with 0.0 % and with 97.5 %")
    value = metrics.registry.get_sample_value
    assert value("reprieve_samples_dropped_total", {"reason": "Contradicted"}) == 3


def test_only_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reprieve.scraper")
    report = PollReport(Metrics())
    for failures in (
        [Failure.TIMEOUT],
        [Failure.TIMEOUT],
        [Failure.MALFORMED],
        [],
        [],
    ):
        report.report(poll(*failures))
    assert caplog.messages == [
        f"metrics endpoint {SHOWN}: 1 of 3 targets gave no reading; {SHOWN}: timeout: a detail",
        f"metrics endpoint {SHOWN}: 1 of 3 targets gave no reading; {SHOWN}: malformed: a detail",
        f"metrics endpoint {SHOWN}: all 3 targets answer again",
    ]


def test_an_impossible_value_is_logged_once_for_as_long_as_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = PollReport(Metrics())
    for invalid in (BAD, BAD, {}, BAD):
        report.report(poll(invalid=invalid))
    assert (
        caplog.messages
        == ["a sample of pod team/p is dropped: NaN; accepted: 0 to 100 percent"] * 2
    )


@dataclass
class StatusAnswer:
    """An answer of which only the status is looked at."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    async def read(self) -> bytes:
        return b""

    async def lines(self) -> AsyncGenerator[bytes]:
        yield b""

    def close(self) -> None: ...


class Answers:
    """A wire with these statuses in turn; None is no answer."""

    def __init__(self, *statuses: int | None) -> None:
        self._statuses = iter(statuses)

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        status = next(self._statuses)
        if status is None:
            raise Unreachable("no answer in time")
        return StatusAnswer(status)

    async def close(self) -> None: ...


async def test_requests_are_counted_by_method_and_status() -> None:
    metrics = Metrics()
    wire = CountedWire(Answers(200, 409, 200, None), metrics)
    for method in ("GET", "PUT", "GET"):
        await wire.send(Request(method, "/"), False, False)
    with pytest.raises(Unreachable):
        await wire.send(Request("GET", "/"), False, False)
    count = metrics.registry.get_sample_value
    assert {
        (method, code): count("reprieve_api_requests_total", {"method": method, "code": code})
        for method, code in (("GET", "200"), ("PUT", "409"), ("GET", "none"))
    } == {("GET", "200"): 2, ("PUT", "409"): 1, ("GET", "none"): 1}

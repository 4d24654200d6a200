"""What becomes of recorded events: counted, combined, filtered, dropped, and never in the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reprieve.kube.errors import Forbidden, Unreachable
from reprieve.kube.event_correlation import COMBINED
from reprieve.kube.events import EventRecorder
from reprieve.kube.references import Reference
from reprieve.kube.resource import EVENTS
from reprieve.kube.transport import Request
from reprieve.units.clock import VirtualClock
from reprieve.units.durations import HOUR, MINUTE, SECOND
from tests.background import in_background
from tests.kube.fakes import Collection, FakeAnswer, FakeWire, client_over, refusal

JOB = Reference("batch/v1", "Job", "work", "train", "u1")


class Stage:
    def __init__(self) -> None:
        self.events = Collection(EVENTS)
        self.wire = FakeWire(self.events.handle)
        self.clock = VirtualClock()
        self.reports: list[Exception] = []
        self.recorder = EventRecorder(
            client_over(self.wire, self.clock), self.clock, queue=50, report=self.reports.append
        )

    def say(self, message: str, about: Reference = JOB, **rest: Any) -> None:
        self.recorder.event(about, "Warning", "WorkloadPreempted", message, **rest)

    async def settle(self, nanoseconds: int = 0) -> None:
        await self.clock.advance(nanoseconds, settle=200)

    @property
    def stored(self) -> list[dict[str, Any]]:
        return list(self.events.objects.values())

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.stored]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    async with in_background(made.recorder.run()):
        yield made


async def test_an_event_is_written_as_the_api_has_it(stage: Stage) -> None:
    stage.say("gone", annotations={"reprieve.dev/plan": "p1"})
    await stage.recorder.flush()
    [event] = stage.stored
    assert event["metadata"]["name"] == f"train.{stage.clock.wall():x}"
    del event["metadata"]
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "work",
            "name": "train",
            "uid": "u1",
        },
        "type": "Warning",
        "reason": "WorkloadPreempted",
        "message": "gone",
        "count": 1,
        "firstTimestamp": "2026-03-04T10:00:00Z",
        "lastTimestamp": "2026-03-04T10:00:00Z",
        "source": {"component": "reprieve"},
        "reportingComponent": "reprieve",
        "reportingInstance": "",
    }


async def test_events_about_cluster_wide_objects_go_to_default(stage: Stage) -> None:
    stage.say("odd", Reference("v1", "Node", "", "node-1", "u2"))
    await stage.recorder.flush()
    [(namespace, _)] = stage.events.objects
    assert namespace == "default"
    assert "namespace" not in stage.stored[0]["involvedObject"]


async def test_the_same_event_again_counts_in_the_same_object(stage: Stage) -> None:
    for plan in ("p1", "p2", "p3"):
        stage.say("gone", annotations={"reprieve.dev/plan": plan})
        await stage.settle(SECOND)
    [event] = stage.stored
    assert (event["count"], event["lastTimestamp"]) == (3, "2026-03-04T10:00:02Z")
    assert event["firstTimestamp"] == "2026-03-04T10:00:00Z"
    assert event["metadata"]["annotations"] == {"reprieve.dev/plan": "p3"}
    assert [request.method for request in stage.wire.requests] == ["POST", "PATCH", "PATCH"]


async def test_from_the_tenth_similar_event_on_they_are_combined(stage: Stage) -> None:
    for number in range(13):
        stage.say(f"message {number}")
    await stage.recorder.flush()
    assert stage.counts[:9] == [(f"message {number}", 1) for number in range(9)]
    assert stage.counts[9:] == [(f"{COMBINED}message 12", 4)]


async def test_similar_events_far_apart_are_not_combined(stage: Stage) -> None:
    for number in range(13):
        stage.say(f"message {number}")
        await stage.settle(11 * MINUTE)
    assert stage.counts == [(f"message {number}", 1) for number in range(13)]


async def test_a_burst_of_25_passes_then_one_every_five_minutes(stage: Stage) -> None:
    for _ in range(40):
        stage.say("again")
    await stage.recorder.flush()
    assert stage.counts == [("again", 25)]
    assert stage.recorder.dropped == 15
    stage.say("other", Reference("batch/v1", "Job", "work", "another", "u3"))
    await stage.settle(5 * MINUTE)
    assert stage.counts[1:] == [("other", 1)]
    stage.say("again")
    stage.say("again")
    await stage.recorder.flush()
    # What the filter swallowed was counted all the same.
    assert stage.counts[0] == ("again", 41)
    assert stage.recorder.dropped == 16


async def test_two_events_of_one_instant_have_two_names(stage: Stage) -> None:
    stage.say("one")
    stage.say("two")
    await stage.recorder.flush()
    assert len(stage.stored) == 2


async def test_the_name_of_an_event_is_a_valid_one_however_long_the_object_is(
    stage: Stage,
) -> None:
    stage.say("one", Reference("v1", "Pod", "work", "a" * 235 + "." + "b" * 17, "u4"))
    await stage.recorder.flush()
    name = stage.stored[0]["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name


async def test_an_expired_event_goes_on_in_a_new_object(stage: Stage) -> None:
    stage.say("gone")
    await stage.settle(HOUR)
    [(namespace, name)] = stage.events.objects
    stage.events.remove(namespace, name)
    stage.say("gone")
    await stage.settle()
    assert stage.counts == [("gone", 2)]


async def test_a_full_queue_drops_and_the_caller_notices_nothing(stage: Stage) -> None:
    for number in range(60):
        stage.say("x", Reference("v1", "Pod", "work", f"pod-{number}", f"p{number}"))
    assert stage.recorder.dropped == 10
    await stage.recorder.flush()
    assert len(stage.stored) == 50


async def test_trouble_is_retried_a_few_times_then_dropped_and_reported_once(
    stage: Stage,
) -> None:
    def refuse(request: Request) -> FakeAnswer | None:
        raise Unreachable("no route")

    stage.events.refuse = refuse
    stage.say("one")
    stage.say("two")
    await stage.settle(5 * MINUTE)
    assert len(stage.wire.requests) == 10
    assert stage.recorder.dropped == 2
    assert [str(report) for report in stage.reports] == ["no route"]
    stage.events.refuse = lambda request: None
    stage.say("three")
    await stage.settle()
    assert stage.counts == [("three", 1)]


async def test_a_namespace_that_refused_an_event_is_left_alone_for_a_minute(stage: Stage) -> None:
    denial = 'User "x" cannot create resource "events" in API group "" in the namespace "work"'
    stage.events.refuse = lambda request: refusal(403, "Forbidden", denial)
    elsewhere = Reference("batch/v1", "Job", "play", "train", "u2")
    stage.say("one")
    stage.say("two")
    await stage.settle(MINUTE - 1)
    stage.say("three")
    stage.say("elsewhere", elsewhere)
    await stage.settle()
    assert [request.path.split("/")[-2] for request in stage.wire.requests] == ["work", "play"]
    [report] = stage.reports
    assert isinstance(report, Forbidden)
    assert stage.recorder.dropped == 4
    stage.events.refuse = lambda request: None
    await stage.settle(1)
    stage.say("four")
    await stage.settle()
    assert [event["message"] for event in stage.stored] == ["four"]


async def test_a_create_whose_answer_was_lost_is_not_written_twice(stage: Stage) -> None:
    lost = []

    def refuse(request: Request) -> FakeAnswer | None:
        if not lost:
            lost.append(1)
            stage.events.refuse = lambda request: None
            stage.events.handle(request)
            stage.events.refuse = refuse
            raise Unreachable("reset")
        return None

    stage.events.refuse = refuse
    stage.say("one")
    await stage.settle(5 * SECOND)
    stage.say("one")
    await stage.settle()
    assert stage.counts == [("one", 2)]

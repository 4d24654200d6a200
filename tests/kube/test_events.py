"""Series events: notes as the API takes them, how many go when, and where none are taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.errors import ApiError, Unreachable
from reprieve.kube.recording import events
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import Resource
from reprieve.kube.transport import Request
from reprieve.kube.writes import Priority
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from tests.background import in_background
from tests.kube.fakes import Collection, FakeAnswer, FakeWire, client_over, refusal

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
WORK = Reference("kueue.x-k8s.io/v1beta2", "Workload", "work", "train", Uid("u1"))


@pytest.mark.parametrize(
    ("note", "written"),
    [
        ("short", "short"),
        ("x" * 1_024, "x" * 1_024),
        ("x" * 1_025, "x" * 1_020 + " ..."),
        ("é" * 512, "é" * 512),
        ("é" * 513, "é" * 510 + " ..."),
        ("x" + "é" * 600, "x" + "é" * 509 + " ..."),
    ],
)
async def test_a_note_is_cut_where_the_api_takes_no_more(note: str, written: str) -> None:
    clock, stored = VirtualClock(), Collection(EVENTS)
    recorder = EventRecorder(client_over(FakeWire(stored.handle), clock), clock, instance="t")
    async with in_background(recorder.run()):
        recorder.event(WORK, "Warning", "WaitingForQuota", "Waiting", note, controller="admission")
        await clock.advance(0, settle=200)
    assert [event["note"] for event in stored.objects.values()] == [written]
    assert len(written.encode()) <= 1_024


class Stage:
    """A recorder over a fake API server."""

    def __init__(self) -> None:
        self.clock, self.stored = VirtualClock(), Collection(EVENTS)
        self.wire = FakeWire(self.stored.handle)
        self.client = client_over(self.wire, self.clock)
        self.recorder = EventRecorder(self.client, self.clock, instance="t")

    def say(self, number: int, kind: str = "Normal", namespace: str = "work") -> None:
        about = Reference("v1", "Pod", namespace, f"p-{number}", Uid(f"u{number}"))
        self.recorder.event(about, kind, "Reason", "Action", f"{number}", controller="c")

    async def others(self, count: int) -> None:
        """Let so many writes go that go before events."""
        first = self.client.at(Priority.EVICT)
        for number in range(count):
            with suppress(ApiError):
                await first.delete(EVENTS, "work", f"x-{number}")

    @property
    def notes(self) -> list[str]:
        return [event["note"] for event in self.stored.objects.values()]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    async with in_background(made.recorder.run()):
        yield made


async def test_events_of_a_quiet_process_are_written_at_once(stage: Stage) -> None:
    for number in range(200):
        stage.say(number)
    await stage.clock.advance(0, settle=2_000)
    assert len(stage.notes) == 200


async def test_few_events_are_written_while_there_is_more_to_write_and_the_others_later(
    stage: Stage,
) -> None:
    for number in range(1_000):
        stage.say(number)
    await stage.clock.advance(0, settle=2_000)
    assert len(stage.notes) == 200  # the burst
    for _ in range(10):
        await stage.others(50)
        await stage.clock.advance(SECOND, settle=100)
    # 20 in each of the seconds, but for what the first one began with.
    assert 380 <= len(stage.notes) <= 480
    # Those of a quarter of a second go together, one writer's after another.
    await stage.clock.advance(10 * SECOND, settle=200)
    assert sorted(map(int, stage.notes)) == list(range(1_000))
    assert stage.recorder.dropped == 0


async def test_warnings_go_first_and_a_full_queue_drops_the_oldest_that_is_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_QUEUE", 100)
    for number in range(150):
        stage.say(number, "Warning" if number in (10, 140) else "Normal")
    assert stage.recorder.dropped == 50
    await stage.recorder.flush()
    assert stage.notes[:2] == ["10", "140"]
    assert sorted(map(int, stage.notes)) == [10, *range(51, 150)]
    for number in range(150, 260):
        stage.say(number, "Warning")
    stage.say(260)
    assert stage.recorder.dropped == 61


async def test_a_namespace_that_refused_an_event_is_left_alone_for_a_minute(stage: Stage) -> None:
    terminating = "unable to create new content in namespace work because it is being terminated"
    stage.stored.refuse = lambda request: (
        refusal(403, "Forbidden", terminating) if "/work/" in request.path else None
    )
    for number in range(2_000):
        stage.say(number)
    stage.say(2_000, namespace="play")
    await stage.recorder.flush()
    refused = [request for request in stage.wire.requests if "/work/" in request.path]
    # As many as were on their way when the first answer came.
    assert 1 <= len(refused) <= 4
    assert stage.notes == ["2000"]
    assert stage.recorder.dropped == 2_000
    stage.stored.refuse = lambda request: None
    await stage.clock.advance(MINUTE)
    stage.say(2_001)
    await stage.recorder.flush()
    assert stage.notes == ["2000", "2001"]


async def test_an_event_is_written_as_the_api_has_it(stage: Stage) -> None:
    related = Reference("v1", "Node", "", "node-1", Uid("u2"))
    stage.recorder.event(
        WORK,
        "Warning",
        "Preempted",
        "Preempting",
        "gone",
        controller="c",
        related=related,
        annotations={"reprieve.dev/plan": "p1"},
    )
    await stage.recorder.flush()
    [event] = stage.stored.objects.values()
    assert event["metadata"].pop("name") == f"train.{stage.clock.wall():x}"
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "namespace": "work",
            "annotations": {"reprieve.dev/plan": "p1"},
            **{key: event["metadata"][key] for key in ("uid", "resourceVersion")},
        },
        "eventTime": "2026-03-04T10:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "t",
        "action": "Preempting",
        "reason": "Preempted",
        "type": "Warning",
        "note": "gone",
        "regarding": {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "namespace": "work",
            "name": "train",
            "uid": "u1",
        },
        "related": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u2"},
    }


async def test_what_is_told_apart_is_one_event_for_each_note_and_plan(stage: Stage) -> None:
    for note, plan in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2")):
        stage.recorder.event(
            WORK,
            "Normal",
            "Reason",
            "Action",
            note,
            controller="c",
            annotations={"plan": plan},
            apart=True,
        )
        await stage.recorder.flush()
    told = [
        (e["note"], e["metadata"]["annotations"]["plan"], e.get("series", {}).get("count"))
        for e in stage.stored.objects.values()
    ]
    assert told == [("a", "1", 2), ("b", "1", None), ("a", "2", None)]


async def test_events_about_cluster_wide_objects_go_to_default(stage: Stage) -> None:
    stage.recorder.event(
        Reference("v1", "Node", "", "node-1", Uid("u2")), "Normal", "R", "A", "odd", controller="c"
    )
    await stage.recorder.flush()
    [(namespace, _)] = stage.stored.objects
    assert namespace == "default"


async def test_two_events_of_one_instant_have_two_valid_names(stage: Stage) -> None:
    long = Reference("v1", "Pod", "work", "a" * 235 + "." + "b" * 17, Uid("u4"))
    for reason in ("One", "Two"):
        stage.recorder.event(long, "Normal", reason, "A", "x", controller="c")
    await stage.recorder.flush()
    names = [name for _, name in stage.stored.objects]
    assert len(set(names)) == 2
    assert all(len(name) <= 253 and ".." not in name for name in names)


async def test_an_expired_event_goes_on_in_a_new_object(stage: Stage) -> None:
    stage.say(1)
    await stage.recorder.flush()
    [(namespace, name)] = stage.stored.objects
    stage.stored.remove(namespace, name)
    stage.say(1)
    await stage.recorder.flush()
    assert [e["series"]["count"] for e in stage.stored.objects.values()] == [2]


async def test_trouble_is_retried_a_few_times_then_dropped_and_reported_once() -> None:
    clock, stored, reports = VirtualClock(), Collection(EVENTS), list[Exception]()

    def unreachable(request: Request) -> FakeAnswer | None:
        raise Unreachable("no route")

    stored.refuse = unreachable
    wire = FakeWire(stored.handle)
    recorder = EventRecorder(client_over(wire, clock), clock, instance="t", report=reports.append)
    async with in_background(recorder.run()):
        for reason in ("One", "Two"):
            recorder.event(WORK, "Normal", reason, "A", "x", controller="c")
        await clock.advance(5 * MINUTE, settle=200)
        assert len(wire.requests) == 10
        assert recorder.dropped == 2
        assert [str(report) for report in reports] == ["no route"]
        stored.refuse = lambda request: None
        recorder.event(WORK, "Normal", "Three", "A", "x", controller="c")
        await clock.advance(0, settle=200)
    assert [event["reason"] for event in stored.objects.values()] == ["Three"]


async def test_a_create_whose_answer_was_lost_is_not_written_twice(stage: Stage) -> None:
    def lose_the_first(request: Request) -> FakeAnswer | None:
        stage.stored.refuse = lambda request: None
        stage.stored.handle(request)
        raise Unreachable("reset")

    stage.stored.refuse = lose_the_first
    stage.say(1)
    await stage.clock.advance(5 * SECOND, settle=200)
    stage.say(1)
    await stage.clock.advance(0, settle=200)
    assert [e["series"]["count"] for e in stage.stored.objects.values()] == [2]

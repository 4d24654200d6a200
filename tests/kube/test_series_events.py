"""Notes of series events: what the API takes of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from reprieve.kube.resource import Resource
from reprieve.kube.series_events import Reference, SeriesEvents
from reprieve.units.clock import VirtualClock
from tests.kube.fakes import Collection, FakeWire, client_over

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
WORK = Reference("kueue.x-k8s.io/v1beta2", "Workload", "work", "train", "u1")


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
    recorder = SeriesEvents(client_over(FakeWire(stored.handle), clock), clock, instance="t")
    task = asyncio.ensure_future(recorder.run())
    recorder.event(WORK, "Warning", "WaitingForQuota", "Waiting", note, controller="admission")
    await clock.advance(0, settle=200)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert [event["note"] for event in stored.objects.values()] == [written]
    assert len(written.encode()) <= 1_024

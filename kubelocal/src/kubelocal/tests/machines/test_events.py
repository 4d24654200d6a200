"""Events are counted up, and bounded in a busy cluster."""

from __future__ import annotations

import asyncio

from kubelocal.machines.events import EventLog, Recorder
from kubelocal.tests.machines.cluster import pod
from kubelocal.tests.machines.store import DictObjects
from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND


async def test_equal_events_are_one_object_and_a_flood_is_cut_off() -> None:
    clock = VirtualClock()
    store = DictObjects(clock)
    log = EventLog(store, clock)
    subject = await store.create("pods", pod("p"))
    recorder = Recorder(log, "kubelet")
    writing = asyncio.create_task(log.run())
    recorder.normal(subject, "Started", "Container started")
    recorder.normal(subject, "Started", "Container started")
    await clock.advance(SECOND, settle=20)
    [event] = [obj for key, obj in store.held.items() if key[0] == "events"]
    assert (event["reason"], event["count"]) == ("Started", 2)
    for index in range(1_500):
        recorder.warning(subject, "Flood", str(index))
    await clock.advance(SECOND, settle=5_000)
    assert len([key for key in store.held if key[0] == "events"]) == 1 + 1_000
    for index in range(150):
        recorder.warning(subject, "Later", str(index))
    await clock.advance(0, settle=1_000)
    assert len([key for key in store.held if key[0] == "events"]) == 1 + 1_000 + 100
    writing.cancel()


async def test_what_recurs_within_ten_minutes_is_counted_up_and_later_is_a_new_event() -> None:
    clock = VirtualClock()
    store = DictObjects(clock)
    log = EventLog(store, clock)
    subject = await store.create("pods", pod("p"))
    recorder = Recorder(log, "kubelet")
    writing = asyncio.create_task(log.run())
    for minutes in (0, 9, 9, 10):
        await clock.advance(minutes * MINUTE, settle=20)
        recorder.normal(subject, "Started", "Container started")
        await clock.advance(0, settle=20)
    counts = [obj["count"] for key, obj in store.held.items() if key[0] == "events"]
    assert counts == [3, 1]
    writing.cancel()

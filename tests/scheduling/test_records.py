"""Each plan is recorded with what it was decided on; that never keeps it from being carried out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.reprieve import Preemption
from reprieve.cli import explain
from reprieve.controllers.scheduling import decisions
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.telemetry.scheduling_replay import decide_scheduling_again
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod


def _full(cluster: Memory) -> None:
    cluster.nodes([4] * 6)
    for index in range(12):
        cluster.running(pod(f"low-{index}", 2, priority="low"), f"node-{index // 2}")


async def test_every_plan_is_recorded_with_what_gives_it_again() -> None:
    """Two gangs and a pod preempt within one slice: the later ones respect the earlier ones."""
    async with memory() as cluster:
        _full(cluster)
        for name in ("a", "b"):
            members = [pod(f"{name}-{n}", 4, group=name, priority="high") for n in range(2)]
            cluster.create(group(name, min_count=2, priority="high"), *members)
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 10)
        records = [msgspec.convert(intent, Preemption) for intent in cluster.intents()]
        assert sorted(len(record.spec.victims) for record in records) == [2, 4, 4]
        for record in records:
            recorded: Any = record.spec.input
            replay = decide_scheduling_again(recorded, GROUP_POST_FILTERS)
            assert replay.plan is not None
            assert replay.plan.id == record.spec.plan_id
            assert explain._differences(record.spec, replay) == ""
        held = [decide_scheduling_again(r.spec.input or {}, GROUP_POST_FILTERS) for r in records]
        assert max(len(replay.decided_on.nominations) for replay in held) >= 2


async def test_a_plan_whose_input_cannot_be_recorded_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> dict[str, Any]:
        raise ValueError("the test says no")

    monkeypatch.setattr(decisions, "encode_scheduling", broken)
    async with memory() as cluster:
        _full(cluster)
        cluster.create(pod("alone", 3, priority="high"))
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 2)
        (intent,) = cluster.intents()
        assert "input" not in intent["spec"]
        assert "the input of plan" in caplog.text
        cluster.end_all()
        await cluster.until(lambda: "alone" in cluster.placed())

"""A plan tries higher PriorityClasses also where no option has the scheduling plane watch them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.whatif.questions.answer import Verdict
from tests.scheduling.site import group, node, pod, priority_class, site
from tests.whatif.asking import ask

FACTS: dict[str, Any] = {"controllers": "scheduling", "names": ["default-scheduler"]}


@pytest.mark.parametrize("kind", ["Pod", "PodGroup"])
async def test_the_lowest_class_that_helps_is_named_and_then_it_starts(
    tmp_path: Path, kind: str
) -> None:
    """A class that has nobody preempted does not help, nor one that is no higher."""
    async with site([node("node-0", 4)], tmp_path, kubelet=True) as cluster:
        operator = await cluster.operator()
        await cluster.create(
            priority_class("low", 10),
            priority_class("same", 100),
            priority_class("patient", 200, "Never"),
            priority_class("high", 300),
            priority_class("higher", 400),
        )
        await cluster.create(pod("holds", 4, priority="same"))
        await asyncio.sleep(20)
        await operator.stop()

        def submitted(priority: str) -> list[dict[str, Any]]:
            if kind == "Pod":
                return [pod("mine", 4, priority=priority)]
            members = [pod(f"mine-{i}", 2, group="mine", priority=priority) for i in range(2)]
            return [group("mine", min_count=2, mode="all", priority=priority), *members]

        asked = await ask(cluster.embedded.kubeconfig, *submitted("low"), **FACTS)
        (outcome,) = (each for each in asked.answer.outcomes if each.kind == kind)
        assert outcome.verdict is Verdict.WAITS and outcome.diagnosis is not None
        fix = Fix(Change.HIGHER_PRIORITY, "priorityClassName", "low", "high", 1)
        assert outcome.diagnosis.fixes == (fix,)
        again = await ask(cluster.embedded.kubeconfig, *submitted("high"), **FACTS)
        assert again.answer.verdict is Verdict.STARTS_WITH_VICTIMS
        assert [each.name for each in again.answer.victims] == ["holds"]

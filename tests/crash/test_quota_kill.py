"""SIGKILL before or after any write of the quota plane: no job, no quota is lost, no victim twice.

The process is one of its own that knows a kubeconfig. A write that it dies before is not stored;
one that it dies after is, and its answer is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelocal.cluster import Stage
from tests.crash.preempting import preempting

STAGES = (Stage.BEFORE, Stage.STORED)
#: A calm round takes about a hundred writes; a number beyond its end kills nobody.
MOST_WRITES = 120
AT_ONCE = 10
#: The steps of a preemption, each of which a round takes at least once.
STEPS = (
    "create workloads",
    "reserve",
    "update jobs",
    "create preemptions",
    "patch preemptions status",
    "mark",
    "release",
    "finish",
    "update workloads",
    "patch clusterqueues status",
)
#: What only pods take: they are let run, marked, deleted and let go.
POD_STEPS = ("update pods", "patch pods status", "delete pods")


async def test_what_a_killed_process_began_is_finished_by_the_next(tmp_path: Path) -> None:
    async with preempting(tmp_path) as story:
        assert await story.play(2, Stage.BEFORE, "mark"), "one victim was marked, one was not"
        closing = "patch preemptions status"
        assert await story.play(2, Stage.BEFORE, closing), "the victims were back or about to be"


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("first", range(1, MOST_WRITES, AT_ONCE))
async def test_a_death_at_any_write_is_made_good(first: int, stage: Stage, tmp_path: Path) -> None:
    async with preempting(tmp_path) as story:
        died = [await story.play(at, stage) for at in range(first, first + AT_ONCE)]
        assert all(died) or first > MOST_WRITES // 2


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("group", [False, True])
async def test_a_death_at_each_step_of_a_preemption_is_made_good(
    group: bool, stage: Stage, tmp_path: Path
) -> None:
    steps = (*STEPS, *POD_STEPS) if group else STEPS
    async with preempting(tmp_path) as story:
        for step in steps:
            for at in (1, 2):
                died = await story.play(at, stage, step, group=group)
                assert died or at == 2, (step, at)
        assert {step for step, _ in story.deaths} == set(steps)
        assert sum(story.deaths.values()) >= 2 * len(steps) - 4


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
async def test_a_death_at_each_object_of_a_record_in_parts_is_made_good(
    stage: Stage, tmp_path: Path
) -> None:
    async with preempting(tmp_path, "tests.crash.small_parts") as story:
        parts = 0
        while await story.play(parts + 1, stage, "create preemptionparts"):
            parts += 1
        assert parts >= 3, "one for victims and some for the input"
        assert await story.play(1, stage, "create preemptions"), "the head comes last"

"""The API server fails in the middle of the deletions of a plan, and comes back a while later.

Nobody who was evicted went in vain: the preemptor is bound soon after the API's return, by the
process that was there or by the next one, and nobody but the victims of its one plan has gone.
"""

from __future__ import annotations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import parse_instant
from reprieve.engine.disruptions.governor import Governor
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import Object, group, pod

_VICTIMS = 200
_MEMBERS = {f"high-{number}" for number in range(_VICTIMS)}


def _full(cluster: Memory) -> None:
    """As many more nodes, each full of equal pods of low priority, of which half have to go."""
    cluster.nodes([4] * (_VICTIMS + 50))
    for index in range(_VICTIMS + 50):
        cluster.running(pod(f"low-{index}", 4, priority="low"), f"node-{index}")


def _gang() -> list[Object]:
    members = (pod(name, 4, group="high", priority="high") for name in sorted(_MEMBERS))
    return [group("high", min_count=_VICTIMS, priority="high"), *members]


def _fails_from(cluster: Memory, k: int) -> list[int]:
    """Let the API server be away from the k-th deletion on; return when that began."""
    began: list[int] = []
    deletions = 0

    def before(verb: str, where: Target) -> FakeAnswer | None:
        nonlocal deletions
        deletions += verb == "delete" and where.kind == "pods"
        if deletions >= k and not cluster.api.away:
            cluster.api.away = True
            began.append(cluster.clock.monotonic())
        return refusal(503, "ServiceUnavailable", "away") if cluster.api.away else None

    cluster.api.before = before
    return began


def _returns(cluster: Memory) -> None:
    cluster.api.away = False
    cluster.api.before = lambda verb, where: None


async def _bound(cluster: Memory) -> None:
    def over() -> bool:
        cluster.end_all()
        return cluster.placed().keys() >= _MEMBERS

    await cluster.until(over, 2 * MINUTE)
    await cluster.pass_time(20 * SECOND)
    cluster.end_all()
    await cluster.pass_time(20 * SECOND)


def _nobody_in_vain(cluster: Memory) -> None:
    assert set(cluster.api.deleted.values()) == {1}
    assert len(cluster.api.deleted) == _VICTIMS, "somebody was evicted in vain"
    assert {each["status"]["phase"] for each in cluster.intents()} <= {"Completed", "Abandoned"}


@pytest.mark.parametrize("k", [1, 5, 60, 150])
@pytest.mark.parametrize("away", [5 * SECOND, 40 * SECOND, 5 * MINUTE])
async def test_the_process_goes_on_with_its_plan(k: int, away: int) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.start()
        await cluster.settle()
        began = _fails_from(cluster, k)
        cluster.create(*_gang())
        await cluster.until(lambda: began, MINUTE)
        await cluster.pass_time(away)
        _returns(cluster)
        await _bound(cluster)
        _nobody_in_vain(cluster)


@pytest.mark.parametrize("k", [1, 5, 60, 150])
@pytest.mark.parametrize("times", [1, 3])
async def test_the_next_process_finishes_the_plan_and_nobody_is_held(k: int, times: int) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.start(governor=Governor())
        await cluster.settle()
        began = _fails_from(cluster, k)
        cluster.create(*_gang())
        await cluster.until(lambda: began, MINUTE)
        for left in reversed(range(times)):
            await cluster.pass_time(20 * SECOND)
            await cluster.stop()  # its lease is lost
            _returns(cluster)
            if left:
                _fails_from(cluster, 5)
            cluster.start(governor=(governor := Governor()))
            await cluster.pass_time(10 * SECOND)
        await _bound(cluster)
        _nobody_in_vain(cluster)
        (record,) = cluster.intents()
        assert record["status"]["phase"] == "Completed"
        assert {row.at for row in governor.rows} == {parse_instant(record["spec"]["decidedAt"])}


async def test_records_of_plans_that_evicted_nobody_hold_nobody() -> None:
    """The first answers about them are lost, and so is the lease, three times."""

    def lost(verb: str, where: Target) -> FakeAnswer | None:
        cluster.api.away |= where.kind == "preemptions.reprieve.dev"
        return refused(verb, where)

    def refused(verb: str, where: Target) -> FakeAnswer | None:
        return refusal(503, "ServiceUnavailable", "away") if cluster.api.away else None

    async with memory() as cluster:
        _full(cluster)
        cluster.create(*_gang())
        cluster.start(governor=Governor())
        for _ in range(3):
            cluster.api.after, cluster.api.before = lost, refused
            await cluster.pass_time(30 * SECOND)
            await cluster.stop()
            cluster.api.after = lambda verb, where: None
            _returns(cluster)
            cluster.start(governor=Governor())
        await _bound(cluster)
        _nobody_in_vain(cluster)

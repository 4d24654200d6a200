"""The deletion of the k-th victim fails: the others go on, and nobody goes beyond the first plan.

There is room that could be made elsewhere: what a call fails for is no reason to look there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.errors import Unreachable
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import group, pod

_VICTIMS = 4
_REASONS = {403: "Forbidden", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}
Fault = Callable[[str, Target], FakeAnswer | None]


def _fails(k: int, code: int, times: int, verb: str = "delete") -> Fault:
    """Answer the first `times` calls for the k-th victim that is deleted; 0 is no answer at all."""
    order: list[str] = []
    left = times

    def fault(called: str, where: Target) -> FakeAnswer | None:
        nonlocal left
        if called != verb or where.kind != "pods" or not where.name.startswith("low"):
            return None
        if where.name not in order:
            order.append(where.name)
        if order.index(where.name) != k or not left:
            return None
        left -= 1
        if not code:
            raise Unreachable("the test says nothing")
        return refusal(code, _REASONS[code], f"the test says {code}")

    return fault


def _full(cluster: Memory) -> None:
    """Four nodes with two pods of low priority each; a gang needs two of them."""
    cluster.nodes([4, 4, 4, 4])
    for index in range(8):
        cluster.running(pod(f"low-{index}", 2, priority="low"), f"node-{index // 2}")
    cluster.start()


async def _over(cluster: Memory, most: int) -> None:
    wanted = {"high-0", "high-1"}
    members = [pod(name, 4, group="high", priority="high") for name in sorted(wanted)]
    cluster.create(group("high", min_count=2, priority="high"), *members)

    def bound() -> bool:
        cluster.end_all()
        return wanted <= cluster.placed().keys()

    await cluster.until(bound, most)
    await cluster.pass_time(2 * SECOND)


@pytest.mark.parametrize("stored", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("code", [0, 403, 429, 500, 504])
@pytest.mark.parametrize("k", range(_VICTIMS))
async def test_a_deletion_that_fails_once_costs_nobody_else(
    k: int, code: int, stored: bool
) -> None:
    async with memory() as cluster:
        _full(cluster)
        if stored:
            cluster.api.after = _fails(k, code, 1)
        else:
            cluster.api.before = _fails(k, code, 1)
        await _over(cluster, MINUTE)
        assert len(cluster.planned()) == _VICTIMS, cluster.told()
        assert cluster.api.deleted == Counter(cluster.planned())
        assert {intent["status"]["phase"] for intent in cluster.intents()} <= {
            "Completed",
            "Abandoned",
        }


@pytest.mark.parametrize("code", [0, 403, 500])
@pytest.mark.parametrize("k", range(_VICTIMS))
async def test_a_mark_that_fails_once_costs_nobody_else(k: int, code: int) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.api.before = _fails(k, code, 1, verb="patch")
        await _over(cluster, MINUTE)
        assert cluster.api.deleted == Counter(cluster.planned())
        assert len(cluster.planned()) == _VICTIMS, cluster.told()


@pytest.mark.parametrize("k", range(_VICTIMS))
async def test_a_victim_that_nobody_may_delete_stays_and_the_last_one_is_spared(k: int) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.api.before = _fails(k, 403, 1_000)
        cluster.create(
            group("high", min_count=2, priority="high"),
            *(pod(f"high-{i}", 4, group="high", priority="high") for i in range(2)),
        )
        await cluster.until(
            lambda: any(i["status"]["phase"] == "Abandoned" for i in cluster.intents())
        )
        first = cluster.intents()[0]
        states = [each["state"] for each in first["status"]["victims"]]
        expected = ["Evicted"] * _VICTIMS
        if k < _VICTIMS - 1:
            expected[-1] = "Spared"
        expected[k] = "Failed"
        assert sorted(states) == sorted(expected)
        failed = cluster.metric("scheduler_preemption_goroutines_execution_total", result="error")
        assert failed >= 1
        await cluster.pass_time(30 * SECOND)
        assert len(cluster.intents()) == 1, "victims are still on their way: no second plan"
        assert sum(cluster.api.deleted.values()) == states.count("Evicted")


@pytest.mark.parametrize("verb", ["post", "patch"])
@pytest.mark.parametrize(
    ("answers", "phases"),
    [(1, {"Completed": 1}), (3, {"Abandoned": 1, "Completed": 1})],
    ids=["written-again", "given-up"],
)
async def test_a_record_whose_first_answers_are_lost_does_not_stay_open(
    verb: str, answers: int, phases: dict[str, int]
) -> None:
    """Where the plan is made under another name, nobody may wait for the first one for ever."""
    lost: list[str] = []

    def after(called: str, where: Target) -> FakeAnswer | None:
        if called == verb and where.kind == "preemptions.reprieve.dev" and len(lost) < answers:
            lost.append(where.name)
            raise Unreachable("the test loses the answer")
        return None

    async with memory() as cluster:
        _full(cluster)
        cluster.api.after = after
        await _over(cluster, MINUTE)
        await cluster.pass_time(MINUTE)
        assert len(lost) == answers
        assert Counter(intent["status"]["phase"] for intent in cluster.intents()) == phases
        assert cluster.api.deleted == Counter(cluster.planned())

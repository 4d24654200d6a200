"""One binding call per pod: what fails is tried again in the room that is kept for it.

The gang had to evict for its room, and others wait that would take it: a pod that is as important,
which evicts nobody, and one that is less so.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.kube.errors import Unreachable
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import group, pod

_SIZE = 4
_NAMES = [f"high-{i}" for i in range(_SIZE)]
_REASONS = {403: "Forbidden", 409: "Conflict", 500: "InternalError", 504: "Timeout"}


def _full(cluster: Memory) -> None:
    cluster.nodes([4, 4, 4])
    for index in range(6):
        cluster.running(pod(f"low-{index}", 2, priority="low"), f"node-{index // 2}")
    cluster.start()


async def _evicted(cluster: Memory) -> set[str]:
    """Let the gang find its victims and these end, with rivals in the queue; return the victims."""
    members = [pod(name, 2, group="high", priority="high") for name in _NAMES]
    cluster.create(group("high", min_count=_SIZE, priority="high"), *members)
    await cluster.until(lambda: len(cluster.victims()) == _SIZE)
    cluster.create(
        pod("rival", 2, priority="high", preemptionPolicy="Never"),
        pod("small", 1, priority="middle", preemptionPolicy="Never"),
    )
    await cluster.pass_time(SECOND)
    victims = cluster.victims()
    cluster.end_all()
    return victims


class _Calls:
    """The binding calls in order; the first `times` of the k-th member fail with `code`."""

    def __init__(self, k: int, code: int, times: int) -> None:
        self.names: list[str] = []
        self._name, self._code, self._left = _NAMES[k], code, times

    def __call__(self, verb: str, where: Target) -> FakeAnswer | None:
        if verb != "bind":
            return None
        self.names.append(where.name)
        if where.name != self._name or not self._left:
            return None
        self._left -= 1
        if not self._code:
            raise Unreachable("the test says nothing")
        return refusal(self._code, _REASONS[self._code], f"the test says {self._code}")


@pytest.mark.parametrize("code", [0, 403, 409, 500, 504])
@pytest.mark.parametrize("k", range(_SIZE))
async def test_when_call_k_fails_the_others_stay_and_nobody_further_is_evicted(
    k: int, code: int
) -> None:
    async with memory() as cluster:
        _full(cluster)
        # Enough failures to use up the tries within one call for the binding.
        calls = cluster.api.before = _Calls(k, code, 5)
        victims = await _evicted(cluster)
        await cluster.until(lambda: len(cluster.placed().keys() & set(_NAMES)) == _SIZE - 1)
        where = dict(cluster.placed())
        assert cluster.nominated()[_NAMES[k]]
        kept = cluster.nominated()[_NAMES[k]]
        assert "rival" not in where
        assert cluster.condition(cluster.group("high"), "PodGroupInitiallyScheduled")[0] != "True"
        await cluster.until(lambda: _NAMES[k] in cluster.placed(), MINUTE)
        await cluster.pass_time(5 * SECOND)
        assert cluster.placed()[_NAMES[k]] == kept
        assert {name: cluster.placed()[name] for name in where} == where, "nothing is unbound"
        assert cluster.api.deleted == Counter(victims)
        assert "rival" not in cluster.placed()
        assert Counter(calls.names)[_NAMES[k]] >= 2
        assert all(Counter(calls.names)[name] == 1 for name in _NAMES if name != _NAMES[k])
        scheduled = cluster.condition(cluster.group("high"), "PodGroupInitiallyScheduled")
        assert scheduled[0] == "True"


@pytest.mark.parametrize("k", range(_SIZE))
async def test_a_failed_member_is_told_of_and_keeps_its_nomination(k: int) -> None:
    async with memory() as cluster:
        _full(cluster)
        cluster.api.before = _Calls(k, 403, 10_000)
        victims = await _evicted(cluster)
        await cluster.pass_time(10 * SECOND)
        status, reason, message = cluster.condition(cluster.pod(_NAMES[k]), "PodScheduled")
        assert (status, reason) == ("False", "SchedulerError")
        assert "the test says 403" in message
        assert cluster.nominated()[_NAMES[k]]
        assert any("the test says 403" in e["note"] for e in cluster.events("FailedScheduling"))
        assert "rival" not in cluster.placed()
        assert len(cluster.placed().keys() & set(_NAMES)) == _SIZE - 1
        assert cluster.api.deleted == Counter(victims)


async def test_a_member_that_somebody_else_bound_is_left_there() -> None:
    async with memory() as cluster:
        _full(cluster)

        def bound_elsewhere(verb: str, where: Target) -> FakeAnswer | None:
            if verb == "bind" and where.name == "high-2" and "high-2" not in cluster.placed():
                found = cluster.pod("high-2")
                spec = {**found["spec"], "nodeName": "node-2"}
                cluster.api.put("pods", {**found, "spec": spec})
            return None

        cluster.api.before = bound_elsewhere
        victims = await _evicted(cluster)
        await cluster.until(lambda: set(_NAMES) <= cluster.placed().keys())
        await cluster.pass_time(5 * SECOND)
        assert cluster.placed()["high-2"] == "node-2"
        assert cluster.api.deleted == Counter(victims)


async def test_an_answer_that_is_lost_is_no_reason_to_call_again() -> None:
    async with memory() as cluster:
        _full(cluster)
        lost = cluster.api.after = _Calls(1, 0, 1)
        await _evicted(cluster)
        await cluster.until(lambda: set(_NAMES) <= cluster.placed().keys())
        await cluster.pass_time(5 * SECOND)
        assert Counter(lost.names)["high-1"] == 1


@pytest.mark.parametrize("what", ["refused", "gone", "elsewhere"])
async def test_the_room_of_a_pod_that_was_not_bound_is_offered_to_those_that_wait(
    what: str,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 1])

        def instead(verb: str, where: Target) -> FakeAnswer | None:
            if verb != "bind" or where.name != "first":
                return None
            if what == "refused":
                return refusal(403, "Forbidden", "the test says 403")
            found = cluster.pod("first")
            if what == "elsewhere":
                spec = {**found["spec"], "nodeName": "node-1"}
                cluster.api.put("pods", {**found, "spec": spec})
                return None
            cluster.end("first")
            return None

        cluster.api.before = instead
        cluster.create(pod("first", 4, priority="middle"), pod("second", 4, priority="low"))
        cluster.start()
        await cluster.until(lambda: "second" in cluster.placed(), 2 * SECOND)
        assert cluster.placed()["second"] == "node-0"

"""A fault of ours about one workload: it is set aside and taken back, all others are decided about.

Faults are put where a cycle calls on, also after it has begun to change who holds quota.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota import cycle as cycle_module
from reprieve.engine.quota.cycle import cycle, cycles
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Cohort,
    Configuration,
    LocalQueue,
    Policy,
    Preemption,
    Settings,
    Strategy,
    Workload,
)
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.room import Room
from reprieve.engine.quota.tournament import fair_order
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, Size, scene
from tests.quota.test_cycle import job, one_queue, start, summary

POISONED = "ns/poisoned"


class Poison(Exception):
    """What nobody expects."""


def poisoned(priority: int = 5, cpu: int = 2) -> Workload:
    return job("poisoned", cpu, priority)


def breaking(real: Callable[..., Any], about: Callable[..., bool]) -> Callable[..., Any]:
    """Return the function, raising where `about` says so of its arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if about(*args, **kwargs):
            raise Poison("the test says so")
        return real(*args, **kwargs)

    return call


def _of(workload: Any) -> bool:
    return getattr(workload, "key", "") == POISONED


#: Where a decision about the poisoned workload ends in a fault.
PLACES: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "nomination": (Nominations, "admit", lambda self, entry: _of(entry.workload)),
    "order": (cycle_module, "classical_order", lambda entry, *rest: _of(entry.workload)),
    "processing": (Room, "fits", lambda self, entry: _of(entry.workload)),
    "leaving the queue": (Queues, "admitted", lambda self, key: key == POISONED),
    "taking quota": (Holdings, "hold", lambda self, workload: _of(workload)),
}


def settled(configuration: Configuration, holdings: Holdings, queues: Queues) -> None:
    """Hold the state against one that is made anew of the same workloads."""
    anew = Holdings(configuration)
    for holder in holdings.holders.values():
        anew.hold(holder.workload)
    assert holdings.usage == anew.usage
    assert holdings.tree.local == anew.tree.local


@pytest.mark.parametrize("place", PLACES)
def test_a_fault_about_one_workload_sets_only_that_one_aside(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, about = PLACES[place]
    monkeypatch.setattr(owner, name, breaking(getattr(owner, name), about))
    configuration = one_queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    for workload in (poisoned(), job("second", 2), job("third", 2)):
        queues.push(workload)
    results = list(cycles(holdings, queues, NOW, 50))
    assert holdings.holders.keys() == {"ns/second", "ns/third"}
    (fault,) = [entry for result in results for entry in result.of(Outcome.FAULT)]
    assert fault.workload.key == POISONED
    assert isinstance(fault.failure, Poison)
    assert "tried again after 10s: Poison: the test says so" in fault.message
    assert [each for keys in queues.inadmissible().values() for each in keys] == [POISONED]
    assert all(result.fault is None for result in results)
    settled(configuration, holdings, queues)


def test_what_failed_is_tried_again_later_and_longer_each_time_until_it_goes_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration = one_queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    queues.push(poisoned())
    real = Nominations.admit
    broken = breaking(real, lambda self, entry: True)
    monkeypatch.setattr(Nominations, "admit", broken)

    def failures(until: int) -> list[int]:
        """Return in which seconds it was tried and failed."""
        found = []
        for second in range(until):
            results = list(cycles(holdings, queues, Nanos(NOW + second * SECOND), 10))
            queues.flush(configuration.cluster_queues)
            assert len(results) <= 3, "no cycle follows the other endlessly"
            if any(result.of(Outcome.FAULT) for result in results):
                found.append(second)
        return found

    assert failures(80) == [0, 10, 30, 70]
    monkeypatch.setattr(Nominations, "admit", real)
    changed = replace(poisoned(), priority=6)
    queues.push(changed)
    list(cycles(holdings, queues, Nanos(NOW + 80 * SECOND), 10))
    assert POISONED in holdings.holders, "what has changed is tried at once"


def test_evictions_that_a_fault_cut_short_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = one_queue(preemption=Preemption(Policy.LOWER_PRIORITY))
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name in ("low-1", "low-2"):
        queues.push(job(name, 2, -5))
    list(cycles(holdings, queues, NOW, 10))
    before = {key: holder.evicted for key, holder in holdings.holders.items()}
    calls = 0

    def second(self: Holdings, key: str, *rest: Any) -> bool:
        nonlocal calls
        calls += 1
        return calls == 2

    monkeypatch.setattr(Holdings, "expect_eviction", breaking(Holdings.expect_eviction, second))
    queues.push(poisoned(cpu=4))
    (result,) = (each for each in cycles(holdings, queues, NOW, 10) if each.of(Outcome.FAULT))
    assert calls == 2, "one eviction had been counted on"
    assert not [entry for entry in result.entries if entry.issued]
    assert {key: holder.evicted for key, holder in holdings.holders.items()} == before
    assert not any(map(holdings.eviction_expected, before))
    settled(configuration, holdings, queues)


class Impatient:
    """Lets the poisoned workload take no time at all; counts how often others are asked."""

    def __init__(self) -> None:
        self.what = ""
        self.others = 0

    def begin(self, what: str) -> None:
        self.what = what

    def check(self) -> None:
        if self.what == POISONED:
            raise Poison("it takes too long")
        self.others += 1


def test_a_head_that_takes_too_long_is_set_aside_and_the_others_are_decided_about() -> None:
    configuration = one_queue(preemption=Preemption(Policy.LOWER_PRIORITY))
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name in ("low-1", "low-2"):
        queues.push(job(name, 2, -5))
    list(cycles(holdings, queues, NOW, 10))
    for workload in (poisoned(cpu=4), job("high", 2, 4)):
        queues.push(workload)
    pace = Impatient()
    results = list(cycles(holdings, queues, NOW, 10, pace=pace))
    (fault,) = [entry for result in results for entry in result.of(Outcome.FAULT)]
    assert fault.workload.key == POISONED
    assert "tried again after 10s: Poison: it takes too long" in fault.message
    preempting = [entry for result in results for entry in result.of(Outcome.PREEMPTING)]
    assert {entry.workload.key for entry in preempting} == {"ns/high"}
    assert sum(len(entry.issued) for entry in preempting) == 1
    assert pace.others > 0
    settled(configuration, holdings, queues)


def _two_trees(settings: Settings) -> Configuration:
    plain = one_queue()
    (queue,) = plain.cluster_queues.values()
    names = ("a-1", "a-2", "b-1", "b-2")
    return replace(
        plain,
        settings=settings,
        cohorts={name: Cohort(name) for name in ("a", "b")},
        cluster_queues={name: replace(queue, name=name, cohort=name[0]) for name in names},
        local_queues={f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in names},
    )


def test_an_order_that_cannot_be_told_costs_only_its_own_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration = _two_trees(Settings(fair_sharing=tuple(Strategy)))
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name in ("a-1", "a-2", "b-1", "b-2"):
        queues.push(replace(job(f"of-{name}", 1), queue=f"ns/{name}"))
    in_a = breaking(fair_order, lambda snapshot, entries: entries[0].cluster_queue.startswith("a"))
    monkeypatch.setattr(cycle_module, "fair_order", in_a)
    list(cycles(holdings, queues, NOW, 10))
    assert holdings.holders.keys() == {"ns/of-b-1", "ns/of-b-2"}
    assert queues.inadmissible() == {"a-1": ["ns/of-a-1"], "a-2": ["ns/of-a-2"]}


def test_a_queue_whose_head_cannot_be_taken_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration = _two_trees(Settings())
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name in ("a-1", "a-2", "b-1", "b-2"):
        queues.push(replace(job(f"of-{name}", 1), queue=f"ns/{name}"))
    broken = breaking(Queues._first, lambda self, name, queue: name == "a-1")
    monkeypatch.setattr(Queues, "_first", broken)
    result, *_ = cycles(holdings, queues, NOW, 10)
    assert result.queue_faults.keys() == {"a-1"}
    assert len(holdings.holders) == 3
    monkeypatch.undo()
    list(cycles(holdings, queues, Nanos(NOW + SECOND), 10))
    assert len(holdings.holders) == 3, "the queue waits a while"
    list(cycles(holdings, queues, Nanos(NOW + MINUTE), 10))
    assert len(holdings.holders) == 4


def test_a_fault_that_is_nobodys_own_loses_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = one_queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    queues.push(job("waits", 2))
    with monkeypatch.context() as patched:
        patched.setattr(cycle_module._Cycle, "decide", breaking(len, lambda *args: True))
        (result,) = cycles(holdings, queues, NOW, 10)
        assert isinstance(result.fault, Poison)
    with monkeypatch.context() as patched:
        patched.setattr(Holdings, "snapshot", breaking(len, lambda *args: True))
        (result,) = cycles(holdings, queues, NOW, 10)
        assert isinstance(result.fault, Poison)
    list(cycles(holdings, queues, NOW, 10))
    assert "ns/waits" in holdings.holders


def test_wherever_a_cycle_breaks_nobody_is_lost_and_the_state_is_that_of_the_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The k-th call of one function raises, in random worlds; other trees are decided alike."""
    random = Random(7)
    functions = [
        (Nominations, "admit"),
        (Nominations, "_note_scan"),
        (Room, "fits"),
        (cycle_module._Cycle, "_accept"),
        (Holdings, "expect_eviction"),
        (Holdings, "hold"),
        (Queues, "requeue"),
        (Queues, "admitted"),
    ]
    faults = halfway = alike = 0
    for _ in range(700):
        case = scene(random, size=Size(admitted=10, pending=10))
        calm_holdings, calm_queues = start(case)
        calm = {row[0]: row for row in summary(cycle(calm_holdings, calm_queues, NOW))}
        holdings, queues = start(case)
        pending = {each.key for each in queues.pending()}
        held = set(holdings.holders)
        owner, name = random.choice(functions)
        at, seen = random.randrange(3), 0

        def kth(*args: Any, at: int = at, **kwargs: Any) -> bool:
            nonlocal seen
            seen += 1
            return seen == at + 1

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, breaking(getattr(owner, name), kth))
            result = cycle(holdings, queues, NOW)
        if seen <= at:
            continue
        faults += 1
        failed = result.of(Outcome.FAULT)
        halfway += bool(failed) and name in ("expect_eviction", "hold", "admitted")
        known = {each.key for each in queues.pending()} | holdings.holders.keys()
        assert known >= pending | held, "nobody is lost"
        settled(case.configuration, holdings, queues)
        issued = {target.holder.key for entry in result.entries for target in entry.issued}
        expected = {key for key in holdings.holders if holdings.eviction_expected(key)}
        assert issued == expected, "who is counted as evicted will be told so"
        admitted = {entry.workload.key for entry in result.of(Outcome.ADMITTED)}
        assert admitted == holdings.holders.keys() - held, "who holds quota will be told so"
        if result.fault is None and len(failed) == 1:
            broken_tree = {*holdings.related(failed[0].cluster_queue), failed[0].cluster_queue}
            for row in summary(result):
                queue = next(e.cluster_queue for e in result.entries if e.workload.key == row[0])
                if queue not in broken_tree and row[0] in calm:
                    assert row == calm[row[0]], "another tree is decided as without the fault"
                    alike += 1
    assert faults > 100 and halfway > 20 and alike > 20, (faults, halfway, alike)

"""A cycle whose heads are all refused once more leaves the queues as one that looks at each."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    Check,
    QueueingStrategy,
    Workload,
)
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND
from tests.quota.test_loops import configuration, jobs, queue

LATER = Nanos(NOW + SECOND)


def holding(name: str, gpus: int, priority: int) -> Workload:
    """Return a workload that has its quota in the queue `mine`."""
    (found,) = jobs(Random(name), "mine", 1, gpus=gpus, priority=priority)
    pods = AdmittedPodSet("main", 1, {"nvidia.com/gpu": "gpus"}, {"nvidia.com/gpu": gpus})
    return replace(found, name=name, admission=Admission("mine", (pods,)), reserved_at=NOW)


class Site:
    """Ten devices: one held by who could be preempted, nine by others; three jobs want five."""

    def __init__(self, refusals: Refusals | None, **changes: Any) -> None:
        new = configuration(queue("mine", 10, **changes))
        self.refusals, self.ledger = refusals, Displacements()
        self.holdings, self.queues = Holdings(new), Queues(new)
        self.low, self.high = holding("low", 1, 1), holding("high", 9, 100)
        self.holdings.hold(self.low)
        self.holdings.hold(self.high)
        self.heads = jobs(Random(1), "mine", 3, gpus=5, priority=10)
        for each in self.heads:
            self.queues.push(each)

    def cycle(self, now: Nanos, number: int) -> CycleResult:
        """Run a cycle after everything that was set aside is queued again."""
        self.queues.flush(["mine"])
        return cycle(self.holdings, self.queues, now, number, self.ledger, refusals=self.refusals)

    def known(self) -> tuple[object, ...]:
        """Return what the queues know."""
        scans = [self.queues.last_scan(each.key) for each in self.heads]
        return self.queues.active(), self.queues.inadmissible(), scans


def test_heads_that_are_refused_again_are_set_aside_without_being_nominated() -> None:
    anew, again = Site(None), Site(Refusals())
    for site in (anew, again):
        site.cycle(NOW, 0)
    one, other = anew.cycle(LATER, 1), again.cycle(LATER, 1)
    assert len(one.entries) == 1
    assert other.entries == []
    assert one.progress
    assert other.progress
    assert anew.known() == again.known()
    assert again.queues.inadmissible() == {"mine": sorted(each.key for each in again.heads)}


def test_who_leaves_somebody_alone_for_a_time_is_tried_again_then() -> None:
    retries = []
    for refusals in (None, Refusals()):
        site = Site(refusals)
        site.cycle(NOW, 0)
        first = site.heads[0]
        for turn in range(2):
            site.ledger.record(first, site.low, Nanos(NOW + turn * SECOND), above=9)
        retries.append(site.cycle(Nanos(NOW + 2 * SECOND), 1).retries)
    assert retries[0] == retries[1]
    assert list(retries[0]) == ["mine"]


def test_a_head_that_has_a_chance_by_now_is_nominated() -> None:
    site = Site(Refusals())
    site.cycle(NOW, 0)
    site.holdings.release(site.high.key)
    (entry,) = site.cycle(LATER, 1).entries
    assert entry.workload.key == site.heads[0].key
    assert entry.admission is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"invalid": "a reason"},
        {"checks": {"budget": Check.REJECTED}},
        {"replaces": "ns/low"},
    ],
    ids=lambda changes: "".join(changes),
)
def test_a_head_that_may_not_be_considered_is_told_so(changes: dict[str, Any]) -> None:
    told = []
    for refusals in (None, Refusals()):
        site = Site(refusals)
        site.cycle(NOW, 0)
        for each in site.heads:
            site.queues.delete(each.key)
        site.queues.push(replace(site.heads[0], name="odd", **changes))
        (entry,) = site.cycle(LATER, 1).entries
        told.append((entry.outcome, entry.message, site.known()))
    assert told[0] == told[1]


def test_the_head_of_a_strict_queue_stays_its_head() -> None:
    anew, again = (
        Site(refusals, strategy=QueueingStrategy.STRICT_FIFO) for refusals in (None, Refusals())
    )
    for site in (anew, again):
        site.cycle(NOW, 0)
        assert not site.cycle(LATER, 1).progress
    assert anew.known() == again.known()

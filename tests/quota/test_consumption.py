"""Admission fair sharing over many LocalQueues: charges, what becomes of them, their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.usage_based import (
    Consumption,
    Consumptions,
    UsageBased,
    base_amounts,
)
from reprieve.engine.quota.model import Configuration, LocalQueue, Settings
from reprieve.engine.quota.taking_back import undo_admission
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND
from tests.quota.test_cycle import job, one_queue

RULES = UsageBased(half_life_s=3600, sampling_s=600)
# What one interval of holding a thousandth of a cpu counts.
ALPHA = (1 - 0.5 ** (600 / 3600)) / 1_000
DOORS = ("ns/greedy", "ns/modest")


def shared(weights: dict[str, float] | None = None) -> Configuration:
    """Return one queue of 4 with two doors."""
    given = weights or {}
    return replace(
        one_queue(usage_based=True),
        local_queues={key: LocalQueue(key, "team", weight=given.get(key, 1.0)) for key in DOORS},
        settings=Settings(admission_fair_sharing=True),
    )


def played(found: Configuration, consumptions: Consumptions) -> tuple[list[str], Queues, Holdings]:
    """Let four jobs of each door, those of `greedy` first, ask at once; return who got quota."""
    holdings, queues = Holdings(found), Queues(found)
    queues.consumptions = consumptions
    queues.local_queue_usage = consumptions.usage
    for number, door in enumerate(DOORS):
        for index in range(4):
            name = f"{door[3:]}-{index}"
            queues.push(job(name, 1, queue=door, created=Nanos(NOW + 10 * number + index)))
    admitted = [
        entry.workload.name
        for result in cycles(holdings, queues, NOW, 100)
        for entry in result.entries
        if entry.outcome is Outcome.ADMITTED
    ]
    return admitted, queues, holdings


def test_an_admission_is_charged_before_the_next_cycle() -> None:
    admitted, _, _ = played(shared(), Consumptions(RULES))
    assert admitted == ["greedy-0", "modest-0", "greedy-1", "modest-1"]
    before = Consumptions(RULES)
    before.restore("ns/greedy", Consumption({"cpu": 5 * ALPHA}, NOW))
    assert played(shared(), before)[0] == ["modest-0", "modest-1", "modest-2", "modest-3"]


def test_a_door_of_twice_the_weight_gets_twice_as_much() -> None:
    weights = {"ns/greedy": 1.0, "ns/modest": 3.0}
    consumptions = Consumptions(RULES)
    consumptions.keep(weights)
    admitted, _, _ = played(shared(weights), consumptions)
    assert sorted(admitted) == ["greedy-0", "modest-0", "modest-1", "modest-2"]


def test_a_charge_becomes_consumption_or_nothing() -> None:
    consumptions = Consumptions(RULES)
    found = shared()
    for door in DOORS:
        consumptions.restore(door, Consumption({}, NOW))
    _, queues, holdings = played(found, consumptions)
    charge = pytest.approx(2 * ALPHA)
    assert consumptions.usage == {"ns/greedy": charge, "ns/modest": charge}
    # One is admitted after ten minutes, of which it alone was held.
    later = Nanos(NOW + 600 * SECOND)
    consumptions.settle("ns/greedy-0", {"cpu": 0.001}, later)
    consumptions.settle("ns/greedy-0", {"cpu": 0.001}, later)  # once only
    known = consumptions.of("ns/greedy")
    assert known is not None and known.at == later
    assert known.amounts == {"cpu": pytest.approx(2 * ALPHA)}
    assert consumptions.usage["ns/greedy"] == pytest.approx(3 * ALPHA)
    # One could not be written, one is gone.
    for name in ("greedy-1", "modest-0"):
        held = holdings.holders[f"ns/{name}"].workload
        waits = replace(held, admission=None, reserved_at=None)
        undo_admission(holdings, queues, Entry(waits, "team"))
    consumptions.refund("ns/modest-1")
    consumptions.refund("ns/modest-1")
    assert consumptions.usage["ns/greedy"] == pytest.approx(2 * ALPHA)
    assert consumptions.usage["ns/modest"] == 0.0


def test_what_does_not_count_any_more_is_forgotten() -> None:
    consumptions = Consumptions(RULES)
    for door in DOORS:
        consumptions.sample(door, {"cpu": 0.002}, NOW)
    consumptions.keep({"ns/greedy": 2.0})
    assert consumptions.usage == {"ns/greedy": pytest.approx(ALPHA)}
    assert consumptions.of("ns/modest") is None
    never = Consumptions(UsageBased())
    never.sample("ns/greedy", {"cpu": 2.0}, NOW)
    assert never.of("ns/greedy") == Consumption({}, NOW)


def test_amounts_are_sums_in_base_units() -> None:
    given = [("cpu", 1_500), ("cpu", 500), ("memory", 1_024)]
    assert base_amounts(given) == {"cpu": 2.0, "memory": 1_024.0}

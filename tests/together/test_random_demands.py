"""One demand on random small clusters: what is evicted is enough, permitted and needed.

Judged by brute force (`tests.oracle.one_demand`) over what the API server stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.oracle.one_demand import (
    Part,
    Rule,
    Unit,
    has_spare,
    is_scattered,
    least,
    permitted,
    suffices,
)
from tests.together.random_demands import Case, Found, drawn, played

#: Rules of one level, and of the two that look at nodes.
_ALONE = ([Rule.IDLE], [Rule.PRIORITY], [Rule.IDLE, Rule.PRIORITY], [Rule.OWN_QUEUE, Rule.RECLAIM])


def judged(case: Case, found: Found) -> Counter[str]:
    """Assert what holds for every demand; return what the case was about."""
    cluster, demand = case.cluster, case.demand
    if case.kind in ("job", "deployment"):
        # Each of their pods is of use by itself; what is judged is the room of those that run.
        demand = replace(demand, pods=max(1, found.placed))
    units = {each.name: each for each in cluster.units}
    fewest = least(cluster, demand)
    gone = found.by_record.get("wanted", {})
    counts = Counter[str](cases=1)
    # The records say all that was evicted, and nothing else.
    by_unit = sum((Counter(each) for each in found.by_record.values()), Counter[str]())
    assert by_unit == Counter(found.evicted)
    if fewest is None:
        assert not gone, "somebody is evicted for what is impossible"
        return counts + Counter(impossible=1)
    if fewest == 0:
        assert (gone, found.placed) == ({}, demand.pods), "it fits as it is"
        return counts + Counter(free=1)
    alone = [least(cluster, demand, rules) for rules in _ALONE]
    if not gone:
        # Quota and nodes that need different levels may find nobody together.
        assert all(each is None for each in alone), "nobody goes though a set suffices"
        counts["nobody"] += 1
        return counts
    parts = [_part(units[name], devices, case) for name, devices in gone.items()]
    assert suffices(cluster, demand, parts), "what is evicted is not enough"
    assert found.placed == demand.pods, "they are evicted in vain"
    for part in parts:
        others = [each for each in parts if each is not part]
        assert not suffices(cluster, demand, others), f"{part.unit.name} could stay"
    devices, idle_alone = sum(gone.values()), alone[0]
    # Idle work goes before busy work, whole, though one pod of a lower priority would do.
    first = idle_alone is not None and devices == idle_alone
    assert first or 2 * devices <= 3 * fewest, f"{devices} for {fewest}"
    counts["least"] += devices == fewest
    counts["evicted"] += 1
    counts["several"] += len(gone) > 1
    counts["scattered"] += is_scattered(cluster, demand)
    counts["spare"] += has_spare(cluster, demand)
    _judge_returns(case, found)
    return counts


def _part(unit: Unit, devices: int, case: Case) -> Part:
    """Return the part of a unit that was evicted, by the rule that frees most."""
    rules = (Rule.IDLE, Rule.OWN_QUEUE, Rule.RECLAIM, Rule.PRIORITY)
    allowed = [
        each for each in permitted(case.cluster, unit, case.demand) if each.devices == devices
    ]
    assert allowed, f"no rule permits {devices} devices of {unit}"
    return min(allowed, key=lambda each: rules.index(each.rule))


def _judge_returns(case: Case, found: Found) -> None:
    """Who was displaced displaces idle work up to what it lost, and lower priorities."""
    units = {each.name: each for each in case.cluster.units}
    for name, gone in found.by_record.items():
        if name == "wanted":
            continue
        lost = found.evicted.get(name, 0)
        idle = sum(
            devices
            for victim, devices in gone.items()
            if units[victim].priority >= units[name].priority
        )
        assert lost and idle <= lost, f"{name} displaces more than it lost"


async def several(seed: str, number: int, folder: Path) -> Counter[str]:
    random, counts = Random(seed), Counter[str]()
    while counts["cases"] < number:
        case = drawn(random)
        fewest = least(case.cluster, case.demand)
        facts = is_scattered(case.cluster, case.demand), has_spare(case.cluster, case.demand)
        # Where nobody has to go, nothing helps or any idle work does, little is judged.
        dull = 1.0 if fewest == 0 else 0.9 if fewest is None else 0.7 if not any(facts) else 0.0
        if random.random() < dull:
            continue
        place = folder / str(counts["cases"])
        place.mkdir()
        try:
            counts += judged(case, await played(case, place))
        except AssertionError as wrong:
            raise AssertionError(f"{seed} {counts['cases']}: {wrong}\n{case}") from wrong
    return counts


@pytest.mark.thorough
async def test_what_is_evicted_for_a_demand_is_enough_permitted_and_needed(tmp_path: Path) -> None:
    counts = await several("demands 1", 6, tmp_path)
    assert counts["evicted"] >= 3, counts
    assert counts["scattered"] >= 2 and counts["spare"] >= 2, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *range(2, 9)])
async def test_more_demands_stand_before_the_judge(tmp_path: Path, seed: int) -> None:
    counts = await several(f"demands {seed}", 12, tmp_path)
    assert counts["evicted"] >= 4, counts
    assert 2 * counts["least"] > counts["evicted"], counts

"""Profile `best` in the quota plane: no permitted set of victims costs less, by brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plan
from reprieve.engine.quota import evictions
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.targets.candidates import Target, preemptor
from reprieve.engine.quota.targets.cheapest import Cheapest, cheapest_targets
from reprieve.engine.quota.targets.preemption import find_targets
from reprieve.engine.victim_choice import VictimChoice
from reprieve.records.quota.record import inputs_of
from reprieve.records.quota.replay import decide_quota_again
from tests.oracle import quota_cheapest as oracle
from tests.quota.cases import NOW, SECOND, Scene, Size, plain, scene
from tests.quota.test_cycle import start
from tests.quota.test_invariants import stop

SMALL = Size(admitted=9, queues=4, pending=0)
SIZE = Size(admitted=12, pending=14)
BEST = VictimChoice.BEST


def searched(case: Scene) -> tuple[tuple[Target, ...], Cheapest, list[str]] | None:
    """Return the reference's targets, the cheapest ones, and the queues that pay; None: nobody."""
    holdings = Holdings(case.configuration)
    for workload in case.admitted:
        holdings.hold(workload)
    snapshot = holdings.snapshot()
    tree = snapshot.tree
    who = preemptor(case.incoming, tree.queues[case.queue], snapshot.settings)
    requests = {tree.column(pair): amount for pair, amount in case.requests.items()}
    snapshot.add_usage(who.queue, ((column, 0) for column in requests))
    need = frozenset(map(tree.column, case.need))
    found = find_targets(snapshot, who, requests, need)
    if found is None:
        return None
    chosen = cheapest_targets(snapshot, who, requests, need, found.targets, NOW)
    payers = [tree.names[target.holder.queue] for target in found.targets]
    return found.targets, chosen, payers


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize(
    ("first", "cases"), [(0, 200), pytest.param(200, 2_800, marks=pytest.mark.thorough)]
)
def test_no_set_that_may_go_costs_less(fair: bool, first: int, cases: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + cases):
        case = scene(Random(f"cheapest {seed}"), fair=fair, size=SMALL)
        given = plain(case)
        answer = searched(case)
        if answer is None or oracle.fits_already(given):
            continue
        found, chosen, payers = answer
        at = {w["key"]: w for w in given["admitted"]}
        cost = oracle.cost([at[target.holder.key] for target in chosen.targets])
        before = oracle.cost([at[target.holder.key] for target in found])
        best = oracle.least(given, payers)
        # What the second strategy alone permits, no set of the first one has.
        assert best is not None or fair, seed
        assert cost <= before, seed
        if best is not None and best <= before:
            assert cost == best, (seed, cost, best)
        seen["decided"] += 1
        seen["cheaper"] += cost < before
        seen["proven"] += chosen.gap == 0
    assert seen["cheaper"] >= cases // 200, seen
    assert seen["proven"] == seen["decided"], seen


def planned(case: Scene, seen: Counter[str], rounds: int = 3) -> list[Plan]:
    """Run cycles; every preemption is proven, and none costs more than the reference's."""
    holdings, queues = start(case)
    plans = []
    random = Random(7)
    for index in range(rounds):
        now = Nanos(NOW + index * SECOND)
        result = cycle(holdings, queues, now, index)
        assert not result.of(Outcome.FAULT), result.of(Outcome.FAULT)[0].message
        for entry in result.of(Outcome.PREEMPTING):
            plan = plan_of(entry, holdings.tree, index, "")
            if plan is not None:
                written = inputs_of(result, holdings, queues, now)[entry.workload.key]
                again = decide_quota_again(written).plan(index)
                assert again is not None
                assert (again.victims, again.proof) == (plan.victims, plan.proof)
                plans.append(plan)
                seen["plans"] += 1
                seen["other"] += bool(entry.found)
        stop(holdings, queues, random, now)
    return plans


@pytest.mark.parametrize("harm", [False, True])
@pytest.mark.parametrize(
    ("first", "cases"), [(0, 50), pytest.param(50, 350, marks=pytest.mark.thorough)]
)
def test_whole_cycles_are_proven_and_their_records_say_so(
    harm: bool, first: int, cases: int
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + cases):
        case = scene(Random(f"cycles {seed}"), size=SIZE)
        settings = replace(
            case.configuration.settings, profile=BEST, harm_order=harm, max_save_wait=0
        )
        case = replace(case, configuration=replace(case.configuration, settings=settings))
        for plan in planned(case, seen):
            assert plan.proof.profile == "best"
            seen["exact"] += plan.proof.gap == 0
    assert seen["plans"] >= cases // 5 and seen["other"] >= cases // 50, seen
    assert seen["exact"] >= seen["plans"] * 0.9, seen


def test_the_proof_refuses_victims_that_cost_more_than_those_of_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another set in place of the cheapest one: at run time nobody is evicted for it."""
    refused = 0
    for seed in range(150):
        case = scene(Random(f"cycles {seed}"), size=SIZE)
        settings = replace(case.configuration.settings, profile=BEST)
        case = replace(case, configuration=replace(case.configuration, settings=settings))
        result = cycle(*start(case), NOW, 0)
        for entry in result.of(Outcome.PREEMPTING):
            if entry.found:
                refused += _refused(case, entry.workload.key, monkeypatch)
    assert refused >= 5, refused


def _refused(case: Scene, key: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the search choose the targets that cost more, and say that they cost less."""

    def wrong(self: evictions.Evictions, entry: Entry, assignment: Assignment) -> None:
        right(self, entry, assignment)
        if entry.workload.key == key and entry.found:
            entry.found, entry.targets = entry.targets, entry.found

    right = evictions.Evictions.cheapen
    with monkeypatch.context() as patch:
        patch.setattr(evictions.Evictions, "cheapen", wrong)
        result = cycle(*start(case), NOW, 0)
    faults = [entry for entry in result.of(Outcome.FAULT) if entry.workload.key == key]
    assert len(faults) == 1 and not faults[0].issued
    assert "the victims cost more than those of the reference" in faults[0].message
    return True

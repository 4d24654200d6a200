"""Fast paths choose as the literal ones do: all nodes at once as each alone, trackers as filters.

The literal path for groups is written out here: units go back one at a time into a simulation, all
members are placed one after the other and ask every filter, and are taken out again (7.7).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import RESOLVABLE
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import place_group
from reprieve.engine.scheduling.nodes.placing import best_node
from reprieve.engine.scheduling.outcome import UnitVictim
from reprieve.engine.scheduling.pod_preemption import find_candidates
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches, budget_matches
from reprieve.engine.scheduling.victims.budgets import violating_pods
from reprieve.engine.scheduling.victims.node_by_node import Candidates, each_node
from reprieve.engine.scheduling.victims.node_sweep import sweepable
from reprieve.engine.scheduling.victims.reprieve import reprieve
from reprieve.engine.scheduling.victims.trackers import Members
from reprieve.engine.scheduling.victims.units import Units, potential_units
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling.agreement import cases_of
from tests.engine.scheduling.engine_cycle import unit_of

CHUNK, CHUNKS = 200, 6
CLAIMS = {"devices", "zonal volume", "claim of one pod", "volume limit"}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_nodes_at_once_gives_the_candidates_of_one_after_the_other(chunk: int) -> None:
    compared = Counter[str]()
    for case in cases_of(range(chunk * CHUNK, (chunk + 1) * CHUNK)):
        for pending, simulation, policy in _pods(case):
            if not sweepable(simulation, pending):
                compared["not sweepable"] += 1
                continue
            nodes = np.isin(simulation.codes(pending), [int(each) for each in RESOLVABLE])
            units = _units(simulation, pending.row.priority, policy)
            budgets = budget_matches(simulation)
            swept = find_candidates(simulation, pending, policy, nodes)
            literal = each_node(simulation, pending, units, budgets, nodes)
            assert swept.statuses() == literal.statuses(), case["seed"]
            found, expected = _victims(swept), _victims(literal)
            assert found == expected, case["seed"]
            compared["with candidates" if found else "without"] += 1
    assert compared["with candidates"] >= CHUNK // 2
    assert compared["without"] >= CHUNK // 20


def _victims(found: Candidates) -> dict[int, tuple[UnitVictim, ...]]:
    """The victims on each candidate."""
    return {
        int(node): found.units.victims(*found.victims(index))
        for index, node in enumerate(found.nodes)
    }


def _pods(case: Json) -> list[tuple[Pending, Simulation, Policy]]:
    """Every pending pod as if it were a plain one."""
    snapshot, policy = cluster_of(case).snapshot(), policy_of(case)
    return [
        (pending, Simulation(snapshot, policy, policy.profiles[0]), policy)
        for pending in snapshot.pending.values()
        if not pending.row.nominated
    ]


def _units(simulation: Simulation, priority: int, policy: Policy) -> Units:
    return potential_units(simulation.snapshot, simulation.present, priority, policy)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_trackers_reprieve_whom_all_filters_would(chunk: int) -> None:
    compared = Counter[str]()
    for case in cases_of(range(chunk * CHUNK, (chunk + 1) * CHUNK)):
        _compare(case, policy_of(case), compared)
    assert compared["with victims"] >= CHUNK // 5
    assert min(compared["whole groups"], compared["budgets"]) >= CHUNK // 25


@pytest.mark.parametrize("chunk", range(2))
def test_trackers_reprieve_whom_all_filters_would_while_claims_are_simulated(chunk: int) -> None:
    compared = Counter[str]()
    for case in cases_of(range(10_000 + chunk * 1_000, 11_000 + chunk * 1_000)):
        if CLAIMS & set(case["situations"]):
            _compare(case, replace(policy_of(case), simulate_claims=True), compared)
    assert compared["with victims"] >= 40
    assert min(compared["whole groups"], compared["budgets"]) >= 5


def _compare(case: Json, policy: Policy, compared: Counter[str]) -> None:
    snapshot = cluster_of(case).snapshot()
    group = _group(case, snapshot)
    queued = [snapshot.pending[uid] for uid in unit_of(case, snapshot).pods]
    if group is None or not queued:
        return
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    units = _units(simulation, group.priority, policy)
    if not len(units):
        return
    simulation.remove(units.slots())
    empty = simulation.checkpoint()
    placing = place_group(simulation, group, queued, policy, best_node)
    simulation.rollback(empty)
    if placing.failure is not None or placing.error:
        return
    members = [
        (pending, node) for pending, node in zip(queued, placing.nodes, strict=True) if node >= 0
    ]
    budgets = budget_matches(simulation)
    found = reprieve(simulation, units, members, budgets, second_pass=False)
    expected = one_by_one(simulation, units, members, budgets)
    assert found.victims.tolist() == expected[0], case["seed"]
    assert list(found.violating) == expected[1], case["seed"]
    compared["with victims" if len(found.victims) else "without"] += 1
    compared["whole groups"] += bool((found.victims >= units.singles).any())
    compared["budgets"] += sum(found.violating) > 0


def _group(case: Json, snapshot: Snapshot) -> GroupRow | None:
    index = snapshot.group_index.get(f"default/{case['preemptor'].get('podGroup')}", -1)
    return snapshot.group_rows[index] if index >= 0 else None


def one_by_one(
    simulation: Simulation, units: Units, members: Members, budgets: BudgetMatches
) -> tuple[list[int], list[int]]:
    """Return the victims, most important first, and the pods of each that break a budget."""
    order = units.ordered(np.arange(len(units)))
    violating = dict(
        zip(order.tolist(), violating_pods(units, order, budgets).tolist(), strict=True)
    )
    turns = sorted(order.tolist(), key=lambda unit: violating[unit] == 0)
    victims = set()
    for unit in turns:
        simulation.restore(units.pods(unit))
        if not _all_pass(simulation, members):
            simulation.remove(units.pods(unit))
            victims.add(unit)
    gone = [unit for unit in order.tolist() if unit in victims]
    return gone, [violating[unit] for unit in gone]


def _all_pass(simulation: Simulation, members: Members) -> bool:
    placed = []
    passes = True
    for pending, node in members:
        if simulation.code_at(pending, node):
            passes = False
            break
        placed.append(simulation.place(pending, node))
    for pod in reversed(placed):
        simulation.unplace(pod)
    return passes

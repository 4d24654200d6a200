"""Groups that go one by one down to a floor, and leaders that go with all: `nonUniformGroups`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import WITH_GROUP, Change
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import cluster_of, gang, node, pod, slot_of, snapshot_of

POLICY = Policy(non_uniform_groups=True)


def serving(
    nodes: str, *, name: str = "serving", floor: int = 0, leader: int = -1, **facts: Any
) -> list[Any]:
    """A running group with a pod of four GPUs on each of these nodes."""
    rows: list[Any] = gang(
        len(nodes), name, gpus=4, min_count=1, nodes=nodes, **{"priority": 1, **facts}
    )
    rows[0] = replace(rows[0], floor=floor)
    if leader >= 0:
        rows[leader + 1] = replace(rows[leader + 1], disruption=WITH_GROUP)
    return rows


def decide(snapshot: Snapshot, policy: Policy = POLICY, **session: Any) -> Attempt:
    group = "default/train" if "pod-train-0" in snapshot.pending else ""
    found = Session(snapshot, policy, **session).attempt(Unit(tuple(snapshot.pending), group))
    assert found is not None
    assert faults_of(snapshot, policy, found) == ()
    return found


def victims(found: Attempt) -> set[str]:
    return {v.root.name for v in found.plan.victims} if found.plan is not None else set()


def waiting(grouped: bool, gpus: int, pods: int = 1) -> Any:
    if grouped:
        return gang(pods, "train", gpus=gpus, priority=10)
    return pod("alone", gpus=gpus, priority=10)


ALL = {"serving-0", "serving-1", "serving-2", "serving-3"}
both = pytest.mark.parametrize("grouped", [False, True], ids=["pod", "gang"])


@both
@pytest.mark.parametrize(
    ("floor", "leader", "gone"),
    [
        (0, -1, {"serving-2", "serving-3"}),
        (2, -1, {"serving-2", "serving-3"}),
        (3, -1, ALL),
        (5, -1, ALL),  # below it already: whatever goes takes the rest with it
        (-1, -1, {"serving-2", "serving-3"}),  # cannot be read
        (0, 3, ALL),
        (0, 0, {"serving-2", "serving-3"}),  # the leader stays
    ],
)
def test_the_rest_goes_with_pods_of_which_too_few_or_no_leader_would_stay(
    grouped: bool, floor: int, leader: int, gone: set[str]
) -> None:
    nodes = [node("a", gpus=8), node("b", gpus=8, labels={"zone": "b"})]
    rows = serving("aabb", floor=floor, leader=leader)
    wants = [replace_class(each, zone="b") for each in as_list(waiting(grouped, 8))]
    snapshot = snapshot_of(nodes, rows, wants)
    assert victims(decide(snapshot, Policy())) == {"serving-2", "serving-3"}
    found = decide(snapshot)
    assert victims(found) == gone
    assert found.preemption is not None
    whole = {unit.whole_group for unit in found.preemption.victims}
    assert whole == {gone == ALL}


def as_list(rows: Any) -> list[Any]:
    return rows if isinstance(rows, list) else [rows]


def replace_class(row: Any, **selector: str) -> Any:
    """Bind a waiting pod to nodes with these labels; a group is as it was."""
    if not hasattr(row, "pod_class"):
        return row
    return replace(row, pod_class=replace(row.pod_class, node_selector=tuple(selector.items())))


def test_of_equal_nodes_the_one_is_taken_where_no_group_is_torn() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        serving("ab", floor=2, start=100),
        serving("ab", name="other", start=50),
        waiting(False, 4),
    )
    assert victims(decide(snapshot, Policy())) == {"serving-0"}
    assert victims(decide(snapshot)) == {"other-0"}


def test_a_terminating_pod_does_not_stay() -> None:
    rows = serving("abc", floor=2)
    rows[3] = replace(rows[3], deleting=True)
    snapshot = snapshot_of(node("a", gpus=4), node("b", gpus=4), rows, waiting(True, 4))
    assert victims(decide(snapshot)) == {"serving-0", "serving-1"}


def test_the_proof_knows_floors() -> None:
    snapshot = snapshot_of(
        node("a", gpus=4), node("b", gpus=4), serving("ab", floor=2), waiting(True, 4)
    )
    found = Session(snapshot, Policy()).attempt(Unit(tuple(snapshot.pending), "default/train"))
    assert found is not None
    assert [each.fault for each in faults_of(snapshot, POLICY, found)] == [Fault.BELOW_FLOOR]


def scene(seed: int) -> list[Change]:
    """Up to six nodes full of groups with floors and leaders, and somebody who waits."""
    chosen = random.Random(seed)
    names = [f"n{number}" for number in range(chosen.randint(2, 6))]
    rows: list[Any] = [node(name, gpus=8, pods=20) for name in names]
    left = dict.fromkeys(names, 8)
    for number in range(chosen.randint(1, 5)):
        size, gpus = chosen.randint(1, 6), chosen.choice([1, 2, 4])
        places = []
        for _ in range(size):
            free = [name for name in names if left[name] >= gpus]
            if free:
                places.append(chosen.choice(free))
                left[places[-1]] -= gpus
        facts: dict[str, Any] = {"priority": chosen.randint(0, 3), "start": chosen.randint(1, 50)}
        group: list[Any] = gang(
            len(places), f"g{number}", gpus=gpus, min_count=1, nodes=places, **facts
        )
        group[0] = replace(group[0], floor=chosen.choice([0, 1, 2, 3]))
        if places and chosen.random() < 0.3:
            group[1] = replace(group[1], disruption=WITH_GROUP)
        rows += group
    wants = waiting(chosen.random() < 0.6, chosen.choice([4, 8]), chosen.randint(1, 3))
    return [*rows, *as_list(wants)]


@pytest.mark.parametrize("cases", [100, pytest.param(400, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("options", [{}, {"max_placements": 4, "harm_order": True}], ids=repr)
def test_plans_are_feasible_deterministic_and_leave_nobody_who_could_stay(
    options: dict[str, Any], cases: int
) -> None:
    policy = replace(POLICY, **options)
    preempting = extended = 0
    for seed in range(cases):
        rows = scene(seed)
        snapshot = snapshot_of(rows)
        found = decide(snapshot, policy)  # feasible: it holds the proof
        again = cluster_of()
        random.Random(seed).shuffle(rows)
        again.apply(rows)
        assert victims(decide(again.snapshot(), policy)) == victims(found), seed
        if found.plan is None:
            continue
        preempting += 1
        plain = Session(snapshot, replace(policy, non_uniform_groups=False))
        other = plain.attempt(Unit(found.unit.pods, found.unit.group))
        extended += other is not None and victims(other) != victims(found)
        assert whole_or_above_the_floor(snapshot, victims(found)), seed
        assert not returnable(snapshot, policy, found), seed
    assert preempting > cases // 4
    assert extended > cases // 10


def whole_or_above_the_floor(snapshot: Snapshot, gone: set[str]) -> bool:
    """The promise by hand, from names and rows alone."""
    for row in snapshot.group_rows:
        if row is None:
            continue
        pods = {key.partition("/")[2] for key in snapshot.pod_keys if key.startswith("default/g")}
        mine = {name for name in pods if name.rpartition("-")[0] == row.name}
        lost, stay = mine & gone, mine - gone
        leader = {name for name in mine if snapshot.pod_flags[slot_of(snapshot, name)] & 8}
        if lost and stay and (len(stay) < row.floor or leader & lost):
            return False
    return True


def returnable(snapshot: Snapshot, policy: Policy, found: Attempt) -> list[str]:
    """Victim units that could stay: those without whom all members still have their nodes."""
    assert found.preemption is not None and found.plan is not None
    units = found.preemption.victims
    could = []
    for one in units:
        simulation = Simulation(snapshot, policy, Profile())
        for other in units:
            if other is not one:
                simulation.remove(slots(other.pods))
        fits = True
        for uid, name in found.plan.placement:
            pending, index = snapshot.pending[uid], snapshot.node_index[name]
            fits = fits and simulation.code_at(pending, index) == 0
            simulation.place(pending, index)
        if fits:
            could.append(snapshot.pod_keys[one.pods[0]])
    return could


def slots(pods: tuple[int, ...]) -> Any:
    return np.array(pods, np.int64)

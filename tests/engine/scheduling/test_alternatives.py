"""Several placements are examined where an option says so, and the least harmful one is taken."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Gates, Policy
from reprieve.engine.scheduling.least_cost.alternatives import set_harm
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import gang, node, pod, snapshot_of

POLICY = Policy()


def attempt(snapshot: Snapshot, **options: object) -> Attempt:
    """Decide about the waiting gang `train`; its plan, if any, is proven."""
    policy = replace(POLICY, **options)  # type: ignore[arg-type]
    unit = Unit(tuple(snapshot.pending), "default/train")
    found = Session(snapshot, policy).attempt(unit)
    assert found is not None
    assert faults_of(snapshot, policy, found) == ()
    return found


def victims(found: Attempt) -> list[str]:
    """Return the names of the victims, sorted."""
    return sorted(v.root.name for v in found.plan.victims) if found.plan is not None else []


def test_no_victim_has_a_higher_priority_than_one_is_needed() -> None:
    # By score the emptier node is best once everybody is gone; the other one's pod matters less.
    snapshot = snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("middle", gpus=8, priority=5, node="a"),
        pod("low", gpus=8, priority=1, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )
    assert victims(attempt(snapshot)) == ["middle"]
    assert victims(attempt(snapshot, binary_search_priority=True)) == ["low"]


def test_another_placement_is_taken_when_its_victims_do_less_harm() -> None:
    snapshot = snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        pod("a-0", gpus=4, priority=1, node="a"),
        pod("a-1", gpus=4, priority=1, node="a"),
        pod("b-0", gpus=8, priority=1, node="b"),
        gang(1, "train", gpus=8, cpu=1000, priority=10),
    )
    assert victims(attempt(snapshot)) == ["a-0", "a-1"]
    found = attempt(snapshot, max_placements=2)
    assert victims(found) == ["b-0"]
    assert found.preemption is not None and found.preemption.placements == 2


def racks(*, priority: int = 1) -> Snapshot:
    """Two racks; the one that scores better has victims that matter more."""
    return snapshot_of(
        node("a-0", gpus=8, labels={"rack": "a"}),
        node("b-0", gpus=8, labels={"rack": "b"}),
        node("b-1", gpus=8, labels={"rack": "b"}),
        pod("high", gpus=8, priority=priority + 1, node="a-0"),
        pod("low-0", gpus=8, priority=priority, node="b-0"),
        pod("low-1", gpus=8, priority=priority, node="b-1"),
        gang(1, "train", gpus=8, priority=10, topology_key="rack"),
    )


def test_victims_are_compared_across_domains() -> None:
    assert victims(attempt(racks())) == ["high"]
    found = attempt(racks(), topology_preemption=True)
    assert victims(found) == ["low-0"]
    assert found.preemption is not None and found.preemption.placements == 2
    assert victims(attempt(racks(), max_placements=2)) == ["low-0"]


def test_placed_members_fix_the_domain_all_the_same() -> None:
    snapshot = snapshot_of(
        node("a-0", gpus=8, labels={"rack": "a"}),
        node("a-1", gpus=8, labels={"rack": "a"}),
        node("b-0", gpus=8, labels={"rack": "b"}),
        pod("high", gpus=8, priority=5, node="a-1"),
        pod("low", gpus=8, priority=1, node="b-0"),
        gang(2, "train", gpus=8, priority=10, topology_key="rack", nodes=["a-0"]),
    )
    assert victims(attempt(snapshot, topology_preemption=True, max_placements=4)) == ["high"]


def test_without_the_gate_a_topology_constraint_has_no_domains() -> None:
    gates = Gates(topology_aware=False)
    found = attempt(racks(), topology_preemption=True, gates=gates)
    assert victims(found) == victims(attempt(racks(), gates=gates))
    assert found.preemption is not None and found.preemption.placements == 1


def test_of_equal_harm_victims_that_find_another_node_go_first() -> None:
    # What fits on "c" is `small`, of the same priority and number as `large`.
    snapshot = snapshot_of(
        node("a", gpus=8, cpu=64_000),
        node("b", gpus=8, cpu=32_000),
        node("c", gpus=2, cpu=64_000),
        pod("large", gpus=8, priority=1, node="a"),
        pod("small", gpus=2, cpu=30_000, priority=1, node="b"),
        gang(1, "train", gpus=7, cpu=4000, priority=10),
    )
    assert victims(attempt(snapshot, max_placements=2)) == ["large"]
    assert victims(attempt(snapshot, max_placements=2, cascade_aware=True)) == ["small"]


def clusters(seed: int) -> Snapshot:
    """A random full cluster of a few nodes, single pods and whole groups, and a gang that waits."""
    chosen = random.Random(seed)
    rows: list[object] = []
    names = count()
    for number in range(chosen.randint(2, 6)):
        rack = {"rack": chosen.choice("ab")}
        rows.append(node(f"n{number}", gpus=8, cpu=chosen.choice([32_000, 64_000]), labels=rack))
        free = 8
        while free > 0:
            size = min(free, chosen.choice([1, 2, 4, 8]))
            free -= size
            if chosen.random() < 0.9:
                low = chosen.randint(0, 12)
                name = f"p{next(names)}"
                rows.append(pod(name, gpus=size, priority=low, node=f"n{number}"))
    key = chosen.choice(["", "rack"])
    size = chosen.choice([1, 2, 2, 3])
    rows.append(
        gang(size, "train", gpus=chosen.choice([2, 4, 8]), cpu=1000, priority=10, topology_key=key)
    )
    return snapshot_of(*rows)  # type: ignore[arg-type]


def test_halving_finds_what_trying_every_priority_finds() -> None:
    preempted = refused = several = 0
    for seed in range(150):
        snapshot = clusters(seed)
        found = attempt(snapshot, binary_search_priority=True)
        below = sorted({int(p) for p in snapshot.pod_priority[snapshot.pod_node >= 0] if p < 10})
        linear = next(
            (
                level
                for level in below
                if attempt(_without_above(snapshot, level)).preemption is None
                or attempt(_without_above(snapshot, level)).plan is not None
            ),
            None,
        )
        if found.preemption is None:
            continue
        if found.plan is None:
            refused += 1
            assert linear is None
            continue
        preempted += 1
        assert found.preemption is not None and linear is not None
        highest = max(unit.priority for unit in found.preemption.victims)
        assert highest <= linear
        several += len(below) > 2
        assert found.preemption.placements <= len(below).bit_length()
    assert preempted > 60 and refused > 5 and several > 40


def _without_above(snapshot: Snapshot, level: int) -> Snapshot:
    """Return the same cluster in which nobody above the level may be a victim."""
    priority = snapshot.pod_priority.copy()
    priority[(priority > level) & (priority < 10)] = 10
    return replace(snapshot, pod_priority=priority)


def test_more_placements_never_do_more_harm() -> None:
    better = equal = 0
    for seed in range(150):
        snapshot = clusters(seed)
        one = attempt(snapshot)
        if one.plan is None or one.preemption is None:
            continue
        before = set_harm(snapshot, one.preemption)
        for options in ({"max_placements": 4}, {"topology_preemption": True}):
            other = attempt(snapshot, **options)
            assert other.preemption is not None
            after = set_harm(snapshot, other.preemption)
            assert after <= before
            better += after < before
            equal += after == before
    assert better > 20 and equal > 50

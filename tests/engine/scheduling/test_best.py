"""`profile: best`: nobody goes where members fit free, and victims cost the least there is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bench.optimum import KINDS, Instance, instance
from bench.optimum_milp import fits_free, least, lowest_priority
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, GroupRow, NodeRow, PodClass, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

NOW = 1_800_000_000
GPU = "nvidia.com/gpu"
COMPATIBLE = Policy()
BEST = Policy(choice=VictimChoice.BEST)
PODS = 1 << 20


def decided(snapshot: Snapshot, unit: Unit, policy: Policy) -> Attempt:
    attempt = Session(snapshot, policy, now=NOW).attempt(unit)
    assert attempt is not None
    assert faults_of(snapshot, policy, attempt, NOW) == ()
    return attempt


def pod(name: str, gpus: int, priority: int, node: str = "", group: str = "") -> PodRow:
    entry = PodClass((("cpu", 1_000), (GPU, gpus)), 1_000, 200 * 2**20)
    return PodRow(Uid(name), "default", name, 1, entry, node=node, priority=priority, group=group)


def fragmented(seed: int) -> tuple[Snapshot, Unit, list[int], list[int]]:
    """Nodes with victims and some room, into which the members were cut: they fit free."""
    random = Random(f"free {seed}")
    rows: list[Change] = []
    free, sizes = [], []
    for number in range(random.randint(2, 5)):
        name, held = f"node-{number}", random.randint(1, 6)
        rows.append(NodeRow(Uid(name), name, 1, {"pods": 110, "cpu": 64_000, GPU: 8}, {}))
        rows.append(pod(f"low-{number}", held, 1, name))
        free.append(8 - held)
        left = 8 - held
        while left:
            sizes.append(random.randint(1, left))
            left -= sizes[-1]
    random.shuffle(sizes)
    rows.append(GroupRow(Uid("train"), "default", "train", 1, min_count=len(sizes), priority=10))
    members = [pod(f"m-{at:02}", size, 10, group="train") for at, size in enumerate(sizes)]
    cluster = Cluster()
    cluster.apply([*rows, *members])
    unit = Unit(tuple(row.uid for row in members), "default/train")
    return cluster.snapshot(), unit, free, sizes


def test_nobody_goes_where_the_members_fit_free() -> None:
    needless = 0
    for seed in range(60):
        snapshot, unit, free, sizes = fragmented(seed)
        assert fits_free(free, (), sizes)
        needless += decided(snapshot, unit, COMPATIBLE).plan is not None
        attempt = decided(snapshot, unit, BEST)
        assert attempt.plan is None and all(member.bind for member in attempt.members), seed
    assert needless >= 15, needless


def test_of_victims_that_cost_alike_those_go_that_hold_fewer_devices() -> None:
    """A pod of 8 GPUs that started last, and one of 2 beside others that stay."""
    rows: list[Change] = [
        NodeRow(Uid(name), name, 1, {"pods": 110, "cpu": 64_000, GPU: 8}, {}) for name in "ab"
    ]
    rows += [
        replace(pod("large", 8, 1, "a"), start=NOW - 60),
        replace(pod("small", 2, 1, "b"), start=NOW - 3_600),
        replace(pod("other", 5, 5, "b"), start=NOW - 3_600),
        pod("train", 3, 10),
    ]
    cluster = Cluster()
    cluster.apply(rows)
    for policy, goes in ((COMPATIBLE, "large"), (BEST, "small")):
        plan = decided(cluster.snapshot(), Unit((Uid("train"),)), policy).plan
        assert plan is not None
        assert [victim.root.name for victim in plan.victims] == [goes]


@pytest.mark.parametrize("kind", KINDS)
def test_victims_cost_the_least_there_is(kind: str) -> None:
    better = 0
    for seed in range(1_000, 1_014):
        given = instance(seed, kind)
        level = lowest_priority(given.gpus, given.units, given.members)
        if level is None or fits_free(given.gpus, given.units, given.members):
            continue
        best = least(
            given.gpus, given.units, given.members, level, lambda u: u.pods * (PODS + u.priority)
        )
        found = cost(given, BEST)
        assert found == (level, best), seed
        before = cost(given, COMPATIBLE)
        better += before is None or found < before
    assert kind == "single" or better >= 2, better


def cost(given: Instance, policy: Policy) -> tuple[int, int] | None:
    """Top priority, and pods with the sum of their priorities; None: it is refused."""
    snapshot = given.snapshot()
    attempt = decided(snapshot, given.unit, policy)
    if attempt.plan is None:
        return None
    names = {given.of_pod[victim.root.name] for victim in attempt.plan.victims}
    units = [given.units[name] for name in names]
    top = max(unit.priority for unit in units)
    return top, sum(unit.pods * (PODS + unit.priority) for unit in units)


def test_members_beyond_the_minimum_do_not_keep_the_others_from_fitting() -> None:
    cluster = Cluster()
    nodes = [NodeRow(Uid(n), n, 1, {"pods": 110, "cpu": 64_000, GPU: 4}, {}) for n in ("a", "b")]
    sizes = [2, 2, 4, 1]
    members = [pod(f"m-{at}", size, 10, group="train") for at, size in enumerate(sizes)]
    group = GroupRow(Uid("train"), "default", "train", 1, min_count=3, priority=10)
    cluster.apply([*nodes, pod("low", 3, 1, "a"), group, *members])
    unit = Unit(tuple(row.uid for row in members), "default/train")
    attempt = decided(cluster.snapshot(), unit, BEST)
    assert attempt.plan is None
    assert [bool(member.bind) for member in attempt.members] == [True, True, False, True]


def test_members_of_too_many_kinds_take_the_lowest_priority_all_the_same() -> None:
    """What cannot be worked out is searched for in several placements."""
    rows: list[Change] = []
    for number in range(28):
        name, urgent = f"node-{number:02}", number < 14
        cpu = 128_000 if urgent else 64_000  # scores prefer the nodes of the more urgent pods
        rows.append(NodeRow(Uid(name), name, 1, {"pods": 110, "cpu": cpu, GPU: 8}, {}))
        rows.append(pod(f"old-{number:02}", 8, 5 if urgent else 1, name))
    rows.append(GroupRow(Uid("train"), "default", "train", 1, min_count=13, priority=10))
    members = []
    for number in range(13):
        entry = PodClass((("cpu", 1_000 + number), (GPU, 8)), 1_000, 200 * 2**20)
        row = pod(f"m-{number:02}", 8, 10, group="train")
        members.append(replace(row, pod_class=entry))
    cluster = Cluster()
    cluster.apply([*rows, *members])
    snapshot, unit = cluster.snapshot(), Unit(tuple(row.uid for row in members), "default/train")
    found = {policy: decided(snapshot, unit, policy).preemption for policy in (COMPATIBLE, BEST)}
    tops = {policy.choice: each and each.victims[0].priority for policy, each in found.items()}
    assert tops == {VictimChoice.COMPATIBLE: 5, VictimChoice.BEST: 1}

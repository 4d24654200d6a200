"""What victims evict in turn when they come back, with `cascadeAware` and without.

Seeded clusters of 40 GPU nodes. Three in five are full of pods of which two have to go for a
member of the gang that waits, all of one priority, so that many placements do equal harm. On the
others a pod of a high priority leaves half of the GPUs to somebody of a low one, or free with few
CPUs, where the victims that need few CPUs find room. Both policies examine the same number of
placements.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.measuring import print_line
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, GroupRow, NodeRow, PodClass, PodRow
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["run_cascades"]

_PLACEMENTS = 8
_GPU = "nvidia.com/gpu"


def run_cascades(bench: str, seeds: int) -> None:
    """Print evictions of the first and of the second round over so many clusters."""
    for aware in (False, True):
        policy = Policy(max_placements=_PLACEMENTS, cascade_aware=aware)
        first = second = preempted = 0
        for seed in range(seeds):
            rows = _rows(random.Random(seed))
            waiting = [row for row in rows if isinstance(row, PodRow) and not row.node]
            gang = _decided(rows, Unit(tuple(row.uid for row in waiting), "default/gang"), policy)
            if gang.plan is None:
                continue
            preempted += 1
            first += len(gang.plan.victims)
            second += _returning(rows, gang, policy)
        print_line(
            bench,
            "cascade",
            cascade_aware=aware,
            max_placements=_PLACEMENTS,
            clusters=seeds,
            preempted=preempted,
            first_round_evictions=first,
            second_round_evictions=second,
        )


def _rows(chance: random.Random) -> list[Change]:
    rows: list[Change] = []
    for index in range(40):
        name = f"node-{index:02}"
        amounts = {"pods": 110, "cpu": 64_000, _GPU: 8}
        rows.append(NodeRow(Uid(name), name, 1, amounts, {"kubernetes.io/hostname": name}))
        if chance.random() < 0.6:
            for half in "ab":
                cpu = chance.choice([8_000, 28_000])
                rows.append(_pod(f"pod-{index:02}-{half}", 4, cpu, 10, node=name))
            continue
        free = chance.random() < 0.5
        rows.append(_pod(f"pod-{index:02}-a", 4, 52_000 if free else 36_000, 100, node=name))
        if not free:
            rows.append(_pod(f"pod-{index:02}-b", 4, 8_000, 1, node=name))
    size = chance.choice([2, 4])
    rows.append(GroupRow(Uid("gang"), "default", "gang", 1, priority=50, min_count=size))
    rows += [replace(_pod(f"member-{n}", 8, 8_000, 50), group="gang") for n in range(size)]
    return rows


def _pod(name: str, gpus: int, cpu: int, priority: int, node: str = "") -> PodRow:
    pod_class = PodClass((("cpu", cpu), (_GPU, gpus)), cpu, 200 * 2**20)
    return PodRow(Uid(name), "default", name, 1, pod_class, node=node, priority=priority)


def _decided(rows: Sequence[Change], unit: Unit, policy: Policy) -> Attempt:
    cluster = Cluster()
    cluster.apply(list(rows))
    attempt = Session(cluster.snapshot(), policy).attempt(unit)
    assert attempt is not None
    return attempt


def _returning(rows: Sequence[Change], first: Attempt, policy: Policy) -> int:
    """Return how many pods are evicted while the victims, come again, find a node each."""
    assert first.plan is not None
    placed = dict(first.plan.placement)
    gone = {victim.root.uid for victim in first.plan.victims}
    state = {
        row.uid: replace(row, node=placed.get(row.uid, row.node))
        if isinstance(row, PodRow)
        else row
        for row in rows
        if not isinstance(row, GroupRow)
    }
    waiting = [
        replace(row, uid=Uid(f"{uid}-again"), name=f"{row.name}-again", node="")
        for uid, row in state.items()
        if uid in gone and isinstance(row, PodRow)
    ]
    for uid in gone:
        del state[uid]
    evictions = 0
    for pod in sorted(waiting, key=lambda row: (-row.priority, row.name)):
        attempt = _decided([*state.values(), pod], Unit((pod.uid,)), policy)
        node = attempt.members[0].bind
        if attempt.plan is not None:
            evictions += len(attempt.plan.victims)
            for victim in attempt.plan.victims:
                del state[victim.root.uid]
            node = dict(attempt.plan.placement)[pod.uid]
        if node:
            state[pod.uid] = replace(pod, node=node)
    return evictions

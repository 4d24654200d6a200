"""`python -m bench.optimum_variants`: profile best on clusters that the exact model does not know.

The clusters of `bench.optimum`, changed: some pods are under disruption budgets (`budgets`), CPUs
are short and pods ask for several times as many for each GPU (`cpu`), members are spread over nodes
(`spread`), or there are up to 24 nodes with more units (`large`). Each decision is compared with
that of profile compatible by the order of profile best, and held against the proof. Printed are how
many plans cost less, how many say which gap, and how many places only one of the two finds.
`--quick`: few clusters, which assert what must never be.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.measuring import print_line
from bench.optimum import KINDS, Mismatch, instance
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Change,
    NodeRow,
    Operator,
    PodRow,
    Requirement,
    SpreadConstraint,
)
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.plan_cost import plan_cost
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.budgets import budget_matches
from reprieve.engine.scheduling.victims.harm import lost_work
from reprieve.units.ids import Uid

__all__ = ["VARIANTS", "main"]

BENCH: Final = "optimum_variants"
VARIANTS: Final = ("budgets", "cpu", "spread", "large")
_NOW: Final = 1_800_000_000
_GPU: Final = "nvidia.com/gpu"
_APP: Final = "app"
_BESIDE: Final = 3  # clusters that make up a large one


def main(arguments: list[str] | None = None) -> int:
    """Compare all variants; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.optimum_variants", description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="clusters of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    count = 5 if chosen.quick else chosen.instances
    try:
        for variant in chosen.variants:
            for kind in KINDS:
                for harm in (False, True):
                    seeds = range(chosen.first, chosen.first + count)
                    _compare(variant, kind, seeds, harm=harm)
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


def _compare(variant: str, kind: str, seeds: range, *, harm: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        snapshot, unit = _drawn(variant, kind, seed)
        compatible = Policy(harm_order=harm)
        best = replace(compatible, choice=VictimChoice.BEST)
        before, after = (_decided(snapshot, unit, policy) for policy in (compatible, best))
        faults = faults_of(snapshot, best, after, _NOW)
        if faults:
            raise Mismatch(f"{variant} {kind} {seed}: {faults[0]}")
        if after.plan is None:
            placed = any(member.bind for member in after.members)
            if before.plan is not None and not placed:
                raise Mismatch(f"{variant} {kind} {seed}: best finds no victims, compatible does")
            seen["placed_free"] += placed
            seen["free_only_with_best"] += placed and before.plan is not None
            continue
        seen["plans"] += 1
        gap = after.plan.proof.gap
        seen["gap_0" if gap == 0 else "gap_unknown" if gap is None else "gap_above_0"] += 1
        if before.plan is None:
            seen["plans_only_with_best"] += 1
            continue
        mine, theirs = (_cost(snapshot, best, each) for each in (after, before))
        if mine > theirs:
            raise Mismatch(f"{variant} {kind} {seed}: best costs more than compatible")
        seen["cheaper"] += mine < theirs
    policy = "best + harmOrder" if harm else "best"
    print_line(BENCH, f"{variant}, {kind}", policy=policy, clusters=len(seeds), **seen)


def _decided(snapshot: Snapshot, unit: Unit, policy: Policy) -> Attempt:
    attempt = Session(snapshot, policy, now=_NOW).attempt(unit)
    assert attempt is not None
    return attempt


def _cost(snapshot: Snapshot, policy: Policy, attempt: Attempt) -> tuple[int, ...]:
    """Return what the victims cost by the order of profile best."""
    assert attempt.preemption is not None
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    lost = lost_work(snapshot, _NOW, policy.max_lost_work) if policy.harm_order else None
    return plan_cost(snapshot, attempt.preemption, budget_matches(simulation), lost)


# Clusters.


def _drawn(variant: str, kind: str, seed: int) -> tuple[Snapshot, Unit]:
    given = instance(seed, kind)
    chance = random.Random(f"{variant} {seed}")
    rows = [*given.rows, *given.waiting]
    if variant == "budgets":
        rows = _guarded(rows, chance)
    elif variant == "cpu":
        rows = _short_of_cpu(rows, chance)
    elif variant == "spread":
        rows = _spread(rows)
    else:
        rows += [
            row
            for number in range(1, _BESIDE)
            for row in _renamed(instance(10_000 * number + seed, kind).rows, f"-{number}")
        ]
    cluster = Cluster()
    cluster.apply(rows)
    return cluster.snapshot(), given.unit


def _guarded(rows: Sequence[Change], chance: random.Random) -> list[Change]:
    """Put half of the pods that run under one of two budgets."""
    found: list[Change] = []
    for row in rows:
        if isinstance(row, PodRow) and row.node and chance.random() < 0.5:
            row = replace(row, labels=((_APP, chance.choice("ab")),))
        found.append(row)
    for name in "ab":
        selector = (Requirement(_APP, Operator.IN, (name,)),)
        allowed = chance.choice((0, 0, 1, 2))
        found.append(BudgetRow(Uid(f"budget-{name}"), "default", name, 1, selector, allowed))
    return found


def _short_of_cpu(rows: Sequence[Change], chance: random.Random) -> list[Change]:
    """Let pods ask for one to four CPUs for each GPU, and nodes have hardly more than is used."""
    used: Counter[str] = Counter()
    found: list[Change] = []
    for row in rows:
        if isinstance(row, PodRow):
            requests = dict(row.pod_class.requests)
            requests["cpu"] = requests[_GPU] * 1_000 * chance.choice((1, 2, 4))
            entry = replace(row.pod_class, requests=tuple(sorted(requests.items())))
            row = replace(row, pod_class=entry)
            used[row.node] += requests["cpu"]
        found.append(row)
    return [
        replace(
            row,
            allocatable={
                **row.allocatable,
                "cpu": max(16_000, used[row.name] + 1_000 * chance.choice((0, 1, 4))),
            },
        )
        if isinstance(row, NodeRow)
        else row
        for row in found
    ]


def _spread(rows: Sequence[Change]) -> list[Change]:
    """Let what waits differ by at most one pod between nodes."""
    selector = (Requirement(_APP, Operator.IN, ("train",)),)
    constraint = SpreadConstraint("kubernetes.io/hostname", 1, True, selector)
    return [
        replace(
            row,
            labels=((_APP, "train"),),
            pod_class=replace(row.pod_class, spread=(constraint,)),
        )
        if isinstance(row, PodRow) and not row.node
        else row
        for row in rows
    ]


def _renamed(rows: Sequence[Change], suffix: str) -> list[Change]:
    """Return the rows of a cluster under other names."""
    found: list[Change] = []
    for row in rows:
        name = f"{row.name}{suffix}"
        if isinstance(row, NodeRow):
            labels = {"kubernetes.io/hostname": name}
            found.append(replace(row, uid=Uid(name), name=name, labels=labels))
        elif isinstance(row, PodRow):
            group = f"{row.group}{suffix}" if row.group else ""
            node = f"{row.node}{suffix}"
            found.append(replace(row, uid=Uid(name), name=name, node=node, group=group))
        else:
            found.append(replace(row, uid=Uid(name), name=name))
    return found


if __name__ == "__main__":
    sys.exit(main())

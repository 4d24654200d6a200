"""`python -m bench.optimum_variants`: profile best on clusters that the exact model does not know.

The clusters of `bench.optimum`, changed: some pods are under disruption budgets (`budgets`), CPUs
are short and pods ask for several times as many for each GPU (`cpu`), members are spread over nodes
(`spread`), over nodes and zones where a fifth of the pods that run count too (`held`, `zones`), or
kept apart from these and one another (`apart`), all GPUs are claimed as devices, with
`simulateClaims` (`claims`), or there are 12 to 40 nodes (`large`, `large budgets`). Each decision
is compared with that of profile compatible by the order of profile best, and held against the
proof. Printed are how many plans cost less, how many say which gap, how many places only one of the
two finds, how often neither does though there are victims (`missed`), and what plans cost for each
that the least costs (`optimum_exact`), pods or with `harmOrder` lost work, where as few budgets are
broken at the same top priority.
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
from bench.optimum import KINDS, Instance, Mismatch, instance
from bench.optimum_exact import Exact, ExactUnit
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    Device,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import (
    AffinityTerm,
    BudgetRow,
    Change,
    Entry,
    Kind,
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
from reprieve.engine.scheduling.victims.budget_matches import budget_matches
from reprieve.engine.scheduling.victims.harm import lost_work
from reprieve.units.ids import Uid

__all__ = ["VARIANTS", "drawn", "main"]

BENCH: Final = "optimum_variants"
VARIANTS: Final = (
    *("budgets", "cpu", "spread", "held", "zones", "apart", "claims"),
    *("large", "large budgets"),
)
_NOW: Final = 1_800_000_000
_GPU: Final = "nvidia.com/gpu"
_APP: Final = "app"
_DRIVER: Final = "gpu.example.com"
_HOST: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"


def main(arguments: list[str] | None = None) -> int:
    """Compare all variants; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.optimum_variants", description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="clusters of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    count = 5 if chosen.quick else chosen.instances
    try:
        for variant in chosen.variants:
            for kind in chosen.kinds:
                for harm in (False, True):
                    seeds = range(chosen.first, chosen.first + count)
                    _compare(variant, kind, seeds, harm=harm)
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


def _compare(variant: str, kind: str, seeds: range, *, harm: bool) -> None:
    seen: Counter[str] = Counter()
    ratios: list[float] = []
    for seed in seeds:
        given, rows = drawn(variant, kind, seed)
        cluster = Cluster()
        cluster.apply(_claimed(rows) if variant == "claims" else rows)
        snapshot, unit = cluster.snapshot(), given.unit
        compatible = Policy(harm_order=harm, simulate_claims=variant == "claims")
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
            exact = _exact(variant, given, rows)
            seen["missed"] += not placed and exact.least(lambda unit: unit.pods) is not None
            continue
        seen["plans"] += 1
        of_least = _of_least(variant, seed, given, rows, after, harm=harm)
        if of_least is None:
            seen["further_than_least"] += 1
        else:
            ratios.append(of_least)
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
    figures: dict[str, float] = {}
    if ratios:
        figures["cost_to_least"] = round(sum(ratios) / len(ratios), 4)
        figures["most"] = round(max(ratios), 3)
        figures["exact"] = sum(each <= 1 for each in ratios)
    print_line(BENCH, f"{variant}, {kind}", policy=policy, clusters=len(seeds), **seen, **figures)


def _of_least(
    variant: str,
    seed: int,
    given: Instance,
    rows: Sequence[Change],
    attempt: Attempt,
    *,
    harm: bool,
) -> float | None:
    """Return what a plan costs for what the least costs; None: it goes further than that one.

    Raises:
        Mismatch: it costs less than the least, or somebody is evicted though nobody has to go.
    """
    exact, of_pod = _exact(variant, given, rows), given.of_pod
    assert attempt.plan is not None
    if exact.fits_free():
        raise Mismatch(f"{variant} {seed}: somebody is evicted though nobody has to go")

    def cost(unit: ExactUnit) -> int:
        return unit.lost if harm else unit.pods

    least = exact.least(cost)
    names = {each.subject.name for each in attempt.plan.victims}
    gone = [exact.units[number] for number in sorted({of_pod[name] for name in names})]
    top, broken = max(each.priority for each in gone), 0
    for number, allowed in enumerate(exact.allowed):
        broken += max(0, sum(each.guarded.get(number, 0) for each in gone) - allowed)
    paid = sum(map(cost, gone))
    if least is None or (top, broken, paid) < (least.priority, least.broken, least.cost):
        raise Mismatch(f"{variant} {seed}: {top}, {broken}, {paid} is below {least}")
    if (top, broken) > (least.priority, least.broken):
        return None
    return paid / least.cost if least.cost else 1.0


def _exact(variant: str, given: Instance, rows: Sequence[Change]) -> Exact:
    """Return a cluster as the exact model takes it, as its rows are."""
    names = ("cpu", _GPU) if variant == "cpu" else (_GPU,)
    nodes = [row for row in rows if isinstance(row, NodeRow)]
    index = {row.name: number for number, row in enumerate(nodes)}
    on: list[dict[int, tuple[int, ...]]] = [{} for _ in given.units]
    guarded: list[Counter[int]] = [Counter() for _ in given.units]
    counted: list[Counter[int]] = [Counter() for _ in given.units]
    members = []
    for row in rows:
        if not isinstance(row, PodRow):
            continue
        requests = dict(row.pod_class.requests)
        amounts = tuple(requests[name] for name in names)
        if not row.node:
            members.append(amounts)
            continue
        number = given.of_pod[row.name]
        node = index[row.node]
        had = on[number].get(node, (0,) * len(names))
        on[number][node] = tuple(a + b for a, b in zip(had, amounts, strict=True))
        app = dict(row.labels).get(_APP, "")
        if app == "train":
            counted[number][node] += 1
        elif app:
            guarded[number]["ab".index(app)] += 1
    budgets = sorted((row for row in rows if isinstance(row, BudgetRow)), key=lambda b: b.name)
    return Exact(
        [tuple(row.allocatable[name] for name in names) for row in nodes],
        [
            ExactUnit(
                each.priority, on[number], each.pods, each.lost, guarded[number], counted[number]
            )
            for number, each in enumerate(given.units)
        ],
        members,
        [row.allowed for row in budgets],
        1 if variant in ("spread", "held", "zones") else None,
        _domains(nodes, _ZONE if variant == "zones" else _HOST),
        variant == "apart",
    )


def _domains(nodes: Sequence[NodeRow], key: str) -> list[int]:
    values = [row.labels[key] for row in nodes]
    return [sorted(set(values)).index(value) for value in values]


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


def drawn(variant: str, kind: str, seed: int) -> tuple[Instance, list[Change]]:
    """Return a cluster and its rows, changed as the variant states."""
    given = instance(seed, kind, large=variant.startswith("large"))
    chance = random.Random(f"{variant} {seed}")
    rows = [*given.rows, *given.waiting]
    if variant.endswith("budgets"):
        rows = _guarded(rows, chance)
    elif variant == "cpu":
        rows = _short_of_cpu(rows, chance)
    elif variant in ("spread", "held", "zones"):
        rows = _spread(rows, _ZONE if variant == "zones" else _HOST)
    elif variant == "apart":
        rows = _apart(rows)
    if variant in ("held", "zones", "apart"):
        rows = [_counting(row, chance) for row in rows]
    return given, rows


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


def _spread(rows: Sequence[Change], key: str) -> list[Change]:
    """Let what waits differ by at most one pod between nodes or zones."""
    selector = (Requirement(_APP, Operator.IN, ("train",)),)
    constraint = SpreadConstraint(key, 1, True, selector)
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


def _apart(rows: Sequence[Change]) -> list[Change]:
    """Let what waits be on nodes without other such pods."""
    term = AffinityTerm(_HOST, (Requirement(_APP, Operator.IN, ("train",)),), ("default",))
    return [
        replace(
            row,
            labels=((_APP, "train"),),
            pod_class=replace(row.pod_class, anti_affinity=(term,)),
        )
        if isinstance(row, PodRow) and not row.node
        else row
        for row in rows
    ]


def _counting(row: Change, chance: random.Random) -> Change:
    """Let a fifth of the pods that run count for the constraints, and nodes be in two zones."""
    if isinstance(row, NodeRow):
        return replace(row, labels={**row.labels, _ZONE: chance.choice("ab")})
    if isinstance(row, PodRow) and row.node and chance.random() < 0.2:
        return replace(row, labels=((_APP, "train"),))
    return row


def _claimed(rows: Sequence[Change]) -> list[Change]:
    """Let GPUs be devices, which pods have by claims of their own."""
    kind = DeviceClassRow(Uid("gpu"), "gpu", 1)
    found: list[Change] = [Entry(Kind.DEVICE_CLASS, kind.uid, "", kind.name, 1, kind)]
    given: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, NodeRow):
            name, count = row.name, row.allocatable[_GPU]
            amounts = {key: each for key, each in row.allocatable.items() if key != _GPU}
            devices = tuple(Device(f"gpu-{number}") for number in range(count))
            pool = ResourceSliceRow(
                Uid(f"slice-{name}"), name, 1, _DRIVER, name, reach=Reach(name), devices=devices
            )
            found.append(Entry(Kind.RESOURCE_SLICE, pool.uid, "", name, 1, pool))
            row = replace(row, allocatable=amounts)
        elif isinstance(row, PodRow):
            requests = dict(row.pod_class.requests)
            count = requests.pop(_GPU)
            allocation = None
            if row.node:
                first = given[row.node]
                given[row.node] += count
                ids = [(_DRIVER, row.node, f"gpu-{first + n}") for n in range(count)]
                allocation = Allocation(tuple(AllocatedDevice("gpus", each) for each in ids))
            asks = DeviceRequest("gpus", kind.name, count=count)
            claim = ResourceClaimRow(
                Uid(f"claim-{row.name}"),
                row.namespace,
                row.name,
                1,
                (Request("gpus", (asks,)),),
                allocation=allocation,
                reserved_for=(Consumer("pods", row.name, row.uid),) if row.node else (),
            )
            found.append(Entry(Kind.RESOURCE_CLAIM, claim.uid, row.namespace, row.name, 1, claim))
            entry = replace(row.pod_class, requests=tuple(sorted(requests.items())))
            row = replace(row, pod_class=entry, claims=(("gpus", row.name),))
        found.append(row)
    return found


if __name__ == "__main__":
    sys.exit(main())

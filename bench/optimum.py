"""`python -m bench.optimum`: victims of the scheduling plane against the optimum, by HiGHS.

Random clusters: 3 to 8 nodes of 4 or 8 GPUs, at most 32 units of four priorities, pods and gangs
that go as a whole on one node or several, and a gang of a higher priority whose members are of one
size or of several, or a plain pod. For each policy: how many decisions are exact by the order of
KEP-5710 (top priority, pods, sum of priorities), take a higher priority than is needed, and evict
somebody though what waits fits free; how many pods they evict for each that the optimum evicts, and
how much work they lose for what has to be lost, both at the lowest top priority.
`--quick`: few clusters, which assert what must never be, and no times.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.measuring import print_line
from bench.optimum_milp import UnitOnNodes, fits_free, least, lowest_priority
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, GroupRow, NodeRow, PodClass, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy, VictimChoice
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["KINDS", "Instance", "instance", "main"]

BENCH: Final = "optimum"
_GPU: Final = "nvidia.com/gpu"
_NOW: Final = 1_800_000_000
_HOUR: Final = 3_600
_MOST_UNITS: Final = 32
_PRIORITIES: Final = (1, 2, 3, 4)
_PODS: Final = 1 << 20  # more than any sum of priorities
_PREEMPTOR: Final = 10

#: What waits: a gang of members of several sizes, one of equal members, or a plain pod.
KINDS: Final = ("mixed", "equal", "single")
POLICIES: Final = {
    "compatible": Policy(),
    "binarySearchPriority": Policy(binary_search_priority=True),
    "binarySearchPriority + maxPlacements 16": Policy(
        binary_search_priority=True, max_placements=16
    ),
    "maxPlacements 64": Policy(max_placements=64),
    "harmOrder + maxPlacements 64": Policy(harm_order=True, max_placements=64),
    "best": Policy(choice=VictimChoice.BEST),
    "best + harmOrder": Policy(choice=VictimChoice.BEST, harm_order=True),
}


class Mismatch(Exception):
    """A result is not what it has to be."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster as rows, and as the exact model takes it; `members`: GPUs of each."""

    rows: tuple[Change, ...]
    waiting: tuple[Change, ...]
    gpus: tuple[int, ...]
    units: tuple[UnitOnNodes, ...]
    of_pod: dict[str, int]
    members: tuple[int, ...]

    def snapshot(self) -> Snapshot:
        """Return the cluster with the gang waiting in it."""
        cluster = Cluster()
        cluster.apply([*self.rows, *self.waiting])
        return cluster.snapshot()

    @property
    def unit(self) -> Unit:
        """Return the gang as it waits."""
        pods = tuple(row.uid for row in self.waiting if isinstance(row, PodRow))
        gang = any(isinstance(row, GroupRow) for row in self.waiting)
        return Unit(pods, "default/train" if gang else "")


@dataclass(slots=True)
class _Tally:
    """What one policy's decisions come to."""

    preempted: int = 0
    exact: int = 0
    higher: int = 0
    needless: int = 0
    refused: int = 0
    pods: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    seconds: float = 0.0


def main(arguments: list[str] | None = None) -> int:
    """Measure all policies; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.optimum", description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="clusters of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    count = 8 if chosen.quick else chosen.instances
    policies = {name: POLICIES[name] for name in POLICIES if name in chosen.policies}
    try:
        for kind in chosen.kinds:
            seeds = range(chosen.first, chosen.first + count)
            _measure(seeds, kind, policies, timed=not chosen.quick)
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


# Instances.


def instance(seed: int, kind: str, *, large: bool = False) -> Instance:
    """Return a random cluster with what waits in it, one of `KINDS`.

    `large`: of 12 to 40 nodes of one or two other sizes, with gangs of up to 24.
    """
    chance = random.Random(f"optimum {seed} {kind == 'mixed'}{' large' if large else ''}")
    if large:
        shapes = chance.choice(((4, 8), (8, 8), (2, 8), (8, 16)))
        gpus = tuple(chance.choice(shapes) for _ in range(chance.randint(12, 40)))
        most, least = 5 * len(gpus), len(gpus)
    else:
        gpus = tuple(chance.choice((4, 8)) for _ in range(chance.randint(3, 8)))
        most, least = _MOST_UNITS, 4
    units: list[UnitOnNodes] = []
    rows: list[Change] = [*_nodes(gpus)]
    free = list(gpus)
    of_pod: dict[str, int] = {}
    for number in range(chance.randint(least, most)):
        size = chance.choice((1, 1, 2, 2, 4, 8))
        rooms = [node for node, room in enumerate(free) if room >= size]
        if not rooms:
            continue
        pods = min(len(rooms), chance.choice((1, 1, 1, 1, 2, 3)))
        used = chance.sample(rooms, pods)
        start = _NOW - chance.randint(60, 8 * _HOUR)
        lost = sum(min(_NOW - start, _HOUR) * size for _ in used)
        units.append(UnitOnNodes(chance.choice(_PRIORITIES), dict.fromkeys(used, size), pods, lost))
        name = f"unit-{number:02}"
        for place, node in enumerate(used):
            free[node] -= size
            of_pod[f"{name}-{place:02}"] = len(units) - 1
        rows += _gang(name, [size] * pods, units[-1].priority, used, start)
    sizes = [each for each in (1, 2, 4, 8) if each <= max(gpus)]
    count = chance.randint(2, 24 if large else 6)
    members = [chance.choice(sizes)] * count
    if kind == "mixed":
        sizes = chance.sample(sizes, min(len(sizes), 2)) if large else sizes
        members = [chance.choice(sizes) for _ in range(count)]
    if kind == "single":
        members = members[:1]
    while sum(members) > sum(gpus):
        members.pop()
    waiting = tuple(_gang("train", members, _PREEMPTOR, None, None, alone=kind == "single"))
    return Instance(tuple(rows), waiting, gpus, tuple(units), of_pod, tuple(members))


def _nodes(gpus: Sequence[int]) -> Iterable[NodeRow]:
    for index, count in enumerate(gpus):
        name = f"node-{index}"
        amounts = {"pods": 110, "cpu": 128_000, _GPU: count}
        yield NodeRow(Uid(name), name, 1, amounts, {"kubernetes.io/hostname": name})


def _gang(
    name: str,
    sizes: Sequence[int],
    priority: int,
    nodes: Sequence[int] | None,
    start: int | None,
    *,
    alone: bool = False,
) -> Iterable[GroupRow | PodRow]:
    """Yield a pod by itself where it is or runs alone, else a gang that goes as a whole."""
    alone = alone or (nodes is not None and len(nodes) == 1)
    if not alone:
        yield GroupRow(
            Uid(name),
            "default",
            name,
            1,
            min_count=len(sizes),
            all_or_nothing=True,
            priority=priority,
        )
    for index, size in enumerate(sizes):
        pod = f"{name}-{index:02}"
        yield PodRow(
            Uid(pod),
            "default",
            pod,
            1,
            PodClass((("cpu", 1_000 * size), (_GPU, size)), 1_000 * size, 200 * 2**20),
            node="" if nodes is None else f"node-{nodes[index]}",
            priority=priority,
            group="" if alone else name,
            start=start,
        )


# Against the optimum.


def _measure(seeds: range, kind: str, policies: Mapping[str, Policy], *, timed: bool) -> None:
    tallies = {name: _Tally() for name in policies}
    for seed in seeds:
        given = instance(seed, kind)
        level = lowest_priority(given.gpus, given.units, given.members)
        if level is None:
            continue
        free = fits_free(given.gpus, given.units, given.members)
        by_kep = least(
            given.gpus, given.units, given.members, level, lambda u: u.pods * (_PODS + u.priority)
        )
        lost = least(given.gpus, given.units, given.members, level, lambda u: u.lost)
        snapshot = given.snapshot()
        chosen = {
            name: _judge(tallies[name], given, snapshot, policy, (free, level, by_kep, lost), seed)
            for name, policy in policies.items()
        }
        _compare(chosen, policies, seed)
    for name, tally in tallies.items():
        _print(name, tally, kind, clusters=len(seeds), timed=timed)


def _judge(
    tally: _Tally,
    given: Instance,
    snapshot: Snapshot,
    policy: Policy,
    best: tuple[bool, int, int, int],
    seed: int,
) -> list[UnitOnNodes] | None:
    """Count what becomes of the gang; `best`: it fits free, or else what the optimum costs.

    Return the victims, None where nobody is evicted and nothing is placed.
    """
    free, level, by_kep, lost = best
    began = time.process_time()
    attempt = Session(snapshot, policy, now=_NOW).attempt(given.unit)
    tally.seconds += time.process_time() - began
    assert attempt is not None
    if attempt.plan is None:
        if not any(member.bind for member in attempt.members):
            tally.refused += 1
            return None
        if not free:
            raise Mismatch(f"cluster {seed}: placed where it does not fit")
        return []
    tally.preempted += 1
    victims = _victims(given, snapshot, attempt)
    if free:
        tally.needless += 1
        if policy.best:
            raise Mismatch(f"cluster {seed}: evicts {len(victims)} though nobody has to go")
        return victims
    top = max(unit.priority for unit in victims)
    cost = sum(unit.pods * (_PODS + unit.priority) for unit in victims)
    if (top, cost) < (level, by_kep):
        raise Mismatch(f"cluster {seed}: {top}, {cost} is below the optimum {level}, {by_kep}")
    tally.exact += (top, cost) == (level, by_kep)
    tally.higher += top > level
    tally.pods.append(sum(unit.pods for unit in victims) / (by_kep // _PODS))
    if lost:
        tally.lost.append(sum(unit.lost for unit in victims) / lost)
    return victims


def _compare(
    chosen: Mapping[str, list[UnitOnNodes] | None], policies: Mapping[str, Policy], seed: int
) -> None:
    """Refuse victims of profile best that cost more than those of profile compatible."""
    known = chosen.get("compatible")
    if known is None:
        return
    for name, victims in chosen.items():
        if not policies[name].best:
            continue
        harm = policies[name].harm_order
        if victims is None or _cost(victims, harm=harm) > _cost(known, harm=harm):
            raise Mismatch(f"cluster {seed}: {name} is worse than compatible")


def _cost(victims: Sequence[UnitOnNodes], *, harm: bool) -> tuple[int, int, int]:
    """Return what victims cost: their top priority, lost work with `harm`, pods by priority."""
    top = max((unit.priority for unit in victims), default=0)
    lost = sum(unit.lost for unit in victims) if harm else 0
    return top, lost, sum(unit.pods * (_PODS + unit.priority) for unit in victims)


def _victims(given: Instance, snapshot: Snapshot, attempt: Attempt) -> list[UnitOnNodes]:
    assert attempt.preemption is not None
    slots = [slot for unit in attempt.preemption.victims for slot in unit.pods]
    names = {given.of_pod[snapshot.pod_keys[slot].partition("/")[2]] for slot in slots}
    return [given.units[number] for number in sorted(names)]


def _print(name: str, tally: _Tally, kind: str, *, clusters: int, timed: bool) -> None:
    ratios, lost = sorted(tally.pods), sorted(tally.lost)
    times = {"cpu_ms": round(tally.seconds / clusters * 1_000, 1)} if timed else {}
    print_line(
        BENCH,
        kind,
        policy=name,
        clusters=clusters,
        preempted=tally.preempted,
        refused=tally.refused,
        fits_free=tally.needless,
        exact=tally.exact,
        higher_priority=tally.higher,
        pods_to_fewest=round(_mean(ratios), 3),
        pods_p90=round(ratios[len(ratios) * 9 // 10], 2) if ratios else 0,
        lost_to_least=round(_mean(lost), 3),
        lost_most=round(lost[-1], 2) if lost else 0,
        **times,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.harm`: the work lost to preemptions, by the KEP's order and by `harmOrder`.

Mixes: 2,000 GPUs full of gangs of 1 to 256 that go as a whole, all of one priority; half of them
write checkpoints every 10 to 60 minutes. 20 gangs of a higher priority come one after the other,
and stay. Counted is what the victims really lose, since their last
checkpoint or else their start, per device-hour that the admitted gangs run (an hour each). All
policies admit the same gangs.

Optimum: clusters of at most 40 units, and the least work that can be lost there by HiGHS.
`--quick`: small inputs, which assert results and never times.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from dataclasses import replace

from bench.measuring import print_line
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, Gone, GroupRow, Kind, NodeRow, PodClass, PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid

__all__ = ["main"]

BENCH = "harm"
_GPU = "nvidia.com/gpu"
_NOW = 1_800_000_000
_HOUR = 3_600
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_ARRIVING = (8, 16, 32, 64)
_KEP = Policy()
_HARM = Policy(harm_order=True)


class Mismatch(Exception):
    """A result is not what it has to be."""


def main(arguments: list[str] | None = None) -> int:
    """Run both parts; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.harm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="mixes")
    parser.add_argument("--instances", type=int, default=200, help="clusters with an optimum")
    parser.add_argument("--placements", type=int, default=32, help="maxPlacements of the latter")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.quick:
            _mixes(1, nodes=32, arriving=6)
            _optima(5, chosen.placements)
        else:
            _mixes(chosen.seeds)
            _optima(chosen.instances, chosen.placements)
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


# Mixes.


def _mixes(seeds: int, nodes: int = 250, arriving: int = 20) -> None:
    policies = {
        "KEP": _KEP,
        "harmOrder": _HARM,
        "harmOrder, maxPlacements 4": replace(_HARM, max_placements=4),
    }
    ratios: dict[str, float] = {}
    admissions: set[float] = set()
    for name, policy in policies.items():
        lost = admitted = 0
        for seed in range(seeds):
            gone, came = _mix(random.Random(seed), policy, nodes, arriving)
            lost, admitted = lost + gone, admitted + came
        admissions.add(admitted)
        ratios[name] = lost / admitted
        print_line(
            BENCH,
            "mix",
            order=name,
            gpus=nodes * 8,
            seeds=seeds,
            lost_device_hours=round(lost / _HOUR, 1),
            admitted_device_hours=round(admitted / _HOUR, 1),
            lost_per_admitted=round(lost / admitted, 4),
            less_than_kep=round(1 - ratios[name] / ratios["KEP"], 3),
        )
    if len(admissions) > 1:
        raise Mismatch(f"the policies admit different work: {sorted(admissions)}")


def _mix(chance: random.Random, policy: Policy, nodes: int, arriving: int) -> tuple[int, int]:
    """Return the device-seconds lost and admitted."""
    cluster = Cluster()
    cluster.apply(_nodes(nodes))
    cluster.apply(_running(chance, nodes))
    lost = admitted = 0
    for number in range(arriving):
        size = chance.choice(_ARRIVING)
        name = f"arriving-{number}"
        rows = list(_gang(name, size, 10))
        cluster.apply(rows)
        members = tuple(row.uid for row in rows if isinstance(row, PodRow))
        snapshot = cluster.snapshot()
        attempt = _decided(snapshot, Unit(members, f"default/{name}"), policy)
        nodes_of = {member.uid: member.bind for member in attempt.members if member.bind}
        if attempt.plan is not None:
            nodes_of = dict(attempt.plan.placement)
            victims = _victims(attempt)
            lost += sum(_lost(snapshot, slot) for slot in victims)
            cluster.apply(_gone(snapshot, victims))
        if len(nodes_of) < size:
            raise Mismatch(f"{name} is not admitted")
        admitted += size * _HOUR
        cluster.apply(
            # It does not run long enough to lose anything.
            replace(row, node=nodes_of[row.uid], version=2, start=_NOW)
            for row in rows
            if isinstance(row, PodRow)
        )
    return lost, admitted


def _nodes(count: int) -> Iterable[NodeRow]:
    for index in range(count):
        name = f"node-{index:03}"
        amounts = {"pods": 110, "cpu": 128_000, _GPU: 8}
        yield NodeRow(Uid(name), name, 1, amounts, {"kubernetes.io/hostname": name})


def _running(chance: random.Random, nodes: int) -> Iterable[Change]:
    """Yield gangs on all GPUs: each takes the next free ones, in the order in which they came."""
    free = [index for index in range(nodes) for _ in range(8)]
    chance.shuffle(free)
    number = 0
    while free:
        size = min(chance.choice(_SIZES), len(free))
        start = _NOW - chance.randint(60, 8 * _HOUR)
        every = chance.randint(600, _HOUR) if number % 2 else 0
        last = _NOW - (_NOW - start) % every if every else 0
        used = [free.pop() for _ in range(size)]
        yield from _gang(f"gang-{number:03}", size, 1, used, start, last if last > start else 0)
        number += 1


def _gang(
    name: str,
    size: int,
    priority: int,
    nodes: Iterable[int] = (),
    start: int | None = None,
    checkpoint: int = 0,
) -> Iterable[GroupRow | PodRow]:
    """Yield a gang of pods with a GPU each."""
    yield GroupRow(
        Uid(name),
        "default",
        name,
        1,
        min_count=size,
        all_or_nothing=True,
        priority=priority,
        checkpoint=checkpoint,
    )
    places = [f"node-{index:03}" for index in nodes] or [""] * size
    for index, node in enumerate(places):
        pod = f"{name}-{index:03}"
        yield PodRow(
            Uid(pod),
            "default",
            pod,
            1,
            _CLASS,
            node=node,
            priority=priority,
            group=name,
            start=start,
        )


_CLASS = PodClass((("cpu", 4_000), (_GPU, 1)), 4_000, 200 * 2**20)


def _decided(snapshot: Snapshot, unit: Unit, policy: Policy) -> Attempt:
    attempt = Session(snapshot, policy, now=_NOW).attempt(unit)
    assert attempt is not None
    return attempt


def _victims(attempt: Attempt) -> list[int]:
    assert attempt.preemption is not None
    return [slot for unit in attempt.preemption.victims for slot in unit.pods]


def _lost(snapshot: Snapshot, slot: int) -> int:
    """Return what a pod with one GPU really loses."""
    group = snapshot.group_rows[int(snapshot.pod_group[slot])]
    said = 0 if group is None else group.checkpoint
    return _NOW - max(said, int(snapshot.pod_start[slot]))


def _gone(snapshot: Snapshot, victims: Iterable[int]) -> Iterable[Gone]:
    for slot in victims:
        namespace, _, name = snapshot.pod_keys[slot].partition("/")
        yield Gone(Kind.POD, snapshot.pod_uids[slot], namespace, name)


# Against the optimum.


def _optima(instances: int, placements: int) -> None:
    from bench.harm_milp import least_lost

    policy = replace(_HARM, max_placements=placements)
    gaps: list[float] = []
    refused = exact = most = 0
    for seed in range(instances):
        chance = random.Random(f"optimum {seed}")
        nodes = chance.randint(3, 14)
        cluster = Cluster()
        rows = [*_nodes(nodes), *_small(chance, nodes)]
        each, size = chance.choice([(1, 4), (2, 3), (4, 2), (8, 2), (8, 3), (4, 6)])
        waiting = [*_waiting(size, each)]
        cluster.apply([*rows, *waiting])
        snapshot = cluster.snapshot()
        unit = Unit(tuple(r.uid for r in waiting if isinstance(r, PodRow)), "default/train")
        attempt = _decided(snapshot, unit, policy)
        units = _units(snapshot)
        most = max(most, len(units))
        best = least_lost([8] * nodes, list(units.values()), size, each)
        if best is None:
            if attempt.plan is not None:
                raise Mismatch(f"instance {seed}: placed where nothing fits")
            refused += 1
            continue
        if attempt.plan is None:
            if best > 0 or not any(member.bind for member in attempt.members):
                raise Mismatch(f"instance {seed}: not placed, {best} would do")
            continue
        named = {snapshot.group_keys[int(snapshot.pod_group[slot])] for slot in _victims(attempt)}
        lost = sum(units[name][0] for name in named)
        if lost < best:
            raise Mismatch(f"instance {seed}: {lost} is below the optimum {best}")
        exact += lost == best
        gaps.append((lost - best) / best if best else float(lost > 0))
    print_line(
        BENCH,
        "optimum",
        instances=instances,
        max_placements=placements,
        most_units=most,
        preempted=len(gaps),
        refused=refused,
        exact=exact,
        mean_gap=round(sum(gaps) / max(1, len(gaps)), 4),
        largest_gap=round(max(gaps, default=0.0), 4),
    )


def _small(chance: random.Random, nodes: int) -> Iterable[Change]:
    """Yield at most 40 units: gangs of one to three pods of 1 to 8 GPUs on any nodes."""
    free = [8] * nodes
    for number in range(40):
        gpus = chance.choice([1, 1, 2, 2, 4, 4, 8])
        rooms = [index for index, room in enumerate(free) if room >= gpus]
        size = min(len(rooms), chance.choice([1, 1, 1, 2, 3]))
        if not size:
            continue
        name = f"gang-{number:02}"
        used = chance.sample(rooms, size)
        for index in used:
            free[index] -= gpus
        start = _NOW - chance.randint(60, 8 * _HOUR)
        checkpoint = _NOW - chance.randint(0, _HOUR) if chance.random() < 0.5 else 0
        rows = _gang(name, size, 1, used, start, checkpoint if checkpoint > start else 0)
        yield from _with_gpus(rows, gpus)


def _waiting(size: int, each: int) -> Iterable[Change]:
    return _with_gpus(_gang("train", size, 10), each)


def _with_gpus(rows: Iterable[GroupRow | PodRow], gpus: int) -> Iterable[GroupRow | PodRow]:
    entry = PodClass((("cpu", 1_000 * gpus), (_GPU, gpus)), 1_000 * gpus, 200 * 2**20)
    for row in rows:
        yield replace(row, pod_class=entry) if isinstance(row, PodRow) else row


def _units(snapshot: Snapshot) -> dict[str, tuple[int, dict[int, int]]]:
    """Return what each gang loses as the policy counts it, and its GPUs by node."""
    column = snapshot.resources.index(_GPU)
    found: dict[str, tuple[int, dict[int, int]]] = {}
    for slot, node in enumerate(snapshot.pod_node.tolist()):
        if node < 0:
            continue
        index = int(snapshot.pod_group[slot])
        key, group = snapshot.group_keys[index], snapshot.group_rows[index]
        gpus = int(snapshot.pod_requests[slot, column])
        start = int(snapshot.pod_start[slot])
        since = _NOW - start
        if group is not None and group.checkpoint:
            since = _NOW - max(start, group.checkpoint)
        else:
            since = min(since, _HARM.max_lost_work)
        lost, on = found.get(key, (0, {}))
        on[node] = on.get(node, 0) + gpus
        found[key] = (lost + since * gpus, on)
    return found


if __name__ == "__main__":
    sys.exit(main())

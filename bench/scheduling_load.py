"""Many units in a row: how many pods a CPU second places, and what groups cost against pods.

`throughput`: nodes of 32 cpu with four bound pods each; plain pods of 1 cpu, then gangs of 8 cpu
per pod, through snapshots, all filters and scores of the default profile, and the assumption in the
state. `ratios` are those that KEP-5710 asks for, each the throughput of the first over that of the
second: a gang of N against N pods; victims in groups that go as a whole against victims in no
group; one pod with the gate on against off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from bench.measuring import peak_mib, print_line
from bench.scheduling_input import GIB, generated
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Change, GroupRow, NodeRow, PodClass, PodRow
from reprieve.engine.placement.profile import Gates, Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.operator.collector import freeze_records
from reprieve.units.ids import Uid

__all__ = ["run_ratios", "run_throughput"]

_SLICE = 256  # units that one session places before the next snapshot


def run_throughput(nodes: int, pods: int, gangs: int, size: int) -> None:
    """Print how many plain pods and gang members are placed in a CPU second."""
    plain = [_pod(f"plain-{n:05}", 1_000, 2 * GIB) for n in range(pods)]
    _place("plain_pods", nodes, [(plain[n : n + 1], None) for n in range(pods)])
    units: list[tuple[list[PodRow], GroupRow | None]] = []
    for number in range(gangs):
        name = f"gang-{number:03}"
        members = [
            replace(_pod(f"{name}-{n:03}", 8_000, 16 * GIB), group=name) for n in range(size)
        ]
        units.append((members, GroupRow(Uid(name), "default", name, 1, min_count=size)))
    _place("gang_members", nodes, units)


def _pod(name: str, cpu: int, memory: int) -> PodRow:
    own = PodClass((("cpu", cpu), ("memory", memory)), cpu, memory)
    return PodRow(Uid(name), "default", name, 1, own, labels=(("app", "load"),))


def _nodes(count: int) -> list[Change]:
    rows: list[Change] = []
    for index in range(count):
        name = f"node-{index:05}"
        amounts = {"cpu": 32_000, "memory": 128 * GIB, "pods": 110}
        rows.append(NodeRow(Uid(name), name, 1, amounts, {"kubernetes.io/hostname": name}))
        rows += [
            replace(_pod(f"bound-{index:05}-{n}", 1_000, 4 * GIB), node=name) for n in range(4)
        ]
    return rows


def _place(case: str, nodes: int, units: list[tuple[list[PodRow], GroupRow | None]]) -> None:
    cluster, policy = Cluster(), Policy()
    cluster.apply(_nodes(nodes))
    for pods, group in units:
        cluster.apply([*pods, group] if group is not None else pods)
    cluster.snapshot()
    freeze_records()
    started, wall = time.process_time(), time.perf_counter()
    placed = 0
    for first in range(0, len(units), _SLICE):
        session = Session(cluster.snapshot(), policy)
        for pods, group in units[first : first + _SLICE]:
            key = "" if group is None else f"default/{group.name}"
            attempt = session.attempt(Unit(tuple(pod.uid for pod in pods), key))
            assert attempt is not None and attempt.code is Code.SUCCESS, attempt
            for member in attempt.members:
                cluster.assume(member.uid, member.bind, 1 << 60)
                placed += bool(member.bind)
    cpu = time.process_time() - started
    assert placed == sum(len(pods) for pods, _ in units)
    print_line(
        "scheduling",
        case,
        cpu_ms=round(cpu * 1e3, 1),
        wall_ms=round((time.perf_counter() - wall) * 1e3, 1),
        peak_mib=peak_mib(),
        pods=placed,
        pods_per_cpu_s=round(placed / cpu),
    )


def run_ratios(nodes: int, size: int) -> None:
    """Print KEP-5710's three ratios of throughput; each should be at least 0.9."""
    gang = generated(nodes, size)
    plain = generated(nodes, size, whole=False)
    free: list[Change] = [row for row in gang.rows if not isinstance(row, PodRow)]
    on, off = Policy(), Policy(gates=Gates(generic_workload=False, topology_aware=False))

    def together() -> float:
        return _time(free, gang.waiting, on, as_group=gang.group)

    def one_by_one() -> float:
        pods = tuple(replace(pod, group="") for pod in gang.waiting)
        return _time(free, pods, on)

    one = (replace(gang.waiting[0], group=""),)
    ratios = {
        "gang_against_pods": _ratio(together, one_by_one),
        "whole_groups_against_ungrouped": _ratio(
            lambda: _time(gang.rows, gang.waiting, on, as_group=gang.group),
            lambda: _time(plain.rows, plain.waiting, on, as_group=plain.group),
        ),
        "pod_gate_on_against_off": _ratio(
            lambda: _time(plain.rows, one, on), lambda: _time(plain.rows, one, off)
        ),
    }
    print_line("scheduling", "slo", ratios=ratios)


def _ratio(first: Callable[[], float], second: Callable[[], float]) -> float:
    return round(min(second() for _ in range(5)) / min(first() for _ in range(5)), 2)


def _time(
    rows: list[Change] | tuple[Change, ...],
    waiting: tuple[PodRow, ...],
    policy: Policy,
    *,
    as_group: str = "",
) -> float:
    cluster = Cluster()
    cluster.apply([*rows, *waiting])
    cluster.snapshot()
    uids = tuple(pod.uid for pod in waiting)
    units = [Unit(uids, as_group)] if as_group else [Unit((uid,)) for uid in uids]
    started = time.process_time()
    session = Session(cluster.snapshot(), policy)
    for unit in units:
        attempt = session.attempt(unit)
        assert attempt is not None
    return time.process_time() - started

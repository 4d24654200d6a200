"""`python -m bench.joint [--nodes N,N...]`: what a decision costs where planes decide together.

A gang waits on a generated cluster (`bench.scheduling_input`). `alone_N`: the scheduling plane
decides by itself, proof included. `joint_N`: the idle plane has found the same victims, and the
scheduling plane confirms them by all its filters: with them gone every pod is placed, without them
not, and not with fewer of them by priority. `ratio_N` is that of
`joint_N` to `alone_N`. `--quick`: small, asserts results alone.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bench.decisions import Mismatch
from bench.measuring import Measurement, Stopwatch, best_of, peak_mib, print_line
from bench.scheduling_input import Scenario, Unrest, generated
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.placement.profile import FilterName, Gates, Policy, Profile
from reprieve.engine.scheduling.confirming import refusal
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.operator.collector import freeze_records, relax_collector
from reprieve.units.ids import Uid

__all__ = ["main"]

BENCH = "joint"
_NOW = 1_800_000_000
_FILTERS = (
    FilterName.NODE_UNSCHEDULABLE,
    FilterName.TAINT_TOLERATION,
    FilterName.NODE_AFFINITY,
    FilterName.NODE_RESOURCES_FIT,
    FilterName.POD_TOPOLOGY_SPREAD,
    FilterName.INTER_POD_AFFINITY,
)
_POLICY = Policy(profiles=(Profile(filters=_FILTERS),), gates=Gates(topology_aware=False))


@dataclass(frozen=True, slots=True)
class _Case:
    cluster: Cluster
    unrest: Unrest
    unit: Unit


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; an exception when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.joint", description=__doc__)
    parser.add_argument("--nodes", default="1000,5000", help="numbers, separated by commas")
    parser.add_argument("--gang", type=int, default=64, metavar="SIZE")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small inputs, one run each")
    chosen = parser.parse_args(arguments)
    relax_collector()
    if chosen.quick:
        asyncio.run(_compare(40, 8, 1))
        return 0
    for nodes in map(int, chosen.nodes.split(",")):
        asyncio.run(_compare(nodes, chosen.gang, chosen.runs))
    return 0


async def _compare(nodes: int, gang: int, runs: int) -> None:
    case = _case(generated(nodes, gang))
    idle = _victims(case)
    alone = await _alone(case, runs)
    joint = await _confirmed(case, idle, runs)
    for name, best in ((f"alone_{nodes}", alone), (f"joint_{nodes}", joint)):
        _print(name, best, victims=len(idle))
    print_line(BENCH, f"ratio_{nodes}", ratio=round(joint.cpu_ms / max(alone.cpu_ms, 0.1), 2))


def _case(scenario: Scenario) -> _Case:
    cluster = scenario.cluster()
    cluster.snapshot()
    freeze_records()
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    return _Case(cluster, Unrest(scenario), unit)


def _victims(case: _Case) -> frozenset[Uid]:
    attempt = Session(case.cluster.snapshot(), _POLICY, now=_NOW).attempt(case.unit)
    if attempt is None or attempt.plan is None:
        raise Mismatch("nobody is evicted for the gang")
    return frozenset(Uid(victim.root.uid) for victim in attempt.plan.victims)


async def _alone(case: _Case, runs: int) -> Measurement:
    async def decide(watch: Stopwatch) -> int:
        with watch.part("snapshot"):
            snapshot = case.cluster.snapshot()
        with watch.part("attempt"):
            attempt = Session(snapshot, _POLICY, now=_NOW).attempt(case.unit)
        assert attempt is not None
        with watch.part("proof"):
            return len(faults_of(snapshot, _POLICY, attempt))

    return await best_of(runs, lambda run: _stir(case), decide, _expect(0))


async def _confirmed(case: _Case, idle: frozenset[Uid], runs: int) -> Measurement:
    async def decide(watch: Stopwatch) -> str:
        with watch.part("snapshot"):
            snapshot = case.cluster.snapshot()
        with watch.part("confirmation"):
            units, nobody = [case.unit], frozenset[Uid]()
            why, _ = refusal(
                snapshot, _POLICY, units, idle, idle, nobody, _NOW, {}, by_priority=True
            )
        return why

    return await best_of(runs, lambda run: _stir(case), decide, _expect(""))


async def _stir(case: _Case) -> None:
    case.unrest.stir(case.cluster)


def _expect(wanted: object) -> Callable[[object], None]:
    def check(found: object) -> None:
        if found != wanted:
            raise Mismatch(f"{found!r} in place of {wanted!r}")

    return check


def _print(case: str, best: Measurement, **figures: int) -> None:
    print_line(
        BENCH,
        case,
        cpu_ms=best.cpu_ms,
        wall_ms=best.wall_ms,
        peak_mib=peak_mib(),
        runs=best.runs,
        parts_ms=best.parts_ms,
        **figures,
    )


if __name__ == "__main__":
    raise SystemExit(main())

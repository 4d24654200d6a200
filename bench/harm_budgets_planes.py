"""What harm budgets add to a decision of the scheduling and of the idle plane.

    python -m bench.harm_budgets_planes [--quick] [--pairs N]

The decisions of `bench.governed_planes`: a gang of 64 pods that waits on 1,000 generated nodes, and
an evaluation of 1,250 nodes with 10,000 GPUs and five demands. Each pod and each root is of one of
1,000 namespaces, each namespace has a budget with room, and the sums are those of a day of 20,000
displacements. Measured and told as in `bench.harm_budgets`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

from bench.governed_planes import measure, with_owners
from bench.harm_budgets import ledger_of, tenant
from bench.scheduling_input import generated, most_free_cpu
from bench.tick import POLICY, idle_workloads
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.planes.scheduling.cycle.displacements import SchedulingDisplacements
from tests.quota.cases import NOW

_TENANTS: Final = 1_000


def _governors(tenants: int) -> dict[bool, Governor]:
    return {False: Governor(), True: ledger_of(tenants, 20 * tenants, "few").governor}


def _scheduling(pairs: int, tenants: int, *, quick: bool) -> None:
    scenario = with_owners(generated(40, 8) if quick else generated(1_000, 64))
    rows = [
        replace(row, namespace=tenant(number, tenants)) if isinstance(row, PodRow) else row
        for number, row in enumerate(scenario.rows)
    ]
    scenario = replace(scenario, rows=tuple(rows))
    pods = [row for row in rows if isinstance(row, PodRow)]
    known = {row.uid: row for row in (*pods, *scenario.waiting)}
    planes: dict[bool, Any] = {}
    for bounded, governor in _governors(tenants).items():
        state = SimpleNamespace(
            pod=known.get,
            group=lambda key: SimpleNamespace(priority=scenario.waiting[0].priority),
            observers=[],
            forest=SimpleNamespace(observers=[]),
        )
        clock = SimpleNamespace(wall=lambda: Nanos(NOW))
        planes[bounded] = SchedulingDisplacements(governor, cast("Any", state), cast("Any", clock))
        for row in pods:
            for seen in state.observers:
                seen(None, row)
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    cluster = scenario.cluster()
    cluster.snapshot()

    def decide(bounded: bool) -> object:
        holds = planes[bounded].holds([unit])
        assert not holds, "somebody is spared"
        session = Session(
            cluster.snapshot(), Policy(), choose=most_free_cpu, now=NOW // SECOND, holds=holds
        )
        attempt = session.attempt(unit)
        assert attempt is not None and attempt.preemption is not None
        return sorted(slot for each in attempt.preemption.victims for slot in each.pods)

    measure("harm_budgets", "scheduling", decide, pairs)


def _idle(pairs: int, tenants: int, *, quick: bool) -> None:
    start = Nanos(2_000_000 * SECOND)
    workloads = tuple(
        replace(each, root=replace(each.root, namespace=tenant(number, tenants)))
        for number, each in enumerate(idle_workloads(12 if quick else 1_250, start))
    )
    policy = replace(POLICY, literal=replace(POLICY.literal, missing_metrics_are_zero=True))
    clock: Any = SimpleNamespace(wall=lambda: Nanos(NOW))
    planes = {}
    for bounded, governor in _governors(tenants).items():
        lineages = RootLineages(governor, lambda root: ())
        planes[bounded] = IdleDisplacements(
            governor, cast("Any", {}), clock, lambda root: 0, lineages
        )

    def decide(bounded: bool) -> object:
        holds = planes[bounded].holds(workloads)
        assert not holds, "somebody is spared"
        evaluation = evaluate(IdleSnapshot(1, workloads, holds=holds), policy, start)
        return [[victim.subject for victim in plan.victims] for plan in evaluation.plans]

    measure("harm_budgets", "idle", decide, pairs)


def main(arguments: list[str] | None = None) -> int:
    """Run both; another decision is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.harm_budgets_planes")
    parser.add_argument("--quick", action="store_true", help="small, two pairs")
    parser.add_argument("--pairs", type=int, default=30, metavar="N", help="decisions of each")
    chosen = parser.parse_args(arguments)
    pairs = 2 if chosen.quick else chosen.pairs
    cases: tuple[Callable[..., None], ...] = (_scheduling, _idle)
    for case in cases:
        case(pairs, 10 if chosen.quick else _TENANTS, quick=chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())

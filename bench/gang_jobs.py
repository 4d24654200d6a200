"""`python -m bench.gang_jobs`: job preemption for gangs of older front doors, in CPU time.

Nodes nearly full of pods of priorities 0 to 50, 2 % of them with 1000; half of the pods belong to
jobs (`questioned-object-key`), one in fifty is protected by a label; ten budgets. A gang of equal
members needs a quarter of a node each. Measured are `snapshot()`, the cycle with the failing
placement, the dry run, the plan and the final proof; between runs 100 pods change and change back.

`--mixed`: members of three sizes. `--quick`: a small input that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from dataclasses import replace

from bench.decisions import Decision, Mismatch
from bench.measuring import Stopwatch, best_of, peak_mib, print_line
from bench.scheduling_input import GIB, Scenario, Unrest, generated
from reprieve.engine.cluster.rows import Change, GroupRow, PodClass, PodRow
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup, GangState
from reprieve.engine.scheduling.gangs.job import JobOptions
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.operator.collector import freeze_records, relax_collector

__all__ = ["main"]

BENCH = "gang_jobs"
GANG = "default/preemptor"
_PROFILE = Profile(scheduler_name="koord-scheduler")
_POLICY = Policy(profiles=(_PROFILE,))
_SIZES = ((1_000, 64), (5_000, 256))
_PER_NODE = 20


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.gang_jobs", description=__doc__)
    parser.add_argument("--mixed", action="store_true", help="members of three sizes")
    parser.add_argument("--quick", action="store_true", help="a small input, one run")
    parser.add_argument("--runs", type=int, default=7)
    chosen = parser.parse_args(arguments)
    relax_collector()
    try:
        if chosen.quick:
            asyncio.run(_case(cluster_with_gang(40, 8), 1))
            asyncio.run(_case(cluster_with_gang(40, 8, mixed=True), 1))
        else:
            for nodes, size in _SIZES:
                made = cluster_with_gang(nodes, size, mixed=chosen.mixed)
                asyncio.run(_case(made, chosen.runs))
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


def cluster_with_gang(nodes: int, size: int, *, mixed: bool = False, seed: int = 1) -> Scenario:
    """Return a cluster of so many nodes with a waiting gang of so many pods."""
    base, chance = generated(nodes, size, seed, whole=False), random.Random(seed)
    rows: list[Change] = []
    for row in base.rows:
        if isinstance(row, PodRow | GroupRow):
            continue
        rows.append(row)
    own = PodClass((("cpu", 1_550), ("memory", 6 * GIB)), 1_550, 6 * GIB)
    for node in range(nodes):
        for number in range(_PER_NODE):
            labels = [("app", f"app-{chance.randrange(40)}")]
            if chance.random() < 0.5:
                key = f"job-{chance.randrange(200)}"
                labels.append(("scheduling.koordinator.sh/questioned-object-key", key))
            if chance.random() < 0.02:
                labels.append(("scheduling.koordinator.sh/disable-preemptible", "true"))
            name = f"p-{node:05}-{number:02}"
            priority = 1000 if chance.random() < 0.02 else chance.randint(0, 50)
            rows.append(
                PodRow(
                    name,  # type: ignore[arg-type]
                    "default",
                    name,
                    1,
                    own,
                    labels=tuple(sorted(labels)),
                    node=f"node-{node:05}",
                    priority=priority,
                    start=1_700_000_000 + number,
                )
            )
    sizes = (8_000, 6_000, 4_000) if mixed else (8_000,)
    classes = [
        PodClass(
            (("cpu", cpu), ("memory", 16 * GIB)),
            cpu,
            16 * GIB,
            scheduler_name="koord-scheduler",
        )
        for cpu in sizes
    ]
    label = (("pod-group.scheduling.sigs.k8s.io", "preemptor"),)
    waiting = tuple(
        replace(
            row,
            pod_class=classes[number % len(classes)],
            group="",
            gang=GANG,
            labels=label,
        )
        for number, row in enumerate(base.waiting)
    )
    name = f"generated_{nodes}_{size}{'_mixed' if mixed else ''}"
    return Scenario(name, tuple(rows), waiting, GANG_KEY + GANG, {})


async def _case(scenario: Scenario, runs: int) -> None:
    cluster, unrest = scenario.cluster(), Unrest(scenario)
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    gangs = {scenario.group: GangGroup(GANG, (GangState(GANG, len(scenario.waiting)),))}
    cluster.snapshot()
    freeze_records()

    async def stir(run: int) -> None:
        del run
        unrest.stir(cluster)

    async def decide(watch: Stopwatch) -> Decision:
        with watch.part("snapshot"):
            snapshot = cluster.snapshot()
        with watch.part("attempt"):
            session = Session(snapshot, _POLICY, gangs=gangs, jobs=JobOptions())
            attempt = session.attempt(unit)
        if attempt is None or attempt.preemption is None or attempt.plan is None:
            raise Mismatch(f"{scenario.name}: no preemption")
        with watch.part("proof"):
            faults = faults_of(snapshot, _POLICY, attempt)
        if faults:
            raise Mismatch(f"{scenario.name}: {faults}")
        return Decision(snapshot, attempt)

    victims = 0

    def check(decision: Decision) -> None:
        nonlocal victims
        found = decision.attempt.preemption
        assert found is not None
        victims = len(found.victims)
        if not victims or len(found.nominated) != len(scenario.waiting):
            raise Mismatch(f"{scenario.name}: {victims} victims, {len(found.nominated)} placed")

    best = await best_of(runs, stir, decide, check)
    print_line(
        BENCH,
        scenario.name,
        cpu_ms=best.cpu_ms,
        wall_ms=best.wall_ms,
        peak_mib=peak_mib(),
        runs=best.runs,
        parts_ms=best.parts_ms,
        victims=victims,
    )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.scheduling [FILE...]`: decisions of the scheduling plane, in CPU time.

FILE: recorded scenarios (`*.json.gz`). Each gives three cases: the gang with the reference's
reprieve passes, the same with the second pass (`-second`), and one plain pod over all nodes
(`-pod`). Measured are `snapshot()`, the placement, the plan with its reasons and the final proof;
between runs 100 pods change and change back. A case fails, and with it the program, when placement,
victims or candidates differ from what the file says.

`--nodes N,N... --gang SIZE`: generated clusters, and what a node costs more in the larger ones;
`--with WHAT` with more in them (`bench.scheduling_generated`), `--pod` with one pod that waits.
`--throughput`: plain pods and gangs placed at 5,000 nodes with the default profile, engine only.
`--options`: the gangs of the files with all options beyond KEP-5710, with `profile: best`, and what
each costs; and the same where each pod has a device, so that there is work to lose (`-devices`).
`--slo`: the three ratios of KEP-5710. `--cascade`: what victims evict in turn. `--quick`: small
inputs that assert results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cascade import run_cascades
from bench.decisions import Decision, Mismatch
from bench.measuring import Measurement, Stopwatch, best_of, peak_mib, print_line
from bench.scheduling_generated import WITH, generated_with, single_pod
from bench.scheduling_input import (
    Scenario,
    Unrest,
    generated,
    most_free_cpu,
    recorded,
    with_devices,
)
from bench.scheduling_load import run_ratios, run_throughput
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import FilterName, Gates, Policy, Profile
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.pod_preemption import find_candidates
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.node_by_node import Candidates
from reprieve.engine.victim_choice import VictimChoice
from reprieve.operator.collector import freeze_records, relax_collector

__all__ = ["main"]

BENCH = "scheduling"
# The filters that the recorded figures of the peer include.
_FILTERS = (
    FilterName.NODE_UNSCHEDULABLE,
    FilterName.NODE_NAME,
    FilterName.TAINT_TOLERATION,
    FilterName.NODE_AFFINITY,
    FilterName.NODE_PORTS,
    FilterName.NODE_RESOURCES_FIT,
    FilterName.POD_TOPOLOGY_SPREAD,
    FilterName.INTER_POD_AFFINITY,
)
_PROFILE = Profile(filters=_FILTERS)
_POLICY = Policy(profiles=(_PROFILE,), gates=Gates(topology_aware=False))
_WITH_CLAIMS = replace(_PROFILE, filters=(*_FILTERS, FilterName.DYNAMIC_RESOURCES))
_NOW = 1_800_000_000
_ALL: Mapping[str, Any] = {
    "binary_search_priority": True,
    "max_placements": 2,
    "topology_preemption": True,
    "cascade_aware": True,
    "harm_order": True,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 when a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.scheduling", description=__doc__)
    parser.add_argument("file", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--nodes", help="numbers of nodes, separated by commas")
    parser.add_argument("--gang", type=int, default=64, metavar="SIZE")
    parser.add_argument("--with", dest="what", choices=sorted(WITH), default="")
    parser.add_argument("--pod", action="store_true", help="one pod waits in place of the gang")
    parser.add_argument("--throughput", action="store_true")
    parser.add_argument("--slo", action="store_true")
    parser.add_argument("--cascade", action="store_true")
    parser.add_argument("--options", action="store_true", help="gangs with all options, too")
    parser.add_argument("--quick", action="store_true", help="small inputs, one run each")
    parser.add_argument("--runs", type=int, default=7)
    chosen = parser.parse_args(arguments)
    missing = [str(file) for file in chosen.file if not file.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    if (chosen.what or chosen.pod) and not chosen.nodes:
        parser.error("--with and --pod are of generated clusters; --nodes says of which size")
    relax_collector()
    try:
        asyncio.run(_run(chosen))
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


async def _run(chosen: argparse.Namespace) -> None:
    if chosen.quick:
        await _gang(generated(40, 8), 1, second=False)
        await _gang(generated(40, 8), 1, second=True)
        for what in WITH:
            await _gang(generated_with(40, 8, what), 1, second=False)
        await _pod(single_pod(generated(40, 8)), 1)
        run_throughput(50, 60, 3, 4)
        run_ratios(60, 8)
        run_cascades(BENCH, 2)
        return
    for file in chosen.file:
        gang, single = recorded(file)
        await _gang(gang, chosen.runs, second=False)
        await _gang(gang, chosen.runs, second=True)
        await _pod(single, chosen.runs)
        if chosen.options:
            await _options(gang, chosen.runs)
            await _options(with_devices(gang, _NOW), chosen.runs)
    if chosen.nodes:
        per_node: dict[int, float] = {}
        for count in map(int, chosen.nodes.split(",")):
            scenario = generated_with(count, chosen.gang, chosen.what)
            if chosen.pod:
                cpu_ms = await _pod(single_pod(scenario), chosen.runs)
            else:
                cpu_ms = await _gang(scenario, chosen.runs, second=False)
            per_node[count] = cpu_ms / count
        least = min(per_node)
        growth = {str(n): round(cost / per_node[least], 2) for n, cost in per_node.items()}
        print_line(BENCH, "cost_per_node", growth=growth)
    if chosen.throughput:
        run_throughput(5_000, 10_000, 50, 64)
    if chosen.slo:
        run_ratios(1_000, 64)
    if chosen.cascade:
        run_cascades(BENCH, 100)


async def _gang(scenario: Scenario, runs: int, *, second: bool) -> float:
    victims = 0

    def check(decision: Decision) -> None:
        nonlocal victims
        victims = _check_gang(scenario, decision, exact=not second)

    profile = _WITH_CLAIMS if scenario.waiting[0].claims else _PROFILE
    policy = replace(_POLICY, profiles=(profile,), second_reprieve_pass=second)
    case = scenario.name + ("-second" if second else "")
    best = await _measured(scenario, policy, runs, check)
    _print(case, best, victims=victims)
    return best.cpu_ms


async def _options(scenario: Scenario, runs: int) -> None:
    """Print what the options cost together, and `profile: best`.

    `maxPlacements` compares one alternative.
    """
    costs: dict[str, float] = {}
    for name, policy in (
        ("none", _POLICY),
        ("all", replace(_POLICY, **_ALL)),
        ("best", replace(_POLICY, choice=VictimChoice.BEST)),
    ):
        best = await _measured(
            scenario, policy, runs, lambda decision: _check_plan(scenario, decision)
        )
        costs[name] = best.cpu_ms
    ratios = {name: round(costs[name] / costs["none"], 2) for name in ("all", "best")}
    print_line(BENCH, f"{scenario.name}-options", cpu_ms=costs, ratios=ratios)


def _check_plan(scenario: Scenario, decision: Decision) -> None:
    if decision.attempt.plan is None:
        raise Mismatch(f"{scenario.name}: nothing is preempted")


async def _pod(scenario: Scenario, runs: int) -> float:
    profile = replace(_PROFILE, post_filters=("DefaultPreemption",))
    policy = replace(_POLICY, profiles=(profile,))
    best = await _measured(
        scenario, policy, runs, lambda decision: _check_pod(scenario, decision, policy)
    )
    _print(scenario.name, best)
    return best.cpu_ms


async def _measured(
    scenario: Scenario, policy: Policy, runs: int, check: Callable[[Decision], None]
) -> Measurement:
    cluster, unrest = scenario.cluster(), Unrest(scenario)
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    cluster.snapshot()
    freeze_records()

    async def stir(run: int) -> None:
        del run
        unrest.stir(cluster)

    async def decide(watch: Stopwatch) -> Decision:
        with watch.part("snapshot"):
            snapshot = cluster.snapshot()
        with watch.part("attempt"):
            attempt = Session(snapshot, policy, choose=most_free_cpu, now=_NOW).attempt(unit)
        assert attempt is not None and attempt.preemption is not None
        with watch.part("proof"):
            faults = faults_of(snapshot, policy, attempt)
        if faults:
            raise Mismatch(f"{scenario.name}: {faults}")
        return Decision(snapshot, attempt)

    return await best_of(runs, stir, decide, check)


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


def _check_gang(scenario: Scenario, decision: Decision, *, exact: bool) -> int:
    preemption = decision.attempt.preemption
    assert preemption is not None
    keys = decision.snapshot.pod_keys
    victims = {keys[slot] for unit in preemption.victims for slot in unit.pods}
    if not scenario.expect:
        if not victims:
            raise Mismatch(f"{scenario.name}: no victims")
        return len(victims)
    if dict(preemption.nominated) != scenario.expect["placement"]:
        # Uids of the waiting pods are their names in these files.
        raise Mismatch(f"{scenario.name}: another placement")
    if exact and victims != scenario.expect["victims"]:
        different = sorted(victims ^ scenario.expect["victims"])
        raise Mismatch(f"{scenario.name}: {len(different)} victims differ: {different[:5]}")
    return len(victims)


def _check_pod(scenario: Scenario, decision: Decision, policy: Policy) -> None:
    snapshot, preemption = decision.snapshot, decision.attempt.preemption
    assert preemption is not None
    if not scenario.expect:
        if not preemption.victims:
            raise Mismatch(f"{scenario.name}: no victims")
        return
    winner = preemption.nominated[0][1]
    if winner != scenario.expect["winner"]:
        raise Mismatch(f"{scenario.name}: {winner} won, not {scenario.expect['winner']}")
    wanted = {each["node"]: set(each["victimsOrder"]) for each in scenario.expect["candidates"]}
    found = _victims_per_node(snapshot, policy, decision.attempt.unit)
    if found != wanted:
        nodes = sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
        raise Mismatch(f"{scenario.name}: candidates differ on {nodes[:5]}")


def _victims_per_node(snapshot: Snapshot, policy: Policy, unit: Unit) -> dict[str, set[str]]:
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    pending = snapshot.pending[unit.pods[0]]
    refused = simulation.codes(pending) != 0
    found: Candidates = find_candidates(simulation, pending, policy, refused)
    keys = snapshot.pod_keys
    return {
        snapshot.nodes[int(node)].name: {
            keys[slot]
            for victim in found.victims(index)[0].tolist()
            for slot in found.units.pods(victim).tolist()
        }
        for index, node in enumerate(found.nodes.tolist())
    }


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m bench.quota [--quick] [--random SEED] [FILE...]`: victims of a large workload.

Measured is what a cycle does for one head on a state that is kept up to date: a workload finishes,
another one is admitted, a snapshot is taken, flavors are assigned (with the oracle's searches, one
for each resource and flavor looked at) and the targets are searched. `setup_cpu_ms` is the build of
the state, which happens once in the life of a process; `change_us` is the CPU time of one finish
and one admission alone, which does not grow with what is admitted, `proof_us` that of the proof
that the decision is held against before it is carried out, which comes on top. The result of every
run is checked against the naive search of `tests/oracle`, outside the measured time.

FILE is a scenario in the form of the preemption vectors, plain or compressed; its expectation is
checked too. `--random SEED` makes mixed ones: 4 flavors, 6 sizes, weights, limits, three levels of
cohorts, classical and fair; `--admitted N --queues N` says how large they are. `peak_mib` is that
of the state and the first decision. `--quick` makes small mixed ones: a smoke test that asserts
results and never times. Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import functools
import gc
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.measuring import peak_mib, print_line
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.proofs.proof import faults_of
from reprieve.engine.quota.proofs.proof_state import Preempting, Victim
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.preemption import SearchOracle, find_targets
from tests.oracle import quota as oracle
from tests.quota.cases import NOW, SECOND, Scene, holding, plain

__all__ = ["main"]

RUNS = 5
MIXED = ("mixed-classical", "mixed-fair")
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Given:
    """A scenario: what it is, and the keys of the targets that are known for its first state."""

    scene: Scene
    expected: list[str] | None = None


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the exit code is that of the first case that failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.quota", description=__doc__)
    parser.add_argument("file", nargs="*", metavar="FILE", help="scenarios to measure")
    parser.add_argument("--random", type=int, metavar="SEED", help="mixed scenarios of our own")
    parser.add_argument("--quick", action="store_true", help="small mixed scenarios, one run each")
    parser.add_argument("--admitted", type=int, default=6_000, metavar="N", help="of mixed ones")
    parser.add_argument("--queues", type=int, default=60, metavar="N", help="of mixed ones")
    parser.add_argument("--here", metavar="CASE", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    for file in chosen.file:
        if not Path(file).is_file():
            parser.error(f"{file}: no such file")
    if chosen.here:
        sizes = (6, 72) if chosen.quick else (chosen.queues, chosen.admitted)
        _measure(chosen.here, chosen.random or 0, sizes, 1 if chosen.quick else RUNS)
        return 0
    given = {"admitted", "queues"} & {
        name for name in vars(chosen) if getattr(chosen, name) != parser.get_default(name)
    }
    if not 0 < chosen.queues <= chosen.admitted:
        parser.error("--queues: accepted are 1 up to as many as --admitted says")
    mixed = chosen.quick or chosen.random is not None or bool(given)
    if not mixed and not chosen.file:
        parser.error(
            "nothing to do; accepted: FILE..., --random SEED, --admitted N, --queues N, --quick"
        )
    for case in [*chosen.file, *(MIXED if mixed else ())]:
        command = [sys.executable, "-m", "bench.quota", "--here", case]
        command += ["--random", str(chosen.random or 0)] + ["--quick"] * chosen.quick
        command += ["--admitted", str(chosen.admitted), "--queues", str(chosen.queues)]
        code = subprocess.call(command)
        if code:
            return code
    return 0


def _measure(case: str, seed: int, sizes: tuple[int, int], runs: int) -> None:
    """Measure a case; `sizes`: queues and admitted workloads of a mixed one."""
    if case in MIXED:
        given = Given(mixed(Random(seed), case == "mixed-fair", *sizes))
    else:
        given = read(Path(case))
    scene = given.scene
    started = time.process_time()
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    setup = time.process_time() - started
    assigned, targets = decide(holdings, scene)
    peak = peak_mib()
    check(scene, scene.admitted, assigned, targets)
    assert given.expected is None or targets == given.expected
    gc.collect()
    gc.freeze()
    assert targets, "nothing has to be preempted: nothing to measure"
    best: tuple[float, float] | None = None
    for finished, admitted, left in changes(scene, runs):
        wall, cpu = time.perf_counter(), time.process_time()
        holdings.release(finished.key)
        holdings.hold(admitted)
        assigned, targets = decide(holdings, scene)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        check(scene, left, assigned, targets)
        best = min(best, (cpu, wall)) if best else (cpu, wall)
    assert best is not None
    proof_us = _proof_us(holdings, scene, runs)
    change_us = _change_us(holdings, left, 20 if runs == 1 else 2_000)
    print_line(
        "quota",
        Path(case).name.split(".")[0],
        cpu_ms=round(best[0] * 1e3, 2),
        wall_ms=round(best[1] * 1e3, 2),
        peak_mib=peak,
        setup_cpu_ms=round(setup * 1e3, 1),
        change_us=change_us,
        proof_us=proof_us,
        runs=runs,
        admitted=len(scene.admitted),
        targets=len(targets),
    )


def _change_us(holdings: Holdings, admitted: list[Workload], times: int) -> float:
    """Return the CPU time of one finish and one admission, without anything that is decided."""
    usage = [column[:] for column in holdings.usage]
    started = time.process_time()
    for number in range(times):
        workload = admitted[number * 7919 % len(admitted)]
        holdings.release(workload.key)
        holdings.hold(workload)
    cpu = time.process_time() - started
    assert holdings.usage == usage, "usage is not what it was"
    return round(cpu / times * 1e6, 1)


def _proof_us(holdings: Holdings, scene: Scene, runs: int) -> float:
    """Return the least CPU time of the proof of the decision, which has to hold.

    Raises:
        AssertionError: the proof refuses it.
    """
    snapshot = holdings.snapshot()
    queue = snapshot.tree.queues[scene.queue]
    who = preemptor(scene.incoming, queue, snapshot.settings)
    assigned = Assigner(snapshot, scene.incoming, queue, SearchOracle(snapshot, who)).assign()
    found = find_targets(snapshot, who, assigned.usage, assigned.need)
    assert found is not None, "nothing has to be preempted any more"
    victims = tuple(Victim(target.holder, target.reason) for target in found.targets)
    best = float("inf")
    for _ in range(runs * 10):
        # Quotas are known by then, as they are once for a configuration.
        searched = snapshot.without(())
        started = time.process_time()
        plan = Preempting(scene.incoming, queue, assigned.usage, victims, NOW)
        faults = faults_of(plan, searched, snapshot, holdings.holders)
        best = min(best, time.process_time() - started)
        assert not faults, "; ".join(map(str, faults))
    return round(best * 1e6, 1)


def decide(holdings: Holdings, scene: Scene) -> tuple[Assignment, list[str]]:
    """Do what a cycle does for one head: snapshot, assignment, targets."""
    snapshot = holdings.snapshot()
    queue = snapshot.tree.queues[scene.queue]
    who = preemptor(scene.incoming, queue, snapshot.settings)
    assigned = Assigner(snapshot, scene.incoming, queue, SearchOracle(snapshot, who)).assign()
    found = None
    if assigned.mode is Mode.PREEMPT:
        found = find_targets(snapshot, who, assigned.usage, assigned.need)
    return assigned, [target.holder.key for target in found.targets] if found else []


def changes(scene: Scene, runs: int) -> Iterator[tuple[Workload, Workload, list[Workload]]]:
    """Yield for each run who finishes, who is admitted in its place, and all that are there then.

    The new one is another workload: later, and of another priority.
    """
    left = list(scene.admitted)
    for run in range(runs):
        position = (run + 1) * 7919 % len(left)
        finished = left[position]
        admitted = replace(
            finished,
            name=f"{finished.name}-{run}",
            uid=f"{finished.uid}-{run}",
            priority=finished.priority + 10,
            reserved_at=NOW,
        )
        left[position] = admitted
        yield finished, admitted, left


def check(scene: Scene, left: object, assigned: Assignment, targets: list[str]) -> None:
    """Compare with the naive search.

    Raises:
        AssertionError: the targets differ.
    """
    assert isinstance(left, (list, tuple))
    if assigned.mode is not Mode.PREEMPT:
        assert not targets
        return
    pairs: dict[tuple[str, str], int] = {}
    for pod_set in assigned.pod_sets:
        for resource, choice in pod_set.flavors.items():
            pair = (choice.flavor, resource)
            pairs[pair] = pairs.get(pair, 0) + pod_set.requests[resource]
    need = {
        (choice.flavor, resource)
        for pod_set in assigned.pod_sets
        for resource, choice in pod_set.flavors.items()
        if choice.mode is Mode.PREEMPT
    }
    case = plain(scene, left)
    case["incoming"] |= {"requests": pairs, "need": need}
    expected = [key for key, _ in oracle.targets(case)]
    assert targets == expected, f"{len(targets)} targets, {len(expected)} expected"


def read(path: Path) -> Given:
    """Read a scenario in the form of the preemption vectors."""
    # Here, so that mixed cases do not need what reads the API's form.
    from tests.conformance import quota_objects as objects

    raw = path.read_bytes()
    case = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    scene = Scene(
        objects.configuration(case),
        tuple(objects.workload(each) for each in case["admitted"]),
        (),
        objects.workload(case["incoming"]),
        case["targetClusterQueue"],
        {},
        frozenset(),
    )
    return Given(scene, case["expect"]["targetsInOrder"])


def mixed(random: Random, fair: bool, queues: int, workloads: int) -> Scene:
    """Return a full cluster of `queues` ClusterQueues with so many workloads."""
    flavors = [f"flavor-{k}" for k in range(4)]
    cohorts = {"root": Cohort("root")}
    for k in range(max(1, queues // 12)):
        cohorts[f"mid-{k}"] = Cohort(f"mid-{k}", "root", weight=random.choice((1.0, 2.0, 0.5)))
        for leaf in range(2):
            name = f"leaf-{k}-{leaf}"
            cohorts[name] = Cohort(name, f"mid-{k}", weight=random.choice((1.0, 0.3)))
    leaves = [name for name in cohorts if name.startswith("leaf")]
    names = [f"queue-{k:03}" for k in range(queues)]
    admitted = []
    used: dict[tuple[str, str, str], int] = {}
    for k in range(workloads):
        queue, flavor, size = random.choice(names), random.choice(flavors), random.choice(SIZES)
        amounts = {"cpu": size * 8_000, "memory": size * 2**36, "nvidia.com/gpu": size}
        workload = Workload(
            "team",
            f"wl-{k:06}",
            uid=f"{random.randint(0, 10**9):010}",
            queue=f"team/{queue}",
            priority=random.randrange(0, 100, 10),
            created=Nanos(NOW - random.randint(0, 86_400) * SECOND),
            pod_sets=(PodSet("main", 1, amounts),),
        )
        reserved = Nanos(NOW - random.randint(0, 86_400) * SECOND)
        admitted.append(holding(workload, queue, flavor, reserved, random.random() < 0.01))
        for resource, amount in amounts.items():
            pair = (queue, flavor, resource)
            used[pair] = used.get(pair, 0) + amount
    # The first queue wants its own back; all is in use, so what it lacks the others borrow.
    factor = {name: random.choice((0.7, 0.8, 1.0, 1.2)) for name in names}
    factor[names[0]] = 1.35

    @functools.cache
    def held(flavor: str, resource: str) -> tuple[dict[str, int], int, float]:
        """Return what each queue uses, and what all but the first do, plain and as they ask."""
        amounts = {name: used.get((name, flavor, resource), 0) for name in names}
        rest = sum(amounts.values()) - int(amounts[names[0]] * factor[names[0]])
        return amounts, rest, sum(amounts[name] * factor[name] for name in names[1:])

    def quota(name: str, flavor: str, resource: str) -> Quota:
        amounts, rest, shares = held(flavor, resource)
        amount = amounts[name]
        if name == names[0]:
            return Quota(int(amount * factor[name]))
        nominal = int(rest * (amount * factor[name]) / shares)
        borrowing = random.choice((None, None, amount))
        return Quota(nominal, borrowing, random.choice((None, None, nominal // 2)))

    configuration = Configuration(
        {
            name: ClusterQueue(
                name,
                random.choice(leaves),
                (
                    ResourceGroup(
                        RESOURCES,
                        tuple(
                            FlavorQuotas(f, {r: quota(name, f, r) for r in RESOURCES})
                            for f in flavors
                        ),
                    ),
                ),
                Preemption(Policy.LOWER_PRIORITY, Policy.ANY),
                FlavorFungibility(),
                weight=random.choice((1.0, 1.0, 2.0, 0.1, 0.0)),
            )
            for name in names
        },
        cohorts,
        {name: ResourceFlavor(name) for name in flavors},
        {f"team/{name}": LocalQueue(f"team/{name}", name) for name in names},
        {"team": {}},
        Settings(fair_sharing=() if fair else None),
    )
    pods = max(2, workloads // queues // 5)
    amounts = {"cpu": 32_000, "memory": 2**38, "nvidia.com/gpu": 4}
    incoming = Workload(
        "team",
        "incoming",
        uid="incoming",
        queue=f"team/{names[0]}",
        priority=1_000,
        created=NOW,
        pod_sets=(PodSet("main", pods, amounts),),
    )
    return Scene(configuration, tuple(admitted), (), incoming, names[0], {}, frozenset())


if __name__ == "__main__":
    raise SystemExit(main())

"""What the governor of disruptions adds to a decision.

    python -m bench.governed [--quick] [--planes] [--pairs N]

Decisions about quota, those of `bench.quota`, mixed scenarios of 6,000 admitted workloads in 60
queues, made with and without a governor whose ledger holds a day of 5,000 displacements: `quiet` is
asked for work that was in none of them, `busy` for work that displaced 200 of the admitted two
hours ago and more, `lately` for work that did so within the hour, and `in-vain` for such work that
got nothing by it, so that it is asked about each of the 200 that is a candidate. Then those of the
scheduling and of the idle plane (`bench.governed_planes`; with `--planes` these alone).

Both are made in turn, each first in every other pair, so that what
else the machine does meets both alike; told are the medians of the CPU time of a decision, and of
the ratios of the pairs. Checked: the same work is preempted with and without it, since nobody is
held.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import replace
from random import Random
from statistics import median
from typing import Final

from bench.disruptions import displacements
from bench.governed_planes import run_planes
from bench.measuring import print_line
from bench.quota import MIXED, mixed
from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Mode
from reprieve.engine.quota.displacements import Displacements, participant_of
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.preemption import SearchOracle
from reprieve.engine.quota.targets.protection import Causes, protected, sparing
from tests.quota.cases import Scene

_ROWS: Final = 5_000
_TEMPLATES: Final = 400
_DISPLACED: Final = 200
_QUIET: Final = "quiet"
_BUSY: Final = "busy"
_LATELY: Final = "lately"
_IN_VAIN: Final = "in-vain"


def decide(holdings: Holdings, scene: Scene, ledger: Displacements | None, now: Nanos) -> list[str]:
    """Do what a cycle does for one head, and return who is preempted."""
    snapshot = holdings.snapshot()
    queue = snapshot.tree.queues[scene.queue]
    who = preemptor(scene.incoming, queue, snapshot.settings)
    causes = Causes(snapshot) if ledger is not None else None
    spared = protected(who, now, runtimes=False, ledger=ledger, causes=causes)
    if spared is not None:
        who = sparing(who, spared)
    oracle = SearchOracle(snapshot, who)
    assigned = Assigner(snapshot, scene.incoming, queue, oracle).assign()
    if assigned.mode is not Mode.PREEMPT:
        return []
    found = oracle.targets(assigned.usage, assigned.need)
    return [target.holder.key for target in found.targets] if found else []


def ledger_of(scene: Scene, count: int, kind: str) -> tuple[Displacements, Nanos]:
    """Return a ledger of a day, and the instant at its end."""
    rows = displacements(count, _TEMPLATES)
    governor = Governor()
    governor.fold(rows)
    end = rows[-1].at
    if kind != _QUIET:
        # One each: nobody is held for it.
        ago = 2 * HOUR if kind == _BUSY else 0
        one = participant_of(scene.incoming)
        for number, victim in enumerate(scene.admitted[:_DISPLACED]):
            at = Nanos(end - ago - number * SECOND)
            governor.record(
                Displacement(at, Actor.QUOTA, one, participant_of(victim), victim.uid, number)
            )
        if kind != _IN_VAIN:
            governor.admitted(one, end)
    return Displacements(governor=governor), Nanos(end + SECOND)


def _measured(case: str, kind: str, sizes: tuple[int, int], rows: int, pairs: int) -> None:
    scene = mixed(Random(0), case == "mixed-fair", *sizes)
    # The plane says whose work each is.
    known = tuple(replace(each, participant=participant_of(each)) for each in scene.admitted)
    incoming = replace(scene.incoming, participant=participant_of(scene.incoming))
    scene = replace(scene, admitted=known, incoming=incoming)
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    ledger, now = ledger_of(scene, rows, kind)
    targets = decide(holdings, scene, None, now)
    assert targets, "nothing has to be preempted: nothing to measure"
    assert decide(holdings, scene, ledger, now) == targets, "somebody is held"
    assert ledger.concerns(scene.incoming) is (kind != _QUIET)
    gc.collect()
    gc.freeze()
    plain: list[float] = []
    governed: list[float] = []
    for number in range(pairs):
        order = ((None, plain), (ledger, governed))
        for given, times in order if number % 2 else order[::-1]:
            started = time.process_time()
            decide(holdings, scene, given, now)
            times.append(time.process_time() - started)
    ratios = [after / before for before, after in zip(plain, governed, strict=True)]
    print_line(
        "governed",
        f"{case}-{kind}",
        plain_ms=round(median(plain) * 1e3, 3),
        governed_ms=round(median(governed) * 1e3, 3),
        more_percent=round((median(ratios) - 1) * 100, 2),
        pairs=pairs,
        targets=len(targets),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; a wrong result is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.governed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, two pairs")
    parser.add_argument("--planes", action="store_true", help="scheduling and idle alone")
    parser.add_argument("--pairs", type=int, default=300, metavar="N", help="decisions of each")
    chosen = parser.parse_args(arguments)
    sizes = (6, 72) if chosen.quick else (60, 6_000)
    rows, pairs = (500, 2) if chosen.quick else (_ROWS, chosen.pairs)
    for case in () if chosen.planes else MIXED:
        for kind in (_QUIET, _BUSY, _LATELY, _IN_VAIN):
            _measured(case, kind, sizes, rows, pairs)
    run_planes(pairs, quick=chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What harm budgets add to a decision about quota.

    python -m bench.harm_budgets [--quick] [--pairs N]

Decisions of `bench.governed`, of a head that preempts among 10,000 admitted workloads of 1,000
namespaces, made with the governor alone and with 1,000 HarmBudgets beside it, one for each
namespace, over the sums of a day of 20,000 displacements. `few`: each budget has room; `all`: one
budget more has an account for each namespace, so that two apply to every candidate; `counted`: as
`few`, and one more displacement is counted before each decision.

Both are made in turn, each first in every other pair; told are the medians of the CPU time of a
decision, and of the ratios of the pairs. Checked: the same work is preempted with and without
budgets, since none is used up, and the accounts of all are asked.
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

from bench.governed import decide
from bench.measuring import print_line
from bench.quota import MIXED, mixed
from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.budget import Expression, Harm, HarmBudget, HarmSide, Selector
from reprieve.engine.quota.displacements import Displacements, participant_of
from reprieve.engine.quota.holdings.state import Holdings
from tests.quota.cases import NOW, Scene

_TENANTS: Final = 1_000
_DISPLACED: Final = 20_000
_MOST: Final = 1_000_000
_END: Final = Nanos(NOW)


def tenant(number: int, tenants: int) -> str:
    """Return the namespace of an admitted workload."""
    return f"tenant-{number % tenants}"


def scene_of(case: str, sizes: tuple[int, int], tenants: int) -> Scene:
    """Return a full cluster whose workloads are those of so many namespaces."""
    scene = mixed(Random(0), case == "mixed-fair", *sizes)
    admitted = []
    for number, each in enumerate(scene.admitted):
        moved = replace(each, namespace=tenant(number, tenants))
        admitted.append(replace(moved, participant=participant_of(moved)))
    incoming = replace(scene.incoming, participant=participant_of(scene.incoming))
    return replace(scene, admitted=tuple(admitted), incoming=incoming)


def ledger_of(tenants: int, displaced: int, kind: str) -> Displacements:
    """Return a governor with a budget for each namespace, and the sums of a day."""
    governor, random = Governor(), Random(1)
    governor.harm.labels = lambda namespace: {"tenant": namespace}
    budgets = [
        HarmBudget(
            name,
            selector=Selector(namespaces=(Expression("tenant", "In", (name,)),)),
            displacements=_MOST,
            lost_device_seconds=_MOST * 3_600,
        )
        for name in (tenant(number, tenants) for number in range(tenants))
    ]
    if kind == "all":
        budgets.append(HarmBudget("everybody", displacements=_MOST))
    governor.harm.adopt({each.name: each for each in budgets})
    for _ in range(displaced):
        _displaced(governor, tenants, random)
    return Displacements(governor=governor)


def _displaced(governor: Governor, tenants: int, random: Random) -> None:
    at = Nanos(_END - random.randrange(24 * HOUR))
    victim = HarmSide(tenant(random.randrange(tenants), tenants), "", 0, "owner/one")
    governor.harm.record(Harm(at, "quota", victim, HarmSide("team"), 3_600, "rule"))


def _measured(case: str, kind: str, quick: bool, pairs: int) -> None:
    sizes, tenants = ((6, 72), 10) if quick else ((60, 10_000), _TENANTS)
    scene = scene_of(case, sizes, tenants)
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    plain, bounded = Displacements(governor=Governor()), ledger_of(tenants, _DISPLACED, kind)
    targets = decide(holdings, scene, plain, _END)
    assert targets, "nothing has to be preempted: nothing to measure"
    assert decide(holdings, scene, bounded, _END) == targets, "somebody is spared"
    gc.collect()
    gc.freeze()
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        for with_budgets in (False, True) if number % 2 else (True, False):
            if with_budgets and kind == "counted":
                _displaced(bounded.governor, tenants, Random(number))
            started = time.process_time()
            decide(holdings, scene, bounded if with_budgets else plain, _END)
            times[with_budgets].append(time.process_time() - started)
    ratios = [after / before for before, after in zip(times[False], times[True], strict=True)]
    print_line(
        "harm_budgets",
        f"{case}-{kind}",
        plain_ms=round(median(times[False]) * 1e3, 3),
        bounded_ms=round(median(times[True]) * 1e3, 3),
        more_percent=round((median(ratios) - 1) * 100, 2),
        pairs=pairs,
        targets=len(targets),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; a wrong result is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.harm_budgets", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, two pairs")
    parser.add_argument("--pairs", type=int, default=100, metavar="N", help="decisions of each")
    chosen = parser.parse_args(arguments)
    for case in MIXED:
        for kind in ("few", "all", "counted"):
            _measured(case, kind, chosen.quick, 2 if chosen.quick else chosen.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

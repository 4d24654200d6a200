"""The ledger of displacements: folding a day of them, as a process does at its start, and one more.

    python -m bench.disruptions [--quick]

A day of displacements between objects that do not come back by name, of so many pod templates:
the fewer there are, the more lineages are taken for one by their template. Checked: what is
folded in another order holds the same, and one that is asked about is known. `kept_mib` is what is
remembered of them, `known_mib` what is remembered of as many among a thousand lineages.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tracemalloc
from dataclasses import replace
from typing import Final

from bench.measuring import peak_mib, print_line
from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Identity, Participant, participant_of
from reprieve.operator.collector import relax_collector

_CASES: Final = ((5_000, 40), (5_000, 400), (20_000, 400), (100_000, 4_000))
_QUICK: Final = ((1_000, 40),)
_MORE: Final = 200
_REPEATS: Final = 3
_FEW_LINES: Final = 1_000


def displacements(count: int, templates: int, lines: int = 10**9) -> list[Displacement]:
    """Return a day of displacements among so many lineages, the same ones each time."""
    source = random.Random(f"{count}/{templates}")

    def participant(now: int, *, displaces: bool) -> Participant:
        # Nobody is on both sides: the loops of few lineages are another matter.
        number = 2 * source.randrange(lines // 2) + displaces
        template = source.randrange(templates)
        space = f"team-{template % 40}"
        created = Nanos(max(0, now - source.randrange(HOUR)))
        return participant_of(
            Identity(
                f"uid-{number}",
                space,
                space,
                owner=f"owner-{number}",
                template=f"digest-{template}",
                created=created,
            )
        )

    instants = (24 * HOUR * number // count for number in range(count))
    return [
        Displacement(
            Nanos(at),
            Actor.QUOTA,
            participant(at, displaces=True),
            participant(at, displaces=False),
            f"victim-{at}",
            devices=1,
        )
        for at in instants
    ]


def kept_mib(count: int, templates: int, lines: int = 10**9) -> float:
    """Return what so many rows take with all that is remembered of them, in MiB."""
    tracemalloc.start()
    try:
        governor = Governor()
        governor.fold(displacements(count, templates, lines))
        governor.loops(Nanos(24 * HOUR))
        return tracemalloc.get_traced_memory()[0] / 2**20
    finally:
        tracemalloc.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; a wrong result is an AssertionError."""
    parser = argparse.ArgumentParser(prog="python -m bench.disruptions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small case")
    chosen = parser.parse_args(arguments)
    relax_collector()  # as the operator does
    for count, templates in _QUICK if chosen.quick else _CASES:
        rows = displacements(count, templates)
        folded, last = [], rows[-1].at
        for _ in range(_REPEATS):
            governor = Governor()
            start = time.process_time()
            governor.fold(rows)
            loops = governor.loops(last)
            folded.append(time.process_time() - start)
        other = Governor()
        other.fold(rows[::-1])
        assert other.loops(last) == loops
        assert all(governor.concerns(row.victim) for row in rows[-100:])
        more = [replace(row, at=Nanos(last + n * SECOND)) for n, row in enumerate(rows[:_MORE], 1)]
        start = time.process_time()
        for row in more:
            governor.record(row)
        one = (time.process_time() - start) / len(more)
        print_line(
            "disruptions",
            f"{count}-rows-{templates}-templates",
            cpu_ms=round(min(folded) * 1e3, 1),
            one_more_us=round(one * 1e6, 1),
            peak_mib=peak_mib(),
            kept_mib=round(kept_mib(count, templates), 1),
            known_mib=round(kept_mib(count, templates, _FEW_LINES), 1),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

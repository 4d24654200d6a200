"""`python -m bench.idle [--quick] [CASE...]`: the idle plane at the size of a large cluster.

`tick`: one polling interval at 10,000 GPUs on 1,250 node exporters with 40 metric families each.
`discovery`: 50,000 pods from the initial list, each with its root owner.
`operator`: the memory of `reprieve run` over a cluster with 50,000 pods.
`pressure`: its CPU time over 5,000 full nodes while a demand that cannot be served is pending.
Each case runs in a process of its own, so that its peak memory is its own. `--quick` takes small
inputs: a smoke test that asserts results and never times.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys

__all__ = ["main"]

CASES = ("tick", "discovery", "operator", "pressure")


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the exit code is that of the first case that failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__)
    parser.add_argument("case", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; else all")
    parser.add_argument("--quick", action="store_true", help="small inputs, one run each")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    for case in chosen.case:
        if case not in CASES:
            parser.error(f"unknown case {case!r}; accepted: {', '.join(CASES)}")
    if chosen.here:
        asyncio.run(_run(chosen.case[0], chosen.quick))
        return 0
    for case in chosen.case or CASES:
        command = [sys.executable, "-m", "bench.idle", case, "--here"]
        code = subprocess.call(command + ["--quick"] * chosen.quick)
        if code:
            return code
    return 0


async def _run(case: str, quick: bool) -> None:
    # Here, so that a case's memory does not hold what only the other one imports.
    if case == "tick":
        from bench.tick import run_tick

        await run_tick(*((12, 5, 1) if quick else (1250, 40, 5)))
    elif case == "operator":
        from bench.operator import run_operator

        await run_operator(*((700, 0.5) if quick else (50_000, 35.0)))
    elif case == "pressure":
        from bench.pressure import run_pressure

        await run_pressure(*((20, 200, 1.0) if quick else (5_000, 50_000, 60.0)))
    else:
        from bench.discovery import run_discovery

        await run_discovery(*((700, 1) if quick else (50_000, 5)))


if __name__ == "__main__":
    raise SystemExit(main())

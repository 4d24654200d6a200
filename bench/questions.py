"""`python -m bench.questions [--quick]`: what a query about a small cluster costs, as a command.

12 nodes of eight GPUs in the embedded cluster, which this process serves, full of pods of two
priorities; one pod is pending. `explain` queries why, `plan` whether another one would start, each
as a process of its own: `cpu_ms` is its CPU time and that of its copies, from the start of the
interpreter on, the best of five; `wall_ms` and `first_line_ms` (on either output) are of that run.
`compiled` states whether bytecode is kept; where it is not (`PYTHONDONTWRITEBYTECODE`) each command
compiles all modules that it imports. `--quick`: one run, whose answers alone are checked.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.measuring import print_line
from reprieve.scenarios.catalogue import playground
from reprieve.scenarios.creating import create_or_update
from reprieve.scenarios.embedded import embedded_stage

__all__ = ["main"]

_NODES: Final = 12
_RUNS: Final = 5
_GPU: Final = "amd.com/gpu"
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """One command: its CPU and wall time, the time until its first line, its output."""

    cpu_ms: float
    wall_ms: float
    first_line_ms: float
    text: str


def main(arguments: list[str] | None = None) -> int:
    """Run the cases."""
    parser = argparse.ArgumentParser(prog="python -m bench.questions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of each")
    chosen = parser.parse_args(arguments)
    asyncio.run(_run(1 if chosen.quick else _RUNS))
    return 0


async def _run(runs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as directory:
        folder = Path(directory)
        async with embedded_stage(playground(_NODES, 8).nodes, folder) as site:
            for each in _there():
                await create_or_update(site.stage.objects, each)
            file = folder / "another.yaml"
            file.write_text(yaml.safe_dump(_pod("another", 4, "middle")), encoding="utf-8")
            common = ("--kubeconfig", str(site.kubeconfig))
            cases = {
                "explain": (("explain", "pod/wanted", *common), "Pod default/wanted waits"),
                "plan": (("plan", "-f", str(file), *common), "training-"),
            }
            for case, (arguments, expected) in cases.items():
                done = [await _command(*arguments) for _ in range(runs)]
                wrong = [each.text for each in done if expected not in each.text]
                assert not wrong, f"{case}: {expected!r} is not in {wrong[0]}"
                best = min(done, key=lambda each: each.cpu_ms)
                print_line(
                    "questions",
                    case,
                    cpu_ms=best.cpu_ms,
                    wall_ms=best.wall_ms,
                    first_line_ms=best.first_line_ms,
                    runs=runs,
                    compiled=not sys.dont_write_bytecode,
                )


async def _command(*arguments: str) -> Run:
    before, began = _cpu_s(), time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "reprieve", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(_PATIENCE_S):
        first = await process.stdout.readline()
        shown = time.perf_counter()
        rest = await process.stdout.read()
        await process.wait()
    ended = time.perf_counter()
    return Run(
        _ms(_cpu_s() - before), _ms(ended - began), _ms(shown - began), (first + rest).decode()
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _there() -> Iterator[dict[str, Any]]:
    """Yield two classes, a pod of each for each node, and one that fits on no node."""
    for name, value in (("high", 100), ("middle", 50)):
        metadata = {"name": name}
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        yield {**kind, "metadata": metadata, "value": value}
    for node in range(_NODES):
        yield _pod(f"training-{node}", 4, node=f"node-{node}")
        yield _pod(f"service-{node}", 4, "high", node=f"node-{node}")
    yield _pod("wanted", 8)


def _pod(name: str, gpus: int, priority: str = "", node: str = "") -> dict[str, Any]:
    """Return a pod of default-scheduler, on a node where one is named."""
    limits = {_GPU: str(gpus), "cpu": "1", "memory": "1Gi"}
    spec: dict[str, Any] = {
        **({"priorityClassName": priority} if priority else {}),
        "containers": [{"name": "main", "image": "trainer", "resources": {"limits": limits}}],
    }
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


if __name__ == "__main__":
    sys.exit(main())

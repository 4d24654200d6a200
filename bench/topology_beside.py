"""Topology-aware assignments beside the reference's own figures: milliseconds of CPU, row by row.

    python -m bench.topology_beside                       ../shared/topology/bench
    python -m bench.topology_beside --cases DIR --rounds 20

Each case of the published benchmark (640 and 5,000 nodes of two and three levels, requests of 1 to
512 pods) is decided on one snapshot, as there; the answer is compared with the recorded one. The
figures are ours, the least of some rounds, and the least that the reference's run recorded. That
was measured on another, busier machine; of snapshots it has a median alone. There cold is the tree
built anew with what is used of it, warm what a cycle copies of a tree that is there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import Topology, TopologyNode
from reprieve.engine.topology.places import Grounds, NodeUse, TasFlavor
from reprieve.engine.topology.tree import Usage
from tests.conformance.topology_objects import assignment, nodes, pod_set

CASES = Path(__file__).parents[2] / "shared" / "topology" / "bench"
PODS = ("1", "8", "64", "512")
Json = dict[str, Any]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.topology_beside", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, help="folder with the cases")
    parser.add_argument("--rounds", type=int, default=20, help="of which the least counts")
    given = parser.parse_args()
    recorded = {row["case"]: row for row in json.loads((given.cases / "timings.json").read_text())}
    ratios = []
    print(f"| cluster, request | {' | '.join(f'{count} pods' for count in PODS)} |")
    print("|---|" + "---:|" * len(PODS))
    for path in sorted(given.cases.glob("bench_*.json.gz")):
        read = json.loads(gzip.decompress(path.read_bytes()))
        on, cluster = snapshot(*parsed(read["base"])), path.name.split("_")[1].split(".")[0]
        rows: dict[str, dict[str, str]] = {}
        for case in read["cases"]:
            _, request, pods = case["name"].split("/")
            ours, theirs = decided(on, case, given.rounds), recorded[case["name"]]["cpuMsBest"]
            ratios.append(theirs / ours)
            rows.setdefault(request, {})[pods] = f"{ours:.3f} of {theirs:.3f}"
        for request, row in rows.items():
            cells = " | ".join(row.get(count, "") for count in PODS)
            print(f"| {cluster}, {request} | {cells} |", flush=True)
        for name, work in (
            ("snapshot-cold", partial(snapshot, *parsed(read["base"]))),
            ("snapshot-warm", on.usage[0].copy),
        ):
            theirs = recorded[f"{cluster}/{name}"]["cpuMsMedian"]
            print(f"| {cluster}, {name} | {least(work, 5):.3f} of {theirs:.3f} (median) | | | |")
    ahead = sum(each > 1 for each in ratios)
    middle, worst = median(ratios), min(ratios)
    print(
        f"\nAhead in {ahead} of {len(ratios)}; {middle:.1f} times in the median, {worst:.1f} least."
    )


Used = tuple[tuple[str, ...], dict[str, int]]


def parsed(base: Json) -> tuple[TasFlavor, list[TopologyNode], list[NodeUse], list[Used]]:
    """Return a base as rows: what is read of the cluster before a snapshot is built."""
    topology = Topology(base["topologyName"], tuple(base["levels"]))
    flavor = TasFlavor("default", topology, base.get("flavorNodeLabels") or {}, ())
    uses = [NodeUse(pod["node"], pod["requests"]) for pod in base.get("pods") or ()]
    usage = [(tuple(key.split(",")), each) for key, each in (base.get("usage") or {}).items()]
    return flavor, nodes(base), uses, usage


def snapshot(
    flavor: TasFlavor, rows: list[TopologyNode], uses: list[NodeUse], usage: list[Used]
) -> Placing:
    """Return the tree and what is used of it."""
    tree = Grounds(rows, uses).tree(flavor)
    used = Usage(tree)
    for key, amounts in usage:
        used.add_leaf(key, amounts)
    return Placing(tree, (used,))


def decided(on: Placing, case: Json, rounds: int) -> float:
    """Return the milliseconds of a case.

    Raises:
        SystemExit: the answer is not the recorded one.
    """
    wanted = [pod_set(each) for each in case["podSets"]]
    for name, outcome in assign(on, wanted).items():
        if outcome.assignment != assignment(case["expect"][name].get("assignment")):
            raise SystemExit(f"{case['name']}: another answer than recorded")
    return least(partial(assign, on, wanted), rounds)


def least(work: Callable[[], object], rounds: int) -> float:
    """Return the least milliseconds of CPU that the work took."""
    found = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        found = min(found, 1_000 * (time.process_time() - began))
    return found


if __name__ == "__main__":
    main()

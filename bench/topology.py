"""One topology-aware assignment: milliseconds of CPU by size of the cluster, request and pods.

    python -m bench.topology           640 and 5,000 nodes
    python -m bench.topology --quick   160 nodes, each request once

The cluster is drawn: racks of 16 hosts of 8 GPUs, half of the hosts in use by others. Each request
is assigned on the same tree, as in a cycle; building the tree is told by itself.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

from reprieve.engine.topology.assign import Placing, assign
from reprieve.engine.topology.model import (
    HOSTNAME,
    Domain,
    Layer,
    PodsWanted,
    TopologyAssignment,
    TopologyNode,
    TopologyRequest,
)
from reprieve.engine.topology.tree import Tree, Usage

GPU, CPU = "nvidia.com/gpu", "cpu"
BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
REQUESTS = {
    "required rack": TopologyRequest(required=RACK),
    "required block": TopologyRequest(required=BLOCK),
    "preferred rack": TopologyRequest(preferred=RACK),
    "preferred host": TopologyRequest(preferred=HOSTNAME),
    "unconstrained": TopologyRequest(unconstrained=True),
    "slices of 8 by host": TopologyRequest(preferred=BLOCK, layers=(Layer(HOSTNAME, 8),)),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.topology", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small cluster, once")
    quick = parser.parse_args().quick
    for nodes in (160,) if quick else (640, 5_000):
        began = time.process_time()
        on = cluster(nodes)
        print(f"{nodes} nodes: tree built in {1_000 * (time.process_time() - began):.0f} ms")
        for name, request in REQUESTS.items():
            row = []
            for pods in (8, 64, 512):
                wanted = [PodsWanted("main", pods, {GPU: 1, CPU: 8_000}, request)]
                found = assign(on, wanted)["main"].assignment
                if found is not None and found.pods != pods:
                    raise SystemExit(f"{name}: {found.pods} of {pods} pods have a place")
                spent = best(partial(assign, on, wanted), 1 if quick else 20)
                placed = "no place" if found is None else f"{len(found.domains)} domains"
                row.append(f"{pods:4} pods {spent:7.3f} ms {placed:>12}")
            print(f"  {name:20}" + "".join(row))


def cluster(count: int) -> Placing:
    """Return a drawn cluster of so many nodes."""
    draw = random.Random(count)
    nodes = []
    for number in range(count):
        labels = {
            BLOCK: f"b{number // 256:03}",
            RACK: f"r{number // 16:04}",
            HOSTNAME: f"node-{number:05}",
        }
        offers = {GPU: 8, CPU: 128_000, "pods": 110}
        nodes.append(TopologyNode(labels[HOSTNAME], labels, offers))
    tree = Tree("default", LEVELS, nodes)
    used = Usage(tree)
    for node in draw.sample(nodes, count // 2):
        where = Domain((node.name,), draw.choice((1, 2, 4, 8)))
        used.add(TopologyAssignment((HOSTNAME,), (where,)), {GPU: 1, CPU: 8_000})
    return Placing(tree, (used,))


def best(work: Callable[[], object], rounds: int) -> float:
    """Return the least milliseconds of CPU that the work took."""
    least = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        least = min(least, 1_000 * (time.process_time() - began))
    return least


if __name__ == "__main__":
    main()

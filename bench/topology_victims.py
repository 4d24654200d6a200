"""CPU of a cycle that frees a rack among hundreds of victims, by profile.

    python -m bench.topology_victims

All GPUs of 640 and 2,000 nodes of 8, in racks of 16, are held by workloads of three priorities
that lie across racks; one of a higher priority requires 128 GPUs of one rack. Printed are the
milliseconds of CPU of the cycle that chooses its victims, the least of some rounds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.topology.build import RACK
from tests.quota.test_topologies import World

_GPUS = 8


def filled(nodes: int, victims: int, profile: VictimChoice) -> World:
    """Return a cluster without a free GPU, held by about so many workloads."""
    paths = {f"b{n // 160}/r{n // 16}/n{n}": _GPUS for n in range(nodes)}
    world = World(paths, quota=1_000_000)
    settings = replace(world.configuration.settings, profile=profile)
    world.configuration = replace(world.configuration, settings=settings)
    world.holdings.configure(world.configuration)
    world.stand()
    world.queues = Queues(world.configuration)
    left, size = nodes * _GPUS, -(-nodes * _GPUS // victims)
    for number in range(victims):
        pods = min(left, size)
        if pods:
            world.submit(f"v{number}", pods, 1, number % 3, unconstrained=True)
        left -= pods
    held = -1
    while held != len(world.holdings.holders):
        held = len(world.holdings.holders)
        world.decide()
    return world


def milliseconds(nodes: int, victims: int, profile: VictimChoice) -> tuple[float, int, int]:
    """Return the CPU of the cycle, how many workloads hold GPUs, and how many are preempted."""
    world = filled(nodes, victims, profile)
    held = len(world.holdings.holders)
    world.submit("urgent", 128, 1, 9, required=RACK)
    began = time.process_time()
    result = world.decide()
    took = 1_000 * (time.process_time() - began)
    (found,) = (each for each in result.entries if each.workload.name == "urgent")
    return took, held, len(found.targets)


def main() -> None:
    """Print one line a cluster and profile."""
    parser = argparse.ArgumentParser(prog="bench.topology_victims", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of which the least counts")
    rounds = parser.parse_args().rounds
    for nodes, victims in ((640, 240), (2_000, 700)):
        for profile in VictimChoice:
            found = [milliseconds(nodes, victims, profile) for _ in range(rounds)]
            took, held, targets = min(found)
            print(f"{nodes} nodes, {held} held, {profile}: {took:.0f} ms, {targets} victims")


if __name__ == "__main__":
    main()

"""Victims for pods whose node failed: none in vain, none of higher priority than needed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.model import Policy, Preemption, Settings
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.assign import Placing
from reprieve.engine.topology.model import HOSTNAME, PodsWanted
from reprieve.engine.topology.replacing import replace_node
from reprieve.engine.topology.tree import Usage
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.topology.build import GPU, RACK
from tests.quota.test_topologies import World, victims


def best(world: World, policy: Policy = Policy.LOWER_PRIORITY) -> None:
    settings = replace(Settings(), profile=VictimChoice.BEST)
    queue = world.configuration.cluster_queues["team"]
    world.configuration = replace(
        world.configuration,
        settings=settings,
        cluster_queues={"team": replace(queue, preemption=Preemption(policy))},
    )
    world.holdings.configure(world.configuration)
    world.stand()
    world.queues = Queues(world.configuration)


def fail(world: World, name: str, path: str) -> None:
    """Let a node be gone, and a workload say so."""
    del world.gpus[path]
    world.stand()
    held = world.holdings.holders[f"ns/{name}"].workload
    world.holdings.hold(replace(held, unhealthy_nodes=(path.rpartition("/")[2],)))


def crowded(policy: Policy = Policy.LOWER_PRIORITY) -> World:
    """A gang on two of three nodes of its rack; on the third there are two small ones."""
    world = World({"b/r1/a": 4, "b/r1/b": 4, "b/r1/c": 4, "b/r2/d": 2})
    best(world, policy)
    world.submit("gang", 8, 1, 10, required=RACK)
    assert world.decide().of(Outcome.ADMITTED)
    for name, pods, priority in (("one", 3, 1), ("two", 1, 2)):
        world.submit(name, pods, 1, priority, required=HOSTNAME)
        assert world.decide().of(Outcome.ADMITTED)
    return world


def test_lower_priorities_of_the_queue_make_way_and_the_gang_waits_for_them() -> None:
    world = crowded()
    free = next(path for path in ("b/r1/a", "b/r1/b") if path[-1] in world.places("gang"))
    where = {name: [*world.places(name)] for name in ("one", "two")}
    fail(world, "gang", free)
    result = world.decide()
    (entry,) = result.of(Outcome.NODE_PREEMPTING)
    in_the_way = {name for name, hosts in where.items() if hosts == ["c"]}
    assert in_the_way and victims(result) == in_the_way
    assert entry.message.endswith(f"for its pods of the failed node(s) {free[-1]}")
    # While they leave nobody else goes, and it is not evicted.
    assert not world.decide().entries
    for name in in_the_way:
        world.end(name)
    assert world.decide().of(Outcome.NODE_REPLACED)
    assert set(world.places("gang")) == {"a", "b", "c"} - {free[-1]}


def test_without_the_right_to_preempt_the_gang_is_evicted() -> None:
    world = crowded(Policy.NEVER)
    fail(world, "gang", "b/r1/a")
    result = world.decide()
    assert result.of(Outcome.NODE_FAILED) and victims(result) == set()


def fits(world: World, gone: Sequence[Holder], node: str) -> bool:
    """Tell whether the pods of a failed node have another one with these gone."""
    places = world.holdings.places
    assert places is not None
    tree, used = places.trees["tree"], Usage(places.trees["tree"])
    leaving = {each.key for each in gone}
    for key, holder in world.holdings.holders.items():
        for _, pods in holder.placed if key not in leaving else ():
            used.add(pods.assignment, pods.requests)
    gang = world.holdings.holders["ns/gang"].workload
    assert gang.admission is not None
    row = gang.pod_sets[0]
    wanted = PodsWanted("main", row.count, {GPU: 1}, row.topology)
    held = {"main": gang.admission.pod_sets[0].topology}
    found = replace_node(Placing(tree, (used,)), [wanted], held, node)
    return all(each.assignment is not None for each in found.values())


def test_over_random_clusters_victims_are_needed_and_of_the_lowest_priorities() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        draw = random.Random(seed)
        paths = [f"b/r{r}/r{r}h{h}" for r in (1, 2) for h in range(draw.randint(2, 3))]
        world = World({path: draw.choice((2, 4)) for path in paths})
        best(world)
        world.submit("gang", draw.randint(3, 6), 1, 5, required=RACK)
        if not world.decide().of(Outcome.ADMITTED):
            continue
        for number in range(draw.randint(2, 6)):
            world.submit(f"w{number}", draw.randint(1, 4), 1, draw.choice((0, 1, 2, 7)))
            if not world.decide().of(Outcome.ADMITTED):
                world.queues.delete(f"ns/w{number}")
        if any(each.evicted for each in world.holdings.holders.values()):
            continue
        node = draw.choice(sorted(world.places("gang")))
        fail(world, "gang", next(path for path in paths if path.endswith(f"/{node}")))
        lower = [
            each
            for each in world.holdings.holders.values()
            if each.priority < 5 and each.key != "ns/gang"
        ]
        sets = [[*each] for n in range(len(lower) + 1) for each in combinations(lower, n)]
        enough = [each for each in sets if fits(world, each, node)]
        result = world.decide()
        gone = victims(result)
        if not enough:
            seen["evicted"] += 1
            assert result.of(Outcome.NODE_FAILED) and not gone, seed
        elif not enough[0]:
            seen["free"] += 1
            assert result.of(Outcome.NODE_REPLACED) and not gone, seed
        else:
            seen["preempted"] += 1
            assert result.of(Outcome.NODE_PREEMPTING), seed
            top = min(max(each.priority for each in one) for one in enough)
            taken = [each for each in lower if each.workload.name in gone]
            assert max(each.priority for each in taken) == top, seed
            assert not any(
                fits(world, [other for other in taken if other is not each], node) for each in taken
            ), seed
    assert min(seen.values()) > 5, seen
    assert len(seen) == 3, seen

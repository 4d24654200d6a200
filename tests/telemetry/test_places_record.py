"""The input of a preemption for places holds the nodes, so that it is decided again alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Entry
from reprieve.engine.quota.model import LocalQueue, PodSet, Settings, Workload
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, TopologyRequest
from reprieve.engine.topology.places import Grounds, NodeUse
from reprieve.engine.victim_choice import VictimChoice
from reprieve.records.quota.record import inputs_of, policy_text
from reprieve.records.quota.replay import QuotaReplay, Standing, decide_quota_again, quota_answers
from tests.engine.topology.build import BLOCK, GPU, RACK, node
from tests.quota.test_topologies import NOW, World

TEAMS = ("team", "other")


def shared(gpus: Mapping[str, int], profile: VictimChoice, uses: tuple[NodeUse, ...]) -> World:
    """Return two ClusterQueues without a cohort over the same nodes."""
    made = World(gpus, uses=uses)
    first = made.configuration.cluster_queues["team"]
    made.configuration = replace(
        made.configuration,
        cluster_queues={name: replace(first, name=name) for name in TEAMS},
        local_queues={f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in TEAMS},
        settings=Settings(profile=profile),
    )
    made.holdings.configure(made.configuration)
    made.stand()
    made.queues = Queues(made.configuration)
    return made


def submit(played: World, name: str, team: str, pods: int, priority: int, **asked: Any) -> None:
    pod_set = PodSet("main", pods, {GPU: 1}, topology=TopologyRequest(**asked))
    created = Nanos(NOW + len(played.holdings.holders))
    row = Workload("ns", name, name, f"ns/{team}", priority, pod_sets=(pod_set,), created=created)
    played.queues.push(row)


def decided(played: World) -> tuple[CycleResult, dict[str, dict[str, Any]]]:
    """Run one cycle, and record what it decided."""
    played.turns += 1
    now = Nanos(NOW + played.turns * SECOND)
    result = cycle(played.holdings, played.queues, now, played.turns)
    return result, inputs_of(result, played.holdings, played.queues, now)


def again(recorded: dict[str, Any]) -> QuotaReplay:
    """Decide what comes back from the API server."""
    return decide_quota_again(msgspec.json.decode(msgspec.json.encode(recorded)))


@pytest.mark.parametrize(
    "cases", [20, pytest.param(600, marks=pytest.mark.thorough)], ids=["some", "many"]
)
def test_what_is_preempted_for_places_is_preempted_again(cases: int) -> None:
    chance, seen = random.Random(20_261_128), Counter[str]()
    for number in range(cases):
        played = _world(chance, list(VictimChoice)[number % 2])
        for entry, recorded, replay in _preemptions(played, chance):
            policy = policy_text(played.configuration, entry.cluster_queue)
            plan = plan_of(entry, played.holdings.tree, 7, policy)
            assert replay.plan(7) == plan, number
            assert replay.entry.message == entry.message, number
            victims = {a.uid for a in quota_answers(replay) if a.standing is Standing.VICTIM}
            assert victims == {target.holder.workload.uid for target in entry.issued}
            nodes = replay.decided_on.nodes
            assert not isinstance(nodes, msgspec.UnsetType)
            assert {key for each in nodes for key in each.labels} == {BLOCK, RACK, HOSTNAME}
            assert "omitted" not in recorded
            seen["preemptions"] += 1
            seen["other tree holds"] += len({h.queue for h in replay.decided_on.holders}) > 1
            seen["other tree asks"] += len(replay.decided_on.heads) > 1
            seen["beside pods"] += not isinstance(replay.decided_on.uses, msgspec.UnsetType)
            seen["a node failed"] += any(h.unhealthy_nodes for h in replay.decided_on.holders)
    assert seen["preemptions"] > cases, seen
    scarce = {name: number for name, number in seen.items() if number < cases / 20}
    assert len(seen) == 5 and not scarce, seen


def _preemptions(
    played: World, chance: random.Random
) -> Iterator[tuple[Entry, dict[str, Any], QuotaReplay]]:
    """Play some turns; yield who preempts, with the record and the decision made again."""
    for turn in range(8):
        for team in TEAMS:
            level = chance.choice((HOSTNAME, RACK, BLOCK))
            pods, how = chance.randint(1, 6), chance.choice(("required", "preferred"))
            submit(played, f"{team}-{turn}", team, pods, turn, **{how: level})
        if turn == 5 and chance.random() < 0.5:
            _fail(played, chance)
        result, inputs = decided(played)
        for entry in result.entries:
            if entry.issued:
                yield entry, inputs[entry.workload.key], again(inputs[entry.workload.key])
        for key in {target.holder.key for entry in result.entries for target in entry.issued}:
            played.holdings.release(key)
        played.queues.flush(TEAMS)


def _world(chance: random.Random, profile: VictimChoice) -> World:
    racks = [f"b{n % 2}/r{n}" for n in range(chance.randint(2, 4))]
    gpus = {f"{rack}/n{n}": chance.choice((2, 4)) for n, rack in enumerate(racks * 2)}
    uses = (NodeUse("n0", {GPU: 1}),) if chance.random() < 0.3 else ()
    return shared(gpus, profile, uses)


def _fail(played: World, chance: random.Random) -> None:
    """Let a node go, and mark whoever has places on it."""
    path = chance.choice(sorted(played.gpus))
    host = path.rpartition("/")[2]
    left = [node(each, gpus) for each, gpus in played.gpus.items() if each != path]
    played.holdings.stand_on(Grounds(left, played.uses))
    for holder in list(played.holdings.holders.values()):
        if any((host,) == d.values for _, pods in holder.placed for d in pods.assignment.domains):
            failed = replace(holder.workload, unhealthy_nodes=(host,))
            played.holdings.hold(failed)

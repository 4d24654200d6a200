"""Quota and places together: who is admitted fits on nodes, and nobody goes whom neither needs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.topologies import asked_places
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.proofs.proof import Fault, faults_of
from reprieve.engine.quota.proofs.proof_state import Preempting, Victim
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, Topology, TopologyNode, TopologyRequest
from reprieve.engine.topology.places import Grounds, NodeUse
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.topology.build import BLOCK, GPU, LEVELS, RACK, node

NOW = Nanos(1_800_000_000_000_000_000)


class World:
    """One ClusterQueue with GPUs of one flavor, whose nodes are a tree."""

    def __init__(
        self, gpus: Mapping[str, int], quota: int = 1_000, uses: tuple[NodeUse, ...] = ()
    ) -> None:
        group = ResourceGroup((GPU,), (FlavorQuotas("tree", {GPU: Quota(quota)}),))
        rules = Preemption(Policy.LOWER_PRIORITY)
        self.configuration = Configuration(
            {"team": ClusterQueue("team", groups=(group,), preemption=rules)},
            {},
            {"tree": ResourceFlavor("tree", topology="default")},
            {"ns/q": LocalQueue("ns/q", "team")},
            {"ns": {}},
            topologies={"default": Topology("default", LEVELS)},
        )
        self.gpus = dict(gpus)
        self.uses = uses
        self.holdings = Holdings(self.configuration)
        self.stand()
        self.queues = Queues(self.configuration)
        self.turns = 0

    def stand(self) -> None:
        """Hand the nodes to the holdings."""
        nodes: list[TopologyNode] = [node(path, each) for path, each in self.gpus.items()]
        self.holdings.stand_on(Grounds(nodes, self.uses))

    def submit(self, name: str, pods: int, gpus: int, priority: int = 0, **request: Any) -> None:
        """Queue a workload."""
        asked = TopologyRequest(**request)
        pod_set = PodSet("main", pods, {GPU: gpus}, topology=asked if request else None)
        created = Nanos(NOW + len(self.holdings.holders))
        self.queues.push(
            Workload("ns", name, name, "ns/q", priority, pod_sets=(pod_set,), created=created)
        )

    def decide(self) -> CycleResult:
        """Run one cycle."""
        self.turns += 1
        return cycle(self.holdings, self.queues, Nanos(NOW + self.turns * SECOND), self.turns)

    def places(self, name: str) -> dict[str, int]:
        """Return the pods of a workload that holds quota, by host."""
        admission = self.holdings.holders[f"ns/{name}"].workload.admission
        assert admission is not None and admission.pod_sets[0].topology is not None
        return {e.values[0]: e.count for e in admission.pod_sets[0].topology.domains}

    def end(self, name: str) -> None:
        """Let a workload be gone."""
        self.holdings.release(f"ns/{name}")
        self.queues.flush(["team"])


def victims(result: CycleResult) -> set[str]:
    return {target.holder.workload.name for each in result.entries for target in each.issued}


def test_a_gang_gets_one_rack_though_quota_is_free_everywhere() -> None:
    world = World({"b/r1/a": 4, "b/r1/b": 4, "b/r2/c": 8, "b/r2/d": 8})
    world.submit("gang", 10, 1, required=RACK)
    assert world.decide().of(Outcome.ADMITTED)
    assert set(world.places("gang")) <= {"c", "d"}


def test_who_fits_its_quota_and_no_rack_waits_and_says_which_nodes_are_short() -> None:
    world = World({"b/r1/a": 4, "b/r2/c": 4})
    world.submit("gang", 5, 1, required=RACK)
    (entry,) = world.decide().entries
    assert entry.outcome is Outcome.NO_FIT and entry.reason == "TopologyPlacementFailed"
    assert 'topology "default" allows to fit only 4 out of 5 pod(s)' in entry.message


def test_only_the_workload_that_is_in_the_way_is_preempted() -> None:
    world = World({"b/r1/a": 8, "b/r2/c": 4})
    for name, priority, pods in (("small", 1, 4), ("big", 0, 8)):
        world.submit(name, pods, 1, priority, required=HOSTNAME)
        assert world.decide().of(Outcome.ADMITTED)
    world.submit("urgent", 6, 1, 5, required=RACK)
    result = world.decide()
    assert victims(result) == {"big"}
    world.end("big")
    assert world.decide().of(Outcome.ADMITTED)
    assert world.places("urgent") == {"a": 6}


def test_pods_outside_of_topologies_are_in_the_way_and_nobody_goes_for_them_in_vain() -> None:
    world = World({"b/r1/a": 8}, uses=(NodeUse("a", {GPU: 4}),))
    world.submit("low", 4, 1)
    assert world.decide().of(Outcome.ADMITTED)
    world.submit("urgent", 5, 1, 5, required=RACK)
    result = world.decide()
    assert victims(result) == set()
    assert result.entries[0].outcome is Outcome.NO_FIT
    world.uses = ()
    world.stand()
    world.queues.flush(["team"])
    assert victims(world.decide()) == {"low"}


def test_a_failed_node_is_replaced_in_its_rack_or_the_workload_is_evicted() -> None:
    world = World({"b/r1/a": 2, "b/r1/b": 2, "b/r2/c": 8})
    world.submit("gang", 2, 1, required=RACK, preferred="")
    assert world.decide().of(Outcome.ADMITTED)
    assert world.places("gang") == {"a": 2}
    del world.gpus["b/r1/a"]
    world.stand()
    held = world.holdings.holders["ns/gang"].workload
    world.holdings.hold(replace(held, unhealthy_nodes=("a",)))
    assert world.decide().of(Outcome.NODE_REPLACED)
    assert world.places("gang") != {"a": 2}
    (left,) = world.places("gang")
    del world.gpus["b/r1/b" if left == "b" else "b/r2/c"]
    world.gpus.pop("b/r1/b", None)
    world.gpus.pop("b/r2/c", None)
    world.stand()
    held = world.holdings.holders["ns/gang"].workload
    world.holdings.hold(replace(held, unhealthy_nodes=(left,)))
    (entry,) = world.decide().of(Outcome.NODE_FAILED)
    assert entry.message == (
        "Workload was evicted as there was no replacement for unhealthy node(s): " + left
    )
    assert world.holdings.holders["ns/gang"].evicted


def test_a_plan_whose_places_are_taken_is_refused() -> None:
    world = World({"b/r1/a": 8})
    world.submit("low", 8, 1)
    assert world.decide().of(Outcome.ADMITTED)
    world.submit("urgent", 8, 1, 5, required=RACK)
    (entry,) = world.decide().of(Outcome.PREEMPTING)
    assert entry.assignment is not None
    snapshot = world.holdings.snapshot()
    queue = world.configuration.cluster_queues["team"]
    rest = entry.workload, queue, world.configuration, snapshot.places
    plan = Preempting(
        entry.workload,
        entry.queue,
        entry.assignment.usage,
        tuple(Victim(each.holder, each.reason) for each in entry.targets),
        NOW,
        tuple(each.admitted for each in entry.assignment.pod_sets),
        places=asked_places(entry.assignment, *rest),
    )
    holders = {target.holder.key: target.holder for target in entry.targets}
    assert faults_of(plan, snapshot, snapshot, holders) == ()
    nowhere = replace(
        entry.assignment,
        pod_sets=tuple(replace(each, topology=None) for each in entry.assignment.pod_sets),
    )
    tampered = replace(plan, places=asked_places(nowhere, *rest))
    (fault,) = faults_of(tampered, snapshot, snapshot, holders)
    assert fault.fault is Fault.NOT_PLACED


def test_over_random_lives_nodes_are_never_overbooked_and_no_plan_is_refused() -> None:
    seen: Counter[str] = Counter()
    for number in range(120):
        draw = random.Random(number)
        world = World(
            {
                f"b{b}/b{b}r{r}/b{b}r{r}h{h}": draw.choice((4, 8))
                for b in range(draw.randint(1, 2))
                for r in range(draw.randint(1, 2))
                for h in range(draw.randint(1, 3))
            }
        )
        for step in range(14):
            mode = draw.choice(("required", "preferred", "unconstrained"))
            level: Any = draw.choice((BLOCK, RACK, HOSTNAME))
            world.submit(
                f"w{step}",
                draw.randint(1, 4),
                draw.choice((1, 2, 4)),
                draw.randint(0, 3),
                **{mode: True if mode == "unconstrained" else level},
            )
            result = world.decide()
            assert not result.of(Outcome.FAULT), [each.message for each in result.entries]
            for entry in result.entries:
                seen[entry.outcome.value] += 1
            for name in victims(result):
                world.end(name)
            running = [e.workload.name for e in world.holdings.holders.values()]
            if running and draw.random() < 0.3:
                world.end(draw.choice(sorted(running)))
            _check(world)
    assert min(seen[each] for each in ("admitted", "preempting", "no fit")) >= 100, seen


def _check(world: World) -> None:
    used: Counter[str] = Counter()
    for holder in world.holdings.holders.values():
        pods = holder.workload.pod_sets[0]
        for host, count in world.places(holder.workload.name).items():
            used[host] += count * pods.requests[GPU]
    free = {path.split("/")[-1]: each for path, each in world.gpus.items()}
    assert all(taken <= free[host] for host, taken in used.items()), used


@pytest.mark.parametrize(
    ("profile", "stories"),
    [
        (VictimChoice.BEST, 60),
        pytest.param(VictimChoice.BEST, 10_000, marks=pytest.mark.slow),
        pytest.param(VictimChoice.COMPATIBLE, 60, marks=pytest.mark.thorough),
    ],
)
def test_with_profile_best_nobody_is_evicted_for_a_workload_that_is_never_admitted(
    profile: VictimChoice, stories: int
) -> None:
    evicted, never = 0, 0
    for number in range(stories):
        draw = random.Random(number)
        world = Shared(draw, profile)
        preemptors: dict[str, str] = {}
        for step in range(26):
            if step < 12:
                world.submit_drawn(draw, f"w{step}")
            result = world.decide()
            for entry in result.entries:
                assert entry.outcome is not Outcome.FAULT, (number, entry.message)
                for target in entry.issued:
                    preemptors[target.holder.workload.name] = entry.workload.name
                    world.admitted.discard(target.holder.workload.name)
                if entry.outcome is Outcome.ADMITTED:
                    world.admitted.add(entry.workload.name)
                    world.ever.add(entry.workload.name)
            for name in sorted(victims(result)):
                world.end(name)
            world.queues.flush(list(world.configuration.cluster_queues))
        evicted += len(preemptors)
        never += sum(name not in world.ever for name in preemptors.values())
    print(f"{stories} stories: {evicted} evicted, {never} for who was never admitted")
    assert evicted >= 40
    assert never == 0 if profile is VictimChoice.BEST else never > 0


class Shared(World):
    """Three ClusterQueues of one cohort over the same nodes, in which each may reclaim."""

    def __init__(self, draw: random.Random, profile: VictimChoice) -> None:
        super().__init__(
            {
                f"b{b}/b{b}r{r}/b{b}r{r}h{h}": draw.choice((4, 8))
                for b in range(draw.randint(1, 2))
                for r in range(draw.randint(1, 2))
                for h in range(draw.randint(1, 3))
            }
        )
        group = ResourceGroup((GPU,), (FlavorQuotas("tree", {GPU: Quota(draw.choice((8, 12)))}),))
        rules = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
        names = ("q0", "q1", "q2")
        self.configuration = replace(
            self.configuration,
            cluster_queues={name: ClusterQueue(name, "all", (group,), rules) for name in names},
            local_queues={f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in names},
            settings=Settings(profile=profile),
        )
        self.holdings.configure(self.configuration)
        self.queues = Queues(self.configuration)
        self.admitted: set[str] = set()
        self.ever: set[str] = set()

    def submit_drawn(self, draw: random.Random, name: str) -> None:
        """Queue a drawn workload in a drawn queue."""
        mode = draw.choice(("required", "preferred", "unconstrained"))
        level: Any = draw.choice((BLOCK, RACK, HOSTNAME))
        given: dict[str, Any] = {mode: True if mode == "unconstrained" else level}
        asked = TopologyRequest(**given)
        pods = PodSet("main", draw.randint(1, 5), {GPU: draw.choice((1, 2, 4))}, topology=asked)
        queue = f"ns/q{draw.randint(0, 2)}"
        created = Nanos(NOW + self.turns)
        self.queues.push(
            Workload("ns", name, name, queue, draw.randint(0, 3), pod_sets=(pods,), created=created)
        )

"""A plan for places waits for work that leaves, and for none that stays or concerns others."""

from __future__ import annotations

from dataclasses import replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.model import Eviction, LocalQueue, PodSet, Workload
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, TopologyRequest
from reprieve.engine.victim_choice import VictimChoice
from reprieve.execution.not_evictable import NotEvictable
from tests.engine.topology.build import GPU, RACK
from tests.quota.test_topologies import NOW, World, victims


class Best(World):
    """A World with profile `best`, and a second ClusterQueue that lends and borrows nothing."""

    def __init__(self, gpus: dict[str, int]) -> None:
        super().__init__(gpus)
        team = self.configuration.cluster_queues["team"]
        self.configuration = replace(
            self.configuration,
            cluster_queues={"team": team, "other": replace(team, name="other")},
            local_queues={**self.configuration.local_queues, "ns/o": LocalQueue("ns/o", "other")},
            settings=replace(self.configuration.settings, profile=VictimChoice.BEST),
        )
        self.holdings.configure(self.configuration)
        self.stand()
        self.queues = Queues(self.configuration)

    def ask(self, name: str, pods: int, queue: str = "ns/q", priority: int = 0) -> None:
        """Queue a workload of one host."""
        pod_set = PodSet("main", pods, {GPU: 1}, topology=TopologyRequest(required=HOSTNAME))
        created = Nanos(NOW + len(self.holdings.holders))
        self.queues.push(
            Workload("ns", name, name, queue, priority, pod_sets=(pod_set,), created=created)
        )

    def admit(self, name: str, pods: int, queue: str = "ns/q", priority: int = 0) -> Workload:
        """Queue a workload of one host, and return it as it holds its quota."""
        self.ask(name, pods, queue, priority)
        assert self.decide().of(Outcome.ADMITTED)
        return self.holdings.holders[f"ns/{name}"].workload

    def decide_with(self, ledger: Displacements, seconds: int) -> CycleResult:
        """Run one cycle that knows whose eviction was refused."""
        now = Nanos(NOW + seconds * SECOND)
        return cycle(self.holdings, self.queues, now, seconds, ledger)


def test_another_is_evicted_where_a_victim_that_would_be_enough_does_not_end() -> None:
    world, ledger, refused = Best({"b/r1/a": 4, "b/r2/c": 4}), Displacements(), NotEvictable()
    held = {name: world.admit(name, 4) for name in ("one", "two")}
    world.submit("urgent", 4, 1, 5, required=RACK)
    (first,) = victims(world.decide())
    assert victims(world.decide_with(ledger, 100)) == set()
    refused.refused(held[first].uid, Nanos(NOW + 400 * SECOND))
    ledger.refused = refused.held(Nanos(NOW + 400 * SECOND))
    assert victims(world.decide_with(ledger, 401)) == {"one", "two"} - {first}


def test_work_behind_a_plan_without_places_starts_though_others_never_end() -> None:
    world = Best({"b/r1/a": 4, "b/r2/c": 1, "b/r3/d": 4})
    world.admit("low", 4)
    kept = world.admit("kept", 4, "ns/o")
    world.submit("urgent", 4, 1, 5, required=RACK)
    assert victims(world.decide()) == {"low"}
    world.holdings.hold(replace(kept, evicted=Eviction("Preempted", NOW)))
    del world.gpus["b/r1/a"]
    world.stand()
    world.end("low")
    world.submit("small", 1, 1, required=HOSTNAME)
    outcomes = {each.workload.name: each.outcome for _ in "ab" for each in world.decide().entries}
    assert outcomes == {"urgent": Outcome.NO_CANDIDATES, "small": Outcome.ADMITTED}


def test_what_another_keeps_for_itself_is_not_used_while_victims_leave() -> None:
    """`large` waits for `kept` and keeps the rest of its node: `urgent` evicts two for its own."""
    world = Best({"b/r1/a": 4, "b/r2/c": 8})
    for name in ("one", "two"):
        world.admit(name, 2)
    world.admit("kept", 5, "ns/o", 9)
    world.ask("large", 8, "ns/o", 9)
    world.submit("urgent", 3, 1, 5, required=RACK)
    assert victims(world.decide()) == {"one", "two"}
    world.end("one")
    waiting = {each.workload.name: each for each in world.decide().entries}
    assert waiting["urgent"].outcome is Outcome.DEFERRED
    assert waiting["urgent"].message == "Fits once the work that is evicted already has ended"
    world.end("two")
    assert world.decide().of(Outcome.ADMITTED)
    assert world.places("urgent") == {"a": 3}


def test_what_another_kept_for_itself_is_used_once_it_waits_no_more() -> None:
    world = Best({"b/r1/a": 4, "b/r2/c": 8})
    for name in ("one", "two"):
        world.admit(name, 2)
    world.admit("kept", 5, "ns/o", 9)
    world.ask("large", 8, "ns/o", 9)
    world.submit("urgent", 3, 1, 5, required=RACK)
    assert victims(world.decide()) == {"one", "two"}
    world.end("one")
    world.queues.delete("ns/large")
    assert world.decide().of(Outcome.ADMITTED)
    assert world.places("urgent") == {"c": 3}

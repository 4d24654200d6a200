"""Who lacks room in its topology is told where the most room is, who has it, and what helps."""

from __future__ import annotations

from dataclasses import replace

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.model import Change, Diagnosis
from reprieve.engine.diagnosis.quota import diagnose, reason_of
from reprieve.engine.diagnosis.quota_fixes import ClassChoice, Remedy, remedies
from reprieve.engine.diagnosis.quota_trial import QuotaFacts
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.quota.model import Policy, Preemption
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, Layer
from reprieve.wording.blockers import place_holders_text
from reprieve.wording.diagnosis import general_step, sentence
from tests.engine.topology.build import BLOCK, RACK
from tests.quota.test_topologies import NOW, World

RACKS = {"b/r1/a": 8, "b/r1/b": 8, "b/r2/c": 8, "b/r2/d": 8}


def full(*, priority: int = 0, rules: Preemption | None = None) -> World:
    """Return two racks of 16 GPUs, with `large` in 12 of one and `small` in 10 of the other."""
    world = World(RACKS)
    if rules is not None:
        queue = replace(world.configuration.cluster_queues["team"], preemption=rules)
        world.configuration = replace(world.configuration, cluster_queues={"team": queue})
        world.holdings.configure(world.configuration)
        world.queues = Queues(world.configuration)
    for name, pods in (("large", 12), ("small", 10)):
        world.submit(name, pods, 1, priority, required=RACK)
        world.decide()
    return world


def asked(world: World) -> tuple[Diagnosis, tuple[Remedy, ...], Reason | None]:
    """Decide about `gang`; return why it waits, what helps, and what its cycle said."""
    (entry,) = (e for e in world.decide().entries if e.workload.name == "gang")
    facts = QuotaFacts(world.holdings, world.queues, Nanos(NOW), None, entry)
    found = diagnose(facts, entry.workload)
    assert found is not None
    classes = [ClassChoice("high", 9)]
    return found, remedies(facts, entry.workload, found, classes), reason_of(entry, world.holdings)


def test_the_best_domain_is_named_with_who_has_it_and_a_wider_level_with_room() -> None:
    world = full()
    world.submit("gang", 8, 1, required=RACK)
    found, helpful, reason = asked(world)
    assert found.reason is reason is Reason.PLACES_TAKEN
    assert sentence(found) == (
        "Its quota is free, and its places are those of work that is preempted for a higher "
        f"priority only: no {RACK} has capacity for 8 pods: the best, b/r2, has capacity for 6; "
        "who stays: 1 of no lower priority"
    )
    assert [each.holder.name for each in found.blockers] == ["small"]
    assert place_holders_text(found) == "Workload ns/small 10 nvidia.com/gpu, of no lower priority"
    assert general_step(found) == (
        f"Require {BLOCK}, which has capacity now, use a priority above 0, or wait until some of "
        "it ends."
    )
    changes = {each.fix.change: each.fix for each in helpful}
    assert changes[Change.FEWER_PODS].after == "6"
    assert (changes[Change.WIDER_LEVEL].before, changes[Change.WIDER_LEVEL].after) == (RACK, BLOCK)
    assert changes[Change.HIGHER_PRIORITY].victims == 1


def test_a_host_that_no_level_above_replaces_is_named_by_its_name_alone() -> None:
    world = World({"b/r1/a": 4})
    world.submit("large", 3, 1, required=HOSTNAME)
    world.decide()
    world.submit("gang", 2, 1, required=HOSTNAME)
    found, helpful, _ = asked(world)
    assert (
        found.values["short"]
        == f"no {HOSTNAME} has capacity for 2 pods: the best, a, has capacity for 1"
    )
    assert "wider" not in found.values
    assert Change.WIDER_LEVEL not in {each.fix.change for each in helpful}


def test_policies_are_named_where_they_keep_others_in_their_places() -> None:
    world = full(rules=Preemption(Policy.NEVER))
    world.submit("gang", 16, 1, 5, required=RACK)
    found, _, _ = asked(world)
    assert sentence(found).startswith(
        "Its quota is free, and its places are those of work that its queue's preemption policies "
        "leave alone: "
    )
    assert general_step(found) == (
        "Wait until some of it ends, or have `preemption` of ClusterQueue team set to "
        "withinClusterQueue: LowerPriority."
    )


def test_what_no_rack_could_ever_have_names_the_level_that_could() -> None:
    world = full()
    world.submit("gang", 17, 1, required=RACK)
    found, helpful, reason = asked(world)
    assert found.reason is reason is Reason.NO_PLACES
    assert found.values["short"] == (
        f"no {RACK} has capacity for 17 pods: the best, b/r1, has capacity for 16"
    )
    assert general_step(found) == (
        f"Require {BLOCK}, request fewer pods or smaller slices, or have nodes added there."
    )
    assert Change.WIDER_LEVEL not in {each.fix.change for each in helpful}  # 22 are in use there


def test_a_preferred_level_is_short_of_room_in_the_whole_topology() -> None:
    world = full()
    world.submit("gang", 11, 1, preferred=RACK)
    found, _, _ = asked(world)
    assert found.values["short"] == (
        "the whole topology has capacity for 10 of 11 pods; left out of 4 nodes: 2 for resource "
        '"nvidia.com/gpu"'
    )


def test_slices_are_counted_as_slices() -> None:
    world = full()
    world.submit("gang", 8, 1, required=RACK, layers=(Layer(HOSTNAME, 4),))
    found, _, _ = asked(world)
    assert found.values["short"] == (
        f"no {RACK} has capacity for 2 slices of 4 pods: the best, b/r1, has capacity for 1"
    )

"""Nodes that are left out beforehand do not change the choice for a plain pod.

Random clusters of two dozen full nodes: whole groups over several nodes, budgets, host ports,
required affinity (whose nodes are tried one by one), nodes that are kept for somebody, and work to
lose. The pod is given its victims twice, once with all nodes tried.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.rows import AffinityTerm, HostPort
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import RESOLVABLE, Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling import pod_preemption
from reprieve.engine.scheduling.nodes.nominations import kept_for_others
from reprieve.engine.scheduling.pod_preemption import find_candidates, find_winner, preempt_for_pod
from reprieve.engine.scheduling.victims.node_by_node import Candidates
from reprieve.engine.scheduling.victims.node_sweep import sweepable
from tests.engine.builders import budget, gang, group, matching, node, pending_of, pod, snapshot_of
from tests.engine.devices.drivers import device_class, gpus, published

NOW = 1_800_000_000
APPS = "abc"
PRIORITIES = ([1], [1, 1, 2], [1, 2, 3, 4, 5, 6])


def clusters(seed: int) -> Snapshot:
    """A full cluster in which the pod `single` waits."""
    chosen = random.Random(f"bounds {seed}")
    names = count()
    rows: list[Any] = []
    free = {f"n{number:02}": 8 for number in range(24)}
    rows += [node(name, gpus=8, labels={"zone": name[-1]}) for name in free]
    priorities = chosen.choice(PRIORITIES)
    for _ in range(120):
        gpus = chosen.choice([1, 2, 4, 8])
        rooms = [name for name, room in free.items() if room >= gpus]
        size = min(len(rooms), chosen.choice([1, 1, 1, 2, 4]))
        if not size:
            continue
        places = chosen.sample(rooms, size)
        for place in places:
            free[place] -= gpus
        shared: dict[str, Any] = {
            "gpus": gpus,
            "priority": chosen.choice(priorities),
            "start": NOW - chosen.randint(0, 9),
            "checkpoint": chosen.choice([0, NOW - chosen.randint(0, 9)]),
            "labels": {"app": chosen.choice(APPS)},
            "host_ports": (HostPort(80),) if chosen.random() < 0.05 else (),
        }
        name = f"g{next(names)}"
        if size == 1:
            rows.append(pod(name, node=places[0], **shared))
        else:
            whole = chosen.random() < 0.6
            rows += gang(size, name, all_or_nothing=whole, nodes=places, **shared)
    for app in APPS[: chosen.choice([0, 0, 2, 3, 3])]:
        rows.append(budget(app, {"app": app}, chosen.choice([0, 0, 0, 1])))
    for number in range(chosen.choice([0, 0, 3])):
        kept = f"n{chosen.randrange(24):02}"
        rows.append(pod(f"kept-{number}", gpus=1, priority=9, nominated=kept))
    spec: dict[str, Any] = {"gpus": chosen.choice([1, 2, 3, 4, 8])}
    if chosen.random() < 0.3:
        spec["host_ports"] = (HostPort(80),)
    if chosen.random() < 0.2:
        spec["affinity"] = (AffinityTerm("zone", matching({"app": "a"}), ("default",)),)
    rows.append(pod("single", priority=chosen.choice([5, 10]), **spec))
    return snapshot_of(*rows)


def simulated(snapshot: Snapshot, policy: Policy) -> tuple[Simulation, Pending, Mask]:
    """The cluster as a session has it, the pod, and the nodes where victims might help."""
    pending = pending_of(snapshot, "single")
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    simulation.now = NOW
    own, priority = frozenset({pending.row.uid}), pending.row.priority
    simulation.respect(kept_for_others(snapshot, snapshot.nominations, own, "", priority))
    codes = simulation.codes(pending)
    return simulation, pending, np.isin(codes, [int(each) for each in RESOLVABLE])


def best(found: Candidates) -> tuple[Any, ...] | None:
    """The node that is chosen, and its victims."""
    if not len(found):
        return None
    chosen = pod_preemption.choose_node(found)
    units, violating = found.victims(chosen)
    victims = found.units.victims(units, violating)
    return int(found.nodes[chosen]), victims


def compare(first: int, number: int, policy: Policy) -> Counter[str]:
    """Choose with nodes left out and with all of them; return how often what was to be seen."""
    seen = Counter[str]()
    for seed in range(first, first + number):
        simulation, pending, nodes = simulated(clusters(seed), policy)
        expected = find_candidates(simulation, pending, policy, nodes)
        found = find_winner(simulation, pending, policy, nodes)
        assert best(found) == best(expected), seed
        if not len(expected):
            assert found.statuses() == expected.statuses(), seed
            continue
        fewer = len(found) < len(expected)
        seen["fewer nodes"] += fewer
        seen["all nodes"] += not fewer
        victims = best(expected)
        assert victims is not None
        broken = any(unit.violating for unit in victims[1])
        seen["broken budgets"] += broken
        seen["whole groups"] += fewer and any(unit.whole_group for unit in victims[1])
        seen["one by one"] += fewer and not sweepable(simulation, pending)
        seen["kept"] += fewer and bool(simulation.nominated)
        literal = preempt_by_all(simulation, pending, policy)
        assert preempt_for_pod(simulation, pending, policy) == literal, seed
        assert literal.code is Code.SUCCESS
    return seen


def preempt_by_all(simulation: Simulation, pending: Pending, policy: Policy) -> Any:
    """Preemption that tries all nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_preemption, "find_winner", find_candidates)
        return preempt_for_pod(simulation, pending, policy)


LEAST = {
    "fewer nodes": 0.2,
    "all nodes": 0.05,
    "broken budgets": 0.03,
    "whole groups": 0.02,
    "one by one": 0.03,
    "kept": 0.02,
}


@pytest.mark.parametrize("by_harm", [False, True], ids=["order of the KEP", "harm"])
def test_the_best_of_some_nodes_is_the_best_of_all(by_harm: bool) -> None:
    number = 150
    seen = compare(0, number, Policy(harm_order=by_harm))
    lacking = {kind: seen[kind] for kind, part in LEAST.items() if seen[kind] < part * number}
    assert lacking == {}, f"of {number}: {dict(seen)}"


@pytest.mark.slow
@pytest.mark.parametrize("by_harm", [False, True], ids=["order of the KEP", "harm"])
@pytest.mark.parametrize("first", range(1_000, 9_000, 1_000))
def test_the_best_of_some_nodes_is_the_best_of_all_of_many_clusters(
    first: int, by_harm: bool
) -> None:
    compare(first, 1_000, Policy(harm_order=by_harm))


def test_a_search_that_ends_early_sees_the_nodes_in_their_order() -> None:
    profile = Profile(min_candidate_nodes_percentage=10, min_candidate_nodes_absolute=2)
    compare(10_000, 40, Policy(profiles=(profile,)))


def test_nodes_are_compared_by_the_pods_own_priorities() -> None:
    """As a victim the pod of the group has a higher priority, and goes all the same."""
    snapshot = snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        pod("plain", gpus=8, priority=2, node="a"),
        group("team", priority=3),
        pod("member", gpus=8, priority=1, group="team", node="b"),
        pod("single", gpus=8, priority=10),
    )
    simulation, pending, _ = simulated(snapshot, Policy())
    found = preempt_for_pod(simulation, pending, Policy())
    assert found.nominated == ((pending.row.uid, "b"),)


def test_a_node_that_wins_until_its_group_would_be_torn_is_compared_with_all_others() -> None:
    """The member on `a` has the lowest priority, but takes one with it that is under a budget."""
    team: list[Any] = gang(2, "team", gpus=4, priority=1, min_count=1, nodes="ae")
    team[0] = replace(team[0], floor=2)
    team[2] = replace(team[2], labels=(("app", "kept"),))
    snapshot = snapshot_of(
        [node(name, gpus=8) for name in "abcde"],
        team,
        [pod(f"beside-{name}", gpus=4, priority=12, node=name) for name in "ae"],
        [pod(f"lone-{name}", gpus=8, priority=2, node=name) for name in "bcd"],
        budget("kept", {"app": "kept"}, 0),
        pod("single", gpus=4, priority=10),
    )
    torn = Policy(non_uniform_groups=True)
    assert _victims(snapshot, Policy()) == ["team-0"]
    assert _victims(snapshot, torn) == ["lone-b"]


def test_a_node_whose_devices_stand_for_what_it_does_not_offer_can_win() -> None:
    """Whoever goes on `a` frees none of the resource there, and need not."""
    resource = "example.com/gpu"
    snapshot = snapshot_of(
        [node(name, cpu=8, extended={} if name == "a" else {resource: 1}) for name in "abcdefg"],
        device_class(extended_resource=resource),
        published("a", gpus(1)),
        pod("first", cpu=8, priority=1, node="a"),
        [pod(f"second-{number}", cpu=4, priority=2, node="b") for number in range(2)],
        [pod(f"third-{name}", cpu=8, priority=3, node=name) for name in "cdefg"],
        pod("single", cpu=8, priority=10, extended={resource: 1}),
    )
    assert _victims(snapshot, Policy()) == ["first"]


def _victims(snapshot: Snapshot, policy: Policy) -> list[str]:
    """The names of those that are preempted for `single`."""
    simulation, pending, _ = simulated(snapshot, policy)
    found = preempt_for_pod(simulation, pending, policy)
    keys = (snapshot.pod_keys[slot] for unit in found.victims for slot in unit.pods)
    return [key.partition("/")[2] for key in keys]

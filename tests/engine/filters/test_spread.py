"""PodTopologySpread (specification 21.6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprieve.engine.cluster.rows import (
    NodeRow,
    NodeTerm,
    Operator,
    PodRow,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from reprieve.engine.placement.filtering import Placed, Reach
from reprieve.engine.placement.filters.spread import SpreadConstraintCounts, SpreadFilter
from reprieve.engine.placement.profile import Profile
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import matching, node, pending_of, pod, service, slot_of
from tests.engine.filters.outcomes import FITS, said, simulation_of, verdicts

SKEW = "U: node(s) didn't match pod topology spread constraints"
LABEL = "X: node(s) didn't match pod topology spread constraints (missing required label)"

APP = {"app": "web"}


def zoned(name: str, zone: str = "", **more: Any) -> NodeRow:
    labels = {**more.pop("labels", {}), **({"zone": zone} if zone else {})}
    return node(name, labels=labels, **more)


def spread(key: str = "zone", skew: int = 1, **more: Any) -> SpreadConstraint:
    more.setdefault("selector", matching(APP))
    more.setdefault("hard", True)
    return SpreadConstraint(key, skew, **more)


def web(name: str, on: str, **more: Any) -> PodRow:
    return pod(name, node=on, labels=more.pop("labels", APP), **more)


def spreading(*constraints: SpreadConstraint, **more: Any) -> PodRow:
    return pod(labels=more.pop("labels", APP), spread=constraints or (spread(),), **more)


def counts_of(simulation: Simulation, name: str = "p") -> SpreadConstraintCounts:
    """The first constraint's counts."""
    filters = simulation.filters(pending_of(simulation.snapshot, name))
    found = next(each for each in filters if isinstance(each, SpreadFilter))
    return found.constraints[0]


ZONES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))


def test_no_zone_may_be_ahead_of_the_emptiest_by_more_than_the_skew() -> None:
    # Zone a has 1, zone b has 0: with the pod, a would have 2 and the minimum stays 0.
    assert verdicts(*ZONES, web("w", "a1"), spreading()) == {"a1": SKEW, "a2": SKEW, "b1": FITS}
    assert verdicts(*ZONES, web("w", "a1"), spreading(spread(skew=2))) == {
        "a1": FITS,
        "a2": FITS,
        "b1": FITS,
    }
    placed = (web("w", "a1"), web("v", "b1"))
    assert verdicts(*ZONES, *placed, spreading()) == {"a1": FITS, "a2": FITS, "b1": FITS}


def test_a_soft_constraint_refuses_nothing() -> None:
    soft = spreading(spread(hard=False))
    assert set(verdicts(*ZONES, web("w", "a1"), soft).values()) == {FITS}


def test_a_node_without_the_key_cannot_be_resolved() -> None:
    assert verdicts(*ZONES, zoned("c1"), web("w", "c1"), spreading()) == {
        "a1": FITS,
        "a2": FITS,
        "b1": FITS,
        "c1": LABEL,
    }


def test_pods_of_other_namespaces_other_labels_or_that_terminate_do_not_count() -> None:
    placed = (
        web("w", "a1", namespace="other"),
        web("v", "a1", labels={"app": "db"}),
        web("u", "a1", deleting=True),
        pod("t", node="a1"),
    )
    assert set(verdicts(*ZONES, *placed, spreading()).values()) == {FITS}


def test_a_pod_that_does_not_match_its_own_constraint_adds_nothing() -> None:
    rows = (*ZONES, web("w", "a1"), spreading(labels={"app": "other"}))
    assert set(verdicts(*rows).values()) == {FITS}
    two = (*ZONES, web("w", "a1"), web("v", "a2"), spreading(labels={"app": "other"}))
    assert verdicts(*two) == {"a1": SKEW, "a2": SKEW, "b1": FITS}


def test_an_absent_selector_counts_nothing_and_an_empty_one_only_the_pod_itself() -> None:
    placed = (web("w", "a1"), web("v", "a1"))
    assert set(verdicts(*ZONES, *placed, spreading(spread(selector=None))).values()) == {FITS}
    assert set(verdicts(*ZONES, *placed, spreading(spread(selector=()))).values()) == {FITS}
    simulation, _ = simulation_of(*ZONES, *placed, spreading(spread(selector=())))
    assert (counts_of(simulation).own, counts_of(simulation).counts.tolist()) == (1, [0, 0])


def test_a_selector_with_expressions() -> None:
    selector = (
        Requirement("app", Operator.IN, ("web", "api")),
        Requirement("canary", Operator.DOES_NOT_EXIST),
    )
    placed = (
        web("w", "a1", labels={"app": "api"}),
        web("v", "b1", labels={"app": "web", "canary": "yes"}),
    )
    assert verdicts(*ZONES, *placed, spreading(spread(selector=selector))) == {
        "a1": SKEW,
        "a2": SKEW,
        "b1": FITS,
    }


def test_too_few_domains_make_the_minimum_zero() -> None:
    placed = (web("w", "a1"), web("v", "b1"))
    wanted = spreading(spread(min_domains=3))
    assert verdicts(*ZONES, *placed, wanted) == {"a1": SKEW, "a2": SKEW, "b1": SKEW}
    third = zoned("c1", "c")
    assert verdicts(*ZONES, third, *placed, wanted) == {
        "a1": SKEW,
        "a2": SKEW,
        "b1": SKEW,
        "c1": FITS,
    }
    assert set(verdicts(*ZONES, third, *placed, web("u", "c1"), wanted).values()) == {FITS}


def test_nodes_that_the_pods_affinity_excludes_make_no_domain() -> None:
    nodes = (
        zoned("a1", "a", labels={"pool": "x"}),
        zoned("b1", "b", labels={"pool": "x"}),
        zoned("c1", "c"),
    )
    placed = (web("w", "a1"), web("v", "b1"))
    affinity = "X: node(s) didn't match Pod's node affinity/selector"
    honoring = spreading(node_selector={"pool": "x"})
    assert verdicts(*nodes, *placed, honoring) == {"a1": FITS, "b1": FITS, "c1": affinity}
    ignoring = spreading(spread(honor_affinity=False), node_selector={"pool": "x"})
    assert verdicts(*nodes, *placed, ignoring) == {"a1": SKEW, "b1": SKEW, "c1": affinity}


def test_pods_on_excluded_nodes_do_not_count() -> None:
    nodes = (
        zoned("a1", "a", labels={"pool": "x"}),
        zoned("a2", "a"),
        zoned("b1", "b", labels={"pool": "x"}),
    )
    affinity = "X: node(s) didn't match Pod's node affinity/selector"
    rows = (*nodes, web("w", "a2"), web("v", "a2"), spreading(node_selector={"pool": "x"}))
    assert verdicts(*rows) == {"a1": FITS, "a2": affinity, "b1": FITS}


def test_tainted_nodes_count_unless_the_constraint_honors_taints() -> None:
    nodes = (zoned("a1", "a"), zoned("b1", "b", taints=["k:NoSchedule"]))
    tainted = "X: node(s) had untolerated taint(s)"
    assert verdicts(*nodes, web("w", "a1"), spreading()) == {"a1": SKEW, "b1": tainted}
    honoring = spread(honor_taints=True)
    assert verdicts(*nodes, web("w", "a1"), spreading(honoring)) == {"a1": FITS, "b1": tainted}
    tolerating = spreading(honoring, tolerations=(Toleration("k", "Exists"),))
    assert verdicts(*nodes, web("w", "a1"), tolerating) == {"a1": SKEW, "b1": FITS}


def test_affinity_added_by_the_configuration_does_not_narrow_the_domains() -> None:
    term = NodeTerm(expressions=(Requirement("zone", Operator.IN, ("a",)),))
    found = verdicts(*ZONES, web("w", "a1"), spreading(), profile=Profile(added_affinity=(term,)))
    enforced = "X: node(s) didn't match scheduler-enforced node affinity"
    assert found == {"a1": SKEW, "a2": SKEW, "b1": enforced}


def test_eligible_nodes_have_the_keys_of_all_hard_constraints() -> None:
    nodes = (
        zoned("a1", "a", labels={"rack": "1"}),
        zoned("a2", "a"),
        zoned("b1", "b", labels={"rack": "2"}),
        zoned("c1", "c"),
    )
    both = spreading(spread(), spread("rack"))
    # Zone c has no eligible node, so that it is no domain; w on a2 does not count either.
    assert verdicts(*nodes, web("w", "a2"), web("v", "b1"), both) == {
        "a1": FITS,
        "a2": LABEL,
        "b1": SKEW,
        "c1": LABEL,
    }


def test_the_first_constraint_that_fails_gives_the_reason() -> None:
    nodes = (zoned("a1", "a"), zoned("b1", "b", labels={"rack": "1"}), zoned("c1", "c"))
    placed = (web("w", "b1"), web("v", "b1"))
    zone_first = spreading(spread(), spread("rack"))
    rack_first = spreading(spread("rack"), spread())
    # The only domain of either key is b1's; its minimum is its own count.
    assert verdicts(*nodes, *placed, zone_first) == {"a1": LABEL, "b1": FITS, "c1": LABEL}
    few = spread(min_domains=2)
    assert verdicts(*nodes, *placed, spreading(few, spread("rack")))["b1"] == SKEW
    assert verdicts(*nodes, *placed, rack_first) == {"a1": LABEL, "b1": FITS, "c1": LABEL}


def test_without_any_domain_every_node_with_the_key_has_none_ahead() -> None:
    wanted = spreading(spread(), node_selector={"pool": "none"})
    simulation, _ = simulation_of(*ZONES, web("w", "a1"), wanted)
    counts = counts_of(simulation)
    assert (counts.existing, counts.minimum, counts.counts.tolist()) == (0, 0, [0, 0])
    assert counts.codes().tolist() == [0, 0, 0]


def test_default_constraints_of_the_profile_select_what_service_and_owner_select() -> None:
    defaults = Profile(default_spread=(spread(selector=None),))
    plain = pod(labels=APP)
    rows = (*ZONES, web("w", "a1"), plain)
    assert set(verdicts(*rows, profile=defaults).values()) == {FITS}
    served = (*rows, service("s", APP), service("t", {"app": "db"}))
    assert verdicts(*served, profile=defaults) == {"a1": SKEW, "a2": SKEW, "b1": FITS}
    assert set(verdicts(*served).values()) == {FITS}
    owned = pod(labels=APP, owner=("ReplicaSet", "r"))
    of_owner = (*ZONES, web("w", "a1"), owned, service("r", APP, kind="ReplicaSet"))
    assert verdicts(*of_owner, profile=defaults) == {"a1": SKEW, "a2": SKEW, "b1": FITS}
    own = (*served[:-3], spreading(spread(hard=False)), *served[-2:])
    assert set(verdicts(*own, profile=defaults).values()) == {FITS}


def test_pods_alike_of_different_owners_have_default_constraints_of_their_own() -> None:
    defaults = Profile(default_spread=(spread(selector=None),))
    simulation, snapshot = simulation_of(
        *ZONES,
        web("w", "a1"),
        pod("p", labels=APP, owner=("ReplicaSet", "r")),
        pod("q", labels=APP, owner=("ReplicaSet", "s")),
        service("r", APP, kind="ReplicaSet"),
        service("s", {"app": "db"}, kind="ReplicaSet"),
        profile=defaults,
    )
    assert said(simulation, pending_of(snapshot, "p")) == {"a1": SKEW, "a2": SKEW, "b1": FITS}
    assert set(said(simulation, pending_of(snapshot, "q")).values()) == {FITS}


def test_counts_name_domains_nodes_and_labels() -> None:
    simulation, snapshot = simulation_of(
        *ZONES, zoned("n1"), web("w", "a1"), web("v", "a2"), web("u", "b1"), spreading()
    )
    counts = counts_of(simulation)
    assert counts.domain_of_node.tolist() == [0, 0, 1, -1]
    assert counts.eligible.tolist() == [True, True, True, False]
    assert counts.counts.tolist() == [2, 1]
    assert (counts.existing, counts.minimum, counts.own, counts.limit) == (2, 1, 1, 1)
    labels = int(snapshot.pod_labels[slot_of(snapshot, "w")])
    assert counts.matching[labels]
    assert not counts.matching[0]


def test_existing_domains_come_first() -> None:
    nodes = (zoned("a1", "a"), zoned("b1", "b", labels={"pool": "x"}))
    wanted = spreading(node_selector={"pool": "x"})
    simulation, _ = simulation_of(*nodes, web("w", "a1"), web("v", "b1"), wanted)
    counts = counts_of(simulation)
    assert counts.domain_of_node.tolist() == [1, 0]
    assert (counts.existing, counts.counts.tolist(), counts.minimum) == (1, [1, 0], 1)


def test_taking_out_the_emptiest_domains_pod_can_break_other_nodes() -> None:
    simulation, snapshot = simulation_of(*ZONES, web("w", "a1"), web("v", "b1"), spreading())
    pending = pending_of(snapshot, "p")
    assert set(said(simulation, pending).values()) == {FITS}
    simulation.remove(np.array([slot_of(snapshot, "v")]))
    assert said(simulation, pending) == {"a1": SKEW, "a2": SKEW, "b1": FITS}
    simulation.restore(np.array([slot_of(snapshot, "v")]))
    assert set(said(simulation, pending).values()) == {FITS}


def test_taking_out_a_terminating_pod_changes_nothing() -> None:
    simulation, snapshot = simulation_of(
        *ZONES, web("w", "a1"), web("v", "b1"), web("u", "b1", deleting=True), spreading()
    )
    pending = pending_of(snapshot, "p")
    before = said(simulation, pending)
    assert counts_of(simulation).counts.tolist() == [1, 1]
    simulation.remove(np.array([slot_of(snapshot, "u")]))
    assert counts_of(simulation).counts.tolist() == [1, 1]
    assert said(simulation, pending) == before


def test_the_minimum_is_exact_over_all_domains() -> None:
    # Three domains with 1, 1 and 5 pods; each of the two lowest gets one: the minimum is 2. The
    # real plugin, which keeps two domains, may think otherwise in such sequences.
    nodes = [zoned(f"{zone}1", zone) for zone in "abc"]
    placed = [web(f"c{index}", "c1") for index in range(5)]
    simulation, snapshot = simulation_of(
        *nodes, web("w", "a1"), web("v", "b1"), *placed, spreading()
    )
    pending = pending_of(snapshot, "p")
    assert counts_of(simulation).minimum == 1
    first = simulation.place(pending, 0)
    assert counts_of(simulation).minimum == 1
    second = simulation.place(pending, 1)
    assert counts_of(simulation).minimum == 2
    assert said(simulation, pending) == {"a1": FITS, "b1": FITS, "c1": SKEW}
    simulation.unplace(second)
    simulation.unplace(first)
    assert counts_of(simulation).minimum == 1


def test_a_change_says_how_far_it_reaches() -> None:
    nodes = [node(name, labels={"zone": name[0]}) for name in ("a1", "b1", "b2")]
    simulation, snapshot = simulation_of(*nodes, spreading(spread(skew=2)))
    counts = counts_of(simulation)
    labels = pending_of(snapshot, "p").labels

    def at(place: int) -> Placed:
        return Placed(0, labels, place)

    assert counts.count(at(0), 1) is Reach.NOTHING  # 1 of at most 1
    assert counts.count(at(0), 1) is Reach.NODE  # 2: zone a, one node, is over the limit
    assert counts.count(at(1), 1) is Reach.DOMAINS  # the minimum rises
    assert counts.count(Placed(0, 0, 1), 1) is Reach.NOTHING  # does not match
    assert counts.count(Placed(0, labels, 1, deleting=True), 1) is Reach.NOTHING
    assert counts.counts.tolist() == [2, 1]

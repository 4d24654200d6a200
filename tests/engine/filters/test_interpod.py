"""InterPodAffinity (specification 21.7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprieve.engine.cluster.rows import AffinityTerm, NodeRow, Operator, Requirement, Selector
from reprieve.engine.placement.filtering import Placed, Reach
from reprieve.engine.placement.filters.interpod import InterPodFilter
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import matching, namespace, node, pending_of, pod, slot_of
from tests.engine.filters.outcomes import FITS, said, simulation_of, verdicts

AFFINITY = "X: node(s) didn't match pod affinity rules"
ANTI = "U: node(s) didn't match pod anti-affinity rules"
EXISTING = "U: node(s) didn't satisfy existing pods anti-affinity rules"

WEB = {"app": "web"}
DB = {"app": "db"}


def zoned(name: str, zone: str = "", **more: Any) -> NodeRow:
    return node(name, labels={**({"zone": zone} if zone else {}), **more})


ZONES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), zoned("n1"))


def near(
    labels: dict[str, str] | None = None,
    key: str = "zone",
    namespaces: tuple[str, ...] = ("default",),
    namespace_selector: Selector = None,
) -> AffinityTerm:
    selector = None if labels is None else matching(labels)
    return AffinityTerm(key, selector, namespaces, namespace_selector)


def filter_of(simulation: Simulation, name: str = "p") -> InterPodFilter:
    filters = simulation.filters(pending_of(simulation.snapshot, name))
    return next(each for each in filters if isinstance(each, InterPodFilter))


def test_affinity_wants_a_matching_pod_in_the_domain() -> None:
    rows = (*ZONES, pod("w", node="a1", labels=WEB), pod(affinity=(near(WEB),)))
    assert verdicts(*rows) == {"a1": FITS, "a2": FITS, "b1": AFFINITY, "n1": AFFINITY}


def test_affinity_without_any_match_fails_everywhere_unless_the_pod_matches_itself() -> None:
    rows = (*ZONES, pod("w", node="a1", labels=DB))
    nowhere = dict.fromkeys(("a1", "a2", "b1", "n1"), AFFINITY)
    assert verdicts(*rows, pod(affinity=(near(WEB),))) == nowhere
    own = pod(affinity=(near(WEB),), labels=WEB)
    assert verdicts(*rows, own) == {"a1": FITS, "a2": FITS, "b1": FITS, "n1": AFFINITY}


def test_a_match_on_a_node_without_the_key_does_not_end_the_rule_of_the_first_pod() -> None:
    own = pod(affinity=(near(WEB),), labels=WEB)
    rows = (*ZONES, pod("w", node="n1", labels=WEB), own)
    assert verdicts(*rows) == {"a1": FITS, "a2": FITS, "b1": FITS, "n1": AFFINITY}


def test_the_rule_of_the_first_pod_needs_namespace_and_labels_of_all_terms() -> None:
    elsewhere = near(WEB, namespaces=("other",))
    assert set(verdicts(*ZONES, pod(affinity=(elsewhere,), labels=WEB)).values()) == {AFFINITY}
    both = (near(WEB), near(DB))
    assert set(verdicts(*ZONES, pod(affinity=both, labels=WEB)).values()) == {AFFINITY}


def test_a_pod_counts_only_if_it_matches_all_terms_and_then_for_each() -> None:
    nodes = (zoned("a1", "a", rack="1"), zoned("a2", "a", rack="2"), zoned("b1", "b", rack="3"))
    both = (near(WEB), near({"tier": "x"}, "rack"))
    rows = (*nodes, pod("w", node="a1", labels=WEB), pod("v", node="a1", labels={"tier": "x"}))
    assert set(verdicts(*rows, pod(affinity=both)).values()) == {AFFINITY}
    whole = pod("u", node="a2", labels={**WEB, "tier": "x"})
    assert verdicts(*rows, whole, pod(affinity=both)) == {
        "a1": AFFINITY,
        "a2": FITS,
        "b1": AFFINITY,
    }


def test_a_match_in_one_terms_domain_ends_the_rule_of_the_first_pod_for_all() -> None:
    nodes = (zoned("a1", "a"), zoned("b1", "b", rack="3"))
    both = (near(WEB), near(WEB, "rack"))
    rows = (*nodes, pod("w", node="a1", labels=WEB), pod(affinity=both, labels=WEB))
    assert verdicts(*rows) == {"a1": AFFINITY, "b1": AFFINITY}


def test_anti_affinity_keeps_out_of_domains_with_a_match() -> None:
    rows = (*ZONES, pod("w", node="a1", labels=WEB), pod(anti_affinity=(near(WEB),)))
    assert verdicts(*rows) == {"a1": ANTI, "a2": ANTI, "b1": FITS, "n1": FITS}


def test_each_anti_affinity_term_counts_alone() -> None:
    rows = (
        *ZONES,
        pod("w", node="a1", labels=WEB),
        pod("d", node="b1", labels=DB),
        pod(anti_affinity=(near(WEB), near(DB, "kubernetes.io/hostname"))),
    )
    assert verdicts(*rows) == {"a1": ANTI, "a2": ANTI, "b1": ANTI, "n1": FITS}


def test_a_match_on_a_node_without_the_key_is_no_obstacle() -> None:
    rows = (*ZONES, pod("w", node="n1", labels=WEB), pod(anti_affinity=(near(WEB),)))
    assert set(verdicts(*rows).values()) == {FITS}


def test_existing_pods_keep_their_domain_free_of_what_they_name() -> None:
    there = pod("w", node="a1", anti_affinity=(near(WEB),))
    assert verdicts(*ZONES, there, pod(labels=WEB)) == {
        "a1": EXISTING,
        "a2": EXISTING,
        "b1": FITS,
        "n1": FITS,
    }
    assert set(verdicts(*ZONES, there, pod(labels=DB)).values()) == {FITS}


def test_terminating_pods_count() -> None:
    matched = pod("w", node="a1", labels=WEB, deleting=True)
    holder = pod("v", node="b1", anti_affinity=(near(WEB),), deleting=True)
    rows = (*ZONES, matched, holder, pod(labels=WEB, anti_affinity=(near(WEB),)))
    assert verdicts(*rows) == {"a1": ANTI, "a2": ANTI, "b1": EXISTING, "n1": FITS}


def test_affinity_goes_before_both_anti_affinities() -> None:
    rows = (
        *ZONES,
        pod("w", node="a1", labels=WEB, anti_affinity=(near(DB),)),
        pod("x", node="b1", labels=DB),
        pod(labels=DB, affinity=(near(WEB),), anti_affinity=(near(DB),)),
    )
    assert verdicts(*rows) == {"a1": EXISTING, "a2": EXISTING, "b1": AFFINITY, "n1": AFFINITY}


def test_own_anti_affinity_goes_before_that_of_existing_pods() -> None:
    rows = (
        *ZONES,
        pod("w", node="a1", labels=WEB, anti_affinity=(near(WEB),)),
        pod(labels=WEB, anti_affinity=(near(WEB),)),
    )
    assert verdicts(*rows) == {"a1": ANTI, "a2": ANTI, "b1": FITS, "n1": FITS}


def test_namespaces_are_those_listed_or_selected_by_label() -> None:
    placed = (
        pod("w", namespace="x", node="a1", labels=WEB),
        pod("v", namespace="y", node="b1", labels=WEB),
    )
    spaces = (namespace("x", {"team": "red"}), namespace("y", {"team": "blue"}))
    red = (Requirement("team", Operator.IN, ("red",)),)

    def refused(term: AffinityTerm) -> set[str]:
        found = verdicts(*ZONES, *spaces, *placed, pod(anti_affinity=(term,)))
        return {name for name, verdict in found.items() if verdict == ANTI}

    assert refused(near(WEB)) == set()
    assert refused(near(WEB, namespaces=("y",))) == {"b1"}
    assert refused(near(WEB, namespaces=(), namespace_selector=red)) == {"a1", "a2"}
    assert refused(near(WEB, namespaces=("y",), namespace_selector=red)) == {"a1", "a2", "b1"}
    assert refused(near(WEB, namespaces=(), namespace_selector=())) == {"a1", "a2", "b1"}
    assert refused(near(None, namespaces=(), namespace_selector=())) == set()


def test_a_holders_namespace_selector_looks_at_the_pending_pods_namespace() -> None:
    red = (Requirement("team", Operator.IN, ("red",)),)
    holder = pod("w", node="a1", anti_affinity=(near(WEB, namespaces=(), namespace_selector=red),))
    spaces = (namespace("default", {"team": "red"}), namespace("other"))
    refused = {"a1": EXISTING, "a2": EXISTING, "b1": FITS, "n1": FITS}
    assert verdicts(*ZONES, *spaces, holder, pod(labels=WEB)) == refused
    assert set(verdicts(*ZONES, holder, pod(labels=WEB)).values()) == {FITS}


def test_an_absent_selector_matches_no_pod_and_an_empty_one_all() -> None:
    there = pod("w", node="a1")
    assert set(verdicts(*ZONES, there, pod(anti_affinity=(near(None),))).values()) == {FITS}
    assert verdicts(*ZONES, there, pod(anti_affinity=(near({}),)))["a1"] == ANTI


def test_members_of_a_gang_keep_each_other_away() -> None:
    simulation, snapshot = simulation_of(
        *ZONES,
        pod("p", labels=WEB, anti_affinity=(near(WEB, "kubernetes.io/hostname"),)),
        pod("q", labels=WEB),
    )
    keen, plain = pending_of(snapshot, "p"), pending_of(snapshot, "q")
    placed = simulation.place(plain, 0)
    assert said(simulation, keen) == {"a1": ANTI, "a2": FITS, "b1": FITS, "n1": FITS}
    second = simulation.place(keen, 1)
    assert said(simulation, plain) == {"a1": FITS, "a2": EXISTING, "b1": FITS, "n1": FITS}
    assert said(simulation, keen) == {"a1": ANTI, "a2": ANTI, "b1": FITS, "n1": FITS}
    simulation.unplace(second)
    simulation.unplace(placed)
    assert set(said(simulation, keen).values()) == set(said(simulation, plain).values()) == {FITS}


def test_the_first_member_of_a_gang_decides_the_domain_of_the_rest() -> None:
    simulation, snapshot = simulation_of(*ZONES, pod(labels=WEB, affinity=(near(WEB),)))
    pending = pending_of(snapshot, "p")
    assert filter_of(simulation).first
    placed = simulation.place(pending, 2)
    assert not filter_of(simulation).first
    assert said(simulation, pending) == {
        "a1": AFFINITY,
        "a2": AFFINITY,
        "b1": FITS,
        "n1": AFFINITY,
    }
    simulation.unplace(placed)
    assert said(simulation, pending) == {"a1": FITS, "a2": FITS, "b1": FITS, "n1": AFFINITY}


def test_removing_the_pod_that_was_asked_for_makes_a_node_infeasible() -> None:
    simulation, snapshot = simulation_of(
        *ZONES, pod("w", node="a1", labels=WEB), pod(affinity=(near(WEB),))
    )
    pending = pending_of(snapshot, "p")
    slots = np.array([slot_of(snapshot, "w")])
    assert said(simulation, pending)["a2"] == FITS
    simulation.remove(slots)
    assert said(simulation, pending)["a2"] == AFFINITY
    simulation.restore(slots)
    assert said(simulation, pending)["a2"] == FITS


def test_a_pod_that_nobody_names_and_that_names_nobody_is_not_filtered() -> None:
    simulation, snapshot = simulation_of(
        *ZONES, pod("w", node="a1", anti_affinity=(near(DB),)), pod(labels=WEB)
    )
    names = [each.name for each in simulation.filters(pending_of(snapshot, "p"))]
    assert "InterPodAffinity" not in names


def test_counts_per_term_in_both_directions() -> None:
    holder = pod(
        "w",
        node="a1",
        labels=WEB,
        anti_affinity=(near(WEB), near({}), near(DB), near({}, "kubernetes.io/hostname")),
    )
    wanted = pod(labels=WEB, affinity=(near(WEB),), anti_affinity=(near(DB), near(WEB)))
    simulation, snapshot = simulation_of(*ZONES, holder, wanted)
    found = filter_of(simulation)
    assert [each.counts.tolist() for each in found.affinity] == [[1, 0]]
    assert [each.counts.tolist() for each in found.anti] == [[0, 0], [1, 0]]
    by_key = {each.key: each for each in found.existing}
    assert by_key["zone"].counts.tolist() == [2, 0]
    assert by_key["kubernetes.io/hostname"].counts.tolist() == [1, 0, 0, 0]
    assert by_key["zone"].nodes().tolist() == [True, True, False, False]
    slot = slot_of(snapshot, "w")
    number, labels = int(snapshot.pod_class[slot]), int(snapshot.pod_labels[slot])
    assert (by_key["zone"].by_class, int(by_key["zone"].weights[number])) == (True, 2)
    assert [int(each.weights[labels]) for each in found.anti] == [0, 1]


def test_a_change_says_how_far_it_reaches() -> None:
    simulation, snapshot = simulation_of(
        *ZONES, pod(labels=WEB, anti_affinity=(near(WEB),)), pod("q", labels=DB)
    )
    found = filter_of(simulation)
    own, other = pending_of(snapshot, "p"), pending_of(snapshot, "q")
    # The pod counts by its labels and, by its class, with its own anti-affinity.
    assert found.add(Placed(other.pod_class, other.labels, 0)) is Reach.NOTHING
    assert found.add(Placed(own.pod_class, own.labels, 3)) is Reach.NOTHING  # no zone there
    assert found.add(Placed(own.pod_class, own.labels, 2)) is Reach.NODE  # zone b: one node
    assert found.add(Placed(own.pod_class, own.labels, 0)) is Reach.DOMAINS
    assert found.add(Placed(own.pod_class, own.labels, 1)) is Reach.NOTHING  # occupied already
    assert found.remove(Placed(own.pod_class, own.labels, 1)) is Reach.NOTHING
    assert found.remove(Placed(own.pod_class, own.labels, 0)) is Reach.DOMAINS

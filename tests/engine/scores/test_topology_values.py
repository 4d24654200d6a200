"""PodTopologySpread and InterPodAffinity, by hand (specification 17.3 and 17.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    NodeRow,
    PodRow,
    SpreadConstraint,
    Weighted,
)
from reprieve.engine.placement.profile import Policy, Profile, ScoreName
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import (
    matching,
    namespace,
    node,
    pending_of,
    pod,
    service,
    snapshot_of,
)
from tests.engine.scores.scoring import score_of, scored

SPREAD, AFFINITY = ScoreName.POD_TOPOLOGY_SPREAD, ScoreName.INTER_POD_AFFINITY
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"app": "web"}


def zones(places: Mapping[str, str]) -> list[NodeRow]:
    """A node for each name, in the zone that it is mapped to; an empty one: no zone."""
    return [node(name, labels={ZONE: zone} if zone else {}) for name, zone in places.items()]


def webs(*places: str, **facts: Any) -> list[PodRow]:
    """A matching pod on each of these nodes."""
    facts = {"labels": WEB, **facts}
    return [pod(f"web-{at}-{number}", node=at, **facts) for number, at in enumerate(places)]


def soft(key: str = ZONE, skew: int = 1, **facts: Any) -> SpreadConstraint:
    return SpreadConstraint(key, skew, hard=False, selector=matching(WEB), **facts)


def spreading(*constraints: SpreadConstraint, **facts: Any) -> PodRow:
    return pod("new", labels=WEB, spread=constraints, **facts)


TWO = {"a1": "a", "a2": "a", "b1": "b"}

SPREAD_CASES = [
    # 2 zones: w = ln 4 = 1.386. a: 3 w = 4.16 -> 4, b: 1.39 -> 1; 100 * (4 + 1 - raw) / 4
    ("3 and 1 in two zones", TWO, ("a1", "a1", "a2", "b1"), [soft()],
     {"a1": 25, "a2": 25, "b1": 100}),
    # the same with maxSkew 3: 4.16 + 2 -> 6, 3.39 -> 3; 100 * 3 / 6
    ("maxSkew 3", TWO, ("a1", "a1", "a2", "b1"), [soft(skew=3)],
     {"a1": 50, "a2": 50, "b1": 100}),
    # a: 2 w = 2.77 -> 3, b: 0; 100 * (3 + 0 - 3) / 3
    ("an empty zone", TWO, ("a1", "a2"), [soft()], {"a1": 0, "a2": 0, "b1": 100}),
    # all 0
    ("nobody yet", TWO, (), [soft()], {"a1": 100, "a2": 100, "b1": 100}),
    # hostname, 3 nodes: w = ln 5 = 1.609. 2 w = 3.22 -> 3, w -> 2, 0; 100 * (3 - raw) / 3
    ("hosts", TWO, ("a1", "a1", "a2"), [soft(HOST)], {"a1": 0, "a2": 33, "b1": 100}),
    # zone a 3 w = 4.16, b 1.39; host a1 2, a2 1, b1 1 times 1.609:
    # 7.38 -> 7, 5.77 -> 6, 3.00 -> 3 (2.995); 100 * (7 + 3 - raw) / 7
    ("zones and hosts", TWO, ("a1", "a1", "a2", "b1"), [soft(), soft(HOST)],
     {"a1": 42, "a2": 57, "b1": 100}),
    # 3 zones: w = ln 5. a 2 w = 3.22 -> 3, b w = 1.6 -> 2, c 0
    ("three zones", {"a1": "a", "b1": "b", "c1": "c"}, ("a1", "a1", "b1"), [soft()],
     {"a1": 0, "b1": 33, "c1": 100}),
    # x1 lacks the key: 0; among the others a 1.39 -> 1, b 0
    ("a node without the key scores 0", {"a1": "a", "b1": "b", "x1": ""}, ("a1", "x1"), [soft()],
     {"a1": 0, "b1": 100, "x1": 0}),
    # x1 lacks one of two keys. hosts a1, b1: w = ln 4; a1: 1.386 + 1.386 = 2.77 -> 3, b1: 0
    ("all keys are needed", {"a1": "a", "b1": "b", "x1": ""}, ("a1", "x1"), [soft(), soft(HOST)],
     {"a1": 0, "b1": 100, "x1": 0}),
    # one zone: w = ln 3 = 1.099, 5 w = 5.49 -> 5; max = min: 100 * 5 / 5
    ("one zone", {"a1": "a", "a2": "a"}, ("a1",) * 5, [soft()], {"a1": 100, "a2": 100}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("places", "there", "constraints", "expected"),
    [case[1:] for case in SPREAD_CASES],
    ids=[case[0] for case in SPREAD_CASES],
)
def test_pod_topology_spread(
    places: Mapping[str, str],
    there: tuple[str, ...],
    constraints: list[SpreadConstraint],
    expected: dict[str, int],
) -> None:
    assert scored(SPREAD, zones(places), webs(*there), spreading(*constraints)) == expected


def test_the_weight_is_of_the_scored_nodes_and_the_count_of_all() -> None:
    # a1 did not pass: zones a and b are scored, w = ln 4; a counts the pods of a1 as well:
    # a 3 w = 4.16 -> 4, b w -> 1.
    rows = (zones(TWO), webs("a1", "a1", "a2", "b1"), spreading(soft()))
    assert scored(SPREAD, *rows, nodes=("a2", "b1")) == {"a2": 25, "b1": 100}
    # zone a alone is scored: w = ln 3.
    assert scored(SPREAD, *rows, nodes=("a1", "a2")) == {"a1": 100, "a2": 100}


def test_pods_that_terminate_or_live_elsewhere_do_not_count() -> None:
    rows = [
        zones(TWO),
        webs("a1", "a1", deleting=True),
        webs("b1", namespace="other"),
        [pod("else", node="b1", labels={"app": "db"})],
        webs("a2"),
        spreading(soft()),
    ]
    # a: 1.39 -> 1, b: 0
    assert scored(SPREAD, *rows) == {"a1": 0, "a2": 0, "b1": 100}


def test_domains_are_counted_on_nodes_that_the_policies_leave() -> None:
    nodes = [
        node("a1", labels={ZONE: "a", "gpu": "yes"}),
        node("a2", labels={ZONE: "a"}, taints=["k=v:NoSchedule"]),
        node("b1", labels={ZONE: "b", "gpu": "yes"}),
    ]
    there = webs("a2", "a2", "a2", "b1")
    wants = {"node_selector": {"gpu": "yes"}}
    for constraint, expected in (
        # nodeAffinityPolicy Honor leaves a2 out: a 0, b 1.39 -> 1
        (soft(), {"a1": 100, "b1": 0}),
        # Ignore: a 4.16 -> 4, b 1
        (soft(honor_affinity=False), {"a1": 25, "b1": 100}),
        # nodeTaintsPolicy Honor leaves a2 out as well
        (soft(honor_affinity=False, honor_taints=True), {"a1": 100, "b1": 0}),
    ):
        row = spreading(constraint, **wants)
        assert scored(SPREAD, nodes, there, row, nodes=("a1", "b1")) == expected


def test_the_built_in_defaults_follow_services_and_need_no_key() -> None:
    rows = [
        zones({"a1": "a", "b1": "b", "x1": ""}),
        webs("a1", "x1"),
        service("web", WEB),
        pod("new", labels=WEB),
    ]
    # hosts 3: w = ln 5 = 1.609; zones 2: w = ln 4 = 1.386; maxSkew 3 and 5 add 2 and 4.
    # a1: 3.61 + 5.39 = 8.995 -> 9, b1: 2 + 4 = 6, x1: 3.61 -> 4; 100 * (9 + 4 - raw) / 9
    assert scored(SPREAD, *rows) == {"a1": 44, "b1": 77, "x1": 100}
    # Nothing selects the pod, or the profile's list is empty: no defaults.
    assert score_of(SPREAD, *rows[:2], pod("new", labels=WEB)) is None
    assert score_of(SPREAD, *rows, default_spread=()) is None


def test_the_built_in_defaults_follow_the_owner() -> None:
    rows = [
        zones(TWO),
        webs("a1"),
        service("web", WEB, kind="ReplicaSet"),
        pod("new", labels=WEB, owner=("ReplicaSet", "web")),
    ]
    # hosts: w = ln 5, zones: w = ln 4. a1: 3.61 + 5.39 -> 9, a2: 2 + 5.39 -> 7, b1: 6
    # 100 * (15 - raw) / 9
    assert scored(SPREAD, *rows) == {"a1": 66, "a2": 88, "b1": 100}


def test_pods_alike_but_for_their_owner_are_scored_by_their_own_defaults() -> None:
    snapshot = snapshot_of(
        zones(TWO),
        webs("a1"),
        service("web", WEB, kind="ReplicaSet"),
        pod("owned", labels=WEB, owner=("ReplicaSet", "web")),
        pod("bare", labels=WEB),
    )
    simulation = Simulation(snapshot, Policy(), Profile())
    every = np.arange(3)
    owned = simulation.totals(pending_of(snapshot, "owned"), every)
    bare = simulation.totals(pending_of(snapshot, "bare"), every)
    # PodTopologySpread weighs 2; the rest is equal.
    assert (owned - bare).tolist() == [2 * 66, 2 * 88, 2 * 100]


def test_defaults_of_the_profile_need_their_keys() -> None:
    default = SpreadConstraint(ZONE, 1, hard=False, selector=None)
    rows = [
        zones({"a1": "a", "b1": "b", "x1": ""}),
        webs("a1"),
        service("web", WEB),
        pod("new", labels=WEB),
    ]
    found = scored(SPREAD, *rows, default_spread=(default,))
    assert found == {"a1": 0, "b1": 100, "x1": 0}


def test_hard_constraints_are_no_matter_of_the_score() -> None:
    hard = SpreadConstraint(ZONE, 1, hard=True, selector=matching(WEB))
    assert score_of(SPREAD, zones(TWO), spreading(hard)) is None


# InterPodAffinity: weights per domain, floor(100 * ((s - min) / (max - min))).


def near(key: str = ZONE, labels: Mapping[str, str] = WEB, *spaces: str) -> AffinityTerm:
    return AffinityTerm(key, matching(labels), spaces or ("default",))


THREE = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
TO_WEB: Mapping[str, Any] = {"preferred_affinity": (Weighted(10, near()),)}
FROM_WEB: Mapping[str, Any] = {"preferred_anti_affinity": (Weighted(10, near()),)}

AFFINITY_CASES = [
    # a 20, b 10, c 0
    ("a preferred term adds its weight per pod", webs("a1", "a2", "b1"), TO_WEB,
     {"a1": 100, "a2": 100, "b1": 50, "c1": 0}),
    # a -20, b -10, c 0: (s + 20) / 20
    ("anti-affinity takes it away", webs("a1", "a2", "b1"), FROM_WEB,
     {"a1": 0, "a2": 0, "b1": 50, "c1": 100}),
    # a1 30 + 10, a2 10, b1 10, c1 0: hosts and zones add up
    ("two keys", webs("a1", "b1"),
     {"preferred_affinity": (Weighted(30, near(HOST)), Weighted(10, near()))},
     {"a1": 100, "a2": 25, "b1": 100, "c1": 0}),
    # a 10 - 10, b 10 - 10, c 0: all equal
    ("what cancels out", webs("a1", "b1"), {**TO_WEB, **FROM_WEB},
     {"a1": 0, "a2": 0, "b1": 0, "c1": 0}),
    # 29 of 100 is 100 * 0.29 = 28.999... in floats
    ("floats are cut", [*webs("a1"), *webs("b1", labels={"app": "db"})],
     {"preferred_affinity": (Weighted(100, near()), Weighted(29, near(ZONE, {"app": "db"})))},
     {"a1": 100, "a2": 100, "b1": 28, "c1": 0}),
    # terminating pods count: a 20, b 10
    ("terminating pods", [*webs("a1", "a2", deleting=True), *webs("b1")], TO_WEB,
     {"a1": 100, "a2": 100, "b1": 50, "c1": 0}),
    # the pod's own namespace only: b 10
    ("another namespace", [*webs("a1", namespace="other"), *webs("b1")], TO_WEB,
     {"a1": 0, "a2": 0, "b1": 100, "c1": 0}),
    # an existing pod's required affinity that matches us counts 1: a 1
    ("required affinity of a placed pod", [pod("p", node="a1", affinity=(near(),))], {},
     {"a1": 100, "a2": 100, "b1": 0, "c1": 0}),
    # a 40 (its preferred), b -20 (its preferred anti), c 0: (s + 20) / 60
    ("preferred terms of placed pods",
     [pod("p", node="a1", preferred_affinity=(Weighted(40, near()),)),
      pod("q", node="b1", preferred_anti_affinity=(Weighted(20, near()),))], {},
     {"a1": 100, "a2": 100, "b1": 0, "c1": 33}),
    # a 10 + 1 (required affinity of the web pod towards us), b 10
    ("both directions", [*webs("a1", affinity=(near(),)), *webs("b1")], TO_WEB,
     {"a1": 100, "a2": 100, "b1": 90, "c1": 0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("there", "wishes", "expected"),
    [case[1:] for case in AFFINITY_CASES],
    ids=[case[0] for case in AFFINITY_CASES],
)
def test_inter_pod_affinity(
    there: list[PodRow], wishes: dict[str, Any], expected: dict[str, int]
) -> None:
    assert scored(AFFINITY, zones(THREE), there, pod("new", labels=WEB, **wishes)) == expected


def test_the_weight_of_required_affinity_is_the_profiles() -> None:
    rows = [
        zones(THREE),
        webs("a1", affinity=(near(),)),
        webs("b1"),
        pod("new", labels=WEB, **TO_WEB),
    ]
    # a 10 + 30, b 10, c 0
    found = scored(AFFINITY, *rows, hard_pod_affinity_weight=30)
    assert found == {"a1": 100, "a2": 100, "b1": 25, "c1": 0}
    # a 10, b 10
    found = scored(AFFINITY, *rows, hard_pod_affinity_weight=0)
    assert found == {"a1": 100, "a2": 100, "b1": 100, "c1": 0}


def test_affinity_is_normalised_over_the_nodes_that_passed() -> None:
    rows = [zones(THREE), webs("a1", "a2", "b1"), pod("new", labels=WEB, **TO_WEB)]
    # a 20, b 10
    assert scored(AFFINITY, *rows, nodes=("a1", "b1")) == {"a1": 100, "b1": 0}


def test_a_namespace_selector_finds_other_namespaces() -> None:
    term = AffinityTerm(ZONE, matching(WEB), (), matching({"team": "x"}))
    rows = [
        zones(THREE),
        namespace("default"),
        namespace("other", {"team": "x"}),
        webs("a1"),
        webs("b1", namespace="other"),
        pod("new", preferred_affinity=(Weighted(1, term),)),
    ]
    assert scored(AFFINITY, *rows) == {"a1": 0, "a2": 0, "b1": 100, "c1": 0}


def test_existing_pods_preferences_can_be_ignored_by_a_pod_without_its_own() -> None:
    there = pod("p", node="a1", preferred_affinity=(Weighted(40, near()),))
    rows = [zones(THREE), there, pod("new", labels=WEB)]
    assert scored(AFFINITY, *rows)["a1"] == 100
    assert score_of(AFFINITY, *rows, ignore_preferred_terms_of_existing_pods=True) is None


def test_affinity_has_nothing_to_say_where_nobody_prefers_anything() -> None:
    other = pod("p", node="a1", preferred_affinity=(Weighted(40, near(ZONE, {"app": "db"})),))
    assert score_of(AFFINITY, zones(THREE), other, pod("new", labels=WEB)) is None

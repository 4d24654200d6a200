"""Scores of the oracle against values worked out by hand from section 17."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.scheduling import scores
from tests.oracle.scheduling.objects import Cluster, Object, assumed
from tests.oracle.scheduling.situations import HOSTNAME, ZONE, pod


def node(name: str, cpu: str = "4", memory: str = "8Gi", **labels: str) -> Object:
    found = {HOSTNAME: name, **({ZONE: labels["zone"]} if "zone" in labels else {})}
    return {
        "metadata": {"name": name, "labels": found},
        "spec": {},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def placed(name: str, where: str, **labels: str) -> Object:
    return assumed(pod(name, 0, {"cpu": "1", "memory": "2Gi"}, labels), where)


def own(**spec: Any) -> Object:
    found = pod("own", 0, {"cpu": "1", "memory": "4Gi"}, {"app": "a"})
    return {**found, "spec": {**found["spec"], **spec}}


def score(plugin: str, incoming: Object, nodes: list[Object], *pods: Object, **more: Any) -> Any:
    cluster = Cluster.of({"nodes": nodes, "pods": list(pods), **more})
    return scores.by_plugin(incoming, nodes, cluster)[plugin]


RATIO = {
    "type": "RequestedToCapacityRatio",
    "requestedToCapacityRatio": {
        "shape": [
            {"utilization": 0, "score": 0},
            {"utilization": 70, "score": 10},
            {"utilization": 100, "score": 3},
        ]
    },
}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [({"type": "LeastAllocated"}, 37), ({"type": "MostAllocated"}, 62), (RATIO, 80)],
)
def test_resources_by_each_strategy(strategy: Object, expected: int) -> None:
    arguments = {"scoringStrategy": strategy}
    found = score("NodeResourcesFit", own(), [node("n")], placed("p", "n"), fitArgs=arguments)
    assert found == {"n": expected}


def test_balanced_allocation() -> None:
    found = score("NodeResourcesBalancedAllocation", own(), [node("n")], placed("p", "n"))
    assert found == {"n": 68}


def test_a_container_without_requests_counts_with_the_defaults() -> None:
    bare = own(containers=[{"name": "c"}])
    found = score("NodeResourcesFit", bare, [node("n", cpu="1", memory="2000Mi")])
    assert found == {"n": 90}


def test_fewer_taints_to_put_up_with_are_better() -> None:
    tainted = node("t")
    tainted["spec"]["taints"] = [
        {"key": "a", "effect": "PreferNoSchedule"},
        {"key": "b", "effect": "PreferNoSchedule"},
    ]
    tolerating = own(tolerations=[{"key": "a", "operator": "Exists"}])
    assert score("TaintToleration", tolerating, [node("n"), tainted]) == {"n": 100, "t": 0}
    assert score("TaintToleration", own(), [node("n"), node("m")]) == {"n": 100, "m": 100}


def test_spread_over_zones_prefers_the_emptier_one() -> None:
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    nodes = [node("n", zone="x"), node("m", zone="y"), node("o")]
    pods = [placed("p", "n", app="a"), placed("q", "n", app="a"), placed("r", "m", app="a")]
    # ln(4) * 2 = 2.77 and ln(4) = 1.39 make 3 and 1: 100 * (3 + 1 - raw) / 3.
    found = score("PodTopologySpread", own(topologySpreadConstraints=[constraint]), nodes, *pods)
    assert found == {"n": 33, "m": 100, "o": 0}


def test_preferred_and_existing_affinity_terms_add_up() -> None:
    selector = {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": HOSTNAME}
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    wishes = {"podAffinity": {kind: [{"weight": 10, "podAffinityTerm": selector}]}}
    drawn = placed("q", "m", app="c")
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOSTNAME}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    drawn["spec"]["affinity"] = {"podAffinity": required}
    nodes = [node("n"), node("m"), node("o")]
    found = score("InterPodAffinity", own(affinity=wishes), nodes, placed("p", "n", app="b"), drawn)
    assert found == {"n": 100, "m": 10, "o": 0}


def test_an_image_counts_by_the_part_of_the_nodes_that_have_it() -> None:
    having = node("n")
    having["status"]["images"] = [{"names": ["image:latest"], "sizeBytes": 1046 * 1024 * 1024}]
    # Half of 1046 MiB is 523: 100 * (523 - 23) / (1000 - 23).
    with_image = own(containers=[{"name": "c", "image": "image"}])
    assert score("ImageLocality", with_image, [having, node("m")]) == {"n": 51, "m": 0}

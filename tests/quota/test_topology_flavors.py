"""Which flavors do for who requests a topology, who does not, and what is said otherwise.

Specification of topology-aware scheduling, sections 5.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome
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
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, Layer, Topology, TopologyRequest
from reprieve.engine.topology.places import Grounds
from tests.engine.topology.build import GPU, LEVELS, RACK, node

NOW = Nanos(1_800_000_000_000_000_000)
NIC = "example.com/nic"
SHELF = "example.com/shelf"
ANYWHERE = TopologyRequest(unconstrained=True)


class Plane:
    """One ClusterQueue: flavors by group of resources, `plain` ones without a topology."""

    def __init__(
        self, *groups: tuple[tuple[str, ...], Sequence[str]], known: bool = True, quota: int = 6
    ) -> None:
        rows = tuple(
            ResourceGroup(
                resources,
                tuple(FlavorQuotas(name, dict.fromkeys(resources, Quota(quota))) for name in names),
            )
            for resources, names in groups
        )
        flavors = {
            name: ResourceFlavor(name, topology="" if name.startswith("plain") else "default")
            for _, names in groups
            for name in names
        }
        rules = Preemption(Policy.LOWER_PRIORITY)
        configuration = Configuration(
            {"team": ClusterQueue("team", groups=rows, preemption=rules)},
            {},
            flavors,
            {"ns/q": LocalQueue("ns/q", "team")},
            {"ns": {}},
            topologies={"default": Topology("default", LEVELS)},
        )
        self.holdings, self.queues = Holdings(configuration), Queues(configuration)
        if known:
            nodes = [node(path, 4) for path in ("b/r1/a", "b/r2/c")]
            for each in nodes:
                each.allocatable[NIC] = 4  # type: ignore[index]
            self.holdings.stand_on(Grounds(nodes))
        self.number = 0

    def decide(self, *pod_sets: PodSet, priority: int = 0) -> Entry:
        """Queue a workload and return what becomes of it."""
        self.number += 1
        name = f"w{self.number}"
        self.queues.push(
            Workload("ns", name, name, "ns/q", priority, pod_sets=pod_sets, created=NOW)
        )
        (entry,) = cycle(self.holdings, self.queues, NOW, self.number).entries
        return entry


def pods(
    name: str = "main",
    count: int = 1,
    requests: Mapping[str, int] | None = None,
    topology: TopologyRequest | None = None,
    group: str = "",
) -> PodSet:
    found = {GPU: 1} if requests is None else requests
    return PodSet(name, count, found, topology=topology, group=group)


RACKS, PLAIN = ((GPU,), ["racks"]), ((GPU,), ["plain"])
NO_LEVEL = 'Flavor "racks" does not contain the requested level'


@pytest.mark.parametrize(
    ("group", "request_", "why"),
    [
        (PLAIN, ANYWHERE, 'Flavor "plain" does not support TopologyAwareScheduling'),
        (PLAIN, TopologyRequest(unconstrained=False), 'Flavor "plain" does not support'),
        (PLAIN, None, ""),
        (PLAIN, TopologyRequest(), ""),
        (RACKS, None, ""),
        (RACKS, ANYWHERE, ""),
        (RACKS, TopologyRequest(required=SHELF), NO_LEVEL),
        (RACKS, TopologyRequest(preferred=SHELF), NO_LEVEL),
        (RACKS, TopologyRequest(layers=(Layer(SHELF, 1),)), NO_LEVEL),
        (RACKS, TopologyRequest(layers=(Layer(RACK, 1), Layer(SHELF, 1))), NO_LEVEL),
        (((GPU,), ["racks", "plain"]), None, 'Flavor "racks" supports only Topology'),
        (((GPU,), ["plain", "racks"]), ANYWHERE, 'Flavor "plain" does not support Topology'),
    ],
)
def test_a_flavor_is_left_out_by_what_a_pod_set_requests_of_topologies(
    group: tuple[tuple[str, ...], Sequence[str]], request_: TopologyRequest | None, why: str
) -> None:
    """Where there is another flavor that one is used."""
    entry = Plane(group).decide(pods(topology=request_))
    left = [name for name in group[1] if not why or name not in why]
    if not left:
        assert entry.outcome is Outcome.NO_FIT
        assert entry.message.startswith(f"couldn't assign flavors to pod set main: {why}")
        return
    assert entry.outcome is Outcome.ADMITTED and entry.admission is not None
    (held,) = entry.admission.pod_sets
    assert held.flavors == {GPU: left[0]}
    assert (held.topology is not None) == (left[0] == "racks")


def test_before_nodes_are_known_a_flavor_does_for_nobody_who_requests_places() -> None:
    entry = Plane(RACKS, known=False).decide(pods(topology=ANYWHERE))
    assert entry.outcome is Outcome.NO_FIT
    assert 'Flavor "racks" information missing in TAS cache' in entry.message


def test_who_requests_none_of_a_groups_resources_passes_its_flavors_without_a_topology() -> None:
    """Each pod set gets places by the flavor of the resources that it requests."""
    played = Plane(PLAIN, ((NIC,), ["racks"]))
    entry = played.decide(pods(requests={NIC: 1}, topology=ANYWHERE))
    assert entry.outcome is Outcome.ADMITTED and entry.admission is not None
    (held,) = entry.admission.pod_sets
    assert held.flavors == {NIC: "racks"} and held.topology is not None


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ({GPU: 1, NIC: 1}, "more than one TAS flavor assigned: nics, racks"),
        ({}, "no TAS flavor assigned"),
    ],
)
def test_a_pod_set_with_places_has_exactly_one_flavor_with_a_topology(
    requests: Mapping[str, int], why: str
) -> None:
    played = Plane(RACKS, ((NIC,), ["nics"]))
    entry = played.decide(pods(requests=requests, topology=ANYWHERE))
    assert entry.outcome is Outcome.NO_FIT
    assert f"failed to assign flavors to pod set main: {why}" in entry.message


def test_a_leader_without_requests_has_the_flavor_of_its_workers() -> None:
    asked = TopologyRequest(required=RACK)
    leader = pods("leader", requests={}, topology=asked, group="g")
    entry = Plane(RACKS).decide(leader, pods("workers", 3, topology=asked, group="g"))
    assert entry.outcome is Outcome.ADMITTED and entry.admission is not None
    places = [each.topology for each in entry.admission.pod_sets]
    (one,), (other,) = ([d.values for d in p.domains] for p in places if p is not None)
    assert one == other


def test_all_pod_sets_with_places_preempt_where_one_of_them_has_none() -> None:
    """The first has quota and a rack; it preempts as well, and both get places together."""
    played = Plane(RACKS, quota=100)
    assert played.decide(pods(count=3, topology=TopologyRequest(required=HOSTNAME))).admission
    asked: Any = TopologyRequest(required=RACK)
    both = pods("large", 4, topology=asked), pods("small", 2, topology=asked)
    entry = played.decide(*both, priority=5)
    assert entry.outcome is Outcome.PREEMPTING and entry.assignment is not None
    assert {each.name: each.mode for each in entry.assignment.pod_sets} == dict.fromkeys(
        ("large", "small"), entry.assignment.mode
    )
    planned = {each.name: each.topology for each in entry.assignment.pod_sets}
    assert all(planned.values()) and [t.holder.key for t in entry.issued] == ["ns/w1"]


def test_who_fits_not_even_empty_nodes_preempts_nobody_and_keeps_the_first_reason() -> None:
    played = Plane(RACKS)
    assert played.decide(pods(count=1)).admission
    entry = played.decide(pods(count=5, topology=TopologyRequest(required=RACK)), priority=5)
    assert entry.outcome is Outcome.NO_FIT and entry.reason == "TopologyPlacementFailed"
    assert entry.message.startswith(
        'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 4 out of 5'
    )
    assert not entry.issued


def test_who_lacks_quota_and_would_fit_no_empty_node_says_quota_and_preempts_nobody() -> None:
    played = Plane(RACKS)
    assert played.decide(pods(count=4)).admission
    entry = played.decide(pods(count=5, topology=TopologyRequest(required=RACK)), priority=5)
    assert entry.outcome is Outcome.NO_FIT and entry.reason == "TopologyPlacementFailed"
    assert "insufficient unused quota" in entry.message and "topology" not in entry.message
    assert not entry.issued

"""Each row of the specification's table of volume filters (21.5), on hand-made clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.rows import (
    Change,
    Disk,
    Entry,
    NodeTerm,
    Operator,
    Requirement,
    VolumeUse,
)
from reprieve.engine.cluster.storage import NO_PROVISIONER
from reprieve.engine.placement.filters.volume_ledger import VolumeAssignment
from reprieve.engine.scheduling.nodes.reservations import Reservations, reservations_of
from reprieve.units.ids import Uid
from tests.engine.builders import node, pending_of, pod, slot_of, snapshot_of
from tests.engine.devices.drivers import asks, claims, device_class, resource_claim
from tests.engine.volumes.storage import (
    GIB,
    ZONE,
    at,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    refusals,
    simulation_of,
    storage_class,
    uses,
    volume,
)

CSI = "csi.example.com"


def said(*rows: Change | Iterable[Change], **policy: object) -> list[str]:
    return refusals(simulation_of(snapshot_of(*rows), **policy))


# VolumeBinding, all nodes.


@pytest.mark.parametrize(
    ("rows", "use", "reason"),
    [
        ([], VolumeUse("c"), "CLAIM_MISSING c"),
        ([], VolumeUse("data", ephemeral=True), "CLAIM_NOT_MADE p-data"),
        ([claim("p-data", owner=Uid("other"))], VolumeUse("data", True), "CLAIM_NOT_MADE p-data"),
        ([claim(lost=True, volume="v")], VolumeUse("c"), "CLAIM_LOST c/v"),
        ([claim(deleting=True)], VolumeUse("c"), "CLAIM_DELETED c"),
        ([claim(storage_class="sc"), storage_class(wait=False)], VolumeUse("c"), "CLAIM_UNBOUND c"),
        ([claim()], VolumeUse("c"), "CLAIM_UNBOUND c"),
        (
            [claim(storage_class="sc", volume="v", bind_completed=False), storage_class()],
            VolumeUse("c"),
            "CLAIM_UNBOUND c",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_refuses_every_node(
    rows: list[Entry], use: VolumeUse, reason: str
) -> None:
    snapshot = snapshot_of(node("n1"), node("n2"), pod(volumes=(use,)), rows)
    simulation = simulation_of(snapshot)
    refusal = simulation.refusal(pending_of(snapshot, "p"))
    assert refusal is not None and not refusal.error
    assert refusals(simulation) == [reason, reason]


def test_the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume() -> None:
    own = claim("p-data", owner=Uid("pod-p"), volume="v")
    use = VolumeUse("data", ephemeral=True)
    assert said(node(), pod(volumes=(use,)), own, volume(on="n1")) == [""]


# VolumeBinding, one node.


def test_a_bound_volume_is_reached_from_the_nodes_of_its_affinity() -> None:
    rows: list[Change] = [claim(volume="v"), volume(on="n2"), pod(volumes=uses("c"))]
    assert said(node("n1"), node("n2"), rows) == ["VOLUME_AFFINITY", ""]


def test_a_bound_volume_with_expressions_of_every_kind() -> None:
    term = NodeTerm(
        (Requirement("disk", Operator.NOT_IN, ("hdd",)), Requirement("age", Operator.LT, ("5",)))
    )
    nodes = [
        node("n1", labels={"disk": "hdd", "age": "3"}),
        node("n2", labels={"disk": "ssd", "age": "3"}),
        node("n3", labels={"age": "7"}),
    ]
    rows: list[Change] = [claim(volume="v"), volume(node_affinity=(term,)), pod(volumes=uses("c"))]
    assert said(nodes, rows) == ["VOLUME_AFFINITY", "", "VOLUME_AFFINITY"]


def test_a_claim_bound_to_a_missing_volume() -> None:
    assert said(node(), claim(volume="v"), pod(volumes=uses("c"))) == ["VOLUME_MISSING"]


def test_a_node_names_all_that_is_wrong_in_order() -> None:
    rows: list[Change] = [
        claim("a", volume="va"),
        volume("va", on="n2"),
        claim("b", storage_class="local", request=GIB),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("d", volume="gone"),
    ]
    found = said(node("n1"), node("n2"), rows, pod(volumes=uses("a", "b", "d")))
    assert found == [
        "VOLUME_AFFINITY + NO_VOLUME + VOLUME_MISSING",
        "NO_VOLUME + VOLUME_MISSING",
    ]


def _local(**facts: Any) -> list[Entry]:
    """A claim of 5 GiB of a class without provisioner, and one volume that serves it."""
    given: dict[str, Any] = {
        "storage_class": "local",
        "capacity": 5 * GIB,
        "access_modes": ("RWO",),
        **facts,
    }
    wanted = claim(storage_class="local", request=5 * GIB, access_modes=("RWO",))
    return [wanted, storage_class("local", provisioner=NO_PROVISIONER), volume(**given)]


@pytest.mark.parametrize(
    ("facts", "serves"),
    [
        ({}, True),
        ({"capacity": 5 * GIB - 1}, False),
        ({"storage_class": "other"}, False),
        ({"available": False}, False),
        ({"deleting": True}, False),
        ({"block": True}, False),
        ({"access_modes": ("ROX",)}, False),
        ({"access_modes": ("ROX", "RWO")}, True),
        ({"attributes_class": "gold"}, False),
        ({"claim": ("default", "other", "")}, False),
        ({"claim": ("default", "c", ""), "available": False}, True),
        ({"claim": ("default", "c", "pvc-c")}, True),
        ({"claim": ("default", "c", "an earlier one")}, False),
    ],
)
def test_what_makes_a_volume_serve_a_claim(facts: dict[str, Any], serves: bool) -> None:
    assert said(node(), pod(volumes=uses("c")), _local(**facts)) == ["" if serves else "NO_VOLUME"]


def test_a_claims_selector_chooses_among_volumes() -> None:
    selector = (Requirement("tier", Operator.IN, ("fast",)),)
    wanted = claim(storage_class="local", selector=selector)
    rest: list[Change] = [
        node(),
        pod(volumes=uses("c")),
        storage_class("local", provisioner=NO_PROVISIONER),
    ]
    for tier, expected in (("fast", ""), ("slow", "NO_VOLUME")):
        found = said(rest, wanted, volume(storage_class="local", labels={"tier": tier}))
        assert found == [expected]


def _reserved(rows: list[Change], node_name: str) -> tuple[VolumeAssignment, ...]:
    snapshot = snapshot_of(*rows)
    simulation = simulation_of(snapshot)
    pending = pending_of(snapshot, "p")
    simulation.place(pending, snapshot.node_index[node_name])
    return reservations_of(simulation, pending.row.uid).volumes


def test_claims_take_the_smallest_volume_that_serves_them_by_ascending_size() -> None:
    rows: list[Change] = [
        node("n1"),
        pod(volumes=uses("big", "small")),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("big", storage_class="local", request=8),
        claim("small", storage_class="local", request=2),
        volume("v3", storage_class="local", capacity=3),
        volume("v9", storage_class="local", capacity=9),
        volume("v8", storage_class="local", capacity=8),
    ]
    assert _reserved(rows, "n1") == (
        VolumeAssignment("default", "small", "n1", "v3"),
        VolumeAssignment("default", "big", "n1", "v8"),
    )


def test_a_volume_serves_one_claim_of_a_pod_only() -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        pod(volumes=uses("a", "b")),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("a", storage_class="local", request=1),
        claim("b", storage_class="local", request=1),
        volume("v1", storage_class="local", capacity=1, on="n1"),
        volume("v2", storage_class="local", capacity=1, on="n2"),
        volume("v3", storage_class="local", capacity=2, on="n2"),
    ]
    assert said(rows) == ["NO_VOLUME", ""]


def test_a_volume_that_is_reserved_for_the_claim_comes_before_smaller_ones() -> None:
    rows: list[Change] = [
        node("n1"),
        pod(volumes=uses("c")),
        storage_class(),
        claim(storage_class="sc", request=1),
        volume("small", storage_class="sc", capacity=1),
        volume("mine", storage_class="sc", capacity=9, claim=("default", "c", "")),
    ]
    assert _reserved(rows, "n1") == (VolumeAssignment("default", "c", "n1", "mine"),)


def test_a_claim_without_volume_is_provisioned_where_the_topologies_allow() -> None:
    zone = NodeTerm((Requirement(ZONE, Operator.IN, ("a",)),))
    rows: list[Change] = [
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        pod(volumes=uses("c")),
        claim(storage_class="sc", request=GIB),
        storage_class(allowed_topologies=(zone,)),
    ]
    assert said(rows) == ["", "NO_VOLUME"]
    assert _reserved(rows, "n1") == (VolumeAssignment("default", "c", "n1"),)


@pytest.mark.parametrize(
    ("reports", "facts", "expected"),
    [
        (True, {"capacity": 10 * GIB}, ["", "NO_STORAGE"]),
        (True, {"capacity": 10 * GIB, "maximum": GIB}, ["NO_STORAGE", "NO_STORAGE"]),
        (True, {"capacity": 1, "maximum": 5 * GIB}, ["", "NO_STORAGE"]),
        (True, {}, ["NO_STORAGE", "NO_STORAGE"]),
        (True, {"capacity": 10 * GIB, "storage_class": "other"}, ["NO_STORAGE", "NO_STORAGE"]),
        (False, {}, ["", ""]),
    ],
)
def test_storage_capacity_counts_only_where_the_driver_reports_it(
    reports: bool, facts: dict[str, Any], expected: list[str]
) -> None:
    rows: list[Change] = [
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        pod(volumes=uses("c")),
        claim(storage_class="sc", request=5 * GIB),
        storage_class(),
        csi_driver(storage_capacity=reports),
        capacity("a", zone="a", **facts),
    ]
    assert said(rows) == expected


def test_a_selected_node_ties_the_claim_to_it() -> None:
    rows: list[Change] = [
        claim(storage_class="sc", selected_node="n2"),
        storage_class(),
        pod(volumes=uses("c")),
    ]
    assert said(node("n1"), node("n2"), rows) == ["NO_VOLUME", ""]


# VolumeBinding, members of a gang.


def test_a_member_sees_the_volumes_that_earlier_members_took() -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        pod("p", volumes=uses("a")),
        pod("q", volumes=uses("b")),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("a", storage_class="local"),
        claim("b", storage_class="local"),
        volume("v1", storage_class="local", on="n1"),
        volume("v2", storage_class="local", on="n2"),
    ]
    simulation = simulation_of(snapshot_of(rows))
    assert refusals(simulation, "q") == ["", ""]
    placed = simulation.place(pending_of(simulation.snapshot, "p"), 0)
    assert refusals(simulation, "q") == ["NO_VOLUME", ""]
    simulation.unplace(placed)
    assert refusals(simulation, "q") == ["", ""]
    assert reservations_of(simulation, Uid("pod-p")).volumes == ()


def test_a_pod_on_a_node_that_refuses_it_reserves_nothing() -> None:
    rows: list[Change] = [
        node("n1"),
        pod("p", volumes=uses("c"), claims=claims("d")),
        storage_class("local", provisioner=NO_PROVISIONER),
        claim("c", storage_class="local"),
        device_class(),
        resource_claim("d", asks()),
    ]
    simulation = simulation_of(snapshot_of(rows))
    placed = simulation.place(pending_of(simulation.snapshot, "p"), 0)
    assert reservations_of(simulation, Uid("pod-p")) == Reservations()
    simulation.unplace(placed)
    assert refusals(simulation) == ["NO_VOLUME"]


@pytest.mark.parametrize("static", [True, False])
def test_members_that_share_a_claim_follow_the_first(static: bool) -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        pod("p", volumes=uses("c")),
        pod("q", volumes=uses("c")),
        storage_class(),
        claim("c", storage_class="sc"),
    ]
    if static:
        rows.append(volume("v", storage_class="sc", on="n2"))
    simulation = simulation_of(snapshot_of(*rows))
    assert refusals(simulation, "q") == ["", ""]
    simulation.place(pending_of(simulation.snapshot, "p"), 1)
    assert refusals(simulation, "q") == ["NO_VOLUME", ""]
    simulation.place(pending_of(simulation.snapshot, "q"), 1)
    assert reservations_of(simulation, Uid("pod-q")).volumes == ()


# VolumeRestrictions.


@pytest.mark.parametrize(
    ("own", "other", "clash"),
    [
        (Disk("gcePersistentDisk", ("d",)), Disk("gcePersistentDisk", ("d",)), True),
        (Disk("gcePersistentDisk", ("d",), True), Disk("gcePersistentDisk", ("d",)), True),
        (Disk("gcePersistentDisk", ("d",), True), Disk("gcePersistentDisk", ("d",), True), False),
        (Disk("gcePersistentDisk", ("d",)), Disk("gcePersistentDisk", ("e",)), False),
        (Disk("iscsi", ("d",)), Disk("gcePersistentDisk", ("d",)), False),
    ],
)
def test_an_exclusive_disk_is_used_by_one_pod_of_a_node(
    own: Disk, other: Disk, clash: bool
) -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        pod("o", node="n1", disks=(other,)),
        pod("p", disks=(own,)),
    ]
    simulation = simulation_of(snapshot_of(rows))
    assert refusals(simulation) == ["DISK" if clash else "", ""]
    slot = np.array([slot_of(simulation.snapshot, "o")])
    simulation.remove(slot)
    assert refusals(simulation) == ["", ""]
    simulation.restore(slot)
    assert refusals(simulation) == ["DISK" if clash else "", ""]


def test_a_disk_that_is_mounted_twice_is_shared_only_if_it_is_both_times() -> None:
    shared = Disk("gcePersistentDisk", ("d",), True)
    both = (Disk("gcePersistentDisk", ("d",)), shared)
    for own, other in ((both, (shared,)), ((shared,), both)):
        rows: list[Change] = [node("n1"), pod("o", node="n1", disks=other), pod("p", disks=own)]
        assert refusals(simulation_of(snapshot_of(rows))) == ["DISK"]


def test_a_read_write_once_pod_claim_is_used_by_one_pod_of_the_cluster() -> None:
    own = claim("c", volume="v", access_modes=("ReadWriteOncePod",))
    elsewhere = claim("c", namespace="other", volume="w", access_modes=("ReadWriteOncePod",))
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        own,
        elsewhere,
        volume("v"),
        volume("w"),
        pod("user", node="n1", volumes=uses("c")),
        pod("stranger", namespace="other", node="n2", volumes=uses("c")),
        pod("p", volumes=uses("c")),
    ]
    simulation = simulation_of(snapshot_of(rows))
    assert refusals(simulation) == ["READ_WRITE_ONCE_POD"] * 2
    simulation.remove(np.array([slot_of(simulation.snapshot, "stranger", "other")]))
    assert refusals(simulation) == ["READ_WRITE_ONCE_POD"] * 2
    simulation.remove(np.array([slot_of(simulation.snapshot, "user")]))
    assert refusals(simulation) == ["", ""]


# NodeVolumeLimits.


def _volumes(*names: str) -> list[Entry]:
    """Bound claims with volumes of the driver, of the same names."""
    return [claim(n, volume=n) for n in names] + [
        volume(n, driver=CSI, handle=f"h-{n}") for n in names
    ]


def test_a_node_takes_as_many_volumes_of_a_driver_as_it_says() -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        node("n3"),
        csi_node("n1", csi_example_com=2),
        csi_node("n2", csi_example_com=None),
        *_volumes("a", "b", "c"),
        pod("x", node="n1", volumes=uses("a")),
        pod("y", node="n1", volumes=uses("a")),
        pod("p", volumes=uses("b", "c")),
    ]
    simulation = simulation_of(snapshot_of(rows))
    assert refusals(simulation) == ["VOLUME_LIMIT", "", ""]
    simulation.remove(np.array([slot_of(simulation.snapshot, "x")]))
    assert refusals(simulation) == ["VOLUME_LIMIT", "", ""]
    simulation.remove(np.array([slot_of(simulation.snapshot, "y")]))
    assert refusals(simulation) == ["", "", ""]


def test_a_volume_that_the_node_has_already_is_not_counted_again() -> None:
    rows: list[Change] = [node(), csi_node("n1", csi_example_com=1), *_volumes("a")]
    rows += [pod("x", node="n1", volumes=uses("a")), pod("p", volumes=uses("a"))]
    assert said(rows) == [""]


def test_claims_that_wait_count_for_the_driver_that_will_make_them() -> None:
    rows: list[Change] = [
        node(),
        csi_node("n1", csi_example_com=1),
        storage_class(),
        *_volumes("a"),
    ]
    rows += [claim("new", storage_class="sc"), pod("x", node="n1", volumes=uses("a"))]
    assert said(rows, pod("p", volumes=uses("new"))) == ["VOLUME_LIMIT"]


@pytest.mark.parametrize("simulate", [False, True])
def test_an_attachment_stays_counted_when_its_pods_go_unless_claims_are_simulated(
    simulate: bool,
) -> None:
    rows: list[Change] = [
        node("n1"),
        csi_node("n1", csi_example_com=1),
        *_volumes("a", "b"),
        attachment("a", "n1"),
        pod("x", node="n1", volumes=uses("a")),
        pod("p", volumes=uses("b")),
    ]
    simulation = simulation_of(snapshot_of(rows), simulate_claims=simulate)
    assert refusals(simulation) == ["VOLUME_LIMIT"]
    slot = np.array([slot_of(simulation.snapshot, "x")])
    simulation.remove(slot)
    assert refusals(simulation) == ["" if simulate else "VOLUME_LIMIT"]
    simulation.restore(slot)
    assert refusals(simulation) == ["VOLUME_LIMIT"]


def test_an_attachment_that_nobody_used_stays_counted_even_when_claims_are_simulated() -> None:
    rows: list[Change] = [
        node("n1"),
        csi_node("n1", csi_example_com=1),
        *_volumes("a", "b"),
        attachment("a", "n1"),
    ]
    assert said(rows, pod("p", volumes=uses("b")), simulate_claims=True) == ["VOLUME_LIMIT"]


def test_a_driver_that_must_be_installed_is_named_where_it_is_missing() -> None:
    rows: list[Change] = [
        node("n1"),
        node("n2"),
        csi_node("n1", csi_example_com=9),
        csi_node("n2", other=1),
    ]
    rows += [csi_driver(required=True), *_volumes("a")]
    assert said(rows, pod("p", volumes=uses("a"))) == ["", f"DRIVER_MISSING {CSI}"]


def test_an_in_line_disk_counts_for_the_driver_that_serves_it_now() -> None:
    disk = Disk("cinder", ("disk-1",), shared=True)
    rows: list[Change] = [
        node("n1"),
        csi_node("n1", cinder_csi_openstack_org=0),
        pod("p", disks=(disk,)),
    ]
    assert said(rows) == ["VOLUME_LIMIT"]


# VolumeZone.


@pytest.mark.parametrize(
    ("label", "value", "labels", "passes"),
    [
        (ZONE, "a", {ZONE: "a"}, True),
        (ZONE, "b__a", {ZONE: "a"}, True),
        (ZONE, "b", {ZONE: "a"}, False),
        (ZONE, "b", {}, True),
        (ZONE, "a", {"topology.kubernetes.io/region": "r"}, False),
        ("failure-domain.beta.kubernetes.io/zone", "a", {ZONE: "a"}, True),
        ("failure-domain.beta.kubernetes.io/zone", "b", {ZONE: "a"}, False),
        ("topology.kubernetes.io/region", "r", {"topology.kubernetes.io/region": "r"}, True),
        ("topology.kubernetes.io/region", "s", {"topology.kubernetes.io/region": "r"}, False),
    ],
)
def test_a_bound_volumes_zone_is_the_nodes(
    label: str, value: str, labels: dict[str, str], passes: bool
) -> None:
    rows: list[Change] = [
        node("n1", labels=labels),
        claim(volume="v"),
        volume(labels={label: value}),
    ]
    assert said(rows, pod("p", volumes=uses("c"))) == ["" if passes else "VOLUME_ZONE"]


def test_terms_of_local_volumes_are_found_without_testing_every_node() -> None:
    both = replace(at("n1"), expressions=at("n1").expressions + at("n2").expressions)
    rows: list[Change] = [node("n1"), node("n2"), claim(volume="v"), pod("p", volumes=uses("c"))]
    assert said(rows, volume(node_affinity=(at("n1"), at("n2")))) == ["", ""]
    assert said(rows, volume(node_affinity=(both,))) == ["VOLUME_AFFINITY"] * 2
    assert said(rows, volume(node_affinity=(NodeTerm(),))) == ["VOLUME_AFFINITY"] * 2
    named = NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n2",)),))
    assert said(rows, volume(node_affinity=(named,))) == ["VOLUME_AFFINITY", ""]

"""NodeResourcesFit (specification 16, "NodeResourcesFit in detail", and 21.4)."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.cluster.devices import DeviceClassRow
from reprieve.engine.cluster.rows import Entry, Kind
from reprieve.engine.placement.filters.resources import compile_resources
from reprieve.engine.placement.profile import FilterName, Profile
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.units.ids import Uid
from tests.engine.builders import GIB, GPU, node, pending_of, pod, slot_of
from tests.engine.filters.outcomes import FITS, said, simulation_of, verdicts


@pytest.mark.parametrize(
    ("used", "wanted", "verdict"),
    [
        ({"cpu": 3000}, {"cpu": 1000}, FITS),
        ({"cpu": 3001}, {"cpu": 1000}, "U: Insufficient cpu"),
        ({"cpu": 0}, {"cpu": 4000}, FITS),
        ({"cpu": 0}, {"cpu": 4001}, "X: Insufficient cpu"),
        ({"memory": 8 * GIB}, {"memory": 1}, "U: Insufficient memory"),
        ({"storage": 9}, {"storage": 2}, "U: Insufficient ephemeral-storage"),
        ({"gpus": 8}, {"gpus": 1}, f"U: Insufficient {GPU}"),
        ({"gpus": 7}, {"gpus": 1}, FITS),
        ({"gpus": 0}, {"gpus": 9}, f"X: Insufficient {GPU}"),
        ({}, {"extended": {"example.com/fpga": 1}}, "X: Insufficient example.com/fpga"),
        ({}, {"extended": {"hugepages-2Mi": 1}}, "X: Insufficient hugepages-2Mi"),
    ],
)
def test_one_resource_at_a_time(used: dict[str, Any], wanted: dict[str, Any], verdict: str) -> None:
    rows = (
        node("a", cpu=4000, memory=8 * GIB, gpus=8, storage=10),
        pod("there", node="a", **used),
        pod(**wanted),
    )
    assert verdicts(*rows) == {"a": verdict}


def test_all_reasons_are_given_in_order_and_one_that_is_unresolvable_decides() -> None:
    there = pod("there", node="a", cpu=1, memory=1, storage=1, gpus=1)
    wanted: dict[str, Any] = {"cpu": 10, "memory": 10, "storage": 10, "gpus": 1}
    reasons = (
        f"Too many pods, Insufficient cpu, Insufficient memory, Insufficient ephemeral-storage, "
        f"Insufficient {GPU}"
    )
    offered: dict[str, Any] = {"cpu": 10, "memory": 10, "storage": 10, "gpus": 1, "pods": 1}
    assert verdicts(node("a", **offered), there, pod(**wanted)) == {"a": f"U: {reasons}"}
    offered["memory"] = 9
    assert verdicts(node("a", **offered), there, pod(**wanted)) == {"a": f"X: {reasons}"}


def test_the_number_of_pods_counts_even_without_requests() -> None:
    rows = (
        node("a", pods=1),
        node("b", pods=2),
        node("c", pods=0),
        pod("q", node="a"),
        pod("r", node="b"),
        pod(),
    )
    many = "U: Too many pods"
    assert verdicts(*rows) == {"a": many, "b": FITS, "c": many}


def test_an_over_committed_node_takes_what_asks_for_nothing_that_is_short() -> None:
    there = pod("there", node="a", cpu=9000, memory=GIB)
    nodes = node("a", cpu=4000, memory=2 * GIB)
    assert verdicts(nodes, there, pod()) == {"a": FITS}
    assert verdicts(nodes, there, pod(memory=GIB)) == {"a": FITS}
    assert verdicts(nodes, there, pod(cpu=1)) == {"a": "U: Insufficient cpu"}


def test_a_terminating_pod_still_takes_its_room() -> None:
    there = pod("there", node="a", gpus=8, deleting=True)
    assert verdicts(node("a", gpus=8), there, pod(gpus=1)) == {"a": f"U: Insufficient {GPU}"}


def test_ignored_resources_are_extended_ones() -> None:
    wanted = pod(extended={"example.com/a": 1, "example.org/b": 1, "hugepages-2Mi": 1})
    refused = (
        "X: Insufficient example.com/a, Insufficient example.org/b, Insufficient hugepages-2Mi"
    )
    assert verdicts(node("a"), wanted) == {"a": refused}
    ignored = Profile(
        ignored_resources=frozenset(("example.com/a", "hugepages-2Mi")),
        ignored_resource_groups=frozenset(("example.org", "hugepages-2Mi")),
    )
    assert verdicts(node("a"), wanted, profile=ignored) == {"a": "X: Insufficient hugepages-2Mi"}
    assert verdicts(
        node("a"), pod(cpu=10**6), profile=Profile(ignored_resources=frozenset(("cpu",)))
    ) == {"a": "X: Insufficient cpu"}


def device_class(name: str, resource: str = "") -> Entry:
    row = DeviceClassRow(Uid(f"class-{name}"), name, 1, extended_resource=resource)
    return Entry(Kind.DEVICE_CLASS, row.uid, "", name, 1, row)


def test_a_resource_that_a_device_class_stands_for_is_left_to_devices_where_it_is_not_offered() -> (
    None
):
    rows = (
        node("a", extended={"example.com/gpu": 2}),
        node("b"),
        node("c", extended={"example.com/gpu": 0}),
        node("d", extended={"example.com/gpu": 1}),
        pod(extended={"example.com/gpu": 2}),
    )
    missing = "X: Insufficient example.com/gpu"
    assert verdicts(*rows) == {"a": FITS, "b": missing, "c": missing, "d": missing}
    simulation, snapshot = simulation_of(*rows, device_class("gpu", "example.com/gpu"))
    fit = compile_resources(simulation, pending_of(snapshot, "p"))
    too_small = int(Rejection.RESOURCES_EXCEED_NODE)
    assert fit.codes().tolist() == [0, 0, 0, too_small]
    assert fit.reasons_at(3) == (Reason(Rejection.INSUFFICIENT, "example.com/gpu"),)


def test_the_implicit_resource_of_a_class_is_left_to_devices() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    simulation, snapshot = simulation_of(node("a"), device_class("gpu"), pod(extended={name: 1}))
    assert compile_resources(simulation, pending_of(snapshot, "p")).codes().tolist() == [0]


def test_without_the_device_plugin_nothing_is_left_to_it() -> None:
    rows = (node("a"), device_class("gpu", "example.com/gpu"), pod(extended={"example.com/gpu": 1}))
    fit_only = Profile(filters=(FilterName.NODE_RESOURCES_FIT,))
    assert verdicts(*rows, profile=fit_only) == {"a": "X: Insufficient example.com/gpu"}


def test_room_follows_pods_that_come_and_go() -> None:
    simulation, snapshot = simulation_of(
        node("a", gpus=8), node("b", gpus=8), pod("q", node="a", gpus=6), pod(gpus=4)
    )
    pending = pending_of(snapshot, "p")
    short = f"U: Insufficient {GPU}"
    assert said(simulation, pending) == {"a": short, "b": FITS}
    first = simulation.place(pending, 1)
    second = simulation.place(pending, 1)
    assert said(simulation, pending) == {"a": short, "b": short}
    simulation.unplace(second)
    assert said(simulation, pending) == {"a": short, "b": FITS}
    simulation.unplace(first)
    slots = (snapshot.pod_node >= 0).nonzero()[0]
    simulation.remove(slots)
    assert slots.tolist() == [slot_of(snapshot, "q")]
    assert said(simulation, pending) == {"a": FITS, "b": FITS}
    simulation.restore(slots)
    assert said(simulation, pending) == {"a": short, "b": FITS}

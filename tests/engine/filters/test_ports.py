"""NodePorts (specification 21.2)."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.rows import HostPort
from tests.engine.builders import node, pending_of, pod
from tests.engine.filters.outcomes import FITS, said, simulation_of, verdicts

TAKEN = "U: node(s) didn't have free ports for the requested pod ports"


@pytest.mark.parametrize(
    ("placed", "wanted", "fits"),
    [
        (HostPort(80), HostPort(80), False),
        (HostPort(80), HostPort(81), True),
        (HostPort(80), HostPort(80, "UDP"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80), False),
        (HostPort(80), HostPort(80, "TCP", "10.0.0.1"), False),
        (HostPort(80), HostPort(80, "UDP", "10.0.0.1"), True),
    ],
)
def test_which_ports_clash(placed: HostPort, wanted: HostPort, fits: bool) -> None:
    rows = (
        node("a"),
        node("b"),
        pod("there", node="a", host_ports=(HostPort(9), placed)),
        pod(host_ports=(wanted,)),
    )
    assert verdicts(*rows) == {"a": FITS if fits else TAKEN, "b": FITS}


def test_the_pods_own_ports_are_not_compared_with_each_other() -> None:
    assert verdicts(node("a"), pod(host_ports=(HostPort(80), HostPort(80)))) == {"a": FITS}


def test_a_pod_without_ports_fits_beside_any() -> None:
    assert verdicts(node("a"), pod("there", node="a", host_ports=(HostPort(80),)), pod()) == {
        "a": FITS
    }


def test_a_terminating_pod_still_holds_its_port() -> None:
    there = pod("there", node="a", host_ports=(HostPort(80),), deleting=True)
    assert verdicts(node("a"), there, pod(host_ports=(HostPort(80),))) == {"a": TAKEN}


def test_members_of_a_gang_keep_their_ports_from_each_other() -> None:
    simulation, snapshot = simulation_of(
        node("a"),
        node("b"),
        pod("p", host_ports=(HostPort(80),)),
        pod("q", host_ports=(HostPort(80),)),
    )
    first, second = pending_of(snapshot, "p"), pending_of(snapshot, "q")
    placed = simulation.place(first, 0)
    assert said(simulation, second) == {"a": TAKEN, "b": FITS}
    simulation.unplace(placed)
    assert said(simulation, second) == {"a": FITS, "b": FITS}


def test_a_port_is_free_once_the_last_of_two_holders_has_gone() -> None:
    simulation, snapshot = simulation_of(
        node("a"),
        pod("q", node="a", host_ports=(HostPort(80, "TCP", "10.0.0.1"),)),
        pod("r", node="a", host_ports=(HostPort(80, "TCP", "10.0.0.2"),)),
        pod(host_ports=(HostPort(80),)),
    )
    pending = pending_of(snapshot, "p")
    slots = (snapshot.pod_node >= 0).nonzero()[0]
    assert said(simulation, pending) == {"a": TAKEN}
    simulation.remove(slots[:1])
    assert said(simulation, pending) == {"a": TAKEN}
    simulation.remove(slots[1:])
    assert said(simulation, pending) == {"a": FITS}
    simulation.restore(slots[1:])
    assert said(simulation, pending) == {"a": TAKEN}

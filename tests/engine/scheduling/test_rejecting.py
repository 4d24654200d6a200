"""Whose hints may wake a unit that was not placed (specification 22)."""

from __future__ import annotations

from reprieve.engine.placement.profile import FilterName, Policy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.queueing.events import GANG
from reprieve.engine.scheduling.queueing.rejecting import rejecting_plugins
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import cluster_of, gang, node, pod


def test_members_that_had_a_place_wait_for_their_gang() -> None:
    cluster = cluster_of(node("n1", cpu=2000), gang(3, cpu=1000))
    snapshot = cluster.snapshot()
    unit = Unit(tuple(sorted(snapshot.pending)), "default/g")
    attempt = Session(snapshot, Policy()).attempt(unit)
    assert attempt is not None
    assert rejecting_plugins(attempt) == {
        "pod-g-0": {GANG},
        "pod-g-1": {GANG},
        "pod-g-2": {str(FilterName.NODE_RESOURCES_FIT)},
    }


def test_a_plain_pod_waits_for_the_filters_that_refused_it() -> None:
    snapshot = cluster_of(
        node("n1", cpu=500), node("n2", cpu=2000, taints=("k:NoSchedule",)), pod("p", cpu=1000)
    ).snapshot()
    attempt = Session(snapshot, Policy()).attempt(Unit(tuple(snapshot.pending)))
    assert attempt is not None
    names = {str(FilterName.NODE_RESOURCES_FIT), str(FilterName.TAINT_TOLERATION)}
    assert rejecting_plugins(attempt) == {"pod-p": names}

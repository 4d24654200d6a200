"""The first list of a kind goes on page by page; later lists replace what is known as one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import VirtualClock
from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.cluster import Cluster, NotSynced
from reprieve.engine.cluster.rows import Kind
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.queueing.queue import Queue
from reprieve.planes.scheduling.kinds import kinds
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.watches import _Sink


def pod(name: str, version: int) -> PodObject:
    metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": str(version)}
    spec = {"schedulerName": "ours", "containers": [{"name": "c"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodObject)


class State(ClusterState):
    """One that knows no device classes."""

    def device_class(self, resource: str) -> str:
        return ""


def listening() -> tuple[ClusterState, _Sink[Any], asyncio.Event]:
    state = State(
        Cluster((Kind.POD,), validate=True), VirtualClock(), frozenset({"ours"}), lambda: None
    )
    state.queue = Queue(state, groups=True)
    watched = next(each for each in kinds(Policy()) if each.kind is Kind.POD)
    listed = asyncio.Event()
    context: Any = None  # asked where an object cannot be read
    return state, _Sink(context, watched, state, listed), listed


def names(state: ClusterState) -> list[str]:
    return sorted(row.name for row in state.pods())


def test_pages_of_the_first_list_count_as_they_come_and_what_a_broken_attempt_left_ends() -> None:
    state, sink, listed = listening()
    sink.received([pod("gone", 1), pod("stays", 1)])  # and the second page fails
    assert names(state) == ["gone", "stays"]
    kept = sink.received([pod("stays", 1)]) + sink.received([pod("new", 3)])
    assert kept == ["stays", "new"]  # nothing else of them waits for the end of the list
    with pytest.raises(NotSynced):
        state.cluster.snapshot()
    assert not listed.is_set()
    sink.replaced(kept, "9")
    assert listed.is_set()
    assert names(state) == ["new", "stays"]
    assert sorted(state.cluster.snapshot().pending) == ["new", "stays"]


def test_a_later_list_is_taken_in_as_one() -> None:
    state, sink, _ = listening()
    sink.replaced(sink.received([pod("old", 1)]), "1")
    page = sink.received([pod("new", 2)])
    assert names(state) == ["old"]
    sink.replaced(page, "2")
    assert names(state) == ["new"]
    assert list(state.cluster.snapshot().pending) == ["new"]


def test_a_kind_that_may_be_absent_is_taken_in_as_one_from_the_first() -> None:
    state, _, listed = listening()
    watched = next(each for each in kinds(Policy()) if each.kind is Kind.BUDGET)
    context: Any = None
    sink = _Sink(context, watched, state, listed)
    budget = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "a", "uid": "u"}}, watched.type
    )
    page = sink.received([budget])
    state.replace(Kind.BUDGET, [])  # not served, for all that is known
    listed.set()
    sink.replaced(page, "1")
    state.cluster.replace(Kind.POD, [])
    assert [row.name for row in state.cluster.snapshot().budgets] == ["b"]

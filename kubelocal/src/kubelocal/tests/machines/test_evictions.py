"""EvictionRequests become Evictions, whose responders have their turns one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubelocal.machines.objects import Object, Refused
from kubelocal.tests.machines.cluster import pod
from kubelocal.tests.machines.test_embedded import Embedded

REQUESTS = "evictionrequests.lifecycle.k8s.io"
EVICTIONS = "evictions.lifecycle.k8s.io"
FIRST, SECOND_ONE = "b.example.com/first", "a.example.com/second"


@asynccontextmanager
async def cluster(*responders: tuple[str, int]) -> AsyncIterator[Embedded]:
    """A pod that names these responders runs."""
    embedded = Embedded(feature_gates={"EvictionRequestAPI": True})
    named = [{"name": name, "priority": priority} for name, priority in responders]
    async with embedded.cluster:
        await embedded.machines.start()
        try:
            await embedded.create(pod("a", evictionResponders=named))
            await embedded.wait(5)
            yield embedded
        finally:
            await embedded.machines.stop()


async def requested(embedded: Embedded, name: str = "r", **spec: Any) -> Object:
    (target,) = embedded.machines.informer.all("pods")
    pod_of = {"name": "a", "uid": target["metadata"]["uid"]}
    request = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "target": {"pod": pod_of},
            "requester": "acme.io/drain",
            "intent": "Eviction",
            **spec,
        },
    }
    found = await embedded.objects.create(REQUESTS, request)
    await embedded.wait(2)
    return found


def turns(embedded: Embedded) -> list[tuple[str, str]]:
    (eviction,) = embedded.machines.informer.all(EVICTIONS)
    return [(each["name"], each["state"]) for each in eviction["status"]["targetResponders"]]


def conditions(obj: Object) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in obj["status"]["conditions"]}


async def said(embedded: Embedded, name: str, **words: str) -> None:
    (eviction,) = embedded.machines.informer.all(EVICTIONS)
    reports = [
        {**each, **words} if each["name"] == name else each
        for each in eviction["status"]["responders"]
    ]
    changed = {**eviction, "status": {**eviction["status"], "responders": reports}}
    await embedded.objects.update(EVICTIONS, changed, subresource="status")
    await embedded.wait(2)


async def test_responders_have_their_turns_by_priority_and_the_last_one_evicts() -> None:
    async with cluster((SECOND_ONE, 1_000), (FIRST, 2_000)) as embedded:
        await requested(embedded)
        assert turns(embedded) == [
            (FIRST, "Active"),
            (SECOND_ONE, "Inactive"),
            ("imperative-eviction.k8s.io/evictor", "Inactive"),
        ]
        (request,) = embedded.machines.informer.all(REQUESTS)
        assert conditions(request)["TargetEvicted"] == ("False", "AwaitingEviction")
        await said(embedded, FIRST, completionTime="2030-01-01T00:00:00Z")
        assert turns(embedded)[:2] == [(FIRST, "Completed"), (SECOND_ONE, "Active")]
        assert embedded.phases() == {"a": "Running"}
        await embedded.wait(21 * 60)
        assert turns(embedded)[1] == (SECOND_ONE, "Interrupted"), "20 minutes without a heartbeat"
        await embedded.wait(60)
        assert embedded.phases() == {}
        (request,) = embedded.machines.informer.all(REQUESTS)
        assert conditions(request) == {
            "TargetEvicted": ("True", "PodTerminal"),
            "Failed": ("False", "Succeeded"),
        }


async def test_an_eviction_that_nobody_requests_any_more_is_canceled() -> None:
    async with cluster((FIRST, 2_000)) as embedded:
        request = await requested(embedded)
        await requested(embedded, "s", requester="acme.io/other")
        stored = await embedded.objects.get(REQUESTS, "default", "r")
        assert stored is not None
        changed = {**stored, "spec": {**request["spec"], "intent": "Withdrawn"}}
        await embedded.objects.update(REQUESTS, changed)
        await embedded.wait(2)
        assert turns(embedded)[0] == (FIRST, "Active"), "the other one still wants it"
        await embedded.objects.delete(REQUESTS, "default", "s")
        await embedded.wait(2)
        assert [state for _, state in turns(embedded)] == ["Canceled", "Inactive"]
        await embedded.objects.delete(REQUESTS, "default", "r")
        await embedded.wait(2)
        assert list(embedded.machines.informer.all(EVICTIONS)) == []
        assert embedded.phases() == {"a": "Running"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"requester": "drain"}, "must include a prefix"),
        ({"requester": "x.k8s.io/drain"}, "are reserved"),
        ({"target": {}}, "must specify one of: `pod`"),
        ({"intent": "Perhaps"}, "supported values"),
    ],
)
async def test_a_request_that_a_real_server_refuses_is_refused(
    spec: dict[str, Any], words: str
) -> None:
    async with cluster((FIRST, 2_000)) as embedded:
        with pytest.raises(Refused, match=words):
            await requested(embedded, **spec)


async def test_a_responder_says_nothing_out_of_its_turn_nor_of_an_earlier_time() -> None:
    async with cluster((FIRST, 2_000)) as embedded:
        await requested(embedded)
        await said(embedded, FIRST, heartbeatTime="2030-01-01T00:01:00Z")
        with pytest.raises(Refused, match="cannot be decreased"):
            await said(embedded, FIRST, heartbeatTime="2030-01-01T00:00:00Z")
        with pytest.raises(Refused, match="field is immutable"):
            await said(embedded, "imperative-eviction.k8s.io/evictor", message="not yet")
        with pytest.raises(Refused, match="must occur after"):
            await said(embedded, FIRST, expectedCompletionTime="2000-01-01T00:00:00Z")


async def test_a_member_of_a_group_names_no_responder() -> None:
    async with cluster((FIRST, 2_000)) as embedded:
        named = [{"name": FIRST, "priority": 1}]
        member = pod("b", evictionResponders=named, schedulingGroup={"podGroupName": "g"})
        with pytest.raises(Refused, match="may not be set when evictionResponders is set"):
            await embedded.create(member)


async def test_without_the_gate_neither_kinds_nor_the_field_exist() -> None:
    embedded = Embedded()
    async with embedded.cluster:
        await embedded.machines.start()
        try:
            await embedded.create(pod("a", evictionResponders=[{"name": FIRST, "priority": 1}]))
            (stored,) = embedded.machines.informer.all("pods")
            assert "evictionResponders" not in stored["spec"]
            assert embedded.objects.resource_of("lifecycle.k8s.io/v1alpha1", "Eviction") is None
        finally:
            await embedded.machines.stop()

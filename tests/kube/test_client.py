"""What each verb sends, and how answers are decoded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.api.core import ObjectMeta
from reprieve.kube.bodies import PatchType, Propagation
from reprieve.kube.errors import AlreadyExists, Conflict, Expired, NotFound, Undecodable
from reprieve.kube.objects import PartialObject, identity_of
from reprieve.kube.outline import Part, part, parts
from reprieve.kube.resource import GPU_WORKLOADS, NODES, PODS, Resource
from reprieve.kube.writes import Priority, WriteGate
from tests.kube.fakes import (
    Collection,
    FakeAnswer,
    FakeWire,
    client_over,
    list_body,
    pod,
    refusal,
    scripted,
    status,
)

JOBS = Resource("batch", "v1", "jobs", "Job")


class Spec(msgspec.Struct):
    replicas: int = 0


class Thing(msgspec.Struct):
    metadata: ObjectMeta
    spec: Spec = msgspec.field(default_factory=Spec)


def _sent(wire: FakeWire) -> tuple[str, str, dict[str, str], Any]:
    request = wire.requests[-1]
    return (
        request.method,
        request.path,
        dict(request.query),
        json.loads(request.body) if request.body else None,
    )


def test_paths_are_where_the_api_keeps_the_kinds() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("a", "b", "status") == "/api/v1/namespaces/a/pods/b/status"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert GPU_WORKLOADS.path("a") == "/apis/kaiwo.silogen.ai/v1alpha1/namespaces/a/gpuworkloads"
    assert JOBS.qualified == "jobs.batch"
    assert JOBS.path("a", "b/../c") == "/apis/batch/v1/namespaces/a/jobs/b%2F..%2Fc"
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path(name="b")


async def test_get_decodes_into_the_fields_in_use() -> None:
    client = client_over(scripted(FakeAnswer(body=pod("a", version=7, replicas=3, other="x"))))
    thing = await client.get(PODS, "work", "a", Thing)
    assert (thing.metadata.name, thing.metadata.resource_version, thing.spec.replicas) == (
        "a",
        "7",
        3,
    )


async def test_an_answer_of_another_shape_says_which_field() -> None:
    client = client_over(scripted(FakeAnswer(body=pod("a", replicas="many"))))
    with pytest.raises(Undecodable, match=r"get pods work/a: .*\$\.spec\.replicas"):
        await client.get(PODS, "work", "a", Thing)


async def test_lists_come_in_pages_of_500() -> None:
    wire = scripted(
        FakeAnswer(body=list_body([pod("a")], 50, "next")),
        FakeAnswer(body=list_body([pod("b")], 50)),
    )
    page = await client_over(wire).list(PODS, dict, namespace="work", label_selector="a=b")
    assert [item["metadata"]["name"] for item in page.items] == ["a", "b"]
    assert page.resource_version == "50"
    assert [dict(request.query) for request in wire.requests] == [
        {"labelSelector": "a=b", "limit": "500"},
        {"labelSelector": "a=b", "limit": "500", "continue": "next"},
    ]


async def test_a_list_can_be_asked_for_not_older_than_a_version() -> None:
    wire = scripted(FakeAnswer(body=list_body([], 50)))
    async for _ in client_over(wire).list_pages(PODS, dict, resource_version="40"):
        pass
    assert dict(wire.requests[0].query) == {
        "limit": "500",
        "resourceVersion": "40",
        "resourceVersionMatch": "NotOlderThan",
    }


@pytest.mark.parametrize("kind", [dict, Thing], ids=["dict", "struct"])
async def test_a_page_in_parts_has_the_same_objects_in_their_order(kind: type[Any]) -> None:
    names = ["a", "b", "c", "d", "e"]
    wire = scripted(
        FakeAnswer(body=list_body([pod(name) for name in names], 50, token="next")),
        FakeAnswer(body=list_body([], 50)),
    )
    pages = [page async for page in client_over(wire).list_pages(PODS, kind, together=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1, 0]
    assert {page.resource_version for page in pages} == {"50"}
    found = [identity_of(each).name for page in pages for each in page.items]
    assert found == names
    assert len(wire.requests) == 2


async def test_a_bad_object_is_skipped_in_parts_of_a_page_too() -> None:
    body = list_body([pod("a"), pod("b", replicas="many"), pod("c")], 50)
    skipped: list[Undecodable] = []
    parts = client_over(scripted(FakeAnswer(body=body))).list_pages(
        PODS, Thing, together=2, skipped=skipped.append
    )
    assert [[each.metadata.name for each in page.items] async for page in parts] == [["a"], ["c"]]
    [told] = skipped
    assert "work/b is skipped" in str(told)


async def test_one_bad_object_does_not_cost_the_others_of_its_page() -> None:
    body = list_body([pod("a"), pod("b", replicas="many"), pod("c")], 50)
    wire = scripted(FakeAnswer(body=body), FakeAnswer(body=body))
    skipped: list[Undecodable] = []
    page = await client_over(wire).list(PODS, Thing, skipped=skipped.append)
    assert [thing.metadata.name for thing in page.items] == ["a", "c"]
    assert len(skipped) == 1
    assert "work/b is skipped" in str(skipped[0])
    with pytest.raises(Undecodable):
        await client_over(wire).list(PODS, Thing)


def deep(name: str, levels: int, version: int = 1) -> bytes:
    """Return a stored object whose field of any type is nested so deeply."""
    whole = {**pod(name, version=version), "any": "here"}
    return json.dumps(whole).encode().replace(b'"here"', b"[" * levels + b"]" * levels)


@pytest.mark.parametrize("kind", [Thing, dict])
@pytest.mark.parametrize("levels", [20_000, 100_000])
async def test_an_object_that_is_nested_too_deeply_does_not_cost_the_others_of_its_list(
    kind: type[Any], levels: int
) -> None:
    items = (json.dumps(pod("a")).encode(), deep("b", levels), json.dumps(pod("c")).encode())
    body = b'{"metadata": {"resourceVersion": "50"}, "items": [%s, %s, %s]}' % items
    skipped: list[Undecodable] = []
    wire = scripted(FakeAnswer(body=body))
    page = await client_over(wire).list(PODS, kind, skipped=skipped.append)
    assert [identity_of(thing).name for thing in page.items] == ["a", "c"]
    assert page.resource_version == "50"
    [told] = skipped
    assert "work/b is skipped: maximum recursion depth exceeded" in str(told)


@pytest.mark.parametrize("kind", [Thing, dict])
async def test_a_watch_goes_on_after_such_an_object_and_tells_that_it_is_gone(
    kind: type[Any],
) -> None:
    lines = (
        b'{"type":"ADDED","object":%s}' % deep("b", 20_000, 51),
        json.dumps({"type": "MODIFIED", "object": pod("a", version=52)}).encode(),
        b'{"object":%s,"type":"DELETED"}' % deep("b", 20_000, 53),
    )
    skipped: list[Undecodable] = []
    events = [
        event
        async for event in client_over(scripted(FakeAnswer(body=b"\n".join(lines)))).watch(
            PODS, kind, resource_version="50", skipped=skipped.append
        )
    ]
    assert [(each.type, identity_of(each.object).name) for each in events] == [
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]
    assert [each.resource_version for each in events] == ["52", "53"]
    [told] = skipped
    assert "work/b is skipped" in str(told)


async def test_a_watch_goes_on_after_an_object_of_other_types() -> None:
    odd = {**pod("b", version=51), "metadata": {**pod("b")["metadata"], "labels": "none"}}
    lines = [
        {"type": "ADDED", "object": odd},
        {"type": "MODIFIED", "object": pod("a", version=52)},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    skipped: list[Undecodable] = []
    events = [
        event
        async for event in client_over(scripted(FakeAnswer(body=body))).watch(
            PODS, PartialObject, resource_version="50", skipped=skipped.append
        )
    ]
    assert [event.resource_version for event in events] == ["52"]
    [told] = skipped
    assert "work/b is skipped: Expected `object | null`, got `str`" in str(told)


async def test_watches_ask_for_bookmarks_and_yield_events() -> None:
    lines = [
        {"type": "ADDED", "object": pod("a", version=51)},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "60"}}},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    wire = scripted(FakeAnswer(body=body))
    events = [e async for e in client_over(wire).watch(PODS, Thing, resource_version="50")]
    assert [(e.type, e.resource_version, e.object is None) for e in events] == [
        ("ADDED", "51", False),
        ("BOOKMARK", "60", True),
    ]
    assert dict(wire.requests[0].query) == {
        "watch": "true",
        "resourceVersion": "50",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
    }


async def test_an_error_inside_a_watch_is_raised() -> None:
    line = json.dumps({"type": "ERROR", "object": status(410, "Expired", "too old")}).encode()
    with pytest.raises(Expired, match="too old"):
        async for _ in client_over(scripted(FakeAnswer(body=line))).watch(
            PODS, Thing, resource_version="1"
        ):
            pass


async def test_create_fills_in_the_kind_and_names_the_author() -> None:
    wire = scripted(FakeAnswer(201, pod("a")), refusal(409, "AlreadyExists"))
    client = client_over(wire)
    await client.create(JOBS, {"metadata": {"name": "a", "namespace": "work"}}, dict)
    assert _sent(wire) == (
        "POST",
        "/apis/batch/v1/namespaces/work/jobs",
        {"fieldManager": "reprieve"},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "work"}},
    )
    with pytest.raises(AlreadyExists):
        await client.create(JOBS, {"metadata": {"name": "a", "namespace": "work"}}, dict)


@pytest.mark.parametrize("patch_type", list(PatchType))
async def test_patches_of_all_four_types_reach_the_subresource(patch_type: PatchType) -> None:
    wire = scripted(FakeAnswer(body=pod("a")))
    await client_over(wire).patch(
        PODS, "work", "a", {"status": {}}, dict, patch_type=patch_type, subresource="status"
    )
    assert wire.requests[0].content_type == patch_type.value
    assert wire.requests[0].path == "/api/v1/namespaces/work/pods/a/status"


async def test_apply_is_server_side_and_can_force() -> None:
    wire = scripted(FakeAnswer(body=pod("a")))
    await client_over(wire).apply(NODES, {"metadata": {"name": "n"}}, dict, force=True)
    assert _sent(wire) == (
        "PATCH",
        "/api/v1/nodes/n",
        {"fieldManager": "reprieve", "force": "true"},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
    )
    assert wire.requests[0].content_type == "application/apply-patch+yaml"


async def test_delete_carries_both_preconditions() -> None:
    wire = scripted(FakeAnswer(), refusal(404, "NotFound"), refusal(409, "Conflict"))
    client = client_over(wire)
    await client.delete(
        JOBS,
        "work",
        "a",
        uid="u",
        resource_version="5",
        propagation=Propagation.BACKGROUND,
        grace_seconds=0,
    )
    assert _sent(wire) == (
        "DELETE",
        "/apis/batch/v1/namespaces/work/jobs/a",
        {},
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "5"},
            "propagationPolicy": "Background",
            "gracePeriodSeconds": 0,
        },
    )
    with pytest.raises(NotFound):
        await client.delete(JOBS, "work", "a")
    with pytest.raises(Conflict):
        await client.delete(JOBS, "work", "a", uid="u")


async def test_evict_bind_and_scale_go_to_their_subresources() -> None:
    wire = scripted(*[FakeAnswer(body={"spec": {"replicas": 2}})] * 4)
    client = client_over(wire)
    await client.evict("work", "a", uid="u", grace_seconds=5)
    assert _sent(wire)[1:] == (
        "/api/v1/namespaces/work/pods/a/eviction",
        {},
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "a", "namespace": "work"},
            "deleteOptions": {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5},
        },
    )
    await client.bind("work", "a", "node-1", uid="u")
    assert _sent(wire)[3]["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    assert _sent(wire)[3]["metadata"]["uid"] == "u"
    assert (await client.get_scale(JOBS, "work", "a"))["spec"]["replicas"] == 2
    await client.patch_scale(JOBS, "work", "a", 0, resource_version="9")
    assert _sent(wire)[1::2] == (
        "/apis/batch/v1/namespaces/work/jobs/a/scale",
        {"spec": {"replicas": 0}, "metadata": {"resourceVersion": "9"}},
    )


async def test_modify_reads_and_judges_again_after_a_conflict() -> None:
    jobs = Collection(JOBS)
    jobs.put(pod("a", replicas=1))
    clock = VirtualClock()
    client = client_over(FakeWire(jobs.handle), clock)
    seen = []

    def change(obj: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(obj["spec"]["replicas"])
        if len(seen) == 1:
            jobs.put({**obj, "spec": {"replicas": 5}})
        return {**obj, "spec": {"replicas": obj["spec"]["replicas"] + 1}}

    task = asyncio.ensure_future(client.modify(JOBS, "work", "a", change))
    while not task.done():
        await clock.advance(SECOND)
    assert seen == [1, 5]
    assert jobs.objects["work", "a"]["spec"]["replicas"] == 6
    assert await client.modify(JOBS, "work", "a", lambda obj: None) is None


async def test_modify_gives_up_when_others_are_always_faster() -> None:
    wire = FakeWire(
        lambda request: (
            FakeAnswer(body=pod("a"))
            if request.method == "GET"
            else refusal(409, "Conflict", "stale")
        )
    )
    clock = VirtualClock()
    task = asyncio.ensure_future(
        client_over(wire, clock).modify(JOBS, "work", "a", lambda obj: obj, attempts=3)
    )
    while not task.done():
        await clock.advance(SECOND)
    with pytest.raises(Conflict, match="stale"):
        task.result()
    assert [request.method for request in wire.requests] == ["GET", "PUT"] * 3


async def test_writes_wait_at_the_gate_and_the_fence_is_asked_after_the_wait() -> None:
    gate = WriteGate(1)
    wire = scripted(FakeAnswer(body=pod("a")))
    asked: list[int] = []
    client = client_over(wire, gate=gate).at(Priority.EVICT, lambda: asked.append(gate.waiting))
    async with gate.turn(Priority.STATUS):
        write = asyncio.ensure_future(client.delete(PODS, "work", "a"))
        await asyncio.sleep(0)
        assert asked == []
        assert wire.requests == []
    await write
    assert asked == [0]
    assert len(wire.requests) == 1


async def test_a_write_that_waits_for_its_next_attempt_lets_others_through() -> None:
    gate = WriteGate(1)
    clock = VirtualClock()
    wire = scripted(refusal(503), FakeAnswer(body=pod("b")), FakeAnswer(body=pod("a")))
    client = client_over(wire, clock, gate=gate)
    retried = asyncio.ensure_future(client.apply(PODS, pod("a"), dict))
    await clock.advance(0)
    await client.apply(PODS, pod("b"), dict)
    assert not retried.done()
    await clock.advance(SECOND)
    assert (await retried)["metadata"]["name"] == "a"


def test_parts_are_the_members_of_the_outermost_value() -> None:
    text = rb' { "a\"": [1, {"b": "]"}] , "c":{}, "d" : "x,\\", "e": -1.5e3 } '
    assert list(parts(text)) == [
        Part(rb"a\"", b'[1, {"b": "]"}]'),
        Part(b"c", b"{}"),
        Part(b"d", rb'"x,\\"'),
        Part(b"e", b"-1.5e3"),
    ]
    assert [each.text for each in parts(b'["a:b", [], 1]')] == [b'"a:b"', b"[]", b"1"]
    assert list(parts(b"[]")) == list(parts(b"{ }")) == list(parts(b"7")) == list(parts(b"")) == []
    assert part(text, rb"a\"") == b'[1, {"b": "]"}]'
    # Also where a text is longer than what is looked at together.
    for length in range(2**20 - 20, 2**20 + 2):
        long = rb'{"k\"' + b"x" * (length - 8) + rb'\\]":[1],"b":{"c":"\\"}}'
        assert [each.text for each in parts(long)] == [b"[1]", rb'{"c":"\\"}']
    assert part(text, b"c", b"nothing") == part(text, b"nothing") == b""

"""Several versions of one custom kind, converted by a webhook wherever versions meet."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubelocal.tests.server.builders import Client, definition, seen
from kubelocal.tests.server.webhook import Webhook, serving

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD = "/apis/example.com/v1beta1/namespaces/default/tasks"
NEW = "/apis/example.com/v1/namespaces/default/tasks"
MERGE = "application/merge-patch+json"


async def convert(request: dict[str, Any]) -> dict[str, Any]:
    """`spec.count` of v1beta1 is `spec.replicas` of v1."""
    wanted = request["desiredAPIVersion"]
    names = ("count", "replicas") if wanted.endswith("/v1") else ("replicas", "count")
    converted = []
    for one in request["objects"]:
        new = copy.deepcopy(one)
        new["apiVersion"] = wanted
        if names[0] in new.get("spec", {}):
            new["spec"][names[1]] = new["spec"].pop(names[0])
        converted.append(new)
    return {"convertedObjects": converted, "result": {"status": "Success"}}


async def refuse(request: dict[str, Any]) -> dict[str, Any]:
    return {"convertedObjects": [], "result": {"status": "Failure", "message": "no idea"}}


def two_versions(hook: Webhook) -> dict[str, Any]:
    crd = definition()
    (new,) = crd["spec"]["versions"]
    old = copy.deepcopy(new)
    old |= {"name": "v1beta1", "storage": False}
    properties = old["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["count"] = {"type": "integer"}
    del properties["replicas"]
    old["subresources"]["scale"]["specReplicasPath"] = ".spec.count"
    crd["spec"]["versions"] = [old, new]
    crd["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": hook.config, "conversionReviewVersions": ["v1"]},
    }
    return crd


def task(version: str, name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Task",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.fixture
async def hook(client: Client) -> AsyncIterator[Webhook]:
    async with serving(convert) as running:
        await client.create(DEFINITIONS, two_versions(running))
        yield running


async def test_each_version_reads_what_the_other_wrote(client: Client, hook: Webhook) -> None:
    made = await client.create(OLD, task("v1beta1", "a", count=3))
    await client.create(NEW, task("v1", "b", replicas=5))
    old, new = await client.get(OLD), await client.get(NEW)
    one = await client.get(f"{OLD}/b")

    assert (made["apiVersion"], made["spec"]) == ("example.com/v1beta1", {"count": 3})
    assert [item["spec"] for item in old["items"]] == [{"count": 3}, {"count": 5}]
    assert [item["spec"] for item in new["items"]] == [{"replicas": 3}, {"replicas": 5}]
    assert (one["apiVersion"], one["spec"]) == ("example.com/v1beta1", {"count": 5})
    assert made["metadata"] == old["items"][0]["metadata"]


async def test_a_list_is_converted_with_one_question(client: Client, hook: Webhook) -> None:
    for name in "abc":
        await client.create(NEW, task("v1", name, replicas=1))
    before = len(hook.asked)
    await client.get(OLD)
    await client.get(NEW)

    assert [len(asked["objects"]) for asked in hook.asked[before:]] == [3]


async def test_writes_in_another_version_than_the_kept_one(client: Client, hook: Webhook) -> None:
    made = await client.create(OLD, task("v1beta1", count=1))
    merged = await client.merge(f"{OLD}/a", {"spec": {"count": 2}})
    put = {**merged, "spec": {"count": 3}}
    code, replaced = await client.request("PUT", f"{OLD}/a", put)
    stale, _ = await client.request("PUT", f"{OLD}/a", {**made, "spec": {"count": 9}})
    _, status = await client.request("PATCH", f"{OLD}/a/status", {"status": {"replicas": 1}}, MERGE)
    _, scale = await client.request("PATCH", f"{OLD}/a/scale", {"spec": {"replicas": 4}}, MERGE)
    stored = await client.get(f"{NEW}/a")

    assert (merged["spec"], code, replaced["spec"], stale) == ({"count": 2}, 200, {"count": 3}, 409)
    assert (status["spec"], status["status"]) == ({"count": 3}, {"replicas": 1})
    assert scale["spec"] == {"replicas": 4}
    assert (stored["spec"], stored["status"]) == ({"replicas": 4}, {"replicas": 1})
    assert stored["metadata"]["generation"] == 4


async def test_server_side_apply_in_another_version(client: Client, hook: Webhook) -> None:
    first, _ = await client.apply(f"{OLD}/a", task("v1beta1", count=1), "me")
    again, changed = await client.apply(f"{OLD}/a", task("v1beta1", count=2), "me")
    stored = await client.get(f"{NEW}/a")

    assert (first, again, changed["spec"]) == (201, 200, {"count": 2})
    assert stored["spec"] == {"replicas": 2}


async def test_watches_show_their_own_version(client: Client, hook: Webhook) -> None:
    await client.create(NEW, task("v1", "a", replicas=1))
    old, new = await client.watch(OLD), await client.watch(NEW)
    await client.create(OLD, task("v1beta1", "b", count=2))
    await client.request("DELETE", f"{NEW}/a")
    in_old, in_new = await old.take(3), await new.take(3)
    old.close()
    new.close()

    assert seen(in_old) == seen(in_new) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert [event["object"]["spec"] for event in in_old] == [
        {"count": 1},
        {"count": 2},
        {"count": 1},
    ]
    assert [event["object"]["spec"] for event in in_new] == [
        {"replicas": 1},
        {"replicas": 2},
        {"replicas": 1},
    ]


async def test_a_webhook_that_fails_is_named_and_nothing_is_lost(
    client: Client, hook: Webhook
) -> None:
    await client.create(NEW, task("v1", "a", replicas=1))
    hook.answer = refuse
    answers = [
        await client.request("GET", f"{OLD}/a"),
        await client.request("GET", OLD),
        await client.request("POST", OLD, task("v1beta1", "b", count=1)),
    ]
    watch = await client.watch(OLD, resourceVersion="1")
    (error,) = await watch.rest()
    kept = await client.get(NEW)
    space, _ = await client.request("DELETE", f"{NEW}/a")

    assert [(code, body["message"]) for code, body in answers] == [
        (500, "conversion webhook for example.com/v1, Kind=Task failed: no idea"),
        (500, "conversion webhook for example.com/v1, Kind=Task failed: no idea"),
        (500, "conversion webhook for example.com/v1beta1, Kind=Task failed: no idea"),
    ]
    assert (error["type"], error["object"]["code"]) == ("ERROR", 500)
    assert ([one["spec"] for one in kept["items"]], space) == ([{"replicas": 1}], 200)

"""JSON, merge and strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.server.builders import CONFIG_MAPS, Client, config_map, definition, task

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TASKS = "/apis/example.com/v1/namespaces/default/tasks"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"


def deployment(*containers: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": one, "image": one} for one in containers]},
            },
        },
    }


def in_containers(*items: dict[str, Any], **directives: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(items), **directives}}}}


def containers(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (one["name"], one.get("image", "")) for one in obj["spec"]["template"]["spec"]["containers"]
    ]


@pytest.mark.parametrize(
    ("content_type", "patch", "message"),
    [
        (
            "application/merge-patch+json",
            [],
            (
                "error decoding patch: json: cannot unmarshal array into Go value of type "
                "map[string]interface {}"
            ),
        ),
        (
            STRATEGIC,
            "x",
            "json: cannot unmarshal string into Go value of type map[string]interface {}",
        ),
        (
            JSON,
            {"op": "remove"},
            (
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]handlers.jsonPatchOp"
            ),
        ),
        (
            STRATEGIC,
            in_containers({"image": "x", "args": ["a", "b"], "tty": True}),
            "map: map[args:[a b] image:x tty:true] does not contain declared merge key: name",
        ),
    ],
)
async def test_what_is_no_patch_is_named_as_a_real_server_does(
    client: Client, content_type: str, patch: Any, message: str
) -> None:
    await client.create(DEPLOYMENTS, deployment("a"))
    code, status = await client.request("PATCH", f"{DEPLOYMENTS}/d", patch, content_type)
    assert (code, status["message"]) == (400, message)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (in_containers({"name": "b", "image": "new"}), [("a", "a"), ("b", "new")]),
        (in_containers({"name": "c", "image": "c"}), [("c", "c"), ("a", "a"), ("b", "b")]),
        (in_containers({"name": "a", "$patch": "delete"}), [("b", "b")]),
        (in_containers({"$patch": "replace"}, {"name": "z", "image": "z"}), [("z", "z")]),
        (
            in_containers(
                {"name": "c", "image": "c"},
                **{"$setElementOrder/containers": [{"name": n} for n in ("c", "b", "a")]},
            ),
            [("c", "c"), ("b", "b"), ("a", "a")],
        ),
    ],
)
async def test_strategic_merge_goes_item_by_item(
    client: Client, patch: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    await client.create(DEPLOYMENTS, deployment("a", "b"))

    code, patched = await client.request("PATCH", f"{DEPLOYMENTS}/d", patch, STRATEGIC)

    assert (code, containers(patched)) == (200, expected)


async def test_a_merge_patch_replaces_lists_as_a_whole(client: Client) -> None:
    await client.create(DEPLOYMENTS, deployment("a", "b"))

    patched = await client.merge(f"{DEPLOYMENTS}/d", in_containers({"name": "z", "image": "z"}))

    assert containers(patched) == [("z", "z")]


async def test_a_merge_patch_removes_what_it_sets_to_null(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", x="1", y="2"))

    patched = await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": None, "z": "3"}})

    assert patched["data"] == {"y": "2", "z": "3"}


async def test_a_json_patch_applies_whole_or_not_at_all(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", x="1"))
    add = {"op": "add", "path": "/data/y", "value": "2"}
    good, patched = await client.request("PATCH", f"{CONFIG_MAPS}/a", [add], JSON)
    failing = [
        {"op": "add", "path": "/data/z", "value": "3"},
        {"op": "test", "path": "/data/x", "value": "7"},
    ]
    bad, status = await client.request("PATCH", f"{CONFIG_MAPS}/a", failing, JSON)

    assert (good, patched["data"]) == (200, {"x": "1", "y": "2"})
    assert (bad, status["reason"]) == (422, "Invalid")
    assert (await client.get(f"{CONFIG_MAPS}/a"))["data"] == {"x": "1", "y": "2"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"data":', "application/merge-patch+json"),
        (b"[1]", "application/merge-patch+json"),
        (b'{"op":"remove"}', JSON),
        (b'[{"op":"nosuch","path":"/a"}]', JSON),
        (b'[{"op":"add","path":5}]', JSON),
        (b"[7]", JSON),
        (b'{"metadata":7}', "application/merge-patch+json"),
        (b'{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}', STRATEGIC),
        (b'{"spec":{"template":{"spec":{"containers":[7]}}}}', STRATEGIC),
        (b'{"metadata":{"$patch":"nosuch"}}', STRATEGIC),
    ],
)
async def test_a_patch_that_is_none_is_refused_with_a_status(
    client: Client, body: bytes, content_type: str
) -> None:
    await client.create(DEPLOYMENTS, deployment("a"))

    code, status = await client.request("PATCH", f"{DEPLOYMENTS}/d", body, content_type)

    assert code in (400, 422)
    assert (status["kind"], status["status"]) == ("Status", "Failure")


async def test_custom_kinds_take_no_strategic_merge(client: Client) -> None:
    await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    await client.create(TASKS, task())

    code, status = await client.request("PATCH", f"{TASKS}/a", {}, STRATEGIC)

    assert code == 415
    assert status["message"].endswith(
        "accepted media types include: application/json-patch+json, "
        "application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_a_patch_that_does_not_decode_shows_metadata_in_the_order_of_its_fields(
    client: Client,
) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", x="1"))
    code, status = await client.request(
        "PATCH", f"{CONFIG_MAPS}/a", {"data": {"b": 5}}, "application/merge-patch+json"
    )
    metadata = made["metadata"]
    place = [status["message"].find(f'\\"{word}\\":') for word in ("name", "uid", "managedFields")]

    assert (code, status["reason"]) == (422, "Invalid")
    assert (
        'patch: Invalid value: "{\\"apiVersion\\":\\"v1\\",\\"data\\":{\\"b\\":5,'
        in status["message"]
    )
    assert place == sorted(place)
    assert place[0] > 0
    assert metadata["uid"] in status["message"]

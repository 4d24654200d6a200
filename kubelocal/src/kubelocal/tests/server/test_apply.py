"""Server-side apply: who owns which field, conflicts, force and removal."""

from __future__ import annotations

from typing import Any

from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, pod

PATH = f"{CONFIG_MAPS}/a"


def owners(obj: dict[str, Any]) -> dict[str, list[str]]:
    """Manager -> fields of `data` that it owns."""
    return {
        entry["manager"]: sorted(entry["fieldsV1"].get("f:data", {}))
        for entry in obj["metadata"]["managedFields"]
    }


async def test_applying_creates_and_then_changes_nothing(client: Client) -> None:
    made, first = await client.apply(PATH, config_map("a", x="1"), "one")
    again, second = await client.apply(PATH, config_map("a", x="1"), "one")

    assert (made, again) == (201, 200)
    assert second == first
    assert first["metadata"]["managedFields"][0]["operation"] == "Apply"


async def test_a_conflict_names_the_other_manager_and_the_field(client: Client) -> None:
    await client.apply(PATH, config_map("a", x="1"), "one")

    code, status = await client.apply(PATH, config_map("a", x="2"), "two")

    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]


async def test_a_conflict_with_an_update_names_its_version(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", x="1"), fieldManager="creator")

    _, status = await client.apply(PATH, config_map("a", x="2"), "two")

    assert status["message"] == (
        'Apply failed with 1 conflict: conflict with "creator" using v1: .data.x'
    )


async def test_force_takes_the_field_over(client: Client) -> None:
    await client.apply(PATH, config_map("a", x="1", y="1"), "one")
    code, forced = await client.apply(PATH, config_map("a", x="2"), "two", force="true")

    assert (code, forced["data"]) == (200, {"x": "2", "y": "1"})
    assert owners(forced) == {"one": ["f:y"], "two": ["f:x"]}


async def test_equal_values_are_owned_together(client: Client) -> None:
    await client.apply(PATH, config_map("a", x="1"), "one")
    await client.apply(PATH, config_map("a", x="1"), "two")
    _, left = await client.apply(PATH, config_map("a"), "one")
    _, gone = await client.apply(PATH, config_map("a"), "two")

    assert left["data"] == {"x": "1"}
    assert gone.get("data") is None


async def test_fields_no_longer_applied_are_removed_but_not_those_of_others(
    client: Client,
) -> None:
    await client.apply(PATH, config_map("a", x="1", y="1"), "one")
    await client.merge(PATH, {"data": {"z": "9"}})
    _, result = await client.apply(PATH, config_map("a", x="1"), "one")

    assert result["data"] == {"x": "1", "z": "9"}


async def test_an_update_takes_the_field_from_its_applier(client: Client) -> None:
    await client.apply(PATH, config_map("a", x="1"), "one")
    await client.merge(PATH, {"data": {"x": "2"}})

    code, status = await client.apply(PATH, config_map("a", x="1"), "one")

    assert code == 409
    assert 'conflict with "tester" using v1: .data.x' in status["message"]


async def test_items_of_keyed_lists_have_their_own_owners(client: Client) -> None:
    def template(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "d"}},
                "template": {
                    "metadata": {"labels": {"app": "d"}},
                    "spec": {"containers": list(containers)},
                },
            },
        }

    path = "/apis/apps/v1/namespaces/default/deployments/d"
    main, side = {"name": "main", "image": "m"}, {"name": "side", "image": "s"}
    await client.apply(path, template(main), "one")
    _, both = await client.apply(path, template(side), "two")
    _, left = await client.apply(path, template(), "two")

    def named(obj: dict[str, Any]) -> list[str]:
        return [one["name"] for one in obj["spec"]["template"]["spec"]["containers"]]

    assert (named(both), named(left)) == (["main", "side"], ["main"])


async def test_a_status_writer_and_an_applier_do_not_meet(client: Client) -> None:
    await client.apply(f"{PODS}/p", pod("p"), "one")
    await client.merge(f"{PODS}/p/status", {"status": {"phase": "Running"}})
    code, applied = await client.apply(f"{PODS}/p", pod("p"), "one")

    assert (code, applied["status"]["phase"]) == (200, "Running")
    assert {
        (entry["manager"], entry.get("subresource", ""))
        for entry in applied["metadata"]["managedFields"]
    } == {("one", ""), ("tester", "status")}


async def test_applying_needs_a_manager_and_known_fields(client: Client) -> None:
    body = config_map("a")
    nobody, status = await client.request("PATCH", PATH, body, "application/apply-patch+yaml")
    unknown, failure = await client.apply(PATH, {**body, "datum": {"a": "1"}}, "one")

    assert (nobody, status["details"]["causes"][0]["field"]) == (422, "fieldManager")
    assert unknown == 400
    assert failure["message"].endswith(".datum: field not declared in schema")


async def test_yaml_is_read_as_yaml(client: Client) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  day: '2026-01-01'\n"
    code, made = await client.request(
        "PATCH", PATH, text, "application/apply-patch+yaml", fieldManager="one"
    )

    assert (code, made["data"]) == (201, {"day": "2026-01-01"})


async def test_what_the_server_adds_to_a_new_object_is_nobodys(client: Client) -> None:
    created = await client.create(PODS, pod(), fieldManager="me")
    (entry,) = created["metadata"]["managedFields"]

    assert created["spec"]["tolerations"]
    assert "f:status" not in entry["fieldsV1"]
    assert (
        entry["fieldsV1"]["f:spec"]
        .keys()
        .isdisjoint({"f:tolerations", "f:priority", "f:preemptionPolicy"})
    )
    assert "f:terminationGracePeriodSeconds" in entry["fieldsV1"]["f:spec"]

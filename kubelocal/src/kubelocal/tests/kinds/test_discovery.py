"""Discovery and OpenAPI documents state what is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubelocal.server.types.layout import descriptions, message, messages, versions
from kubelocal.server.types.registry import Registry
from kubelocal.server.types.version_ranks import version_rank
from kubelocal.server.wire.discovery import aggregated, legacy
from kubelocal.server.wire.openapi import openapi_document, openapi_index
from kubelocal.tests.kinds.objects import with_tasks

OBSERVED = Path(__file__).parents[4] / "shared/observed/openapi"


def _document(registry: Registry, path: str) -> dict[str, Any]:
    found = legacy(registry, path)
    assert found is not None
    return found


def test_groups_name_their_versions_best_first() -> None:
    group = _document(Registry(), "/apis/scheduling.k8s.io")
    assert group["preferredVersion"]["version"] == "v1"
    versions = [each["version"] for each in group["versions"]]
    assert versions == ["v1", "v1beta1", "v1alpha3", "v1alpha2"]
    assert sorted(["v1alpha3", "v2", "v1beta1", "v10", "v1", "other"], key=version_rank) == [
        "other",
        "v1alpha3",
        "v1beta1",
        "v1",
        "v2",
        "v10",
    ]


def test_paths_of_nothing_have_no_document() -> None:
    assert legacy(Registry(), "/apis/nope.example.org") is None
    assert legacy(Registry(), "/apis/batch/v2") is None
    assert legacy(Registry(), "/other") is None
    assert openapi_document(Registry(), "batch", "v2") is None


def test_a_custom_kind_appears_with_its_subresources() -> None:
    listed = _document(with_tasks(), "/apis/example.org/v1")["resources"]
    assert [each["name"] for each in listed] == ["tasks", "tasks/status", "tasks/scale"]
    assert listed[0]["shortNames"] == ["tk"]
    assert listed[0]["categories"] == ["all"]
    assert (listed[2]["group"], listed[2]["kind"]) == ("autoscaling", "Scale")


def test_both_forms_name_the_same_resources() -> None:
    registry = with_tasks()
    seen = set()
    for core in (True, False):
        for group in json.loads(aggregated(registry, core))["items"]:
            for version in group["versions"]:
                seen |= {
                    (group["metadata"].get("name", ""), version["version"], each["resource"])
                    for each in version["resources"]
                }
    assert seen == {(kind.group, kind.version, kind.plural) for kind in registry.all()}


def test_hashes_change_with_what_they_stand_for() -> None:
    def addresses(registry: Registry) -> dict[str, Any]:
        paths: dict[str, Any] = json.loads(openapi_index(registry))["paths"]
        return paths

    registry = with_tasks()
    before = addresses(registry)
    registry.remove("tasks.example.org")
    after = addresses(registry)
    assert set(before) - set(after) == {"apis/example.org/v1"}
    assert all(after[path] == before[path] for path in after)


def test_validation_may_be_left_to_the_server() -> None:
    registry = with_tasks()
    for kind in registry.all():
        if "patch" not in kind.verbs:
            continue
        document = json.loads(openapi_document(registry, kind.group, kind.version) or b"{}")
        patches = [
            operations["patch"]
            for operations in document["paths"].values()
            if "patch" in operations
            and operations["patch"]["x-kubernetes-group-version-kind"]["kind"] == kind.kind
        ]
        assert patches, kind.kind
        assert "fieldValidation" in {each["name"] for each in patches[0]["parameters"]}


def test_every_reference_leads_somewhere() -> None:
    registry = with_tasks()
    for group, version in {(kind.group, kind.version) for kind in registry.all()}:
        text = (openapi_document(registry, group, version) or b"").decode()
        document = json.loads(text)
        references = {
            part.split('"')[0] for part in text.split('"$ref":"#/components/schemas/')[1:]
        }
        assert references <= set(document["components"]["schemas"])


@pytest.mark.parametrize(
    "group",
    ["", "apps", "batch", "coordination.k8s.io", "events.k8s.io", "policy", "scheduling.k8s.io"],
)
def test_layouts_have_exactly_the_fields_of_a_real_server(group: str) -> None:
    name = f"apis_{group}_v1.json" if group else "api_v1.json"
    file = OBSERVED / "openapi-v3" / name
    if not file.exists():
        pytest.skip("the documents of a real server are not beside this project")
    real = json.loads(file.read_bytes())["components"]["schemas"]
    ours = json.loads(openapi_document(Registry(), group, "v1") or b"")["components"]["schemas"]
    for component, schema in ours.items():
        other = real[component]
        assert set(schema.get("properties", ())) == set(other.get("properties", ())), component
        assert set(schema.get("required", ())) == set(other.get("required", ())), component
        for field, value in schema.get("properties", {}).items():
            for marker in ("x-kubernetes-patch-merge-key", "x-kubernetes-list-map-keys", "type"):
                assert value.get(marker) == other["properties"][field].get(marker), (
                    component,
                    field,
                    marker,
                )


def test_every_description_is_of_something_that_exists() -> None:
    for name in descriptions():
        package, words = name.split(".", 1)
        known, _, field = words.partition(".")
        layout = message(f"{package}.{known}")
        assert not field or field in layout.json, name


def test_kubectl_explain_has_a_word_on_every_field_of_pod_groups_and_workloads() -> None:
    """Down to the last one, in every version: what a group may request has to be found there."""
    registry = Registry()
    silent = []
    for version in {kind.version for kind in registry.all() if kind.group == "scheduling.k8s.io"}:
        document = json.loads(openapi_document(registry, "scheduling.k8s.io", version) or b"{}")
        for component, schema in document["components"]["schemas"].items():
            if not component.startswith("io.k8s.api.scheduling."):
                continue
            if "description" not in schema and not component.endswith("List"):
                silent.append(component)
            silent += [
                f"{component}.{name}"
                for name, field in schema["properties"].items()
                if "description" not in field
            ]
    assert silent == []


def test_a_description_of_all_versions_stands_in_those_that_have_the_field() -> None:
    said = descriptions()
    assert "scheduling/v1beta1.PodGroupSpec.preemptionPolicy" in said
    assert "scheduling/v1alpha2.PodGroupSpec.priority" in said
    assert "scheduling/v1alpha2.PodGroupSpec.preemptionPolicy" not in said
    unsaid = [
        f"{each.qualified}.{field}"
        for version in versions("scheduling")
        for each in messages(f"scheduling/{version}").values()
        for field in each.json
        if f"{each.qualified}.{field}" not in said and field not in ("metadata", "spec", "status")
    ]
    assert unsaid == []


def test_every_built_in_kind_is_described() -> None:
    registry = Registry()
    silent = [kind.kind for kind in registry.all() if kind.layout not in descriptions()]
    assert silent == []

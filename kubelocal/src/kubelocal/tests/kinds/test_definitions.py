"""CustomResourceDefinitions: which are refused and why, and what installing one gives."""

from __future__ import annotations

import json

import pytest

from kubelocal.crds import permissive_definitions
from kubelocal.server.types.registry import Registry
from kubelocal.server.types.schema import Invalid
from kubelocal.server.types.structure import Structure, structure_of
from kubelocal.server.wire.deprecations import deprecation
from kubelocal.tests.kinds.objects import (
    Object,
    definition,
    kind_of,
    pod,
    refusal,
    schema_of,
    stored,
    task,
    update_refusal,
    with_tasks,
)

_AT = "spec.validation.openAPIV3Schema"


def test_an_installed_kind_is_served_until_it_is_removed() -> None:
    registry = with_tasks()
    kind = registry.find("example.org", "v1", "tasks")
    assert kind is not None
    assert registry.stored("example.org", "tasks") is kind
    assert registry.by_kind("example.org/v1", "Task") is kind
    assert (kind.singular, kind.list_kind, kind.resource) == (
        "task",
        "TaskList",
        "tasks.example.org",
    )
    assert kind.subresources == {"status", "scale"}
    before = registry.revision
    registry.remove("tasks.example.org")
    registry.remove("tasks.example.org")
    assert registry.find("example.org", "v1", "tasks") is None
    assert registry.revision == before + 1


def test_names_and_strategy_are_filled_in() -> None:
    made = stored(definition())
    assert made["spec"]["names"]["listKind"] == "TaskList"
    assert made["spec"]["names"]["singular"] == "task"
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]


def test_items_have_one_schema() -> None:
    crd = definition()
    steps = schema_of(crd)["properties"]["spec"]["properties"]["steps"]
    steps["items"] = [None]
    where = f"{_AT}.properties[spec].properties[steps].items"
    assert refusal(crd) == [f"{where}: Forbidden: items must be a schema object and not an array"]


def test_several_versions_have_one_that_is_stored() -> None:
    crd = definition()
    other = {**crd["spec"]["versions"][0], "name": "v2"}
    crd["spec"]["versions"].append({**other, "storage": False})
    registry = with_tasks(crd)
    kept = registry.stored("example.org", "tasks")
    assert kept is not None
    assert kept.version == "v1"
    assert registry.find("example.org", "v2", "tasks") is not None


def test_a_field_without_a_type_is_not_structural() -> None:
    crd = definition()
    del schema_of(crd)["properties"]["spec"]["properties"]["image"]["type"]
    assert refusal(crd) == [
        (
            f"{_AT}.properties[spec].properties[image].type: Required value: "
            "must not be empty for specified object fields"
        )
    ]


def test_an_unknown_type_names_the_known_ones() -> None:
    crd = definition()
    schema_of(crd)["properties"]["spec"]["properties"]["image"]["type"] = "text"
    assert refusal(crd)[0] == (
        f'{_AT}.properties[spec].properties[image].type: Unsupported value: "text": supported '
        'values: "array", "boolean", "integer", "number", "object", "string"'
    )


def test_a_default_must_be_acceptable_itself() -> None:
    crd = definition()
    schema_of(crd)["properties"]["spec"]["properties"]["mode"]["default"] = "Nope"
    assert refusal(crd) == [
        (
            f'{_AT}.properties[spec].properties[mode].default: Unsupported value: "Nope": '
            'supported values: "Batch", "Serve"'
        )
    ]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["z"],
            },
            (
                'x-kubernetes-list-map-keys[0]: Invalid value: "z": entries must all be names of '
                "item properties"
            ),
        ),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            (
                "uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
                "complexity becomes quadratic"
            ),
        ),
        ({"type": "string", "$ref": "#/x"}, "$ref: Forbidden: $ref is not supported"),
    ],
)
def test_what_a_schema_may_not_say_is_refused(schema: Object, text: str) -> None:
    crd = definition()
    schema_of(crd)["properties"]["spec"]["properties"]["odd"] = schema
    assert refusal(crd) == [f"{_AT}.properties[spec].properties[odd].{text}"]


def test_a_rule_that_does_not_compile_is_shown() -> None:
    crd = definition()
    rules = schema_of(crd)["properties"]["spec"]["x-kubernetes-validations"]
    rules[0]["rule"] = "self.nosuch <= 1"
    (text,) = refusal(crd)
    assert text.startswith(
        f"{_AT}.properties[spec].x-kubernetes-validations[0].rule: Invalid value"
    )
    assert text.endswith(
        "compilation failed: ERROR: <input>:1:5: undefined field 'nosuch'\n"
        " | self.nosuch <= 1\n | ....^"
    )
    rules[0]["rule"] = "self.least <= "
    (text,) = refusal(crd)
    assert "compilation failed: ERROR: <input>:1:" in text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("self.image > 3", "'_>_' applied to '(string, int)'\n | self.image > 3\n | ...........^"),
        ("self.labels.all(k, self.labels[k] > 1)", "'_>_' applied to '(string, int)'"),
        ("self.tags.exists(t, t == 1)", "'_==_' applied to '(string, int)'"),
        ("has(self.nosuch)", "ERROR: <input>:1:9: undefined field 'nosuch'"),
        ("true &&\n  self.nosuch == 1", "<input>:2:7: undefined field 'nosuch'\n |   self.nosuch"),
        ("self.replicas + 1", "cel expression must evaluate to a bool"),
        ("self.name.startsWith(self.replicas)", "'startsWith' applied to '(string, int)'"),
    ],
)
def test_a_rule_must_fit_the_types_of_the_schema(rule: str, text: str) -> None:
    crd = definition()
    schema_of(crd)["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] = rule
    (told,) = refusal(crd)
    assert text in told


@pytest.mark.parametrize(
    "rule",
    [
        "has(self.name) && self.name.startsWith('self.nosuch')",
        "self.replicas >= 1 && self.replicas < 1.5",
        "self.size == 1 || self.size == '1'",
        "self.free.anything.at.all == 1",
        "self.steps.all(s, s.command != '' && !has(s.nosuch))",
        "self.?name.orValue('x') == 'x'",
        "size(self.labels) == 0 || self.labels['a'] == 'b'",
        "self == oldSelf",
        "self.replicas == oldSelf.replicas",
        "self.mode in ['Batch', 'Serve'] ? true : self.tags == oldSelf.tags",
    ],
)
def test_a_rule_that_fits_is_taken(rule: str) -> None:
    crd = definition()
    schema_of(crd)["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] = rule
    stored(crd)


def test_a_message_expression_is_a_text() -> None:
    crd = definition()
    rules = schema_of(crd)["properties"]["spec"]["x-kubernetes-validations"]
    rules[0]["messageExpression"] = "self.replicas"
    (told,) = refusal(crd)
    assert "messageExpression: Invalid value" in told
    assert told.endswith("messageExpression must evaluate to a string")
    rules[0]["messageExpression"] = "'at most ' + string(self.replicas)"
    stored(crd)


def test_the_name_is_made_of_plural_and_group() -> None:
    crd = definition()
    crd["metadata"]["name"] = "tasks.other.example.org"
    assert refusal(crd) == [
        (
            'metadata.name: Invalid value: "tasks.other.example.org": must be '
            'spec.names.plural+"."+spec.group'
        )
    ]


def test_exactly_one_version_is_stored() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["storage"] = False
    assert any("exactly one version marked as storage" in text for text in refusal(crd))


def test_a_version_needs_a_schema() -> None:
    crd = definition()
    del crd["spec"]["versions"][0]["schema"]
    assert "spec.versions[0].schema.openAPIV3Schema: Required value" in refusal(crd)


def test_a_refused_definition_leaves_the_registry_as_it_was() -> None:
    registry = with_tasks()
    crd = stored(definition())
    crd["spec"]["scope"] = "Sometimes"
    before = registry.revision
    with pytest.raises(Invalid):
        registry.install(crd)
    assert registry.revision == before
    assert registry.find("example.org", "v1", "tasks") is not None


def test_the_other_kinds_of_gpu_owners_are_taken_whole() -> None:
    registry = Registry()
    for crd in permissive_definitions():
        registry.install(stored(crd))
    anything: Object = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "r"},
        "spec": {"entrypoint": "x", "rayClusterSpec": {"headGroupSpec": {"template": {}}}},
    }
    assert stored(anything, registry) == anything
    assert {kind.kind for kind in registry.all() if kind.custom is not None} == {
        "AIMService",
        "AppWrapper",
        "ClusterTrainingRuntime",
        "InferenceService",
        "JAXJob",
        "JobSet",
        "KaiwoJob",
        "KaiwoService",
        "LeaderWorkerSet",
        "MPIJob",
        "PaddleJob",
        "PyTorchJob",
        "RayCluster",
        "RayJob",
        "RayService",
        "SparkApplication",
        "TFJob",
        "TrainJob",
        "TrainingRuntime",
        "XGBoostJob",
    }


def test_keys_of_lists_come_from_layout_and_schema() -> None:
    registry = with_tasks()
    a_task, a_pod = structure_of(kind_of(task(), registry)), structure_of(kind_of(pod()))

    def at(structure: Structure, *names: str) -> Structure:
        for name in names:
            structure = structure.item() if name == "[]" else structure.field(name)
        return structure

    steps = at(a_task, "spec", "steps")
    assert (steps.list_type, steps.list_keys, steps.merge_key) == ("map", ("name",), None)
    assert at(a_task, "spec", "tags").list_type == "set"
    assert at(a_task, "spec", "free").list_type == "atomic"
    ports = at(a_pod, "spec", "containers", "[]", "ports")
    assert ports.list_keys == ("containerPort", "protocol")
    assert at(a_pod, "spec", "containers").merge_key == "name"
    assert at(a_pod, "metadata", "finalizers").merge_key == ""
    assert at(a_pod, "spec", "tolerations").merge_key is None
    assert at(a_task, "metadata", "ownerReferences").merge_key == "uid"


def test_what_objects_depend_on_does_not_change() -> None:
    moved = definition()
    moved["spec"]["scope"] = "Cluster"
    moved["spec"]["names"]["kind"] = "Chore"
    assert update_refusal(moved, definition()) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Chore": field is immutable',
    ]


def test_a_stored_version_is_not_dropped() -> None:
    renamed = definition()
    renamed["spec"]["versions"][0]["name"] = "v2"
    renamed["status"] = {"storedVersions": ["v1", "v2"]}
    assert update_refusal(renamed, definition()) == [
        'status.storedVersions[0]: Invalid value: "v1": must appear in spec.versions'
    ]


def test_conversion_by_webhook_says_whom_to_ask_and_how() -> None:
    crd = definition()
    crd["spec"]["conversion"] = {"strategy": "Webhook"}
    at = "spec.conversion.webhook"
    assert refusal(crd) == [
        f"{at}.clientConfig: Required value: required when strategy is set to Webhook"
    ]
    config = {"url": "https://127.0.0.1:9/convert"}
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1beta1"]}
    crd["spec"]["conversion"]["webhook"] = webhook
    assert refusal(crd) == [
        f'{at}.conversionReviewVersions: Invalid value: ["v1beta1"]: must include v1'
    ]
    webhook["conversionReviewVersions"] = ["v1", "v1beta1"]
    stored(crd)


def test_a_deprecated_version_names_the_newest_that_is_not() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["deprecated"] = True
    alone = deprecation(kind_of(task(), with_tasks(crd)))
    [version] = crd["spec"]["versions"]
    for name, more in (
        ("v1beta1", {"deprecated": False}),
        ("v2beta1", {}),
        ("v2", {"deprecated": False}),
        ("v3", {"deprecationWarning": "example.org/v3 was a mistake"}),
        ("v4", {"deprecated": False, "served": False}),
    ):
        crd["spec"]["versions"].append({**version, "name": name, "storage": False, **more})
    registry = with_tasks(crd)
    found = [registry.find("example.org", name, "tasks") for name in ("v1", "v2", "v3", "v4")]

    assert alone == "example.org/v1 Task is deprecated"
    assert [kind and deprecation(kind) for kind in found] == [
        "example.org/v1 Task is deprecated; use example.org/v2 Task",
        None,
        "example.org/v3 was a mistake",
        None,
    ]


@pytest.mark.parametrize(
    ("deprecated", "text", "problem"),
    [
        (False, "old", "can only be set for deprecated versions"),
        (True, "", "must not be an empty string"),
        (True, "ä" * 200, "must be <= 256 characters long"),
        (
            True,
            "ä\n",
            (
                "must only contain printable UTF-8 characters; non-printable character found at "
                "index 2"
            ),
        ),
    ],
)
def test_the_warning_of_a_deprecated_version_is_one_line(
    deprecated: bool, text: str, problem: str
) -> None:
    crd = definition()
    crd["spec"]["versions"][0] |= {"deprecated": deprecated, "deprecationWarning": text}
    shown = json.dumps(text, ensure_ascii=False)
    where = "spec.versions[0].deprecationWarning"
    assert refusal(crd) == [f"{where}: Invalid value: {shown}: {problem}"]


def test_definitions_of_protected_groups_say_who_approved_them() -> None:
    # A real API server refuses them otherwise.
    for each in permissive_definitions():
        if each["spec"]["group"].endswith((".k8s.io", ".kubernetes.io")):
            assert "api-approved.kubernetes.io" in each["metadata"].get("annotations", {}), each

"""Objects of custom kinds: pruned, defaulted, validated by schema and rules."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import (
    admit_update,
    definition,
    kind_of,
    refusal,
    schema_of,
    stored,
    task,
    undecodable,
    update_refusal,
    with_tasks,
)

_UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation"
)


def test_defaults_are_filled_in_at_every_depth() -> None:
    made = stored(task(steps=[{"name": "a"}], queue=None), with_tasks())
    assert made["spec"] == {
        "image": "a",
        "least": 0,
        "mode": "Batch",
        "queue": "main",
        "replicas": 1,
        "steps": [{"name": "a", "command": "true"}],
    }


def test_unknown_fields_are_named() -> None:
    wrong = task(nosuch=1, steps=[{"name": "a", "extra": 1}], free={"x": {"y": 1}})
    assert undecodable(wrong, with_tasks()) == (
        'Task in version "v1" cannot be handled as a Task: strict decoding error: '
        'unknown field "spec.nosuch", unknown field "spec.steps[0].extra"'
    )


def test_preserved_and_additional_fields_stay() -> None:
    made = stored(task(free={"x": {"y": [1]}}, labels={"a": "b"}), with_tasks())
    assert made["spec"]["free"] == {"x": {"y": [1]}}
    assert made["spec"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ({"image": None}, ["spec.image: Required value", _UNCHECKED]),
        (
            {"mode": "Nope"},
            [
                'spec.mode: Unsupported value: "Nope": supported values: "Batch", "Serve"',
                _UNCHECKED,
            ],
        ),
        (
            {"replicas": 0},
            [
                (
                    "spec.replicas: Invalid value: 0: spec.replicas in body should be greater "
                    "than or equal to 1"
                )
            ],
        ),
        (
            {"replicas": 10},
            [
                (
                    "spec.replicas: Invalid value: 10: spec.replicas in body should be less "
                    "than or equal to 9"
                )
            ],
        ),
        (
            {"name": "A1"},
            ["spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"],
        ),
        (
            {"image": ""},
            ['spec.image: Invalid value: "": spec.image in body should be at least 1 chars long'],
        ),
        (
            {"image": "x" * 11},
            ["spec.image: Too long: may not be more than 10 bytes", _UNCHECKED],
        ),
        (
            {"image": 5},
            [
                (
                    'spec.image: Invalid value: "integer": spec.image in body must be of type '
                    'string: "integer"'
                ),
                _UNCHECKED,
            ],
        ),
        (
            {"size": True},
            [
                (
                    'spec.size: Invalid value: "boolean": spec.size in body must be of type '
                    'integer,string: "boolean"'
                ),
                _UNCHECKED,
            ],
        ),
        (
            {"tags": list("abcd")},
            ["spec.tags: Too many: 4: must have at most 3 items", _UNCHECKED],
        ),
        ({"tags": ["a", "a"]}, ['spec.tags[1]: Duplicate value: "a"']),
        (
            {"steps": [{"name": "a"}, {"name": "a"}]},
            ['spec.steps[1]: Duplicate value: {"name":"a"}'],
        ),
        ({"steps": [{"command": "x"}]}, ["spec.steps[0].name: Required value", _UNCHECKED]),
        ({"least": 5, "replicas": 2}, ["spec: Invalid value: least must not exceed replicas"]),
    ],
)
def test_values_against_the_schema_are_refused(spec: Any, texts: list[str]) -> None:
    assert refusal(task(**spec), with_tasks()) == texts


@pytest.mark.parametrize("size", [3, "10%"])
def test_a_number_or_text_takes_both(size: int | str) -> None:
    assert stored(task(size=size), with_tasks())["spec"]["size"] == size


def test_a_transition_rule_sees_the_old_value() -> None:
    assert update_refusal(task(queue="other"), task(), with_tasks()) == [
        'spec.queue: Invalid value: "other": queue is immutable'
    ]


def test_a_transition_rule_is_silent_where_there_was_nothing() -> None:
    registry = with_tasks()
    admit_update(kind_of(task(), registry), stored(task(), registry), task())


def test_an_immutable_spec_stays_and_its_status_moves() -> None:
    crd = definition()
    spec = schema_of(crd)["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "spec is fixed"}]
    registry = with_tasks(crd)
    assert update_refusal(task(image="b"), task(), registry) == [
        "spec: Invalid value: spec is fixed"
    ]
    new = stored(task({"phase": "Done"}), registry)
    admit_update(kind_of(new, registry), new, stored(task(), registry))


def test_a_rule_without_end_fails_and_stops_nobody() -> None:
    crd = definition()
    items = "self.tags"
    spec = schema_of(crd)["properties"]["spec"]
    spec["properties"]["tags"].pop("maxItems")
    spec["x-kubernetes-validations"] = [
        {"rule": f"{items}.all(a, {items}.all(b, {items}.all(c, a + b + c != '')))"}
    ]
    registry = with_tasks(crd)
    (text,) = refusal(task(tags=[str(number) for number in range(2000)]), registry)
    assert "budget exceeded" in text
    stored(task(tags=["a"]), registry)


def test_a_rule_names_fields_that_are_no_identifiers() -> None:
    crd = definition()
    spec = schema_of(crd)["properties"]["spec"]
    spec["properties"]["namespace"] = {"type": "string"}
    spec["x-kubernetes-validations"] = [
        {"rule": "!has(self.__namespace__) || self.__namespace__ != 'x'", "message": "not x"}
    ]
    registry = with_tasks(crd)
    assert refusal(task(namespace="x"), registry) == ["spec: Invalid value: not x"]
    stored(task(namespace="y"), registry)


def test_metadata_of_custom_objects_is_checked_like_any_other() -> None:
    wrong = task()
    wrong["metadata"]["nosuch"] = 1
    assert undecodable(wrong, with_tasks()).endswith('unknown field "metadata.nosuch"')
    wrong = task()
    wrong["metadata"]["labels"] = {"a b": "c"}
    assert refusal(wrong, with_tasks())[0].startswith('metadata.labels: Invalid value: "a b"')

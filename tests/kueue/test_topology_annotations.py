"""What a job's webhook says of the annotations that ask for a topology."""

from __future__ import annotations

import pytest

from reprieve.api.kueue_topology import (
    CONSTRAINTS,
    GROUP,
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    UNCONSTRAINED,
    topology_request,
)
from reprieve.api.kueue_validation_topology import Template, group_errors, topology_errors

AT = "spec.template.metadata.annotations"
RACK = "example.com/rack"


def errors(count: int = 8, **notes: str) -> list[str]:
    names = {
        "required": REQUIRED,
        "preferred": PREFERRED,
        "unconstrained": UNCONSTRAINED,
        "slices": SLICE_LEVEL,
        "size": SLICE_SIZE,
        "constraints": CONSTRAINTS,
        "group": GROUP,
    }
    said = {names[name]: text for name, text in notes.items()}
    return [*topology_errors(Template(AT, said, count))]


def test_layers_need_their_gate_and_nothing_else_does() -> None:
    layers = '[{"topology": "a/b", "size": 4}, {"topology": "c", "size": 2}]'
    template = Template(AT, {CONSTRAINTS: layers, REQUIRED: "a/b"}, 8)
    assert [*topology_errors(template, layered=True)] == []
    why = "the TASMultiLayerTopology feature gate must be enabled to use this annotation"
    assert [*topology_errors(template, layered=False)] == [f"{AT}[{CONSTRAINTS}]: Forbidden: {why}"]
    plain = Template(AT, {REQUIRED: "a/b", SLICE_LEVEL: "c", SLICE_SIZE: "2"}, 8)
    assert [*topology_errors(plain, layered=False)] == []


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"required": RACK},
        {"preferred": RACK, "group": "g"},
        {"unconstrained": "true"},
        {"preferred": RACK, "slices": RACK, "size": "4"},
        {"constraints": '[{"topology": "a/b", "size": 4}, {"topology": "c", "size": 2}]'},
    ],
)
def test_what_can_be_asked_for_is_accepted(notes: dict[str, str]) -> None:
    assert errors(8, **notes) == []


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ({"required": RACK, "preferred": RACK}, "must not contain more than one topology ann"),
        ({"required": "a b"}, "name part must consist of alphanumeric characters"),
        ({"unconstrained": "yes"}, '"yes": must be a boolean value'),
        ({"slices": RACK}, f"Required value: must be set when '{SLICE_LEVEL}' is specified"),
        ({"size": "2"}, f"Forbidden: may not be set when '{SLICE_LEVEL}' is not specified"),
        ({"slices": RACK, "size": "two"}, '"two": must be a numeric value'),
        ({"slices": RACK, "size": "0"}, '"0": must be greater than or equal to 1'),
        ({"slices": RACK, "size": "9"}, '"9": must not be greater than pod set count 8'),
        ({"constraints": "["}, "must be a valid JSON array"),
        ({"constraints": "[]"}, "topology constraints must contain between 1 and 3 entries"),
        ({"constraints": "[1]"}, "must be a valid JSON array"),
        (
            {"constraints": '[{"topology": "a", "size": 4}, {"topology": "a", "size": 2}]'},
            'Duplicate value: "a (also at index 0)"',
        ),
        (
            {"constraints": '[{"topology": "a", "size": 4}, {"topology": "b", "size": 3}]'},
            "3: must evenly divide the parent layer size 4",
        ),
        ({"required": RACK, "group": "7"}, '"7": must not be a number'),
        ({"group": "g"}, "may not be set when neither"),
        ({"required": RACK, "group": "g", "slices": RACK, "size": "2"}, "may not be set when"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(notes: dict[str, str], told: str) -> None:
    found = errors(8, **notes)
    assert any(told in each and each.startswith(AT) for each in found), found


def test_a_group_is_two_pod_sets_of_one_level_one_of_which_has_one_pod() -> None:
    def member(count: int, level: str = RACK, name: str = "g") -> Template:
        return Template(f"spec.{count}", {REQUIRED: level, GROUP: name}, count)

    assert [*group_errors([member(1), member(4)])] == []
    (alone,) = group_errors([member(1)])
    assert "exactly 2 pod sets, got: 1 pod set(s)" in alone
    for count, large in zip((2, 4), group_errors([member(2), member(4)]), strict=True):
        assert large.startswith(f"spec.{count}[{GROUP}]: ")
        assert "got: 2 replica(s) and 4 replica(s) in the group" in large
    first, second = group_errors([member(1), member(4, "example.com/block")])
    assert first.startswith("spec.1: ")
    assert "topology consistent with 'spec.4' in group 'g'" in first
    assert second.startswith("spec.4: ")
    assert "topology consistent with 'spec.1' in group 'g'" in second
    three = [*group_errors([member(1), member(2), member(3)])]
    assert [each.split("[")[0] for each in three] == ["spec.1", "spec.2", "spec.3"]


def test_a_name_of_a_group_without_a_level_forms_none() -> None:
    assert [*group_errors([Template("spec", {GROUP: "g"}, 3)])] == []


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        (SLICE_SIZE, {SLICE_LEVEL: RACK, SLICE_SIZE: "2"}),
        (CONSTRAINTS, {CONSTRAINTS: '[{"topology": "a", "size": 2}]'}),
    ],
)
def test_no_pod_is_left_without_a_slice(name: str, notes: dict[str, str]) -> None:
    assert [*topology_errors(Template(AT, notes, 8))] == []
    (told,) = topology_errors(Template(AT, notes, 9))
    assert told.startswith(f"{AT}[{name}]: ")
    assert told.endswith(": must evenly divide pod set count 9")
    # Pods of a group may be of several shapes, each with slices of its own.
    assert [*topology_errors(Template(AT, notes, 9, alone=False))] == []


def test_the_number_of_pods_is_looked_at_last() -> None:
    layers = '[{"topology": "a", "size": 16}]'
    told = f"{AT}[{CONSTRAINTS}]: Invalid value: 16: must not be greater than pod set count 8"
    assert errors(constraints=layers) == [told]
    (twice,) = errors(constraints='[{"topology": "a", "size": 16}, {"topology": "a", "size": 2}]')
    assert "Duplicate value" in twice


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_a_boolean_is_what_go_reads_as_true(text: str) -> None:
    assert errors(unconstrained=text) == []
    assert topology_request({UNCONSTRAINED: text}) == {"unconstrained": True}


@pytest.mark.parametrize("text", ["0", "f", "False"])
def test_a_boolean_is_what_go_reads_as_false(text: str) -> None:
    assert errors(unconstrained=text) == []
    assert topology_request({UNCONSTRAINED: text}) == {"unconstrained": False}

"""What a change is in a manifest: fields that its author knows, and not what others filled in."""

from __future__ import annotations

import copy
from typing import Any

from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.whatif.questions.written import differences, written_by
from reprieve.wording.changes import Written

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "parallelism": 4,
        "completions": 4,
        "template": {
            "spec": {
                "priority": 0,
                "preemptionPolicy": "PreemptLowerPriority",
                "nodeSelector": {"example.org/zone": "a"},
                "containers": [
                    {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
                ],
            }
        },
    },
}


def test_fewer_pods_of_a_workload_are_the_numbers_of_its_job() -> None:
    fewer = Fix(Change.FEWER_PODS, "spec.podSets[main].count", "4", "2")
    assert written_by(fewer, [JOB]) == (
        Written("spec.parallelism", "4", "2"),
        Written("spec.completions", "4", "2"),
    )


def test_a_wider_level_is_the_annotation_of_the_template() -> None:
    required = "kueue.x-k8s.io/podset-required-topology"
    job = copy.deepcopy(JOB)
    job["spec"]["template"]["metadata"] = {"annotations": {required: "rack"}}
    path = f"spec.podSets[main].template.metadata.annotations[{required}]"
    wider = Fix(Change.WIDER_LEVEL, path, "rack", "block")
    field = f"spec.template.metadata.annotations[{required}]"
    assert written_by(wider, [job]) == (Written(field, "rack", "block"),)


def test_a_priority_class_is_told_without_what_admission_made_of_the_former_one() -> None:
    path = "spec.podSets[*].template.spec.priorityClassName"
    higher = Fix(Change.HIGHER_PRIORITY, path, "0", "high")
    told = "spec.template.spec.priorityClassName"
    assert written_by(higher, [JOB]) == (Written(told, "", "high"),)


def test_keys_with_dots_stand_in_brackets_and_what_goes_has_no_value_after() -> None:
    path = "spec.podSets[main].template.spec.nodeSelector[example.org/zone]"
    without = Fix(Change.WITHOUT_CONSTRAINT, path, "a", "")
    told = "spec.template.spec.nodeSelector[example.org/zone]"
    assert written_by(without, [JOB]) == (Written(told, "a", ""),)


def test_members_of_a_group_are_told_of_once() -> None:
    def pod(name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "team"}
        spec = {"priorityClassName": "low", "containers": [{"name": "main"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    higher = Fix(Change.HIGHER_PRIORITY, "priorityClassName", "low", "high")
    found = written_by(higher, [pod("a"), pod("b")])
    assert found == (Written("spec.priorityClassName", "low", "high"),)


def test_what_cannot_be_written_and_waiting_write_nothing() -> None:
    nowhere = Fix(Change.FEWER_PODS, "spec.schedulingPolicy.gang.minCount", "8", "6")
    assert written_by(nowhere, [JOB]) == ()
    assert written_by(Fix(Change.WAIT, "", "", "2026-11-20T14:00:00Z"), [JOB]) == ()


def test_places_of_lists_are_numbered_and_lists_of_other_length_are_told_whole() -> None:
    before = {"a": [{"b": 1}, {"b": 2}], "c": [1]}
    after = {"a": [{"b": 1}, {"b": 3}], "c": [1, {"d": True}]}
    assert list(differences(before, after)) == [
        Written("a[1].b", "2", "3"),
        Written("c", "[1]", '[1,{"d":true}]'),
    ]

"""Who has set something in two places is told which of them counts."""

from __future__ import annotations

from typing import Any

from reprieve.answers.overridden import overridden_of
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit
from tests.explain.objects import gpu_workload, group, job, members, workload

_MINIMUM = "gang.scheduling.koordinator.sh/min-available"
_GRACE = "kaiwo.silogen.ai/gpu-preemption.grace-period"


def _queued(pods_class: str = "", **spec: Any) -> Unit:
    owner = job()
    shape: dict[str, Any] = {"spec": {}}
    if pods_class:
        shape["spec"]["priorityClassName"] = pods_class
    pod_sets = [{"name": "main", "count": 1, "template": shape}]
    return Unit(owner, workload=workload(owner, podSets=pod_sets, **spec))


def test_the_class_of_the_pods_does_not_count_beside_one_of_the_workload() -> None:
    own = {"kind": "WorkloadPriorityClass", "name": "urgent"}
    assert overridden_of(_queued("low", priority=1000, priorityClassRef=own)) == (
        "PriorityClass low of its pods by WorkloadPriorityClass urgent, priority 1000"
    )
    assert overridden_of(_queued(priority=1000, priorityClassRef=own)) == ""
    of_pods = {"kind": "PriorityClass", "name": "low"}
    assert overridden_of(_queued("low", priority=5, priorityClassRef=of_pods)) == ""


def _gang(asked: Json, **pod: Any) -> Unit:
    pods = members(2)
    for each in pods:
        each["spec"] |= pod.get("spec", {})
        each["metadata"]["annotations"] = pod.get("annotations", {})
    made = group()
    made["spec"] |= asked
    return Unit(made, pods=tuple(pods), group_name="train", group=made)


def test_what_pods_say_of_their_gang_does_not_count_beside_its_group() -> None:
    found = _gang({"priority": 7}, spec={"priority": 3}, annotations={_MINIMUM: "2"})
    assert overridden_of(found) == (
        "priority 3 of its pods by PodGroup train, priority 7; "
        f"annotation {_MINIMUM} 2 of its pods by PodGroup train, minimum 4"
    )
    agreed = _gang({"priority": 7}, spec={"priority": 7}, annotations={_MINIMUM: "4"})
    assert overridden_of(agreed) == ""
    assert overridden_of(_gang({}, spec={"priority": 3})) == ""


def test_an_annotation_does_not_count_beside_a_field_that_was_edited_by_hand() -> None:
    made = gpu_workload(job(), "Idle")
    made["spec"]["gracePeriod"] = "2h"
    made["metadata"]["annotations"] = {"reprieve.dev/derived": '{"gracePeriod":"3h0m0s"}'}
    assert overridden_of(Unit(job(), gpu_workload=made)) == (
        f"annotation {_GRACE}, 3h0m0s, is overridden by spec.gracePeriod, which was edited by "
        "hand; in force: 2h0m0s; remove that field to follow the annotation again"
    )
    made["spec"]["gracePeriod"] = "3h"
    assert overridden_of(Unit(job(), gpu_workload=made)) == ""

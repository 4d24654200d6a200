"""A change that is named is written where the pods of a manifest stand, or not at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.jobs.pod_sets import found_pod_sets
from reprieve.whatif.questions.changed import Unwritable, changed_by
from tests.quota_plane.kind_stories import MANIFESTS
from tests.whatif.plan_stories import GPU, job, pod
from tests.whatif.test_kinds import KINDS, ROWS

Object = dict[str, Any]
#: Their pods are described by another object, in fields of their own, or by each pod alone.
ELSEWHERE = {"TrainJob", "SparkApplication", "Deployment"}


def selectors(kind: str, obj: Object) -> dict[str, Object]:
    """Return the node selectors of the pods that an object describes, by pod set."""
    found = found_pod_sets(ROWS[kind], obj)
    return {each.name: each.template["spec"].get("nodeSelector", {}) for each in found}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ELSEWHERE))
def test_a_change_of_one_pod_set_leaves_the_others_as_they_are(kind: str) -> None:
    before = copy.deepcopy(MANIFESTS[kind])
    for each in found_pod_sets(ROWS[kind], before):
        each.template["spec"]["nodeSelector"] = {"disk": "fast", "zone": "a"}
    names = list(selectors(kind, before))
    given = copy.deepcopy(before)
    field = f"spec.podSets[{names[-1]}].template.spec.nodeSelector[disk]"
    (after,) = changed_by(Fix(Change.WITHOUT_CONSTRAINT, field, "fast", ""), [before])
    assert before == given
    whole = {"disk": "fast", "zone": "a"}
    assert selectors(kind, after) == {**dict.fromkeys(names, whole), names[-1]: {"zone": "a"}}


@pytest.mark.parametrize("kind", sorted(ELSEWHERE))
def test_what_is_described_elsewhere_is_not_changed(kind: str) -> None:
    field = "spec.podSets[node].template.spec.nodeSelector[disk]"
    with pytest.raises(Unwritable):
        changed_by(Fix(Change.WITHOUT_CONSTRAINT, field, "fast", ""), [MANIFESTS[kind]])


def fewer(kind: str) -> dict[str, int] | None:
    """Return how many pods of each set there are once the last one has one less."""
    obj = MANIFESTS[kind]
    counts = {each.name: each.count for each in found_pod_sets(ROWS[kind], obj)}
    name, count = list(counts.items())[-1]
    fix = Fix(Change.FEWER_PODS, f"spec.podSets[{name}].count", str(count), str(count - 1))
    try:
        (after,) = changed_by(fix, [obj])
    except Unwritable:
        return None
    found = {each.name: each.count for each in found_pod_sets(ROWS[kind], after)}
    assert found.get(name, 0) == count - 1
    assert {**counts, name: 0} == {**counts, **found, name: 0}
    return found


def test_fewer_pods_are_written_where_one_field_says_how_many() -> None:
    written = {kind for kind in set(KINDS) - ELSEWHERE if fewer(kind) is not None}
    assert written >= {"Job", "StatefulSet", "PaddleJob"}
    # A JobSet's are a product, an AppWrapper's stand in what it wraps.
    assert written.isdisjoint({"JobSet", "AppWrapper"})


def test_a_job_of_more_completions_keeps_them() -> None:
    wanted = job("mine", 4, 1, completions=10)
    fix = Fix(Change.FEWER_PODS, "spec.podSets[main].count", "4", "2")
    (after,) = changed_by(fix, [wanted])
    assert (after["spec"]["parallelism"], after["spec"]["completions"]) == (2, 10)


def test_what_admission_took_from_a_class_goes_with_it() -> None:
    wanted = pod("mine", 1, "low", preemptionPolicy="Never")
    wanted["spec"]["priority"] = 100
    fix = Fix(Change.HIGHER_PRIORITY, "priorityClassName", "low", "high")
    (after,) = changed_by(fix, [wanted])
    assert after == pod("mine", 1, "high")


def test_of_two_containers_the_one_that_asks_for_the_device_asks_for_less() -> None:
    wanted = job("mine", 1, 8)
    spec = wanted["spec"]["template"]["spec"]
    spec["containers"].append({"name": "side", "resources": {"requests": {"cpu": "1"}}})
    fix = Fix(
        Change.FEWER_DEVICES, f"spec.podSets[main].template.spec, requests of {GPU}", "8", "4"
    )
    (after,) = changed_by(fix, [wanted])
    first, side = after["spec"]["template"]["spec"]["containers"]
    assert first["resources"] == {"requests": {"cpu": "8", GPU: "4"}, "limits": {GPU: "4"}}
    assert side == spec["containers"][1]
    spec["containers"].append(copy.deepcopy(spec["containers"][0]))
    with pytest.raises(Unwritable):
        changed_by(fix, [wanted])


@pytest.mark.parametrize(
    "field",
    ["", "spec", "spec.podSets[", "spec.nodeSelector[", "spec.affinity.podAffinity[x]", "a and b"],
)
def test_what_is_no_path_of_the_object_is_not_written(field: str) -> None:
    with pytest.raises(Unwritable):
        changed_by(Fix(Change.WITHOUT_CONSTRAINT, field, "", ""), [pod("mine", 1)])

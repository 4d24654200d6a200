"""What stays in an update, and what may change, in the real server's words."""

from __future__ import annotations

import pytest

from kubelocal.tests.kinds.objects import (
    Object,
    admit_update,
    container,
    deployment,
    job,
    kind_of,
    pod,
    stored,
    update_refusal,
)


def test_a_pod_keeps_its_spec_but_for_images_deadline_and_new_tolerations() -> None:
    moved = update_refusal(pod(nodeName="x"), pod())
    assert len(moved) == 1
    assert moved[0].startswith("spec: Forbidden: pod updates may not change fields other than")
    toleration = {"key": "a", "operator": "Exists"}
    changed = pod(containers=[container(image="b:2")], tolerations=[toleration])
    admit_update(kind_of(changed), stored(changed), stored(pod()))
    assert update_refusal(pod(), pod(tolerations=[toleration])) == [
        (
            "spec.tolerations: Forbidden: existing toleration can not be modified except its "
            "tolerationSeconds"
        )
    ]


def test_a_toleration_keeps_all_but_its_seconds() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    before = pod(tolerations=[{**toleration, "tolerationSeconds": 5}])
    longer = pod(tolerations=[{**toleration, "tolerationSeconds": 50}])
    admit_update(kind_of(longer), stored(longer), stored(before))


@pytest.mark.parametrize(
    ("deadline", "text"),
    [
        (50, "Invalid value: 50: must be less than or equal to previous value"),
        (None, "Invalid value: null: must not update from a positive integer to nil value"),
    ],
)
def test_a_deadline_is_only_brought_forward(deadline: int | None, text: str) -> None:
    later = pod() if deadline is None else pod(activeDeadlineSeconds=deadline)
    assert update_refusal(later, pod(activeDeadlineSeconds=5)) == [
        f"spec.activeDeadlineSeconds: {text}"
    ]
    sooner = pod(activeDeadlineSeconds=4)
    admit_update(kind_of(sooner), stored(sooner), stored(pod(activeDeadlineSeconds=5)))


def test_who_runs_a_job_and_when_it_succeeds_stays() -> None:
    policy = {"rules": [{"succeededCount": 1}]}
    indexed: Object = {"completionMode": "Indexed", "completions": 2}
    old = job(**indexed)
    new = job(**indexed, backoffLimitPerIndex=1, managedBy="acme.io/foo", successPolicy=policy)
    shown = '{"rules":[{"succeededCount":1}]}'
    assert update_refusal(new, old) == [
        "spec.backoffLimitPerIndex: Invalid value: 1: field is immutable",
        'spec.managedBy: Invalid value: "acme.io/foo": field is immutable',
        f"spec.successPolicy: Invalid value: {shown}: field is immutable",
    ]


def test_gates_are_only_taken_away() -> None:
    gated = pod(schedulingGates=[{"name": "example.org/a"}])
    more = pod(schedulingGates=[{"name": "example.org/a"}, {"name": "example.org/b"}])
    assert update_refusal(more, gated) == [
        (
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new "
            "scheduling gate 'example.org/b'"
        )
    ]


def test_a_jobs_template_is_fixed_once_it_may_start() -> None:
    changed = job()
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    refused = update_refusal(changed, job())
    assert [text.split(":")[0] for text in refused] == ["spec.template"]
    assert refused[0].endswith("field is immutable")


def test_a_waiting_jobs_placement_may_change() -> None:
    changed = job(suspend=True)
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    admit_update(kind_of(changed), stored(changed), stored(job(suspend=True)))


def test_a_selector_never_changes() -> None:
    other = deployment()
    other["spec"]["selector"] = {"matchLabels": {"b": "c"}}
    other["spec"]["template"]["metadata"]["labels"] = {"b": "c"}
    assert update_refusal(other, deployment()) == [
        'spec.selector: Invalid value: {"matchLabels":{"b":"c"}}: field is immutable'
    ]


def test_a_uid_never_changes() -> None:
    old, new = pod(), pod()
    old["metadata"]["uid"], new["metadata"]["uid"] = "a", "b"
    assert update_refusal(new, old) == ['metadata.uid: Invalid value: "b": field is immutable']

"""What the webhooks say of managed jobs and pods, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.api.kueue_validation_jobs import (
    Kind,
    Suspension,
    batch_job_errors,
    batch_job_update_errors,
    job_errors,
    job_update_errors,
    pod_errors,
    pod_update_errors,
)
from tests.kueue.objects import Json

JOB = Kind("batch/v1, Kind=Job", elastic=True)
JAX = Kind("kubeflow.org/v1, Kind=JAXJob", prebuilt=False)
RUNNING, STOPPED = Suspension(False, False), Suspension(True, True)
STARTED = Suspension(True, False)
K = "kueue.x-k8s.io"


def job(labels: Json | None = None, notes: Json | None = None, **spec: Any) -> Json:
    def own(given: Json | None) -> Json:
        return {f"{K}/{name}": value for name, value in (given or {}).items()}

    metadata = {"name": "a", "labels": own(labels), "annotations": own(notes)}
    return {"metadata": metadata, "spec": spec}


def label(name: str) -> str:
    return f"metadata.labels[{K}/{name}]"


def note(name: str) -> str:
    return f"metadata.annotations[{K}/{name}]"


@pytest.mark.parametrize(
    ("obj", "kind", "errors"),
    [
        (job({"queue-name": "q", "max-exec-time-seconds": "1"}), JOB, []),
        (
            job({"max-exec-time-seconds": "0"}),
            JOB,
            [f"{label('max-exec-time-seconds')}: Invalid value: 0: should be greater than 0"],
        ),
        (
            job({"max-exec-time-seconds": "1h"}),
            JOB,
            [
                (
                    f'{label("max-exec-time-seconds")}: Invalid value: "1h": '
                    'strconv.Atoi: parsing "1h": invalid syntax'
                )
            ],
        ),
        *(
            (
                job({"max-exec-time-seconds": text}),
                JOB,
                [
                    (
                        f'{label("max-exec-time-seconds")}: Invalid value: "{text}": '
                        f'strconv.Atoi: parsing "{text}": value out of range'
                    )
                ],
            )
            for text in ("2147483648", "9" * 30)
        ),
        (
            job({"prebuilt-workload-name": "w"}),
            JAX,
            [
                (
                    f'{label("prebuilt-workload-name")}: Invalid value: "w": '
                    'Is not supported for "kubeflow.org/v1, Kind=JAXJob"'
                )
            ],
        ),
        (
            job(notes={"elastic-job": "true"}),
            JAX,
            [
                (
                    f'{note("elastic-job")}: Invalid value: "true": '
                    'elastic job is not supported for "kubeflow.org/v1, Kind=JAXJob"'
                )
            ],
        ),
        (job(notes={"elastic-job": "true"}), JOB, []),
        (job(notes={"admission-gated-by": "a.com/x,b.com/y"}), JOB, []),
        (
            job(notes={"admission-gated-by": "a.com/x,,a.com/x"}),
            JOB,
            [
                (
                    f'{note("admission-gated-by")}: Invalid value: "a.com/x,,a.com/x": '
                    "cannot contain empty gate names"
                ),
                (
                    f'{note("admission-gated-by")}: Invalid value: "a.com/x,,a.com/x": '
                    "duplicate gate name: a.com/x"
                ),
            ],
        ),
        (
            job(notes={"admission-gated-by": "plain"}),
            JOB,
            [
                (
                    f'{note("admission-gated-by")}: Invalid value: "plain": '
                    'must be a domain-prefixed path (such as "acme.io/foo")'
                )
            ],
        ),
    ],
)
def test_a_job_is_told(obj: Json, kind: Kind, errors: list[str]) -> None:
    assert list(job_errors(obj, kind)) == errors


def test_a_queue_name_is_a_name() -> None:
    (error,) = job_errors(job({"queue-name": "Team A"}), JOB)
    assert error.startswith(f'{label("queue-name")}: Invalid value: "Team A": a lowercase RFC 1123')


IMMUTABLE = "field is immutable"
REMOVED = "WorkloadPriorityClass cannot be removed from a workload"
ADDED = "WorkloadPriorityClass cannot be added to a non-suspended workload"


@pytest.mark.parametrize(
    ("before", "after", "suspension", "default_queue", "errors"),
    [
        ({"queue-name": "a"}, {"queue-name": "b"}, STOPPED, False, []),
        (
            {"queue-name": "a"},
            {"queue-name": "b"},
            STARTED,
            False,
            [f'{label("queue-name")}: Invalid value: "b": {IMMUTABLE}'],
        ),
        ({"queue-name": "a"}, {}, STOPPED, False, []),
        (
            {"queue-name": "a"},
            {},
            STOPPED,
            True,
            [
                (
                    f'{label("queue-name")}: Invalid value: "": '
                    "queue-name must not be empty in namespace with default queue"
                )
            ],
        ),
        ({"priority-class": "a"}, {"priority-class": "b"}, RUNNING, False, []),
        ({}, {"priority-class": "b"}, STOPPED, False, []),
        (
            {},
            {"priority-class": "b"},
            RUNNING,
            False,
            [f'{label("priority-class")}: Invalid value: "b": {ADDED}'],
        ),
        (
            {"priority-class": "a"},
            {},
            STOPPED,
            False,
            [f'{label("priority-class")}: Invalid value: "": {REMOVED}'],
        ),
        ({"max-exec-time-seconds": "1"}, {"max-exec-time-seconds": "2"}, STOPPED, False, []),
        (
            {"max-exec-time-seconds": "1"},
            {"max-exec-time-seconds": "2"},
            STARTED,
            False,
            [f'{label("max-exec-time-seconds")}: Invalid value: "2": {IMMUTABLE}'],
        ),
        (
            {},
            {"prebuilt-workload-name": "w"},
            RUNNING,
            False,
            [f'{label("prebuilt-workload-name")}: Invalid value: "w": {IMMUTABLE}'],
        ),
    ],
)
def test_a_change_of_labels_is_told(
    before: Json, after: Json, suspension: Suspension, default_queue: bool, errors: list[str]
) -> None:
    found = job_update_errors(job(after), job(before), JOB, suspension, default_queue=default_queue)
    assert list(found) == errors


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("a.com/x,b.com/y", "b.com/y", ""),
        ("a.com/x", "", ""),
        ("", "a.com/x", "cannot add admission gate after creation"),
        ("a.com/x", "b.com/y", "can only remove gates, not add new ones"),
    ],
)
def test_gates_can_only_go(before: str, after: str, why: str) -> None:
    new, was = (job(notes={"admission-gated-by": text}) for text in (after, before))
    expected = [f"{note('admission-gated-by')}: Forbidden: {why}"] if why else []
    assert list(job_update_errors(new, was, JOB, STOPPED)) == expected


@pytest.mark.parametrize(
    ("least", "fine"), [("1", True), ("3", True), ("4", False), ("0", False), ("-1", False)]
)
def test_a_minimum_of_a_job_is_above_0_and_below_its_parallelism(least: str, fine: bool) -> None:
    errors = list(batch_job_errors(job(notes={"job-min-parallelism": least}, parallelism=4)))
    text = f"{note('job-min-parallelism')}: Invalid value: {least}: should be between 0 and 3"
    assert errors == ([] if fine else [text])


def test_completions_equal_parallelism_where_it_is_said() -> None:
    notes = {"job-completions-equal-parallelism": "true"}
    fine = job(notes=notes, parallelism=4, completions=4, completionMode="Indexed")
    assert list(batch_job_errors(fine)) == []
    (mode,) = batch_job_errors(job(notes=notes, parallelism=4, completions=4))
    assert mode == (
        f'{note("job-completions-equal-parallelism")}: Invalid value: "true": '
        "should not be enabled for NonIndexed jobs"
    )
    (count,) = batch_job_errors(
        job(notes=notes, parallelism=2, completions=4, completionMode="Indexed")
    )
    assert count == (
        "spec.completions: Invalid value: 4: should be equal to parallelism when "
        "kueue.x-k8s.io/job-completions-equal-parallelism annotation is true"
    )


def test_a_running_job_with_partial_admission_keeps_its_parallelism() -> None:
    notes = {"job-min-parallelism": "1"}
    before, after = (job(notes=notes, parallelism=n, suspend=False) for n in (4, 3))
    assert list(batch_job_update_errors(after, before)) == [
        (
            "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the "
            "job is not suspended"
        )
    ]
    assert list(batch_job_update_errors(job(parallelism=4), before)) == [
        (
            f"{note('job-min-parallelism')}: Forbidden: field is immutable while the job is not "
            "suspended"
        )
    ]
    stopped = job(notes=notes, parallelism=3, suspend=True)
    assert list(batch_job_update_errors(stopped, before)) == []


TOTAL = "both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the "


@pytest.mark.parametrize(
    ("labels", "notes", "errors"),
    [
        ({"managed": "true"}, {}, []),
        (
            {"managed": "yes"},
            {},
            [f"{label('managed')}: Forbidden: managed label value can only be 'true'"],
        ),
        ({"pod-group-name": "g"}, {"pod-group-total-count": "2"}, []),
        ({}, {"pod-group-name": "g", "pod-group-total-count": "2"}, []),
        (
            {"pod-group-name": "g"},
            {},
            [
                (
                    f"{note('pod-group-total-count')}: Required value: {TOTAL}"
                    "'kueue.x-k8s.io/pod-group-name' label should be set"
                )
            ],
        ),
        (
            {},
            {"pod-group-total-count": "2"},
            [
                (
                    f"{label('pod-group-name')}: Required value: {TOTAL}"
                    "'kueue.x-k8s.io/pod-group-name' label should be set"
                )
            ],
        ),
        (
            {"pod-group-name": "g"},
            {"pod-group-total-count": "0"},
            [
                (
                    f'{note("pod-group-total-count")}: Invalid value: "0": '
                    "incorrect annotation value "
                    "'kueue.x-k8s.io/pod-group-total-count=0': group total count should be greater "
                    "than zero"
                )
            ],
        ),
        (
            {"pod-group-name": "g", "prebuilt-workload-name": "w"},
            {"pod-group-total-count": "1"},
            [
                (
                    f'{label("pod-group-name")}: Invalid value: "g": '
                    "prebuilt workload and pod group should be equal"
                )
            ],
        ),
    ],
)
def test_a_pod_is_told(labels: Json, notes: Json, errors: list[str]) -> None:
    assert list(pod_errors(job(labels, notes))) == errors


def test_a_pod_stays_in_its_group_and_a_group_that_ends_ends() -> None:
    notes = {"pod-group-total-count": "1"}
    before, after = (job({"pod-group-name": name}, notes) for name in ("g", "h"))
    assert list(pod_update_errors(after, before)) == [
        f'{label("pod-group-name")}: Invalid value: "h": field is immutable'
    ]
    final = job(notes={"retriable-in-group": "false"})
    assert list(pod_update_errors(job(), final)) == [
        (
            f"{note('retriable-in-group')}: Forbidden: "
            "unretriable pod group can't be converted to retriable"
        )
    ]

"""Checks of jobs, cron jobs and rollouts, in the real server's words."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import (
    SUBDOMAIN,
    Object,
    container,
    deployment,
    job,
    refusal,
    stored,
)


def test_a_job_must_say_when_its_pods_restart() -> None:
    silent = job()
    del silent["spec"]["template"]["spec"]["restartPolicy"]
    assert refusal(silent) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


def test_numbers_below_zero_are_refused_together() -> None:
    assert refusal(job(parallelism=-1, completions=-2)) == [
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        "spec.completions: Invalid value: -2: must be greater than or equal to 0",
    ]


def test_a_selector_must_match_its_template() -> None:
    assert refusal(deployment(selector={"matchLabels": {"app": "other"}})) == [
        (
            'spec.template.metadata.labels: Invalid value: {"app":"d"}: '
            "`selector` does not match template `labels`"
        )
    ]


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        (
            {"action": "FailJob"},
            [
                (
                    ': Invalid value: {"Action":"FailJob","OnExitCodes":null,'
                    '"OnPodConditions":null}: specifying one of OnExitCodes and '
                    "OnPodConditions is required"
                )
            ],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": []}},
            [".onExitCodes.values: Invalid value: []: at least one value is required"],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}},
            [
                (".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator"),
                ".onExitCodes.values[2]: Duplicate value: 2",
                ".onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        ),
        (
            {"action": "Ignore", "onPodConditions": [{"type": "A", "status": "X"}]},
            [
                (
                    '.onPodConditions[0].status: Unsupported value: "X": supported values: '
                    '"False", "True", "Unknown"'
                )
            ],
        ),
        (
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
            [('.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set')],
        ),
    ],
)
def test_a_failure_policy_says_on_what_it_acts(rule: Object, texts: list[str]) -> None:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    failing = job(template=template, podFailurePolicy={"rules": [rule]})
    assert refusal(failing) == [f"spec.podFailurePolicy.rules[0]{text}" for text in texts]


def test_only_indexed_jobs_count_failures_by_index() -> None:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    assert refusal(job(template=template, backoffLimitPerIndex=1)) == [
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"
    ]
    assert stored(
        job(template=template, backoffLimitPerIndex=1, completionMode="Indexed", completions=2)
    )


def _cron_job(**spec: Any) -> Object:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}, **spec},
    }


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        (
            "a * * * *",
            'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax',
        ),
        ("bad", "expected exactly 5 fields, found 1: [bad]"),
        ("@often", "unrecognized descriptor: @often"),
        (
            "TZ=UTC * * * * *",
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
    ],
)
def test_a_schedule_that_never_comes_is_refused(schedule: str, text: str) -> None:
    assert refusal(_cron_job(schedule=schedule)) == [
        f'spec.schedule: Invalid value: "{schedule}": {text}'
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        "*/5 * * * *",
        "0 0 1,15 jan-MAR Mon",
        "? 1-5/2 * * 0",
        "@hourly",
        "@every 90s",
        "5/10 * * * *",
    ],
)
def test_schedules_have_ranges_steps_and_names(schedule: str) -> None:
    assert stored(_cron_job(schedule=schedule, timeZone="Europe/Berlin"))


def test_a_time_zone_is_a_known_one() -> None:
    assert refusal(_cron_job(timeZone="No/Where")) == [
        'spec.timeZone: Invalid value: "No/Where": unknown time zone No/Where'
    ]


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            [
                (
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 "
                    "when `maxSurge` is 0"
                )
            ],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "200%", "maxSurge": "200%"}}},
            [
                (
                    'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "200%": must not '
                    "be greater than 100%"
                )
            ],
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            [
                (
                    "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than "
                    "minReadySeconds"
                )
            ],
        ),
        (
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
    ],
)
def test_a_rollout_must_be_able_to_go_on(more: Object, texts: list[str]) -> None:
    assert refusal(deployment(**more)) == texts


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("kubernetes.io/job-controller", []),
        ("kueue.x-k8s.io/multikueue", []),
        ("", ["Required value"]),
        (
            "kueue",
            ['Invalid value: "kueue": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            "acme.io/",
            ['Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            "Acme/foo bar",
            [
                f'Invalid value: "Acme": {SUBDOMAIN}',
                (
                    "Invalid value: \"foo bar\": Invalid path (e.g. 'acme.io/foo', regex used for "
                    "validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
                ),
            ],
        ),
        ("acme.io/" + "a" * 56, ["Too long: may not be more than 63 bytes"]),
    ],
)
def test_the_controller_of_a_job_is_a_domain_and_a_path(name: str, texts: list[str]) -> None:
    wrong = [f"spec.managedBy: {text}" for text in texts]
    if wrong:
        assert refusal(job(managedBy=name)) == wrong
    else:
        assert stored(job(managedBy=name))["spec"]["managedBy"] == name

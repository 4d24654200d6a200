"""Scenario files are read once and in full; what cannot be used is named exactly."""

from __future__ import annotations

import importlib.resources

import pytest

from reprieve.scenarios.model import InvalidScenario, parse
from reprieve.scenarios.steps import (
    STEP_KINDS,
    Apply,
    ExpectStatus,
    Reference,
    SetUtilization,
    Sleep,
    StopOperator,
    WaitAdmitted,
    WaitPreempted,
    WaitShare,
    keyword_of,
)

HEAD = "name: one\noperator_env: {}\ncluster: {nodes: [{name: n, allocatable: {amd.com/gpu: 4}}]}\n"


def test_a_scenario_names_the_planes_and_the_values_that_it_needs() -> None:
    scenario = parse(
        HEAD
        + """
controllers: [idle, quota]
operator_config: {quota: {preemptionPolicy: Classical}}
steps:
- wait_admitted: {queue: b, count: 3, timeout: 5}
- wait_preempted: {job: j, reason: InClusterQueue, timeout: 5}
- wait_share: {cluster_queue: q, share: null, timeout: 5}
""",
        "one.yaml",
    )

    assert scenario.controllers == ("idle", "quota")
    assert scenario.operator_config == {"quota": {"preemptionPolicy": "Classical"}}
    assert scenario.steps == (
        WaitAdmitted("b", 3, 5.0),
        WaitPreempted("j", "InClusterQueue", 5.0),
        WaitShare("q", None, 5.0),
    )


def test_every_step_becomes_its_own_type() -> None:
    scenario = parse(
        HEAD
        + """
operator_replicas: 2
steps:
- apply: {object: {apiVersion: v1, kind: Pod, metadata: {name: p}}, controller_owner: Job/j}
- set_utilization: {pods_of: Job/j, value: 60, pod_index: 0}
- expect_status: {root: Job/j, fields: {preemptedFor: {gpuworkload_of: Job/d}, phase: Idle}}
- stop_operator: {}
- sleep: 3
""",
        "one.yaml",
    )

    assert scenario.operator_replicas == 2
    assert [node.name for node in scenario.nodes] == ["n"]
    assert scenario.steps == (
        Apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, "Job/j"),
        SetUtilization("Job/j", 60.0, pod_index=0),
        ExpectStatus("Job/j", {"preemptedFor": Reference(gpuworkload_of="Job/d"), "phase": "Idle"}),
        StopOperator(),
        Sleep(3.0),
    )
    assert [keyword_of(step) for step in scenario.steps] == [
        "apply",
        "set_utilization",
        "expect_status",
        "stop_operator",
        "sleep",
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "wait_preempted: {job: j, reason: Lazy, timeout: 1}",
            (
                "step 1 (wait_preempted): reason: Invalid enum value 'Lazy'; accepted: "
                "InClusterQueue, InCohortReclamation, InCohortFairSharing, "
            ),
        ),
        ("sleep: long", "step 1 (sleep): seconds: Expected `float`, got `str`; accepted: a number"),
        ("sleep: -1", "step 1 (sleep): seconds: Expected `float` >= 0.0; accepted: a number of"),
        (
            "wait_gpuworkload: {root: job, timeout: 3}",
            (
                "step 1 (wait_gpuworkload): root: Expected `str` matching regex "
                "'^[A-Z][A-Za-z0-9]*/[a-z0-9][a-z0-9.-]*$'; accepted: Kind/name of a root owner"
            ),
        ),
        (
            "wait_gpuworkload: {root: Job/v, timeout: 3, phase: Lazy}",
            (
                "step 1 (wait_gpuworkload): phase: Invalid enum value 'Lazy'; accepted: "
                "PendingGpu, PendingOther, Active, Idle, Preempting, Preempted, Deleted"
            ),
        ),
        (
            "delete: {kind: Job}",
            "step 1 (delete): Object missing required field `name`; accepted: the fields kind, ",
        ),
        (
            "remember: {root: Job/v, field: f, at: 3}",
            (
                "step 1 (remember): Object contains unknown field `at`; accepted: the fields root, "
                "field, as"
            ),
        ),
        (
            "expect_status: {root: Job/v, fields: {a: {remembered: t, gpuworkload_of: Job/x}}}",
            "fields[...]: exactly one of gpuworkload_of and remembered has to be given",
        ),
        ("apply: {object: {kind: Pod}}", "object.apiVersion is missing or not a text"),
        ("stop_operator: {now: true}", "unknown field `now`; accepted: no fields"),
        ("jump: {}", "step 1: unknown step 'jump'; accepted: apply, annotate_namespace, "),
        ("{sleep: 1, delete: {}}", "step 1: expected a mapping with one key, the step's keyword"),
    ],
)
def test_an_unusable_step_is_named_with_number_keyword_field_and_what_is_accepted(
    step: str, message: str
) -> None:
    with pytest.raises(InvalidScenario) as refusal:
        parse(f"{HEAD}steps:\n- {step}\n", "dir/one.yaml")

    assert str(refusal.value).startswith("dir/one.yaml: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "one.yaml: not YAML: while parsing a flow node"),
        ("3", "one.yaml: Expected `object`, got `int`; accepted: the fields name, operator_env, "),
        ("name: one", "one.yaml: Object missing required field `operator_env`"),
        (HEAD + "steps: []\nspeed: 3", "one.yaml: Object contains unknown field `speed`"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InvalidScenario) as refusal:
        parse(text, "one.yaml")

    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_packaged_scenarios_can_be_read_and_use_known_steps_only() -> None:
    library = importlib.resources.files("reprieve.scenarios").joinpath("library")
    files = [entry for entry in library.iterdir() if entry.name.endswith(".yaml")]

    scenarios = [parse(file.read_text(encoding="utf-8"), file.name) for file in files]

    assert [f"{scenario.name}.yaml" for scenario in scenarios] == [file.name for file in files]
    assert all(keyword_of(step) in STEP_KINDS for s in scenarios for step in s.steps)

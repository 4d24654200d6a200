"""What cannot be answered is one line that says what is accepted, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.answers.kinds import asked_of, nearest
from reprieve.units.errors import UsageError
from tests.explain.objects import job, pod
from tests.explain.stories import Story, answered


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("joob/train", "no kind 'joob' can be explained; nearest: job, "),
        ("configmap/train", "no kind 'configmap' can be explained; "),
        (
            "pod/",
            "'pod/'; accepted: KIND/NAME or KIND/NAMESPACE/NAME, such as pod/train-3 ",
        ),
        ("pod//b", "'pod//b'; accepted: KIND/NAME"),
        ("pod/a/b/c", "'pod/a/b/c'; accepted: KIND/NAME"),
    ],
)
def test_an_unknown_kind_is_answered_with_the_nearest(asked: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked_of(asked)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "qualified"),
    [
        ("pod/a", "pods"),
        ("PO/a", "pods"),
        ("jobs.batch/a", "jobs.batch"),
        ("pg/a", "podgroups.scheduling.k8s.io"),
        ("podgroups.scheduling.x-k8s.io/a", "podgroups.scheduling.x-k8s.io"),
        ("wl/a", "workloads.kueue.x-k8s.io"),
        ("gpuworkload/a", "gpuworkloads.kaiwo.silogen.ai"),
        ("rayjob/a", "rayjobs.ray.io"),
        ("sts/a", "statefulsets.apps"),
        ("preemption/a", "preemptions.reprieve.dev"),
    ],
)
def test_kinds_have_the_names_that_kubectl_knows(text: str, qualified: str) -> None:
    assert asked_of(text).resources[0].qualified == qualified


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    there = [pod("train-30"), pod("train-31"), pod("web"), job("train-3")]
    with pytest.raises(UsageError) as refused:
        answered(Story("pod/train-3", there))
    assert str(refused.value) == (
        "no Pod 'train-3' in namespace 'team'; nearest: train-31, train-30"
    )


def test_what_may_not_be_read_is_answered_with_the_rule_to_add() -> None:
    with pytest.raises(UsageError) as refused:
        answered(Story("pod/train-3", [pod("train-3")], frozenset({"pods"})))
    assert str(refused.value) == (
        "Pod team/train-3: you may not get pods there; the rule to add: "
        '- {apiGroups: [""], resources: ["pods"], verbs: ["get"]}'
    )


def test_what_may_not_be_listed_is_said_before_the_verdict() -> None:
    found = answered(Story("job/train", [job()], frozenset({"workloads.kueue.x-k8s.io", "pods"})))
    assert found.limits == ["Stated without 2 kinds that you may not read."]
    assert "You may not read pods, workloads.kueue.x-k8s.io." in found.certainty


def test_names_that_begin_alike_are_near_too() -> None:
    assert nearest("train", ["training-of-the-whole-model", "web"]) == (
        "nearest: training-of-the-whole-model"
    )
    assert nearest("x", []) == "there is none"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["job/x", "-o", "xml"], "Error: -o: 'xml'; accepted: text, json, yaml, jsonl\n"),
        (["job/x", "--kubeconfig", "away"], "Cannot connect to host 127.0.0.1:1 "),
        (["job/x", "-f", "-"], "Error: -f is for preemptions; job/x is a Job\n"),
        (["job/x", "--workload", "a/b"], "Error: --workload is for preemptions; job/x is a Job\n"),
        ([], "Error: nothing is named; accepted: KIND/NAME such as pod/train-3, "),
    ],
)
def test_the_command_ends_with_one_line_and_code_2(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "away").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: "
        '{server: "http://127.0.0.1:1"}}], users: [], contexts: [{name: c, context: {cluster: c, '
        "user: u}}]}"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "reprieve", "explain", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1

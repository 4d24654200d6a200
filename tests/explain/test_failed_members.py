"""A gang whose pod failed, as one that its kubelet refuses: what is stated of it and the rest."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.answers.document import Answer, State
from tests.explain.objects import Json, group, job, members, pod
from tests.explain.stories import Story, answered

REFUSED = (
    "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
    "nvidia.com/gpu. Requested: 8, Available: 4, which is unexpected"
)
LACKS = (
    "group train lacks 1 of its minimum of 2 pods: Pod train-1 failed on node n1: "
    f"UnexpectedAdmissionError: {REFUSED}."
)
SPEC = {"schedulingGroup": {"podGroupName": "train"}}


def refused(name: str = "train-1", **facts: Any) -> Json:
    """Return a pod of the gang that the kubelet of its node has refused."""
    made = pod(name, "n1", phase="Failed", spec=SPEC, **facts)
    made["status"] |= {"reason": "UnexpectedAdmissionError", "message": REFUSED}
    return made


def asked(what: str, *objects: Json) -> Answer:
    return answered(Story(what, [group(minimum=2), *objects]))


def row(answer: Answer, name: str) -> str:
    (found,) = (each.text for each in answer.evidence if each.name == name)
    return found


@pytest.mark.parametrize("what", ["podgroup/train", "pod/train-0"])
def test_a_gang_that_runs_without_its_refused_pod_is_stated_to_lack_it(what: str) -> None:
    answer = asked(what, *members(1, nodes=["n2"]), refused())
    assert answer.state is State.RUNS
    assert answer.verdict.partition("; ")[2] == LACKS
    assert row(answer, "group") == "train, 1 pod, 1 with a node, 1 finished or failed, minimum 2"
    assert row(answer, "requests").startswith("1 pod, 8 nvidia.com/gpu")
    (step,) = answer.next_steps
    assert "has no controller" in step.text and step.command == "kubectl -n team delete pod train-1"


def test_the_refused_pod_itself_names_what_to_do() -> None:
    answer = asked("pod/train-1", *members(1, nodes=["n2"]), refused())
    assert answer.verdict == f"Pod team/train-1 failed: {REFUSED}."
    assert [each.command for each in answer.next_steps] == ["kubectl -n team delete pod train-1"]


def test_of_a_pod_with_a_controller_the_controller_is_named() -> None:
    mine = job("train-n1")
    answer = asked("podgroup/train", mine, *members(1, nodes=["n2"]), refused(owner=mine))
    (step,) = answer.next_steps
    assert step.text.startswith("Job train-n1 creates another pod")
    assert step.command == "kubectl -n team describe job train-n1"


def test_a_gang_that_has_another_pod_in_its_place_lacks_none() -> None:
    pods = members(3, nodes=["n2", "n1", "n1"])
    answer = asked("podgroup/train", pods[0], refused(), pods[2])
    assert "lacks" not in answer.verdict and answer.next_steps == []
    assert row(answer, "group") == "train, 2 pods, 2 with a node, 1 finished or failed, minimum 2"


def test_members_that_succeeded_are_not_lacking() -> None:
    pods = members(2, nodes=["n2", "n1"])
    done = pod("train-1", "n1", phase="Succeeded", spec=SPEC)
    assert "lacks" not in asked("podgroup/train", pods[0], done).verdict
    answer = asked("podgroup/train", pods[0], done, refused("train-2"))
    assert "lacks" not in answer.verdict


def test_a_gang_that_waits_for_a_pod_that_failed_states_both() -> None:
    answer = asked("podgroup/train", *members(1), refused())
    assert answer.verdict == "PodGroup team/train waits: 1 of 2 pods exist: 1 is missing."
    assert f"{row(answer, 'failed')}." == LACKS
    assert answer.next_steps[-1].command == "kubectl -n team delete pod train-1"


def test_a_job_with_a_part_of_a_gang_that_waits_counts_the_pods_of_the_others() -> None:
    mine = job("train-n1", pods=1)
    own = pod("train-n1-x7k2p", spec=SPEC, owner=mine)
    answer = asked("job/train-n1", mine, own, *members(1))
    assert "fewer pods than its minimum" not in answer.verdict
    assert row(answer, "group") == "train, 2 pods, 0 with a node, minimum 2"

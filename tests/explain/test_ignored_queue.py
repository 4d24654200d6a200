"""Work that names a LocalQueue and is not queued, as with a kind that is not configured."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.answers.document import Answer
from tests.explain.objects import Json, admission, condition, job, obj, pod, workload
from tests.explain.stories import Story, answered

LABEL = {"kueue.x-k8s.io/queue-name": "gpus"}
IGNORED = "LocalQueue gpus is ignored: no Workload stands for it"


def serving(**facts: Any) -> list[Json]:
    """Return a Deployment with a pod that runs."""
    serve = obj("apps/v1", "Deployment", "serve", spec={"replicas": 1}, status={}, **facts)
    replicas = obj("apps/v1", "ReplicaSet", "serve-576cb9b598", owner=serve, spec={}, status={})
    return [serve, replicas, pod("serve-576cb9b598-7zwkk", "n1", owner=replicas)]


def queue_of(answer: Answer) -> str:
    return next((each.text for each in answer.evidence if each.name == "queue"), "")


def steps(answer: Answer) -> str:
    return " ".join(each.text for each in answer.next_steps)


@pytest.mark.parametrize("what", ["deployment/serve", "pod/serve-576cb9b598-7zwkk"])
def test_work_that_runs_without_the_queue_that_it_names_is_stated_to(what: str) -> None:
    answer = answered(Story(what, serving(labels=LABEL)))
    assert queue_of(answer) == IGNORED
    assert "its kind (Deployment) has to be in `integrations.frameworks`" in steps(answer)


def test_a_pod_that_waits_without_the_queue_that_it_names_is_stated_to() -> None:
    assert queue_of(answered(Story("pod/train", [pod("train", labels=LABEL)]))) == IGNORED


def test_work_that_names_no_queue_has_no_row_of_it() -> None:
    answer = answered(Story("deployment/serve", serving()))
    assert queue_of(answer) == "" and "frameworks" not in steps(answer)


def test_work_that_is_queued_has_its_queue() -> None:
    train = job(labels=LABEL)
    conditions = (condition("QuotaReserved", True), condition("Admitted", True))
    queued = workload(train, *conditions, status=admission())
    answer = answered(Story("job/train", [train, queued, pod("train-0", "n1", owner=train)]))
    assert queue_of(answer).startswith("LocalQueue gpus -> ClusterQueue research")
    assert "frameworks" not in steps(answer)


def test_to_a_reader_without_the_right_to_workloads_no_lack_is_stated() -> None:
    refused = frozenset({"workloads.kueue.x-k8s.io"})
    answer = answered(Story("deployment/serve", serving(labels=LABEL), refused))
    assert queue_of(answer) == ""


@pytest.mark.parametrize(("former", "replicas"), [("3", 3), (None, 1), ("many", 1), ("0", 1)])
def test_work_scaled_to_zero_is_brought_back_to_its_former_size(
    former: str | None, replicas: int
) -> None:
    notes = {} if former is None else {"reprieve.dev/former-replicas": former}
    web = obj("apps/v1", "Deployment", "web", spec={"replicas": 0}, status={}, annotations=notes)
    (step, *_) = answered(Story("deployment/web", [web])).next_steps
    assert f'{{"spec":{{"replicas":{replicas}}}}}' in step.command

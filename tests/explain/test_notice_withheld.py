"""Work that requests notice and is evicted without: why is stated, by the record or to a tenant."""

from __future__ import annotations

import pytest

from reprieve.answers.document import Answer
from tests.explain.objects import Json, disruption, job, pod, record
from tests.explain.stories import Story, answered

RULE = "lower priority"


def preempted(answer: Answer) -> str:
    return next(each.text for each in answer.evidence if each.name == "preempted")


def recorded(reason: str) -> tuple[Json, Json]:
    """Return a Job, and the record of its eviction."""
    train = job()
    of_it = record("scheduling", pod("urgent"), [train], rule=RULE)
    of_it["spec"]["victims"][0] |= {"noticeWithheld": reason} if reason else {}
    return train, of_it


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("NotAllowed", "its queue or priority class allows none"),
        ("NoPatience", "the operator allows no preemptor to wait for one"),
        ("Emergency", "the preemptor has emergency priority and does not wait"),
        ("NotWorthIt", "it had less to save than the wait for it was expected to cost"),
    ],
)
def test_the_record_states_why_work_had_no_notice(reason: str, text: str) -> None:
    train, of_it = recorded(reason)
    assert f"without notice: {text}" in preempted(answered(Story("job/train", [train, of_it])))


def test_work_that_requests_none_is_not_said_to_lack_it() -> None:
    train, of_it = recorded("")
    assert "without notice" not in preempted(answered(Story("job/train", [train, of_it])))


def test_a_tenant_reads_it_in_his_disruption_alone() -> None:
    train = job()
    told = disruption("train", f"owner/{train['metadata']['uid']}", minutes=5, times=1)
    told["spec"]["noticeWithheld"] = "its queue or priority class allows none"
    answer = answered(Story("job/train", [train, told]))
    assert "without notice: its queue or priority class allows none" in preempted(answer)

"""What people are told: every story's answer word for word, and what holds for all of them."""

from __future__ import annotations

import json
import re

import jsonschema_rs
import msgspec
import pytest

from reprieve.answers.document import Answer, State, schema
from reprieve.answers.layout import MOST_EVIDENCE, MOST_LINES, MOST_STEPS
from tests.docs.generated import DOCS
from tests.explain.objects import at, disruption, job, pod
from tests.explain.stories import STORIES, TOLD, Story, answered, text_of

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.mark.parametrize("name", sorted(STORIES))
def test_the_answer_is_what_was_read_and_found_good(name: str) -> None:
    assert text_of(STORIES[name]) == (TOLD / f"{name}.txt").read_text(encoding="utf-8")


def test_no_answer_is_kept_whose_question_is_gone() -> None:
    assert {path.stem for path in TOLD.iterdir()} == set(STORIES)


@pytest.mark.parametrize("name", sorted(set(STORIES) - {"job-with-its-history"}))
def test_an_answer_fits_a_screen_and_names_nobody_by_uid(name: str) -> None:
    lines = text_of(STORIES[name]).splitlines()[1:]
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if _UID.search(line)]
    steps = [line for line in lines if re.match(r"  \d\. ", line)]
    assert len(steps) <= MOST_STEPS
    evidence = [line for line in lines[1:] if line.startswith("  ") and line not in steps]
    assert len(evidence) <= MOST_EVIDENCE + 3 * MOST_STEPS + 3


@pytest.mark.parametrize("name", sorted(STORIES))
def test_the_document_is_as_the_published_schema_says(name: str) -> None:
    published = json.loads((DOCS / "schemas" / "explain.json").read_text(encoding="utf-8"))
    answer = answered(STORIES[name])
    document = msgspec.json.encode(answer)
    jsonschema_rs.validate(published, json.loads(document))
    assert msgspec.json.decode(document, type=Answer) == answer


def test_the_published_schema_is_the_one_of_this_version() -> None:
    published = json.loads((DOCS / "schemas" / "explain.json").read_text(encoding="utf-8"))
    assert published == schema()


def test_the_stories_cover_every_state_but_the_unknown_one() -> None:
    assert {answered(each).state for each in STORIES.values()} == set(State) - {State.UNKNOWN}


def test_a_tenant_is_told_nothing_of_others() -> None:
    found = answered(STORIES["tenant-sees-only-what-is-his"])
    document = msgspec.json.encode(found).decode()
    assert not [word for word in ("rivals", "secret", "preemption/") if word in document]
    assert not _UID.search(document)
    assert found.displaced == []
    assert any("preemptions.reprieve.dev" in each for each in found.certainty)


def test_what_was_refused_before_and_made_since_is_no_refusal() -> None:
    refused = STORIES["job-whose-pods-are-refused"]
    made = {**refused.objects[-1], "reason": "SuccessfulCreate"}
    made["metadata"] = {**made["metadata"], "name": "made-since"}
    made["lastTimestamp"] = at(0.5)
    found = answered(Story(refused.asked, [*refused.objects, made]))
    assert found.state is State.UNKNOWN and "refuses" not in found.verdict


def test_a_displacement_says_when_the_work_was_back_again() -> None:
    mine = job(suspend=True)
    line = f"owner/{mine['metadata']['uid']}"
    told = disruption("train-1", line, minutes=20, times=1, back=5)
    asked = Story("job/train", [mine, told])
    (displaced,) = answered(asked).displaced
    assert displaced.back_at == told["status"]["backAt"]
    assert "back again" in text_of(asked)


def test_a_job_near_its_end_lacks_no_pods() -> None:
    mine = job(pods=4, status={"succeeded": 2})
    pods = [pod(f"train-{n}", f"gpu-{n}", owner=mine) for n in range(2)]
    event = STORIES["job-of-whose-pods-some-are-refused"].objects[-1]
    assert event["reason"] == "FailedCreate"
    told = answered(Story("job/train", [mine, *pods, event]))
    assert "refuses" not in told.verdict
    assert not told.next_steps

"""What people are told about plans: every story's answer word for word, and what it rests on."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.answers.layout import MOST_LINES
from reprieve.engine.diagnosis.estimates import Basis, Bound, Estimate
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.whatif.questions.answer import Fragile, Outcome, Verdict
from reprieve.whatif.questions.document import plan_document
from tests.whatif.plan_stories import GPU, STORIES, TOLD, answered, text_of

PUBLISHED = Path(__file__).parents[2] / "docs" / "plan.schema.json"


def outcome(name: str) -> Outcome:
    (found,) = answered(name).outcomes
    return found


@pytest.mark.parametrize("name", sorted(STORIES))
def test_the_answer_is_what_was_read_and_found_good(name: str) -> None:
    assert text_of(name) == (TOLD / f"{name}.txt").read_text(encoding="utf-8")


def test_no_answer_is_kept_whose_question_is_gone() -> None:
    assert {path.stem for path in TOLD.iterdir()} == set(STORIES)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_an_answer_fits_a_screen_and_its_document_the_published_schema(name: str) -> None:
    lines = text_of(name).splitlines()[1:]
    assert len(lines) <= MOST_LINES
    assert len(lines[0]) <= 120 and max(map(len, lines[1:])) <= 100
    document = msgspec.json.encode(plan_document(answered(name), ["quota"]))
    jsonschema_rs.validate(json.loads(PUBLISHED.read_text()), json.loads(document))


def test_a_document_names_the_steps_of_the_text_and_as_many_pods_as_were_submitted() -> None:
    waiting = 0
    for name in STORIES:
        text = " ".join(text_of(name).split())
        for found in plan_document(answered(name), ["quota"]).submitted:
            assert found.pods_submitted >= max(found.pods, found.placed)
            assert all(" ".join(step.split()) in text for step in found.steps)
            waiting += bool(found.steps)
            if found.verdict in (Verdict.WAITS, Verdict.NEVER_FITS):
                assert found.pods_submitted > 0 and found.steps
    assert waiting >= 5


def test_the_stories_cover_every_verdict_and_every_basis() -> None:
    outcomes = [outcome(name) for name in STORIES]
    assert {each.verdict for each in outcomes} == set(Verdict)
    found = {each.estimate.basis for each in outcomes if each.estimate is not None}
    assert found >= {None, Basis.LEAVING, Basis.RUN_TIME, Basis.MEASURED}


@pytest.mark.parametrize(
    ("name", "less", "becomes"),
    [
        ("pod-that-starts-narrowly", 2, Verdict.WAITS),
        ("pod-that-starts-and-others-make-way-with-less-free", 3, Verdict.STARTS_WITH_VICTIMS),
    ],
)
def test_fragile_is_the_least_that_changes_the_answer(
    name: str, less: int, becomes: Verdict
) -> None:
    """Seven and two of eight are taken: of six free on the node five, or four, are wanted."""
    assert answered(name).fragile == Fragile(GPU, less, "Node", "node-1", "", becomes)


def test_what_could_run_elsewhere_is_not_fragile() -> None:
    assert answered("pod-that-starts").fragile is None
    assert answered("pod-that-waits-without-an-estimate").fragile is None


def test_a_declared_run_time_bounds_the_start_with_the_grace_period() -> None:
    waits = outcome("pod-that-waits-until-a-declared-run-time-ends").estimate
    assert waits is not None and waits.at is not None
    assert (waits.basis, waits.holder) == (Basis.RUN_TIME, "Pod team/hour")
    at = answered("pod-that-waits-until-a-declared-run-time-ends").snapshot.at
    assert HOUR - MINUTE < waits.at - at <= HOUR + 30 * SECOND
    queued = outcome("job-that-waits-until-an-execution-time-ends").estimate
    assert queued is not None
    assert (queued.holder, queued.field) == ("Job team/holds", "maximumExecutionTimeSeconds")


def test_of_two_ends_of_which_both_are_needed_the_later_is_told() -> None:
    found = outcome("job-that-waits-for-two-run-times").estimate
    assert found is not None
    assert (found.basis, found.holder) == (Basis.RUN_TIME, "Pod team/day")


def test_29_similar_waits_bound_the_start_and_28_or_others_do_not() -> None:
    said = outcome("job-that-waits-as-similar-ones-have").estimate
    # Of 31 the longest: one still runs without having waited, and is none of them.
    assert said == Estimate(
        Basis.MEASURED, measured=Bound(31 * MINUTE, 31), where="in ClusterQueue cq"
    )
    few = outcome("job-of-which-too-few-have-waited").estimate
    assert few is not None
    assert (few.basis, few.measured) == (None, Bound(None, 28))


def test_those_who_make_way_have_their_grace_period() -> None:
    found = outcome("pod-for-which-somebody-makes-way").estimate
    assert found is not None and found.at is not None
    at = answered("pod-for-which-somebody-makes-way").snapshot.at
    assert 30 * SECOND <= Nanos(found.at) - at <= 35 * SECOND


def test_work_that_did_not_opt_in_is_told_so_beside_the_reason() -> None:
    found = outcome("pod-that-did-not-opt-in-itself")
    assert found.verdict is Verdict.WAITS and found.reason == Reason.FULL
    assert found.idle is not None and found.idle.reason is Reason.NOT_OPTED_IN


def test_without_the_idle_plane_nothing_is_said_of_it() -> None:
    assert outcome("pod-that-waits-without-an-estimate").idle is None


def test_instants_of_estimates_are_in_the_document() -> None:
    answer = answered("pod-that-waits-until-a-declared-run-time-ends")
    (told,) = plan_document(answer, ["scheduling"]).submitted
    assert told.estimate is not None
    assert parse_instant(told.estimate.not_later_than) > answer.snapshot.at
    assert (told.estimate.basis, told.estimate.within_seconds) == ("DeclaredRunTime", None)
    (other,) = plan_document(answered("job-that-waits-as-similar-ones-have"), ["quota"]).submitted
    assert other.estimate is not None
    assert (other.estimate.within_seconds, other.estimate.quantile, other.estimate.confidence) == (
        31 * 60,
        0.9,
        0.95,
    )

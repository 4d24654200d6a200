"""Every reason has its sentence, a next step, and a place in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.engine.diagnosis.model import Change, Diagnosis, Fix
from reprieve.engine.diagnosis.reasons import REASONS, Reason
from reprieve.engine.plan import Plane
from reprieve.wording.changes import Written, fix_text
from reprieve.wording.diagnosis import (
    anchor,
    deficit_text,
    next_step,
    sentence,
    waiting_event,
    words,
)

ROOT = Path(__file__).parents[2]
ALL = [(plane, reason) for plane, reasons in REASONS.items() for reason in reasons]


@pytest.mark.parametrize(("plane", "reason"), ALL)
def test_a_reason_has_a_sentence_that_holds_without_values(plane: Plane, reason: Reason) -> None:
    said = sentence(Diagnosis(plane, reason))
    assert said == words(plane, reason).sentence
    assert not said.endswith(".")
    assert next_step(Diagnosis(plane, reason)).endswith(".")


@pytest.mark.parametrize(("plane", "reason"), ALL)
def test_the_documentation_has_the_place_that_a_reason_names(plane: Plane, reason: Reason) -> None:
    page, _, name = anchor(plane, reason).partition("#")
    assert f'<a id="{name}"></a>' in (ROOT / page).read_text(encoding="utf-8")


def test_a_sentence_says_only_what_has_all_its_values() -> None:
    known = {"present": "2"}
    short = Diagnosis(Plane.SCHEDULING, Reason.GROUP_INCOMPLETE, known)
    assert sentence(short) == words(short.plane, short.reason).sentence
    whole = Diagnosis(Plane.SCHEDULING, Reason.GROUP_INCOMPLETE, {**known, "minimum": "4"})
    assert sentence(whole) == "2 of 4 pods exist: 2 are missing"


def test_braces_in_a_value_are_told_as_they_are() -> None:
    odd = Diagnosis(Plane.SCHEDULING, Reason.NOT_UNIFORM, {"why": "{present} {0}"})
    assert sentence(odd).endswith(": {present} {0}")


def test_counts_are_told_largest_first() -> None:
    filters = {"TaintToleration": 2, "NodeAffinity": 3, "NodeName": 2}
    found = Diagnosis(Plane.SCHEDULING, Reason.NO_NODE_MATCHES, {"nodes": "7"}, filters=filters)
    end = "of 7 nodes none does; nodes refused: NodeAffinity 3, NodeName 2, TaintToleration 2"
    assert sentence(found).endswith(end)


def test_amounts_are_as_people_write_them() -> None:
    lacking = {("", "cpu"): 4_000, ("rack-1", "nvidia.com/gpu"): 2, ("", "memory"): 16 * 2**30}
    assert deficit_text(lacking) == "4 cpu, 16Gi memory, 2 nvidia.com/gpu in rack-1"


def test_a_change_that_helps_is_the_next_step() -> None:
    fewer = Fix(Change.FEWER_PODS, "spec.minCount", "8", "6", victims=1)
    assert (
        fix_text(fewer)
        == "With spec.minCount 6 instead of 8 it starts; one other is preempted then."
    )
    less = Fix(Change.WITHOUT_CONSTRAINT, "spec.nodeSelector", "zone=a", "")
    assert fix_text(less) == "Without spec.nodeSelector (zone=a) it starts."
    written = [Written("spec.parallelism", "8", "6"), Written("spec.selector[a/b]", "c", "")]
    assert fix_text(fewer, written) == (
        "With spec.parallelism 6 instead of 8 and without spec.selector[a/b] (c) it starts; one "
        "other is preempted then."
    )
    added = [Written(f"spec.tolerations[{n}]", "", "any") for n in range(4)]
    assert fix_text(less, added).startswith("With spec.tolerations[0] any and with ")
    assert fix_text(less, added).endswith("any and 2 more such fields it starts.")
    found = Diagnosis(Plane.SCHEDULING, Reason.FULL, fixes=(fewer, less))
    assert next_step(found) == fix_text(fewer)


def test_an_event_begins_with_the_word_of_the_reason() -> None:
    text = waiting_event(Diagnosis(Plane.SCHEDULING, Reason.GROUP_MISSING, {"group": "a" * 2_000}))
    assert (text.type, text.reason) == ("Normal", "Waiting")
    assert text.message.startswith("GroupMissing: It names a pod group")
    assert len(text.message) <= 1_024

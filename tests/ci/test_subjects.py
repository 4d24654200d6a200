"""`.ci/subjects.py` holds subjects of commits to an area, 72 characters and the field's terms."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("subjects", ROOT / ".ci" / "subjects.py")
assert _SPEC is not None and _SPEC.loader is not None
subjects = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(subjects)
WORDS = subjects.forbidden((ROOT / "docs" / "words.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "subject", ["quota: bound the wait for saves", "kubelocal, docs: name `take` of a store"]
)
def test_a_subject_with_an_area_in_the_fields_terms_is_accepted(subject: str) -> None:
    assert subjects.faults(subject, WORDS) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("x", "no area"),
        ("Bound the wait for saves", "no area"),
        ("quota: tell what changed", "tell"),
        (f"quota: {'bound ' * 12}the wait", "at most 72"),
    ],
)
def test_other_subjects_are_refused_with_the_reason(subject: str, fault: str) -> None:
    assert any(fault in each for each in subjects.faults(subject, WORDS))

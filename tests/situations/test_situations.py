"""What people are told in each situation holds what an expert would say, and is as it was read."""

from __future__ import annotations

import pytest

from reprieve.answers.layout import MOST_LINES
from tests.situations.asked import SITUATIONS, text_of, told
from tests.situations.write import MODULES, TOLD, names_of
from tests.tiers import first_of

_ALL = sorted(SITUATIONS)
#: Every third situation stays in the README's line.
NAMES = first_of([*_ALL[::3], *_ALL[1::3], *_ALL[2::3]], count=len(_ALL[::3]))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _golden() -> dict[str, str]:
    found = {}
    for path in TOLD.iterdir():
        for part in path.read_text(encoding="utf-8").split("=== ")[1:]:
            name, _, rest = part.partition("\n")
            found[name] = f"=== {name}\n{rest}".rstrip("\n")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_both_answers_hold_what_an_expert_would_say(name: str) -> None:
    situation = SITUATIONS[name]()
    explain, plan = map(_flat, told(name))
    for phrase in (*situation.expects, *situation.explain_expects):
        assert phrase in explain
    if situation.plans:
        for phrase in (*situation.expects, *situation.plan_expects):
            assert phrase in plan
    for phrase in situation.never:
        assert phrase not in explain and phrase not in plan


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_what_was_read_and_found_good(name: str) -> None:
    assert text_of(name).rstrip("\n") == _golden()[name]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_fits_a_screen(name: str) -> None:
    for text in filter(None, told(name)):
        lines = text.splitlines()[1:]
        assert len(lines) <= MOST_LINES
        assert " ..." not in lines[0], "the cause is never cut"


def test_no_answer_is_kept_whose_situation_is_gone() -> None:
    assert set(_golden()) == set(SITUATIONS)
    assert {name for module in MODULES for name in names_of(module.__name__)} == set(SITUATIONS)

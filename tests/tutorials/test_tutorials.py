"""The tutorials do what they say: what is printed is what a reader sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.tutorials.play import FOLDER, play, playground, steps

TUTORIALS: Final = (
    "always",
    "fair-sharing",
    "gangs",
    "idle",
    "koordinator-jobs",
    "notebooks",
    "notice",
    "quotas",
    "topology",
    "whole-gangs",
)


@pytest.mark.parametrize("name", TUTORIALS)
async def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    start, following = steps((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert any(step.expected for step in following)
    async with playground(start, tmp_path) as environment:
        for step in following:
            await play(step, environment, tmp_path)


def test_every_tutorial_is_played() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == list(TUTORIALS)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_reader_is_told_where_the_command_is_and_how_long_outputs_take(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    path, _, after = text.partition('export PATH="$PWD/.venv/bin:$PATH"')
    assert after and "\nreprieve " not in path, "the command is called before it is on the path"
    assert re.search(r"run the command's last line again some\s+ten\s+seconds later", after)


def test_tutorials_are_listed_where_people_begin() -> None:
    """In the README, on the first page of the documents, and in their table of contents."""
    root = FOLDER.parents[1]
    for page, folder in (
        ("README.md", "docs/tutorials"),
        ("docs/index.md", "tutorials"),
        ("mkdocs.yml", "tutorials"),
    ):
        text = (root / page).read_text(encoding="utf-8")
        assert [name for name in TUTORIALS if f"{folder}/{name}.md" not in text] == [], page

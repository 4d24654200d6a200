"""The tutorials do what they say: what is printed is what a reader sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tutorials.play import FOLDER, play, playground, steps


@pytest.mark.parametrize("name", ["idle", "gangs", "quotas"])
async def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    start, following = steps((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    assert any(step.expected for step in following)
    async with playground(start, tmp_path) as environment:
        for step in following:
            await play(step, environment, tmp_path)


def test_every_tutorial_is_played() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"idle", "gangs", "quotas"}

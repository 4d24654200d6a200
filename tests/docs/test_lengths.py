"""Pages that people read from top to bottom stay short."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def words(text: str) -> int:
    """Return the number of words of a page; the lines of tables do not count."""
    return len([each for each in text.split() if each.strip("|-")])


@pytest.mark.parametrize(
    ("page", "most"), [("docs/limits.md", 1500), ("CONTRIBUTING.md", 1500), ("README.md", 700)]
)
def test_a_page_has_no_more_words_than_its_readers_have_patience_for(page: str, most: int) -> None:
    assert words((ROOT / page).read_text(encoding="utf-8")) <= most


def test_the_changelog_of_a_release_has_at_most_eighty_lines() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = [each.splitlines() for each in text.split("\n## ")[1:]]
    assert releases
    assert [each[0] for each in releases if len(each) > 80] == []


def test_the_page_of_limits_links_each_page_of_details() -> None:
    text = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    details = [path.name for path in (ROOT / "docs/limits").glob("*.md")]
    assert len(details) > 5
    assert [each for each in details if f"(limits/{each})" not in text] == []

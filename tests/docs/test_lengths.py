"""Pages that people read from top to bottom stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Pages in which one looks something up, whose length is that of their subject.
LOOKED_UP = ("spec/", "reference/", "filters.md")


def words(text: str) -> int:
    """Return the number of words of a page, those of its tables' cells included."""
    return len([each for each in text.split() if each.strip("|-")])


def prose(text: str) -> int:
    """Return the number of words of a page without its tables and its code."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return words("\n".join(line for line in plain.splitlines() if not line.startswith("|")))


@pytest.mark.parametrize(
    ("page", "most"), [("docs/limits.md", 1500), ("CONTRIBUTING.md", 1500), ("README.md", 700)]
)
def test_a_page_has_no_more_words_than_its_readers_have_patience_for(page: str, most: int) -> None:
    assert words((ROOT / page).read_text(encoding="utf-8")) <= most


def test_a_page_of_the_site_has_at_most_1200_words_besides_tables_and_code() -> None:
    pages = {str(path.relative_to(DOCS)): path for path in DOCS.rglob("*.md")}
    found = {
        name: prose(path.read_text(encoding="utf-8"))
        for name, path in pages.items()
        if not name.startswith(LOOKED_UP)
    }
    assert len(found) > 100
    assert {name: n for name, n in found.items() if n > 1200} == {}


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

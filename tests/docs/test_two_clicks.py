"""A newcomer finds an answer within two links from the first page, by links in the texts alone.

Pages of one object each (an alert, a kind, a study) and those for developers are one link behind
their overview.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
#: Folders whose pages are behind an overview, and pages for developers.
_BEHIND: Final = (
    *("benchmarks/", "studies/", "reliability/", "runbooks/", "reference/", "spec/", "design/"),
    *("security/", "limits/", "operations/", "quota/", "harm-budgets-", "notice-", "disruptions/"),
    *("filters.md", "testing.md", "words.md", "dependencies.md", "embedded-cluster.md"),
    "scheduling/trees.md",
)
_OVERVIEWS: Final = {
    *("benchmarks.md", "studies.md", "reliability.md", "runbooks/README.md", "reference/index.md"),
    *("reference/commands.md", "security.md", "limits.md", "operations.md", "quota.md"),
    *("harm-budgets.md", "notice.md", "disruptions.md", "quota/troubleshooting.md"),
}


def _linked(page: str) -> set[str]:
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = {
        ((DOCS / page).parent / target).resolve()
        for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text)
    }
    return {str(t.relative_to(DOCS.resolve())) for t in targets if DOCS.resolve() in t.parents}


def test_each_page_that_answers_a_newcomer_is_within_two_links_of_the_first_page() -> None:
    first = _linked("index.md")
    within = first.union(*map(_linked, first))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    wanted = {page for page in pages if not page.startswith(_BEHIND)} | _OVERVIEWS
    assert len(wanted) > 60
    assert sorted(wanted - within - {"index.md"}) == []


def test_each_question_has_a_link_to_its_answer() -> None:
    rows = re.findall(r"^\| (?!question|---)([^|]+) \| (.+) \|$", _questions(), re.MULTILINE)
    assert len(rows) > 30
    assert [question for question, answer in rows if "](" not in answer] == []


def _questions() -> str:
    return (DOCS / "questions.md").read_text(encoding="utf-8")

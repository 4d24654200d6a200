"""The tables of the documents are those of the code, and links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.generated import DOCS, FOLDERS, TABLES, filled, tables_in
from tests.docs.reference_pages import REFERENCE, reference_pages

ROOT = DOCS.parent
DOCUMENTS = sorted(document for folder in FOLDERS for document in folder.glob("*.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_those_of_the_code(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert filled(document) == text, "run: .venv/bin/uv run python -m tests.docs.generated"


def test_every_table_stands_in_a_document() -> None:
    found = [name for doc in DOCUMENTS for name in tables_in(doc.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(TABLES)


def test_the_readme_has_one_line_each_for_the_main_job_and_the_tests() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    set_up = "python3 -m venv .venv && .venv/bin/pip install -q uv && .venv/bin/uv run "
    assert [line for line in lines if line.startswith("python3")] == [
        f"{set_up}reprieve up",
        f"{set_up}pytest",
    ]


def test_reference_pages_are_those_of_the_definitions_and_the_commands() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")}
    pages = reference_pages()
    assert len(pages) > 15
    assert all(len(text.splitlines()) > 10 for text in pages.values())
    assert written == pages, "run: .venv/bin/uv run python -m tests.docs.generated"

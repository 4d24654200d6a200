"""Pages of the documents, and their tables, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"


def topic(name: str) -> str:
    """Return the text of the page `name` and of the pages of its folder, in name order."""
    pages = [DOCS / f"{name}.md", *sorted((DOCS / name).glob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading is `heading`, without code marks."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return found
